"""An engine and its payload memory between two streams of words, to be simulated in this process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from sim.memory import delayed

DEPTH = 64
"""Commands that wait, to be taken one right behind the other."""


def seen_layout(address_bits: int) -> data.StructLayout:
    """What is seen of a cycle."""
    return data.StructLayout({"cycle": 32, "write": 1, "done": 1, "address": address_bits, "data": 16})


class EngineStreams(wiring.Component):
    """link_in: commands, as `words_of_commands` gives them. link_out: answers, three words each, of an engine
    that has a `response`. seen: of every cycle in which something is written or a command is done.

    layout: of a command. contents: of the payload memory, as it begins.
    """

    def __init__(self, engine: Any, layout: Any, address_bits: int, contents: Iterable[int]) -> None:
        self.engine, self.layout, self.address_bits = engine, layout, address_bits
        self.contents = [int(word) & 0xFFFF for word in contents]
        super().__init__(
            {
                "link_in": In(stream.Signature(unsigned(16))),
                "link_out": Out(stream.Signature(unsigned(16))),
                "seen": Out(stream.Signature(seen_layout(address_bits), always_ready=False)),
                "idle": Out(1),
            }
        )

    def place(self, m: Module) -> None:
        m.submodules.engine = self.engine

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self.place(m)
        self.payload(m)
        self._commands(m)
        if hasattr(self.engine, "response"):
            self._answers(m)
        self.see(m)
        return m

    def payload(self, m: Module) -> None:
        """The payload memory."""
        engine = self.engine
        m.submodules.payload = payload = memory.Memory(
            shape=16, depth=1 << self.address_bits, init=self.contents
        )
        for port in (engine.read_a, engine.read_b):
            read = payload.read_port()
            m.d.comb += [read.en.eq(1), read.addr.eq(port.addr)]
            m.d.comb += port.data.eq(delayed(m, self.read(m, port, read.data)))
        write, port = payload.write_port(), engine.write
        m.d.comb += [write.en.eq(port.en), write.addr.eq(port.addr), write.data.eq(port.data)]

    def read(self, m: Module, port: Any, word: Any) -> Any:
        """What a port of the engine is given, from the word that the memory answers in the next cycle."""
        return word

    def see(self, m: Module) -> None:
        cycle, write, told = Signal(32), self.engine.write, self.seen.payload
        m.d.sync += cycle.eq(cycle + 1)
        m.d.comb += [
            self.seen.valid.eq(write.en | self.engine.done),
            *(told.cycle.eq(cycle), told.write.eq(write.en), told.done.eq(self.engine.done)),
            *(told.address.eq(Mux(write.en, write.addr, 0)), told.data.eq(Mux(write.en, write.data, 0))),
        ]

    def _commands(self, m: Module) -> None:
        """Words are put together; the last one of a command says whether those that wait may begin."""
        engine, count = self.engine, words_of(self.layout)
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
            self.idle.eq(~whole & (queue.level == 0) & engine.idle),
        ]
        self.give(m, queue, go)

    def give(self, m: Module, queue: Any, go: Any) -> None:
        """Hand on what waits in the queue, from the cycle on in which it may begin."""
        engine = self.engine
        m.d.comb += [
            engine.command.payload.as_value().eq(queue.r_data),
            engine.command.valid.eq(queue.r_rdy & go),
            queue.r_en.eq(engine.command.ready & go),
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


def words_of(layout: Any) -> int:
    """Of a command: its bits and two more; the last says whether it and those before it may begin."""
    return int((layout.size + 1) // 16 + 1)


def words_of_commands(layout: Any, commands: Iterable[int], together: int) -> np.ndarray:
    """The words of commands, uint16, that begin when so many are there. commands: bits of each."""
    count = words_of(layout)
    listed = list(commands)
    out: list[int] = []
    for number, bits in enumerate(listed):
        begins = (number + 1) % together == 0 or number + 1 == len(listed)
        whole = bits | int(begins) << (16 * count - 1)
        out += [whole >> 16 * k & 0xFFFF for k in range(count)]
    return np.array(out, np.uint16)
