"""What a model is to the rest of amphw: a configuration, a graph, its data, and how a prediction reads.

A model knows the IR and its data set; it knows nothing of devices, run folders or the command line. Its
configuration is a frozen dataclass with plain defaults; `knob` adds the help text that `--help` and the
resolved configuration show. Limits are checked in its `__post_init__`, which raises ValueError.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar, overload

import numpy as np

from amphw.ir.device import Capabilities, Report
from amphw.ir.errors import AmphwError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.start import Values

C = TypeVar("C")

LITTLE = 1 << 20
"""Bytes. A device with less room than this for an instance is one for small instances."""


class ModelError(AmphwError):
    """There is no such model, or a text is not an input of the model. The message says what is expected."""


def knob(default: Any, help: str, aliases: tuple[str, ...] = ()) -> Any:
    """A field of a model's configuration: its default, a help text, and other names accepted for it."""
    return field(default=default, metadata={"help": help, "aliases": aliases})


def at_least(minimum: int, **values: int | None) -> None:
    """Raise ValueError naming the first of `values` that is below `minimum`; None is allowed."""
    for name, value in values.items():
        if value is not None and value < minimum:
            raise ValueError(f"{name} is {value}, expected an integer of {minimum} or more.")


def rate(**values: float) -> None:
    """Raise ValueError naming the first of `values` that is no rate of dropout."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} is {value}, expected a number from 0 to below 1.")


class Instances(Sequence[Instance]):
    """A sequence whose instances are built when they are asked for, so that an epoch costs no memory.

    size: what they hold in all, as `Model.size` counts it; without it, one each.
    """

    def __init__(self, count: int, build: Callable[[int], Instance], size: int | None = None) -> None:
        self._count, self._build = count, build
        self.size = count if size is None else size

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Instance: ...
    @overload
    def __getitem__(self, index: slice) -> list[Instance]: ...
    def __getitem__(self, index: int | slice) -> Instance | list[Instance]:
        if isinstance(index, slice):
            return [self._build(i) for i in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(f"instance {index} of {self._count}")
        return self._build(index % self._count)


class Remembered:
    """Instances that are encoded when they are first asked for, and then kept: encoding takes longer than
    a copy. Each time it is a new instance, with the same tables, since whoever pumps it gives it a number.

    most: instances that are kept; the others are encoded each time.
    """

    def __init__(self, count: int, build: Callable[[int], Instance], most: int | None = None) -> None:
        self._count, self._build = count, build
        self._most = count if most is None else most
        self._known: dict[int, Instance] = {}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: int) -> Instance:
        number = int(i)
        known = self._known.get(number)
        if known is None:
            known = self._build(number)
            if len(self._known) >= self._most:
                return known
            self._known[number] = known
        return replace(known)

    def epoch(self, seed: int, epoch: int, limit: int = 0) -> Instances:
        """All of them, or the first `limit`, in an order that is a function of (seed, epoch)."""
        order = np.random.default_rng([seed, epoch]).permutation(limited(len(self), limit))
        return Instances(len(order), lambda i: self[order[i]])

    def in_order(self, limit: int = 0) -> Instances:
        """All of them, or the first `limit`."""
        return Instances(limited(len(self), limit), self.__getitem__)


class Model(ABC, Generic[C]):
    """One model with its data set.

    name: how the command line calls it. summary: one sentence. config: the dataclass of `[model]`.
    defaults: recommended settings, nested like the sections of a configuration file. momentum: those beside
    them for a device that has no optimiser of theirs, with momentum, where that has been tried; lean: for one
    that has little room for an instance.
    metric: the validation metric that `train.target` is about. loss_node: the Loss that reports it.
    metrics: names that the Loss reports and whose mean over rows is a figure; its other names are values for
    `explain`. counted: what throughput counts, in the plural ("sequences"). validates: whether it has
    instances to validate on. beside: other losses, and names of theirs that are figures, too.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    config: type[C]
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    momentum: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    lean: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    metric: ClassVar[str] = "accuracy"
    loss_node: ClassVar[str] = "loss"
    metrics: ClassVar[tuple[str, ...]] = ("loss", "accuracy")
    counted: ClassVar[str] = "instances"
    validates: bool = True
    beside: Mapping[str, Sequence[str]] = MappingProxyType({})

    def recommended(self, able: Capabilities) -> Mapping[str, Mapping[str, Any]]:
        """Its settings for a device."""
        found = {name: dict(given) for name, given in self.defaults.items()}
        optimizer = found.get("update", {}).get("optimizer")
        beside = [
            self.momentum if optimizer not in (None, *able.optimizers) else {},
            self.lean if able.instance_bytes is not None and able.instance_bytes < LITTLE else {},
        ]
        for sections in beside:
            for name, given in sections.items():
                found.setdefault(name, {}).update(given)
        return found

    @abstractmethod
    def graph(self, cfg: C) -> Graph:
        """The fine-grained graph; devices fuse what they like. The same `cfg` gives the same graph."""

    def prepare(self, cfg: C, seed: int) -> None:
        """Fetch, generate and cache the data, so that no epoch's time includes it. Raises DataError."""

    @abstractmethod
    def training(self, cfg: C, seed: int, epoch: int, limit: int = 0) -> Instances:
        """The instances of one epoch (from 1), in an order that is a function of (seed, epoch).

        limit: use the first `limit` of what `size` counts; 0: all. Raises DataError without the data.
        """

    @abstractmethod
    def validation(self, cfg: C, seed: int, limit: int = 0) -> Instances:
        """The validation instances, always in the same order. `limit` as in `training`."""

    @abstractmethod
    def parse(self, cfg: C, text: str) -> Instance:
        """The instance that a line of text stands for. Raises ModelError saying what a line looks like."""

    @abstractmethod
    def explain(self, cfg: C, instance: Instance, report: Report) -> dict[str, Any]:
        """What the model says of an instance, from its report in PREDICT mode: JSON values by name."""

    def notes(self, cfg: C) -> Sequence[str]:
        """What whoever trains the model should know of its data and its start; `prepare` was called."""
        return ()

    def initial(self, cfg: C) -> Values:
        """Parameters, by node and name, that a new run does not start as the graph says, but at these."""
        return {}

    def size(self, instance: Instance) -> int:
        """How many of `counted` the instance holds; every throughput counts these."""
        return 1


def limited(count: int, limit: int) -> int:
    """`count`, or `limit` where that is set and smaller."""
    return min(count, limit) if limit else count
