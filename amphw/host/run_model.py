"""What the host needs of a model. `amphw.models.base.Model` fits; the host imports no models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from amphw.host.config import RunConfig
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.start import Values


class InstanceSet(Protocol):
    """Instances, built when they are asked for. size: what they hold in all, as `RunModel.size` counts it."""

    @property
    def size(self) -> int: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Instance: ...


class EndOfData(Exception):
    """There are no more instances. Sets that may end raise it; it ends an epoch, and no run."""


class MayEnd:
    """A set whose length is a guess until its end is met, where `instances[place]` raises EndOfData; from
    then on it is what it has had."""


class RunModel(Protocol):
    """metric: the validation metric of `train.target`. metrics: what `loss_node` reports, averaged by row.
    counted: what `size` counts, in the plural. validates: whether there are instances to validate on; of a
    model without any nothing is known but what training says. beside: other losses, and what of theirs is
    averaged."""

    @property
    def name(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def metrics(self) -> Sequence[str]: ...
    @property
    def loss_node(self) -> str: ...
    @property
    def counted(self) -> str: ...
    @property
    def validates(self) -> bool: ...
    @property
    def beside(self) -> Mapping[str, Sequence[str]]: ...

    def graph(self, cfg: Any, /) -> Graph: ...
    def prepare(self, cfg: Any, seed: int, /) -> None: ...
    def training(self, cfg: Any, seed: int, epoch: int, limit: int = 0, /) -> InstanceSet: ...
    def validation(self, cfg: Any, seed: int, limit: int = 0, /) -> InstanceSet: ...
    def size(self, instance: Instance, /) -> int: ...
    def notes(self, cfg: Any, /) -> Sequence[str]: ...
    def initial(self, cfg: Any, /) -> Values: ...


def chosen_instances(model: RunModel, cfg: RunConfig[Any], count: int) -> list[Instance]:
    """The first `count` training instances of the first epoch, numbered."""
    everything = model.training(cfg.model, cfg.train.seed, 1, cfg.train.train_instances)
    chosen = [everything[i] for i in range(min(count, len(everything)))]
    for number, instance in enumerate(chosen):
        instance.number = number
    return chosen
