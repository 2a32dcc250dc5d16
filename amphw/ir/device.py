"""The device protocol: all that a host knows of whatever runs a graph, or a part of it.

A device is opened on a checked graph, given instances slot by slot, and asked what has happened since. The
backends implement this protocol and import only `amphw.ir`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

import numpy as np

from amphw.ir.exchange import Names, NodeGradient, Rows
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.optimizers import OPTIMIZERS
from amphw.ir.units import quantity, written
from amphw.ir.update import Applied, NodeParameters, UpdateRule

SILENCE = 10.0
"""Seconds without a sign of life after which a device that owes something counts as lost, if nobody says."""


class Mode(Enum):
    """TRAIN returns every forward message as a backward one, INFER none; PREDICT also reports outputs."""

    TRAIN = "train"
    INFER = "infer"
    PREDICT = "predict"


class Direction(Enum):
    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True)
class LinkRate:
    """What lies between a device and the host, in each direction."""

    bits_per_s: float
    latency: float = 0.0  # seconds

    @classmethod
    def parse(cls, text: str) -> LinkRate:
        """`100Mb/s` or, with a latency, `100Mb/s+20us`. Raises AmphwError for anything else."""
        rate, plus, latency = text.partition("+")
        return cls(quantity(rate, "bits a second"), quantity(latency, "seconds") if plus else 0.0)

    def __str__(self) -> str:
        behind = f"+{written(self.latency, 's')}" if self.latency else ""
        return (written(self.bits_per_s, "b/s") + behind).replace(" ", "")


@dataclass(frozen=True)
class LinkUse:
    """What went over a link, and how long that took.

    sent, came: bytes to the device and back. seconds: that passed; busy_to, busy_back: of these, something
    was on that way; idle: the device had nothing to do while the link had. clock: of a device whose time is
    simulated, in cycles a second; word: bytes that cross its link together.
    """

    rate: LinkRate
    sent: int
    came: int
    seconds: float
    busy_to: float
    busy_back: float
    idle: float
    clock: float | None = None
    word: int = 1

    def share(self, seconds: float) -> float:
        return seconds / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Capabilities:
    """What a device can run.

    families: node families it accepts (None: all). optimizers: its rules of update. memory: bytes (None: the
    host's). instance_bytes: what the messages of one instance may take at most (None: all of the memory).
    flops: floating-point operations a second. link: how it is reached (None: it shares the host's memory, or
    nobody has said). notes: what it is here.
    advice: what would make it better here, and how to get that; empty: nothing.
    """

    name: str
    kind: str
    workers: int = 1
    formats: tuple[str, ...] = ("float32",)
    families: frozenset[str] | None = None
    optimizers: tuple[str, ...] = tuple(OPTIMIZERS)
    memory: int | None = None
    instance_bytes: int | None = None
    flops: float | None = None
    link: LinkRate | None = None
    notes: str = ""
    advice: str = ""

    @property
    def full_name(self) -> str:
        """With its formats, where they are not floats: `verilator:q4.12`."""
        return ":".join([self.name, *(f for f in self.formats if f != "float32" and f not in self.name)])


@dataclass
class Report:
    """What the sinks said of one instance, when it retired.

    sums[node][name]: sum over rows; rows[node]: their number; outputs[node][name]: values by row, in state
    order (PREDICT only).
    """

    slot: int
    generation: int
    number: int
    mode: Mode
    sums: dict[str, dict[str, float]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)


@dataclass
class Statistics:
    """Counters since the last call.

    forward, backward: messages of TRAIN instances; equal once drained. staleness[node]: histogram {versions
    behind: rows}. busy: seconds per worker. gradients[node]: the largest magnitude in the gradient of each of
    the node's last `LATELY` updates, oldest first and not only since the last call; a device that does not
    watch them leaves it empty.
    """

    forward: int = 0
    backward: int = 0
    frames: int = 0
    updates: int = 0
    staleness: dict[str, dict[int, int]] = field(default_factory=dict)
    busy: list[float] = field(default_factory=list)
    gradients: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class DeviceOptions:
    """How to run.

    max_active_keys/max_infer_keys: slots. updates: whether nodes update themselves ("self"), wait for the
    controller's UPDATE messages ("controller"), or only accumulate ("off"). log: keep the service order.
    """

    max_active_keys: int = 16
    max_infer_keys: int = 16
    updates: str = "self"
    seed: int = 0
    log: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Findings:
    """What a device has to say of a run beyond its statistics.

    files: contents by name, for the run's folder. pictures: of these, the .png and .svg ones for a report,
    with their captions. heading, columns, rows: a short table for people; rows have a text a column.
    remarks: sentences below it. figures: the same for programs, what JSON can hold by name.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    pictures: Mapping[str, str] = field(default_factory=dict)
    heading: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    remarks: tuple[str, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)


class Device(Protocol):
    """One device.

    Slots 0 .. max_active_keys-1 train, the following max_infer_keys infer; the host allocates them.
    """

    def capabilities(self) -> Capabilities: ...

    def load(self, graph: Graph, rules: Mapping[str, UpdateRule], options: DeviceOptions) -> None:
        """Take a checked graph; GraphError names what the device cannot run."""
        ...

    def submit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        """Pump an instance into a free slot: tables first, then the sources' messages. Never blocks."""
        ...

    def planned_bytes(self, instance: Instance, mode: Mode) -> int | None:
        """Memory that the instance reserves while it is in flight; None: the device does not plan ahead."""
        ...

    def poll(self, timeout: float = 0.0) -> list[Report]:
        """Instances that have retired; waits up to `timeout` seconds for the first.

        Raises what went wrong inside.
        """
        ...

    def update(self, nodes: Sequence[str] | None = None) -> None:
        """UPDATE messages from the controller: apply what the nodes have accumulated (all, where None)."""
        ...

    def parameters(self) -> dict[str, NodeParameters]:
        """The parameters by node, as the device itself holds them; consistent only while drained.

        Between a `drain` and the next `submit` or `update` they are the device's own state, not a copy:
        `values`, `version`, optimiser `slots`, and `gradients` with the `rows` that no update has taken yet
        are complete, and what is written into them takes effect (a new array assigned in `values`, which are
        never changed in place; the others written in place). The host restores checkpoints and averages
        replicas that way. A device whose parameters live elsewhere fetches them here, and takes over what
        has been written before it runs on. They can be read until the next `load`, also after `close`.
        Tables that it was allowed to let go of (`Exchanges.keep`) may be missing.
        """
        ...

    def drain(self) -> list[Report]:
        """Run until nothing is in flight -> the reports that this brought."""
        ...

    def statistics(self) -> Statistics: ...

    def close(self) -> None: ...


@runtime_checkable
class ChecksAhead(Protocol):
    """A device that can say before `load`, and without taking hold of anything, whether a graph suits it."""

    def check(self, graph: Graph, rules: Mapping[str, UpdateRule]) -> None:
        """GraphError names what the device cannot run."""
        ...


@runtime_checkable
class StartsSlowly(Protocol):
    """A device whose `load` takes long enough for people to wonder."""

    def slow_start(self) -> str:
        """What it spends the time on, and about how long it takes; empty: nothing."""
        ...


@runtime_checkable
class Degrades(Protocol):
    """A device that consists of others, some of which may be lost."""

    def spare(self) -> Device | None:
        """One without those that were lost, not loaded yet; None: none was."""
        ...


@runtime_checkable
class Explains(Protocol):
    """A device that decides something about a run that its user should know."""

    def explained(self) -> list[str]:
        """Sentences, of what has been loaded."""
        ...


@runtime_checkable
class Places(Protocol):
    """A device that consists of several, of which the setting `place` says who takes a node: `cell=a`."""

    def places(self) -> Sequence[str]:
        """The labels of those, also of devices that are replaced because they are not there."""
        ...


@runtime_checkable
class Linked(Protocol):
    """A device some of whose links to the host are modelled, so that their rates may be stated: the setting
    `links`, such as `a=100Mb/s+20us`."""

    def linkable(self) -> Sequence[str]:
        """The labels of those."""
        ...


@runtime_checkable
class Exchanges(Protocol):
    """A device that moves gradients alone, where `parameters` moves everything that belongs to them.

    Nothing is in flight when these are called.
    """

    def gradients(self, by_rows: Names) -> dict[str, NodeGradient]:
        """Of every node with parameters, what it has accumulated since its last update; copies.

        by_rows: tables of which the rows that have a gradient are wanted, and nothing else.
        """
        ...

    def give(self, gradients: Mapping[str, NodeGradient]) -> None:
        """In place of what these nodes have accumulated: their next update applies it. What is not given of a
        node becomes zero."""
        ...

    def keep(self, names: Names, away: Names) -> None:
        """From now on updates leave these parameters alone, whatever the rule: `put` changes them.

        away: those of them whose rows somebody else has, tables that are only looked up. The device may let
        go of such a table: `parameters` then lacks it, each `put` brings all rows that are read until the
        next one, and to read another row is a StateError. What the host writes into `parameters` under its
        name stays there, for the host alone, until the next call of this.
        """
        ...

    def put(self, values: Mapping[str, Mapping[str, np.ndarray | Rows]]) -> None:
        """New values of parameters that are kept: all of one, or some of its rows."""
        ...

    def pulled(self) -> dict[str, dict[str, Rows]]:
        """By node and name the tables that the device has let go of, with the rows that it has; copies."""
        ...


@runtime_checkable
class Weighs(Protocol):
    """A device that knows how much room its parameters take."""

    def parameter_bytes(self) -> int:
        """Of all nodes, at this moment: every version of the values that it holds, gradients and the
        optimisers' arrays, with what `parameters` has beside them."""
        ...


@runtime_checkable
class Moves(Protocol):
    """A device whose parameters can be read and moved while instances are in flight."""

    def latest(self, nodes: Sequence[str]) -> dict[str, dict[str, np.ndarray]]:
        """The values of these nodes as of their last update; copies. No two need be of the same moment."""
        ...

    def move(self, moves: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Add to the values of these nodes, to all of a node's parameters.

        Nothing that an update makes of them at the same time is lost, and versions, which count updates, stay
        as they are.
        """
        ...


@runtime_checkable
class Tells(Protocol):
    """A device that says what nodes have updated with by themselves, so that others may apply it, too.

    Nothing is in flight when these are called, unless the device also `Receives` (`amphw.ir.received`).
    """

    def tell(self) -> bool:
        """From now on updates are remembered -> whether this device can do so as it is loaded."""
        ...

    def told(self) -> dict[str, Applied]:
        """Of the nodes that have updated since the last call, on their own or as the host has asked."""
        ...


@runtime_checkable
class Investigates(Protocol):
    """A device that has looked at what it computed, and leaves more of a run than statistics."""

    def findings(self) -> Findings:
        """Of all since `load`; the device is drained, and may be closed."""
        ...
