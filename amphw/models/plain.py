"""A model written in the frontend, whose data are plain Python: what is left to write is the model itself.

>>> class Parity(PlainModel[NoSettings]):
...     name, summary, config = "parity", "whether a list of zeros and ones has an odd sum", NoSettings
...     def write(self, cfg): ...
...     def data(self, cfg, seed, part): ...
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from amphw.frontend import Compiled, Spec, compile
from amphw.ir.device import Report
from amphw.ir.errors import InstanceError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.nodes import Loss, Node
from amphw.ir.told import FIGURES, losses, predictions
from amphw.models import nested_json
from amphw.models.base import C, Instances, Model, ModelError, Remembered

Part = Literal["train", "valid"]


@dataclass(frozen=True)
class NoSettings:
    """Section [model] of a model without any."""


class CompiledModel(Model[C]):
    """What the frontend has compiled, whose instances are plain Python.

    Without `metrics` and `metric` of its own, its figures are the loss and, where the loss reports them,
    accuracy or error, of which the last is what `train.target` is about.
    """

    @property
    def metrics(self) -> tuple[str, ...]:  # type: ignore[override]  # a class may still say it
        """The figures that the loss reports."""
        return _figures(self.graph(self.config()).nodes.get(self.loss_node))

    @property
    def beside(self) -> Mapping[str, Sequence[str]]:  # type: ignore[override]
        """The same of all other losses."""
        found = losses(self.graph(self.config()))
        return {name: _figures(node) for name, node in found.items() if name != self.loss_node}

    @property
    def metric(self) -> str:  # type: ignore[override]
        """The figure that a target is about."""
        return self.metrics[-1]

    def graph(self, cfg: C) -> Graph:
        return self.compiled(cfg).graph

    @abstractmethod
    def compiled(self, cfg: C) -> Compiled:
        """The graph with its encoder; made once for each configuration."""

    def parse(self, cfg: C, text: str) -> Instance:
        """An instance as JSON; what is to be predicted may be anything that fits."""
        try:
            return self.compiled(cfg).encode(nested_json.loads(text), answered=False)
        except json.JSONDecodeError as error:
            raise ModelError(f"the line is not JSON: {error}") from None
        except InstanceError as error:
            raise ModelError(str(error)) from None

    def explain(self, cfg: C, instance: Instance, report: Report) -> dict[str, Any]:
        """What is reported that is no figure, row by row: a number, or a list where there are several."""
        told = predictions(self.graph(cfg), self.loss_node, report.outputs)
        return {k: (v if v.shape[1] > 1 else v[:, 0]).tolist() for k, v in told.items()}


class PlainModel(CompiledModel[C]):
    """A function of the frontend, the specification of its instances, and where they come from."""

    @abstractmethod
    def write(self, cfg: C) -> tuple[Callable[[Any], None], Spec]:
        """The model's function, and what its instances look like."""

    @abstractmethod
    def data(self, cfg: C, seed: int, part: Part) -> Sequence[Any]:
        """Plain instances to train or to validate on; called once for each configuration and seed."""

    def compiled(self, cfg: C) -> Compiled:
        """The graph with its encoder; made once for each configuration."""
        return _compiled(self, cfg)

    def prepare(self, cfg: C, seed: int) -> None:
        _encoded(self, cfg, seed, "train")
        _encoded(self, cfg, seed, "valid")

    def training(self, cfg: C, seed: int, epoch: int, limit: int = 0) -> Instances:
        """All of them, shuffled in every epoch."""
        return _encoded(self, cfg, seed, "train").epoch(seed, epoch, limit)

    def validation(self, cfg: C, seed: int, limit: int = 0) -> Instances:
        return _encoded(self, cfg, seed, "valid").in_order(limit)


def _figures(loss: Node | None) -> tuple[str, ...]:
    """What of a loss means something when it is averaged over rows."""
    reported = loss.names if isinstance(loss, Loss) else ()
    return tuple(name for name in FIGURES if name in reported or name == "loss")


@lru_cache(maxsize=16)
def _compiled(model: PlainModel[Any], cfg: Any) -> Compiled:
    written = model.write(cfg)
    if not isinstance(written, tuple) or len(written) != 2:
        raise ModelError(f"{type(model).__name__}.write returns the model's function and its specification")
    function, spec = written
    return compile(function, spec, model.name)


@lru_cache(maxsize=8)
def _encoded(model: PlainModel[Any], cfg: Any, seed: int, part: Part) -> Remembered:
    plain = model.data(cfg, seed, part)
    plain = plain if hasattr(plain, "__getitem__") else list(plain)
    encode = model.compiled(cfg).encode
    return Remembered(len(plain), lambda i: encode(plain[i], i))
