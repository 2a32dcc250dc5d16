"""A lane engine and its payload memory between two streams of words, to be simulated in this process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from amaranth.hdl import Cat, DomainRenamer, Module, Mux, Signal, unsigned
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.lanes.engine import LaneEngine
from amphw.rtl.gateware.lanes.shape import RESPONSE_BITS, LaneShape, command_layout
from amphw.rtl.verilated.lanes import ModelledLanes
from amphw.rtl.verilated.sleep import ticks
from sim.memory import read_of
from sim.models.lanes import Command

DEPTH = 64
"""Commands that wait, to be taken one right behind the other."""

SEEN = data.StructLayout({"cycle": 32, "write": 1, "done": 1, "address": 8, "data": 16})


class LaneStreams(wiring.Component):
    """link_in: commands, `of_commands`. link_out: answers to PEEK, three words each. seen: of every cycle in
    which something is written or a command is done."""

    def __init__(self, shape: LaneShape, contents: Iterable[int]) -> None:
        self.shape, self.contents = shape, [int(word) & 0xFFFF for word in contents]
        self.engine = self.lane_engine()
        super().__init__(
            {
                "link_in": In(stream.Signature(unsigned(16))),
                "link_out": Out(stream.Signature(unsigned(16))),
                "seen": Out(stream.Signature(SEEN, always_ready=False)),
                "idle": Out(1),
            }
        )

    def lane_engine(self) -> Any:
        return LaneEngine(self.shape)

    def place(self, m: Module) -> None:
        m.submodules.engine = self.engine

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self.place(m)
        engine = self.engine
        m.submodules.payload = payload = memory.Memory(
            shape=16, depth=1 << self.shape.address_bits, init=self.contents
        )
        for port in (engine.read_a, engine.read_b):
            m.d.comb += port.data.eq(read_of(m, payload, port.addr))
        write, port = payload.write_port(), engine.write
        m.d.comb += [write.en.eq(port.en), write.addr.eq(port.addr), write.data.eq(port.data)]
        self._commands(m)
        self._answers(m)
        cycle = Signal(32)
        m.d.sync += cycle.eq(cycle + 1)
        told = self.seen.payload
        m.d.comb += [
            self.seen.valid.eq(port.en | engine.done),
            *(told.cycle.eq(cycle), told.write.eq(port.en), told.done.eq(engine.done)),
            *(told.address.eq(Mux(port.en, port.addr, 0)), told.data.eq(Mux(port.en, port.data, 0))),
        ]
        return m

    def _commands(self, m: Module) -> None:
        """Words are put together; the last one of a command says whether those that wait may begin."""
        engine, count = self.engine, words_of(self.shape)
        width = 16 * count
        m.submodules.queue = queue = SyncFIFOBuffered(width=width, depth=DEPTH)
        collected, at, whole, go = Signal(width), Signal(range(count)), Signal(), Signal()
        taken = self.link_in.valid & self.link_in.ready
        m.d.sync += whole.eq(0)
        with m.If(taken):
            m.d.sync += [collected.eq(Cat(collected[16:], self.link_in.payload)), at.eq(at + 1)]
            with m.If(at == count - 1):
                m.d.sync += [at.eq(0), whole.eq(1)]
        with m.If(whole & collected[-1]):
            m.d.sync += go.eq(1)
        with m.Elif(queue.level == 0):
            m.d.sync += go.eq(0)
        m.d.comb += [
            self.link_in.ready.eq(~go & ~whole & (queue.level < DEPTH)),
            queue.w_data.eq(collected),
            queue.w_en.eq(whole),
            engine.command.payload.as_value().eq(queue.r_data),
            engine.command.valid.eq(queue.r_rdy & go),
            queue.r_en.eq(engine.command.ready & go),
            self.idle.eq(~whole & (queue.level == 0) & engine.idle),
        ]

    def _answers(self, m: Module) -> None:
        response, left, part = self.engine.response, Signal(48), Signal(2)
        m.d.comb += [
            response.ready.eq(part == 0),
            self.link_out.valid.eq(part != 0),
            self.link_out.payload.eq(left[:16]),
        ]
        with m.If(response.valid & response.ready):
            m.d.sync += [left.eq(response.payload), part.eq(3)]
        with m.Elif(self.link_out.valid & self.link_out.ready):
            m.d.sync += [left.eq(left >> 16), part.eq(part - 1)]


class ModelledStreams(LaneStreams):
    """The same with the functional model, whose parts sleep."""

    def __init__(self, shape: LaneShape, contents: Iterable[int]) -> None:
        super().__init__(shape, contents)
        self.clocks = {name or "lanes": Signal() for name in self.engine.quiet}

    def lane_engine(self) -> Any:
        return ModelledLanes(self.shape)

    def sources(self) -> dict[str, str]:
        sources: dict[str, str] = self.engine.sources()
        return sources

    def place(self, m: Module) -> None:
        m.submodules.engine = DomainRenamer("lanes")(self.engine)
        quiet = {name or "lanes": condition for name, condition in self.engine.quiet.items()}
        for name, tick in ticks(m, quiet).items():
            m.d.comb += self.clocks[name].eq(tick)


def words_of(shape: LaneShape) -> int:
    """Of a command: its bits and one that says whether it and those before it may begin."""
    return command_layout(shape).size // 16 + 1


def of_commands(shape: LaneShape, commands: Iterable[Command], together: int) -> np.ndarray:
    """The words of commands, uint16, that begin when so many are there."""
    layout, count = command_layout(shape), words_of(shape)
    listed = list(commands)
    out: list[int] = []
    for number, fields in enumerate(listed):
        bits = layout.const(fields).as_bits()
        begins = (number + 1) % together == 0 or number + 1 == len(listed)
        bits |= int(begins) << (16 * count - 1)
        out += [bits >> 16 * k & 0xFFFF for k in range(count)]
    return np.array(out, np.uint16)


def answers(words: np.ndarray) -> list[int]:
    """The numbers that PEEKs were answered with."""
    wide = words.astype(np.int64).reshape(-1, 3) << np.array([0, 16, 32])
    found = wide.sum(axis=1) & ((1 << RESPONSE_BITS) - 1)
    return [int(x) - (1 << RESPONSE_BITS) * (int(x) >> RESPONSE_BITS - 1) for x in found]
