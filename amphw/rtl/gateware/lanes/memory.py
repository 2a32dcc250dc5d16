"""Memories of parameters: whole beats are read, single lanes are written."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, signed, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.ports import NO_COLLISION


class BeatMemory(wiring.Component):
    """`beats` beats of `lanes` words of `bits` bits.

    `data` is the beat at `addr`, two cycles later. In a cycle, lanes in `write_lanes` of beat `write_addr`
    become those of `write_data`; what a read of that beat in that cycle gives is not defined.
    """

    def __init__(self, beats: int, lanes: int, bits: int, is_signed: bool = True) -> None:
        words = data.ArrayLayout(signed(bits) if is_signed else unsigned(bits), lanes)
        self.memory = memory.Memory(shape=words, depth=beats, init=[], attrs=NO_COLLISION)
        address = max(1, (beats - 1).bit_length())
        super().__init__(
            {
                "addr": In(address),
                "data": Out(words),
                "write_addr": In(address),
                "write_lanes": In(lanes),
                "write_data": In(words),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.memory = self.memory
        read, write = self.memory.read_port(), self.memory.write_port(granularity=1)
        m.d.comb += [
            read.addr.eq(self.addr),
            write.addr.eq(self.write_addr),
            write.en.eq(self.write_lanes),
            write.data.eq(self.write_data),
        ]
        # Data needs no reset, here as in all of the datapath; it would cost thousands of routes.
        register = Signal(self.memory.shape, reset_less=True)
        m.d.sync += register.eq(read.data)
        m.d.comb += self.data.eq(register)
        return m
