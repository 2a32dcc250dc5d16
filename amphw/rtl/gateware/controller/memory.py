"""The controller's memories: firings, places (where operands and gradients wait), and what is ready."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from amphw.rtl.gateware.ports import NO_COLLISION

ADDRESS = 16
"""Bits of every address: of firings, places, payload and table memory."""


@dataclass(frozen=True)
class ControlShape:
    """Sizes. firings, places, table: words of those memories, powers of two. slots: keys in flight. units: on
    the device. outputs: float outputs of a unit, at most. state_bits: of a packed state."""

    firings: int
    places: int
    table: int
    slots: int
    units: int
    outputs: int
    state_bits: int
    decisions: int
    loops: int
    reads: int
    by_rows: bool
    paths: int

    @property
    def firing_bits(self) -> int:
        return ceil_log2(self.firings)

    @property
    def place_bits(self) -> int:
        return ceil_log2(self.places)

    @property
    def output_bits(self) -> int:
        return ceil_log2(self.outputs)


class PlaceLayout(data.StructLayout):
    """A place: first an operand, later the gradient that went back for it.

    address: of the payload. link: the firing that sent the operand; then the next place in the list of
    gradients of that firing's output. more: whether there is a next. host: the operand came from the host.
    output: which output sent it. single, row: whether that was a row alone, and where it begins; of a device
    whose rows ever go alone.
    """

    def __init__(self, shape: ControlShape) -> None:
        super().__init__(
            {
                "address": ADDRESS,
                "link": max(shape.firing_bits, shape.place_bits),
                "more": 1,
                "host": 1,
                "output": shape.output_bits,
                **({"row": ADDRESS, "single": 1} if shape.by_rows else {}),
            }
        )


class OwnerLayout(data.StructLayout):
    """Whose firing it is: unit, slot, and whether the instance is only inferred."""

    def __init__(self, shape: ControlShape) -> None:
        super().__init__(
            {"unit": max(1, ceil_log2(shape.units)), "slot": max(1, ceil_log2(shape.slots)), "infer": 1}
        )


class Store(wiring.Component):
    """A memory with one user: `addr` serves both directions; `data` follows three cycles after it.

    There are registers before and behind the memory, since whoever uses it chooses between many addresses,
    and does something with what it reads. What is read in the cycle of a write is undefined.
    """

    def __init__(self, shape: object, depth: int):
        self.word, self.depth = shape, depth
        super().__init__(
            {
                "addr": In(range(depth)),
                "data": Out(shape),  # type: ignore[arg-type]
                "write": In(1),
                "value": In(shape),  # type: ignore[arg-type]
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(
            shape=self.word,  # type: ignore[arg-type]
            depth=self.depth,
            init=[],
            attrs=NO_COLLISION,
        )
        read, write = memory.read_port(), memory.write_port()
        address = Signal.like(self.addr)
        m.d.comb += [read.en.eq(1), read.addr.eq(address), write.addr.eq(address)]
        m.d.sync += [
            address.eq(self.addr),
            write.en.eq(self.write),
            write.data.eq(self.value),
            self.data.eq(read.data),
        ]
        return m


def pause(m: Module, name: str, cycles: int, then: str, meanwhile: Any = ()) -> None:
    """States of a state machine that pass until a memory has answered; the first is called `name`.

    meanwhile: assignments that hold in all of them.
    """
    names = [name, *(f"{name} {cycle}" for cycle in range(2, cycles + 1)), then]
    for here, following in itertools.pairwise(names):
        with m.State(here):
            m.d.comb += meanwhile
            m.next = following


class ReadyQueue(wiring.Component):
    """Firings that are ready, first in first out; it has room for all there are, so `push` never waits.

    there: `head` is the first of them, some cycles after it was pushed, or after the `pop` of another one.
    level: how many there are. Registers stand at both ends, since memory is far from whoever pushes and pops.
    """

    def __init__(self, depth: int):
        self.depth = depth
        super().__init__(
            {
                "push": In(1),
                "value": In(range(depth)),
                "head": Out(range(depth)),
                "there": Out(1),
                "pop": In(1),
                "level": Out(range(depth + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(
            shape=unsigned(ceil_log2(self.depth)), depth=self.depth, init=[], attrs=NO_COLLISION
        )
        read, write = memory.read_port(), memory.write_port()
        first, last = Signal(range(self.depth)), Signal(range(self.depth))
        pushed, value = Signal(), Signal.like(self.value)
        stored = Signal.like(self.level)  # in memory, and not on its way to the head
        fetch, coming = Signal(), Signal()
        m.d.comb += [
            fetch.eq(~self.there & ~coming & (stored != 0)),
            write.en.eq(pushed),
            write.addr.eq(last),
            write.data.eq(value),
            read.en.eq(1),
            read.addr.eq(first),
        ]
        m.d.sync += [
            pushed.eq(self.push),
            value.eq(self.value),
            coming.eq(fetch),
            stored.eq(stored + pushed - fetch),
            first.eq(first + fetch),
            last.eq(last + pushed),
            self.level.eq(self.level + self.push - self.pop),
        ]
        with m.If(coming):
            m.d.sync += [self.head.eq(read.data), self.there.eq(1)]
        with m.If(self.pop):
            m.d.sync += self.there.eq(0)
        return m
