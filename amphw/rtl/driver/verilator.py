"""The generated hardware, compiled and run in this process."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import numpy as np

from amphw.ir.errors import DeviceAbsentError
from amphw.rtl.driver.active import Link
from amphw.rtl.driver.device import HardwareDevice
from amphw.rtl.driver.part import HardwarePart
from amphw.rtl.hardware_plan import HardwarePlan
from amphw.rtl.toolchain.environment import missing


class SimulatedLink:
    """Words into a compiled model of the hardware, and out of it."""

    def __init__(self, plan: HardwarePlan, writes: bool):
        from amphw.rtl.gateware.device import Device
        from amphw.rtl.verilated.simulation import Simulation

        self.simulation = Simulation(Device(plan, writes), trace="watched", idle="idle")

    def exchange(self, words: np.ndarray, cycles: int) -> tuple[int, np.ndarray, list[int]]:
        got = self.simulation.exchange(words, cycles, until_idle=True)
        watched = list(self.simulation.traced)
        self.simulation.traced.clear()
        return got.accepted, got.words, watched

    def close(self) -> None:
        self.simulation.close()


class VerilatorDevice(HardwareDevice):
    """`verilator:q4.12`: a device of the simulated hardware."""

    name = "verilator"

    def __init__(self, argument: str = "q4.12", nodes: Collection[str] | None = None):
        super().__init__(argument, nodes)
        if lacking := missing("simulation"):
            raise DeviceAbsentError(f"simulation: not installed: {lacking}.")

    def slow_start(self) -> str:
        """See `StartsSlowly`."""
        return "compiling the simulation of the hardware: a minute or more, unless it is in the cache"

    def part(self) -> HardwarePart:
        """See `OffersPart`."""
        return HardwarePart(partial(VerilatorDevice, str(self.formats)))

    def make_link(self, plan: HardwarePlan, writes: bool) -> Link:
        return SimulatedLink(plan, writes)
