"""The payload memory: 16-bit words, twice, so that two are read and one is written in a cycle.

Addresses, and words to be written, are registered before they go to the blocks, and words that were read
behind them: see READ_LATENCY. A reader sees what was written in an earlier cycle than that of its `en`.

The engines come first and never wait. What the link and the controller want is done in cycles that the
engines leave free; the engines always come to an end, so nobody waits forever.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In

from amphw.rtl.gateware.controller.ports import Free
from amphw.rtl.gateware.ports import NO_COLLISION, ReadPort, WritePort
from amphw.rtl.numbers.formats import BITS
from amphw.rtl.plan.hardware import payload_part


class Copy(wiring.Component):
    """All words once: one is read (`en` has no use) and one is written in a cycle.

    part: bits of a word that lie in one memory.
    """

    def __init__(self, address_bits: int, depth: int, part: int):
        self.depth, self.part = depth, part
        super().__init__({"read": In(ReadPort(address_bits)), "write": In(WritePort(address_bits))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        part = self.part
        for at in range(0, BITS, part):
            # What is read has been written before: the engines wait for their own words, and others read
            # those of firings that are done.
            memory = Memory(shape=part, depth=self.depth, init=[], attrs=NO_COLLISION)
            m.submodules[f"part{at}"] = memory
            read, write = memory.read_port(), memory.write_port()
            m.d.comb += [
                read.en.eq(1),
                read.addr.eq(self.read.addr),
                self.read.data[at : at + part].eq(read.data),
                write.en.eq(self.write.en),
                write.addr.eq(self.write.addr),
                write.data.eq(self.write.data[at : at + part]),
            ]
        return m


class PayloadMemory(wiring.Component):
    """lanes_*, vector_*: the engines, of which one runs at a time.

    put: the controller's words; receive: those that come over the link. look: words that the controller wants
    to see; send: those that leave over the link. part: bits of a word in one memory, by default as many as
    suit the chip's.
    """

    def __init__(self, address_bits: int, depth: int, part: int | None = None):
        self.address_bits, self.depth, self.part = address_bits, depth, part or payload_part(depth)
        engine = {
            f"{name}_{port}": In(signature)
            for name in ("lanes", "vector")
            for port, signature in (
                ("read_a", ReadPort(address_bits)),
                ("read_b", ReadPort(address_bits)),
                ("write", WritePort(address_bits)),
            )
        }
        super().__init__(
            {
                **engine,
                "put": In(Free(write=True)),
                "receive": In(Free(write=True)),
                "look": In(Free(write=False)),
                "send": In(Free(write=False)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        copies = [Copy(self.address_bits, self.depth, self.part) for _ in "ab"]
        m.submodules.copy_a, m.submodules.copy_b = copies
        self._write(m, [copy.write for copy in copies])
        for copy, readers in zip(copies, self._readers(), strict=True):
            word = Signal(signed(BITS), reset_less=True)
            m.d.sync += word.eq(copy.read.data)
            m.d.comb += [reader.data.eq(word) for reader in readers]
        a, b = (copy.read.addr for copy in copies)
        m.d.sync += a.eq(Mux(self.vector_read_a.en, self.vector_read_a.addr, self.lanes_read_a.addr))
        with m.If(self.lanes_read_b.en):
            m.d.sync += b.eq(self.lanes_read_b.addr)
        with m.Elif(self.vector_read_b.en):
            m.d.sync += b.eq(self.vector_read_b.addr)
        with m.Elif(self.look.en):
            m.d.sync += b.eq(self.look.addr)
            m.d.comb += self.look.done.eq(1)
        with m.Elif(self.send.en):
            m.d.sync += b.eq(self.send.addr)
            m.d.comb += self.send.done.eq(1)
        return m

    def _readers(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Of either copy, whoever reads there."""
        return (
            (self.lanes_read_a, self.vector_read_a),
            (self.lanes_read_b, self.vector_read_b, self.look, self.send),
        )

    def _write(self, m: Module, ports: list[Any]) -> None:
        en, addr, word = Signal(), Signal(self.address_bits), Signal(signed(BITS))
        for port in ports:
            m.d.comb += [port.en.eq(en), port.addr.eq(addr), port.data.eq(word)]
        m.d.sync += en.eq(1)
        with m.If(self.lanes_write.en):
            m.d.sync += [addr.eq(self.lanes_write.addr), word.eq(self.lanes_write.data)]
        with m.Elif(self.vector_write.en):
            m.d.sync += [addr.eq(self.vector_write.addr), word.eq(self.vector_write.data)]
        with m.Elif(self.put.en):
            m.d.sync += [addr.eq(self.put.addr), word.eq(self.put.data)]
            m.d.comb += self.put.done.eq(1)
        with m.Elif(self.receive.en):
            m.d.sync += [addr.eq(self.receive.addr), word.eq(self.receive.data)]
            m.d.comb += self.receive.done.eq(1)
        with m.Else():
            m.d.sync += en.eq(0)
