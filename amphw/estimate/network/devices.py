"""Devices of a network: what the firings of a graph take on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from amphw.engine.parts.costs import FLOAT_BYTES
from amphw.estimate.count.traffic import Traffic
from amphw.estimate.count.work import NodeWork
from amphw.ir.errors import AmphwError
from amphw.ir.flops import rows_of
from amphw.ir.graph import Graph
from amphw.ir.units import written
from amphw.ir.update import UpdateRule


@dataclass(frozen=True)
class Wire:
    """One direction of a link. bandwidth: bits a second, None: no limit. latency: seconds. credits: forward
    messages that may be under way, 0: any number."""

    bandwidth: float | None = None
    latency: float = 0.0
    credits: int = 0

    def __post_init__(self) -> None:
        if self.bandwidth is not None and not 0.0 < self.bandwidth < math.inf:
            raise AmphwError(f"a link's bandwidth is {self.bandwidth}: expected a finite number above 0")
        if not 0.0 <= self.latency < math.inf:
            raise AmphwError(f"a link's latency is {self.latency}: expected a finite number of seconds, 0 up")
        if self.credits < 0:
            raise AmphwError(f"a link's credits are {self.credits}: expected 0, for any number, or more")

    def sending(self, size: float) -> float:
        """Seconds that so many bytes keep it busy."""
        return 0.0 if self.bandwidth is None else 8 * size / self.bandwidth


class FiringTimes(Protocol):
    """Seconds on a device that takes one firing at a time.

    rows: of a firing, by space; needs, sends: messages that it takes and sends, forward. control: of a unit
    that (fetches, delivers) a firing while the device computes others. here: False for what the host keeps.
    """

    def here(self, node: str) -> bool: ...

    def firing(self, node: str, backward: bool, rows: Mapping[str, int], needs: int, sends: int) -> float: ...

    def control(
        self, node: str, backward: bool, needs: float, sends: float, rows: float
    ) -> tuple[float, float]: ...

    def update(self, node: str) -> float: ...


class DeviceKind(Protocol):
    """What a network is made of. number_bytes: of a number in a message; header_bytes: of what stands before
    it. host: its link to the host, which keeps sources and losses; None: it has them itself."""

    @property
    def label(self) -> str:
        """In words."""

    @property
    def peak(self) -> float:
        """Operations a second that it could do."""

    @property
    def roof(self) -> float:
        """Of them, those that are put to use at most."""

    @property
    def number_bytes(self) -> int: ...

    @property
    def header_bytes(self) -> int: ...

    @property
    def host(self) -> Wire | None: ...

    @property
    def resources(self) -> Mapping[str, int]:
        """Of a chip, by name; none where it is not known what it is made of."""

    def faster(self, factor: float) -> DeviceKind:
        """The same, so many times as fast."""

    def times(
        self,
        traffic: Traffic,
        work: Mapping[str, NodeWork],
        rules: Mapping[str, UpdateRule],
        nodes: Sequence[str] | None = None,
    ) -> FiringTimes:
        """nodes: that are placed on it; None: nobody knows as yet."""


@dataclass(frozen=True)
class Processor:
    """flops: operations a second, of which the share `use` is put to use. Raises AmphwError for what cannot
    be."""

    flops: float
    use: float = 1.0
    number_bytes: int = FLOAT_BYTES
    header_bytes: int = 0
    host: Wire | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.flops < math.inf:
            raise AmphwError(f"a device's flops is {self.flops}: expected a finite number above 0")
        if not 0.0 < self.use <= 1.0:
            raise AmphwError(f"the share of a device's rate in use is {self.use}: expected above 0, up to 1")

    @property
    def label(self) -> str:
        return written(self.flops, "FLOPS")

    @property
    def peak(self) -> float:
        return self.flops

    @property
    def roof(self) -> float:
        return self.flops * self.use

    @property
    def resources(self) -> Mapping[str, int]:
        return {}

    def faster(self, factor: float) -> Processor:
        return replace(self, flops=factor * self.flops)

    def times(
        self,
        traffic: Traffic,
        work: Mapping[str, NodeWork],
        rules: Mapping[str, UpdateRule],
        nodes: Sequence[str] | None = None,
    ) -> FiringTimes:
        return _Operations(work, self.roof)


@dataclass(frozen=True)
class _Operations:
    """All operations, at one rate; routing costs nothing."""

    work: Mapping[str, NodeWork]
    rate: float

    def here(self, node: str) -> bool:
        return True

    def firing(self, node: str, backward: bool, rows: Mapping[str, int], needs: int, sends: int) -> float:
        return (
            sum(each[backward] * rows_of(rows, s) for s, each in self.work[node].row_flops.items())
            / self.rate
        )

    def control(
        self, node: str, backward: bool, needs: float, sends: float, rows: float
    ) -> tuple[float, float]:
        return 0.0, 0.0

    def update(self, node: str) -> float:
        of = self.work[node]
        return of.update / of.updates / self.rate if of.updates else 0.0


MOST_LANES = 64
"""As `amphw rtl` has them."""


class CircuitCycles(Protocol):
    """The same in cycles, of a circuit (`amphw.rtl.timing.circuit.CircuitModel`). units: that are on it."""

    @property
    def units(self) -> Mapping[str, object]: ...

    def firing(
        self, node: str, backward: bool, rows: Mapping[str, int], needs: int = 1, sends: int = 1
    ) -> float: ...

    def control(
        self, node: str, backward: bool, needs: float = 1.0, sends: float = 1.0, rows: float = 1.0
    ) -> tuple[float, float]: ...

    def update(self, node: str) -> float: ...


class CircuitMaker(Protocol):
    """Knows how circuits are made. latency: cycles of a message between the host and what takes it."""

    @property
    def latency(self) -> float: ...

    @property
    def number_bytes(self) -> int: ...

    @property
    def header_bytes(self) -> int: ...

    def resources(self, lanes: int) -> Mapping[str, int]:
        """Of a chip: luts, ffs and dsps of a device with so many lanes."""

    def cycles(
        self,
        graph: Graph,
        rules: Mapping[str, UpdateRule],
        lanes: int,
        nodes: Sequence[str] | None = None,
    ) -> CircuitCycles:
        """nodes: those of them that a circuit can have are on it; None: all that can be."""


@dataclass(frozen=True)
class Circuit:
    """A circuit of an FPGA. lanes: multipliers at work, a power of two. clock: cycles a second. To the
    host a word goes in a cycle. Raises AmphwError for what cannot be."""

    lanes: int
    clock: float
    maker: CircuitMaker

    def __post_init__(self) -> None:
        if not 2 <= self.lanes <= MOST_LANES or self.lanes & (self.lanes - 1):
            raise AmphwError(f"{self.lanes} lanes cannot be built: choose a power of two, 2 to {MOST_LANES}")
        if not 0.0 < self.clock < math.inf:
            raise AmphwError(f"a clock of {self.clock} cycles a second: expected a finite number above 0")

    @property
    def label(self) -> str:
        return f"{self.lanes} lanes at {self.clock / 1e6:g} MHz"

    @property
    def peak(self) -> float:
        return 2 * self.lanes * self.clock

    @property
    def roof(self) -> float:
        return self.peak

    @property
    def resources(self) -> Mapping[str, int]:
        return self.maker.resources(self.lanes)

    @property
    def number_bytes(self) -> int:
        return self.maker.number_bytes

    @property
    def header_bytes(self) -> int:
        return self.maker.header_bytes

    @property
    def host(self) -> Wire:
        return Wire(8 * self.number_bytes * self.clock, self.maker.latency / self.clock)

    def faster(self, factor: float) -> Circuit:
        """So many times the lanes."""
        return replace(self, lanes=round(factor * self.lanes))

    def times(
        self,
        traffic: Traffic,
        work: Mapping[str, NodeWork],
        rules: Mapping[str, UpdateRule],
        nodes: Sequence[str] | None = None,
    ) -> FiringTimes:
        graph = traffic.lowered.graph
        return _Cycles(self.maker.cycles(graph, rules, self.lanes, nodes), self.clock)


@dataclass(frozen=True)
class _Cycles:
    of: CircuitCycles
    clock: float

    def here(self, node: str) -> bool:
        return node in self.of.units

    def firing(self, node: str, backward: bool, rows: Mapping[str, int], needs: int, sends: int) -> float:
        return self.of.firing(node, backward, rows, needs, sends) / self.clock if self.here(node) else 0.0

    def control(
        self, node: str, backward: bool, needs: float, sends: float, rows: float
    ) -> tuple[float, float]:
        fetch, deliver = (
            self.of.control(node, backward, needs, sends, rows) if self.here(node) else (0.0, 0.0)
        )
        return fetch / self.clock, deliver / self.clock

    def update(self, node: str) -> float:
        return self.of.update(node) / self.clock
