"""A device's words as AXI4-Stream, for systems that somebody else builds.

Ports are named as AMBA 4 AXI4-Stream (ARM IHI 0051A) names signals, so that tools find the two interfaces
and the clock that they belong to by themselves. A link of this kind loses nothing: `tready` is its flow
control.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import ClockDomain, DomainRenamer, Module, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.device import Device
from amphw.rtl.gateware.streams import SkidBuffer
from amphw.rtl.isa.wire import WORD
from amphw.rtl.plan.hardware import HardwarePlan

QUIET = 16
"""Cycles without a further word after which a packet ends."""

LONGEST = 1024
"""Words of a packet at most: a DMA engine has a buffer for one."""


class Packets(wiring.Component):
    """Words in packets: the last of each says that it is (`last`). busy: whether words are in here.

    longest: words of a packet at most; 0 for as many as there are. shape: of a word.

    Whoever moves packets to memory hands them on when they end, so a word must not wait for those that an
    idle device will send some day. The last word that came is held here until another follows or none has
    for `quiet` cycles, which is when it is known whether a packet ends with it. What is offered stays
    offered, unchanged, until it is taken.
    """

    def __init__(self, quiet: int = QUIET, longest: int = LONGEST, shape: Any = WORD) -> None:
        self.quiet, self.longest, self.shape = quiet, longest, shape
        word = stream.Signature(shape)
        super().__init__({"i": In(word), "o": Out(word), "last": Out(1), "busy": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        held = Signal(self.shape)
        holds = Signal()
        waited = Signal(range(self.quiet + 1))
        count = Signal(range(max(1, self.longest)))  # of the packet's words before the one that is held
        full, over = Signal(), Signal()
        free = Signal()  # whether the output takes a word in this cycle
        gives = Signal()
        m.d.comb += [
            full.eq((count == self.longest - 1) if self.longest else 0),
            # A word that is offered follows, however long the one that is held has to wait.
            over.eq(full | (~self.i.valid & (waited == self.quiet))),
            self.busy.eq(holds | self.o.valid),
            free.eq(~self.o.valid | self.o.ready),
            gives.eq(holds & free & (self.i.valid | over)),
            self.i.ready.eq(~holds | gives),
        ]
        with m.If(free):
            m.d.sync += self.o.valid.eq(gives)
            with m.If(gives):
                m.d.sync += [self.o.payload.eq(held), self.last.eq(over)]
        with m.If(gives):
            m.d.sync += count.eq(count + 1)
            with m.If(over):
                m.d.sync += count.eq(0)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [held.eq(self.i.payload), holds.eq(1), waited.eq(0)]
        with m.Elif(gives):
            m.d.sync += holds.eq(0)
        with m.Elif(~self.i.valid & (waited != self.quiet)):
            m.d.sync += waited.eq(waited + 1)
        return m


class AxiStreamTop(wiring.Component):
    """The device of a plan between two AXI4-Streams of 16-bit words, in the clock `aclk`.

    s_axis: from the host; its `tlast` is taken and means nothing, for messages say themselves how long they
    are. m_axis: to the host, in `Packets`. aresetn: low for at least a cycle of `aclk`, it makes the device
    forget everything but what lies in its memories. idle: nothing is left to do.
    """

    def __init__(self, plan: HardwarePlan) -> None:
        self.plan = plan
        super().__init__(
            {
                "aclk": In(1),
                "aresetn": In(1),
                "s_axis_tdata": In(WORD),
                "s_axis_tvalid": In(1),
                "s_axis_tready": Out(1),
                "s_axis_tlast": In(1),
                "m_axis_tdata": Out(WORD),
                "m_axis_tvalid": Out(1),
                "m_axis_tready": In(1),
                "m_axis_tlast": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.domains.axi = domain = ClockDomain("axi", local=True)
        # No path leads from an input through to an output, as the standard asks for.
        device, inward, packets = Device(self.plan), SkidBuffer(unsigned(WORD)), Packets()
        for part, name in ((device, "device"), (inward, "inward"), (packets, "packets")):
            m.submodules[name] = DomainRenamer("axi")(part)
        wiring.connect(m, inward.o, device.words_in)
        wiring.connect(m, device.words_out, packets.i)
        m.d.comb += [
            domain.clk.eq(self.aclk),
            domain.rst.eq(~self.aresetn),
            inward.i.payload.eq(self.s_axis_tdata),
            inward.i.valid.eq(self.s_axis_tvalid),
            self.s_axis_tready.eq(inward.i.ready),
            self.m_axis_tdata.eq(packets.o.payload),
            self.m_axis_tvalid.eq(packets.o.valid),
            self.m_axis_tlast.eq(packets.last),
            packets.o.ready.eq(self.m_axis_tready),
            self.idle.eq(device.idle & ~inward.o.valid & ~packets.busy),
            device.watched.ready.eq(1),
        ]
        return m
