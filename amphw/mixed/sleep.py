"""The sleep device: all control is real, and layers take the time that a device of so many FLOPS would."""

from __future__ import annotations

from amphw.engine.parts.sleeper import Sleeper
from amphw.ir.device import Capabilities
from amphw.ir.units import quantity
from amphw.mixed.device import MixedDevice

DEFAULT = "1TFLOPS"
"""Of a device in the papers' estimate (AMPNet, ICLR 2018 submission HJnQJXbC-, appendix C)."""


class SleepDevice(MixedDevice):
    """SleepDevice("1TFLOPS"): nodes with parameters wait, on one device; the others run on the CPU.

    What waits computes nothing, so losses mean nothing. In a run with others it is one device among them.
    """

    host_takes_turns = False

    def __init__(self, argument: str = DEFAULT) -> None:
        self.flops, self.argument = quantity(argument, "operations a second"), argument.strip()
        super().__init__({"sleep": self})

    def capabilities(self) -> Capabilities:
        notes = "waits for the time of 2 k din dout operations a layer and direction, computes nothing"
        return Capabilities(f"sleep:{self.argument}", "sleep", flops=self.flops, notes=notes)

    def part(self) -> Sleeper:
        """See `OffersPart`."""
        return Sleeper(self.capabilities(), self.flops)
