"""The payload memory: 16-bit words, twice, so that two are read and one is written in a cycle.

Addresses, and words to be written, are registered before they go to the blocks, and what each block gives
is registered right behind it, before the one that was asked for is chosen: the way from a block is long. See
READ_LATENCY. A reader sees what was written in an earlier cycle than that of its `en`.

The engines come first and never wait. What the link and the controller want is done in cycles that the
engines leave free; the engines always come to an end, so nobody waits forever.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2

from amphw.rtl.gateware.controller.ports import Free
from amphw.rtl.gateware.ports import NO_COLLISION, ReadPort, WritePort
from amphw.rtl.numbers.formats import BITS
from amphw.rtl.plan.hardware import BLOCK_BITS, payload_part


class Copy(wiring.Component):
    """All words once: one is read (`en` has no use) and one is written in a cycle.

    part: bits of a word that lie in one memory. bank: words that do, a power of two. `data` is there two
    cycles after `addr`.
    """

    def __init__(self, address_bits: int, depth: int, part: int, bank: int):
        self.depth, self.part, self.bank = depth, part, bank
        super().__init__({"read": In(ReadPort(address_bits)), "write": In(WritePort(address_bits))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        words = [self._bank(m, first) for first in range(0, self.depth, self.bank)]
        m.d.comb += self.read.data.eq(reduce(or_, words))
        return m

    def _bank(self, m: Module, first: int) -> Signal:
        """Words from `first` on -> the one that was read, or 0 where that lies elsewhere."""
        number, depth = first // self.bank, min(self.bank, self.depth - first)
        inside = ceil_log2(self.bank)
        asked, word = Signal(name=f"asked{number}"), Signal(BITS, name=f"word{number}", reset_less=True)
        m.d.sync += asked.eq(self.read.addr[inside:] == number)
        for at in range(0, BITS, self.part):
            # What is read has been written before: the engines wait for their own words, and others read
            # those of firings that are done.
            memory = Memory(shape=self.part, depth=depth, init=[], attrs=NO_COLLISION)
            m.submodules[f"bank{number}_part{at}"] = memory
            read, write = memory.read_port(), memory.write_port()
            part = slice(at, at + self.part)
            m.d.comb += [
                read.en.eq(1),
                read.addr.eq(self.read.addr[:inside]),
                write.en.eq(self.write.en & (self.write.addr[inside:] == number)),
                write.addr.eq(self.write.addr[:inside]),
                write.data.eq(self.write.data[part]),
            ]
            m.d.sync += word[part].eq(Mux(asked, read.data, 0))
        return word


class PayloadMemory(wiring.Component):
    """lanes_*, vector_*: the engines, of which one runs at a time.

    put: the controller's words; receive: those that come over the link. look: words that the controller wants
    to see; send: those that leave over the link. part, bank: bits of a word, and words, in one memory; by
    default as many as suit the chip's.
    """

    def __init__(self, address_bits: int, depth: int, part: int | None = None, bank: int | None = None):
        self.address_bits, self.depth, self.part = address_bits, depth, part or payload_part(depth)
        self.bank = bank or BLOCK_BITS // self.part
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
        copies = [Copy(self.address_bits, self.depth, self.part, self.bank) for _ in "ab"]
        m.submodules.copy_a, m.submodules.copy_b = copies
        self._write(m, [copy.write for copy in copies])
        for copy, readers in zip(copies, self._readers(), strict=True):
            m.d.comb += [reader.data.eq(copy.read.data) for reader in readers]
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
