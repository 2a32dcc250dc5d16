"""Networks: which devices there are, and the links between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from amphw.estimate.network.devices import Circuit, DeviceKind, Processor, Wire
from amphw.ir.errors import AmphwError


@dataclass(frozen=True)
class Part:
    """One device of a network. memory: bytes, None: no limit. nodes: that are placed on it."""

    device: DeviceKind
    memory: float | None = None
    nodes: Sequence[str] = ()


@dataclass(frozen=True)
class Network:
    """Equal devices: of `flops` operations a second with the share `use` put to use, or each a `circuit`, or
    of `another` kind; devices: their number, None: one for each replica of a node with parameters; memory:
    bytes of each, None: no limit. Or `parts`, one by one.

    bandwidth, latency, credits: of the link from each device to each other (`Wire`); or `wires`, by (from,
    to), and no others. policy: in which order devices serve. kept: nodes that a host computes, in no time,
    which also passes on what circuits send each other where nobody says another link; None: no host does.
    Raises AmphwError for what cannot be.
    """

    flops: float | None = None
    devices: int | None = None
    bandwidth: float | None = None
    latency: float = 0.0
    memory: float | None = None
    use: float = 1.0
    circuit: Circuit | None = None
    parts: Sequence[Part] = ()
    wires: Mapping[tuple[int, int], Wire] | None = None
    credits: int = 0
    policy: str = "default"
    another: DeviceKind | None = None
    kept: Sequence[str] | None = None
    _alike: Wire = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kinds = self.flops, self.circuit, self.another
        if sum(kind is not None for kind in kinds) + bool(self.parts) != 1:
            raise AmphwError("a network's devices have `flops`, or are a `circuit` or `another`, or `parts`")
        for room in [self.memory, *(part.memory for part in self.parts)]:
            if room is not None and not 0.0 < room < math.inf:
                raise AmphwError(f"a device's memory is {room}: expected a finite number above 0")
        if self.devices is not None and self.devices < 1:
            raise AmphwError(f"a network of {self.devices} devices: expected 1 or more")
        if self.parts and self.devices not in (None, len(self.parts)):
            raise AmphwError(f"a network of {self.devices} devices, of which {len(self.parts)} are listed")
        object.__setattr__(self, "_alike", Wire(self.bandwidth, self.latency, self.credits))
        self.device(0)  # which says what is wrong with it

    # --- what there is ----------------------------------------------------------------------------

    @property
    def count(self) -> int | None:
        """Of its devices."""
        return len(self.parts) or self.devices

    @property
    def circuits(self) -> bool:
        """Whether all its devices are."""
        if self.parts:
            return all(isinstance(part.device, Circuit) for part in self.parts)
        return self.circuit is not None

    def device(self, number: int) -> DeviceKind:
        if self.parts:
            return self.parts[number].device
        return self.circuit or self.another or Processor(self.flops or 0.0, self.use)

    def room(self, number: int) -> float | None:
        """Bytes of a device's memory."""
        return self.parts[number].memory if self.parts else self.memory

    def wire(self, a: int, b: int) -> Wire | None:
        """From a device to another; None: there is none."""
        if self.wires is None and self.kept is not None and self._alike == Wire():
            return _passed_on(self.device(a).host, self.device(b).host)
        return self._alike if self.wires is None else self.wires.get((a, b))

    def sending(self, size: float) -> float:
        """Seconds that so many bytes keep a link busy, where all are alike."""
        return self._alike.sending(size)

    @property
    def number_bytes(self) -> int:
        """Of a number in a message: as many as the least exact device has."""
        return min((p.device.number_bytes for p in self.parts), default=self.device(0).number_bytes)

    @property
    def header_bytes(self) -> int:
        """Before each message."""
        return max((p.device.header_bytes for p in self.parts), default=self.device(0).header_bytes)

    # --- other networks ---------------------------------------------------------------------------

    def computing(self, factor: float) -> Network:
        """The same with devices so many times as fast; circuits have so many times the lanes."""
        if self.parts:
            return replace(self, parts=[replace(p, device=p.device.faster(factor)) for p in self.parts])
        if self.circuit is not None:
            return replace(self, circuit=self.circuit.faster(factor))
        if self.another is not None:
            return replace(self, another=self.another.faster(factor))
        assert self.flops is not None
        return replace(self, flops=factor * self.flops)

    def linked(self, factor: float) -> Network:
        """The same with links of so many times the bandwidth."""
        wires = self.wires and {pair: _wider(wire, factor) for pair, wire in self.wires.items()}
        return replace(self, bandwidth=_wider(self._alike, factor).bandwidth, wires=wires)

    def of(self, devices: int) -> Network:
        """The same of so many devices. Raises AmphwError for one whose devices are listed."""
        if self.parts:
            raise AmphwError(f"the network's {len(self.parts)} devices are listed: their number stands")
        return replace(self, devices=devices)


def _passed_on(there: Wire | None, on: Wire | None) -> Wire:
    """By the host, which has a message before it sends it on: over links to it that take as long twice."""
    ways = [wire for wire in (there, on) if wire is not None]
    slow = sum(1.0 / wire.bandwidth for wire in ways if wire.bandwidth is not None)
    return Wire(1.0 / slow if slow else None, sum(wire.latency for wire in ways))


def _wider(wire: Wire, factor: float) -> Wire:
    return wire if wire.bandwidth is None else replace(wire, bandwidth=factor * wire.bandwidth)
