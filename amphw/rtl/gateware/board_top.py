"""What a chip is configured with: a device behind the board's serial line."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.device import Device
from amphw.rtl.gateware.link.uart import UartLink, divisor
from amphw.rtl.gateware.streams import SkidBuffer
from amphw.rtl.isa.wire import WORD
from amphw.rtl.plan.hardware import HardwarePlan


class BoardTop(wiring.Component):
    """The device of a plan; rx, tx: the serial line. Everything runs at one clock, of `clock_hz`.

    Nobody watches the device here, so that the logic which tells what happens in it is left out.
    """

    def __init__(self, plan: HardwarePlan, clock_hz: float, baud: float) -> None:
        self.plan = plan
        self.divisor = divisor(clock_hz, baud)
        super().__init__({"rx": In(1, init=1), "tx": Out(1, init=1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.device = device = Device(self.plan)
        m.submodules.link = link = UartLink(self.divisor)
        # The memory of the link lies far from that of the device.
        m.submodules.buffer = buffer = SkidBuffer(unsigned(WORD))
        wiring.connect(m, link.o, buffer.i)
        wiring.connect(m, buffer.o, device.words_in)
        wiring.connect(m, device.words_out, link.i)
        m.d.comb += [link.rx.eq(self.rx), self.tx.eq(link.tx), device.watched.ready.eq(1)]
        return m
