"""A function of the model language, and the data that a program has at hand, as a model to train."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

from amphw.data.cache import DataError
from amphw.frontend import Compiled, Spec, compile
from amphw.host.config import RunConfig
from amphw.ir.told import losses
from amphw.library.data import Data, Picked, Stream, data_set, split
from amphw.models.base import Instances, Remembered
from amphw.models.plain import CompiledModel, NoSettings

KEPT = 200_000
"""Instances of a data set that are kept encoded; what there are more of is encoded in every epoch."""


class FunctionModel(CompiledModel[NoSettings]):
    """A compiled function; `give` gives it data to train on, which one that was loaded need not have."""

    summary, config = "a function of the model language", NoSettings
    defaults = {"update": {"optimizer": "adam", "lr": 0.003, "min_update_interval": 32}}
    momentum = {"update": {"optimizer": "momentum", "lr": 0.01, "min_update_interval": 32}}

    def __init__(self, compiled: Compiled) -> None:
        self.name = compiled.graph.name  # type: ignore[misc]  # of this model, not of its class
        self._made = compiled
        if self.loss_node not in (found := losses(compiled.graph)):
            self.loss_node = next(iter(found))  # type: ignore[misc]  # of this model, not of its class
        self._training: Remembered | Stream | None = None
        self._validation: Remembered | None = None

    @classmethod
    def of(cls, function: Any, spec: Spec | None) -> FunctionModel:
        """function: of the model language, compiled or not. Raises DataError where a specification is missing
        or would be a second one, and what `compile` raises."""
        if isinstance(function, Compiled):
            if spec is not None and spec is not function.spec:
                raise DataError("the model is compiled, with a specification of its own; leave spec= out")
            return cls(function)
        if not callable(function):
            raise DataError(
                f"the model is {function!r}; give a function of the model language, what fe.compile made of "
                "one, the name of a model, or a file with one"
            )
        if spec is None:
            raise DataError(
                "what do instances look like? Give spec=, such as "
                "spec=fe.Record(tokens=fe.Sequence(fe.Int(100), most=50), label=fe.Int(2))"
            )
        return cls(compile(function, spec))

    def give(self, data: Data, valid: float | Data | None, cfg: RunConfig[Any]) -> None:
        """What to train on, and to validate on: data of their own, a share of these, or None.

        Raises DataError for what is no data, and InstanceError where the first of either does not fit.
        """
        found, stream = data_set(data), None
        held: Sequence[Any] = ()
        if found is None:
            if not cfg.train.train_instances:
                raise DataError(
                    "the data have no length: they are a stream, and what an epoch of it is has to be said; "
                    "give train_instances=N"
                )
            stream = Stream(data, self._made.encode)  # type: ignore[arg-type]  # with columns it has a length
        share = _share(valid)
        if share is not None:
            if not 0 < share < 1:
                raise DataError(f"valid is {share:g}; give a share above 0 and below 1, instances, or None")
            if stream is not None:
                held = stream.first(max(1, round(share * cfg.train.train_instances)))
            elif found is not None:
                found, held = split(found, share, cfg.train.seed)
        elif valid is not None:
            given = data_set(valid)
            if given is None:
                if not cfg.train.valid_instances:
                    raise DataError(
                        "what to validate on has no length; give valid_instances=N, as many as are taken"
                    )
                given = Stream(valid, self._made.encode).first(cfg.train.valid_instances)  # type: ignore[arg-type]
            held = given
        self.validates = valid is not None
        self._training = stream or self._encoded(found if found is not None else ())
        self._validation = self._encoded(held)
        for kept in (self._training, self._validation):
            if isinstance(kept, Remembered) and len(kept):
                kept[0]  # what fits nowhere is told before a run begins

    def _encoded(self, plain: Sequence[Any]) -> Remembered:
        number = plain.number if isinstance(plain, Picked) else int
        return Remembered(len(plain), lambda i: self._made.encode(plain[i], number(i)), KEPT)

    def compiled(self, cfg: NoSettings) -> Compiled:
        return self._made

    def prepare(self, cfg: NoSettings, seed: int) -> None:
        """The data are there."""

    def training(self, cfg: NoSettings, seed: int, epoch: int, limit: int = 0) -> Any:
        """All of a data set, shuffled in every epoch; the next part of a stream."""
        if isinstance(self._training, Stream):
            return self._training.epoch(epoch, limit)
        return self._given(self._training).epoch(seed, epoch, limit)

    def validation(self, cfg: NoSettings, seed: int, limit: int = 0) -> Instances:
        return self._given(self._validation).in_order(limit)

    def _given(self, data: Remembered | None) -> Remembered:
        if data is None:
            raise DataError("this model was loaded without data; give it instances")
        return data


def _share(valid: Any) -> float | None:
    """A number, Python's or numpy's; None for instances, and for nothing."""
    return float(valid) if isinstance(valid, Real) else None
