"""The generated hardware, compiled and run in this process."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from amphw.engine.parts.links import link_of, links_found
from amphw.ir.config_fields import picked
from amphw.ir.device import Capabilities, DeviceOptions, Findings, LinkRate, LinkUse
from amphw.ir.errors import AmphwError, DeviceAbsentError, ExecutionError
from amphw.ir.graph import Graph
from amphw.ir.units import quantity
from amphw.ir.update import UpdateRule
from amphw.rtl.build.boards import assumed
from amphw.rtl.driver.active import Link
from amphw.rtl.driver.device import HardwareDevice
from amphw.rtl.driver.part import HardwarePart, lost_if_stuck
from amphw.rtl.isa.wire import WORD
from amphw.rtl.numbers.formats import DEFAULT
from amphw.rtl.options import HardwareOptions
from amphw.rtl.plan.hardware import HardwarePlan
from amphw.rtl.toolchain.environment import missing

GATES = "gates"
LANES = (GATES, "model")
"""How `lanes=` says that products are simulated: gate by gate, or by a functional model of the same words in
the same cycles."""


class SimulatedLink:
    """Words into a compiled model of the hardware, and out of it; with a rate, as fast as that and no faster.

    clock: the device's, in cycles a second. lanes: "gates" or "model", see `LANES`.
    """

    def __init__(
        self, plan: HardwarePlan, writes: bool, rate: LinkRate | None, clock: float, lanes: str = GATES
    ):
        from amphw.rtl.gateware.device import Device
        from amphw.rtl.verilated.paced import PacedLink
        from amphw.rtl.verilated.quick import QuickDevice
        from amphw.rtl.verilated.simulation import Simulation

        device = Device(plan, writes) if lanes == GATES else QuickDevice(plan, writes)
        self.simulation = Simulation(device, trace="watched", idle="idle")
        self.paced = PacedLink(self.simulation, rate, clock) if rate is not None else None

    def exchange(self, words: np.ndarray, cycles: int) -> tuple[int, np.ndarray, list[int]]:
        if self.paced is not None:
            accepted, came = self.paced.exchange(words, cycles)
        else:
            accepted, came, _ = self.simulation.exchange(words, cycles, until_idle=True)
        watched = list(self.simulation.traced)
        self.simulation.traced.clear()
        return accepted, came, watched

    def rests(self) -> bool:
        """Whether the circuit says that nothing is left to do."""
        return bool(self.simulation.peek("idle"))

    def close(self) -> None:
        self.simulation.close()


class VerilatorDevice(HardwareDevice):
    """`verilator:q4.12`, `verilator:q4.12,lanes=model`: a device of the simulated hardware.

    settings beside those of `HardwareDevice`: links (what `verilator=100Mb/s+20us` says of the link to it,
    in its own simulated time) and clock (else that of a board). rate: the same, for a part of a run.
    """

    name = "verilator"
    rate: LinkRate | None = None
    _use: LinkUse | None = None

    def __init__(self, argument: str = DEFAULT, nodes: Collection[str] | None = None):
        formats, self.lanes = _parted(argument)
        super().__init__(formats, nodes)
        if lacking := missing("simulation"):
            raise DeviceAbsentError(f"simulation: not installed: {lacking}.")

    def slow_start(self) -> str:
        """See `StartsSlowly`."""
        return "compiling the simulation of the hardware: a minute or more, unless it is in the cache"

    def part(self) -> HardwarePart:
        """See `OffersPart`."""
        return SimulatedPart(f"{self.formats},lanes={self.lanes}")

    def make_link(self, plan: HardwarePlan, writes: bool) -> Link:
        said = picked(HardwareOptions, self.options.settings).clock
        clock = quantity(said, "cycles a second") if said else assumed().clock_hz
        return SimulatedLink(plan, writes, self.rate, clock, lanes=self.lanes)

    def turn(self) -> bool:
        alive = super().turn()
        if isinstance(self.link, SimulatedLink) and self.link.rests():
            self.watcher.retirement.rests()
        return alive

    # --- the link to it ---------------------------------------------------------------------------

    def linkable(self) -> Sequence[str]:
        """See `Linked`."""
        return [self.name]

    def load(self, graph: Graph, rules: Mapping[str, UpdateRule], options: DeviceOptions) -> None:
        if "links" in options.settings:
            self.rate = link_of(options.settings["links"], self.name)
        super().load(graph, rules, options)

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), link=self.rate)

    def link_use(self) -> LinkUse | None:
        """Of a link with a rate, since `load`; nothing is in flight."""
        link = self.link
        if not isinstance(link, SimulatedLink) or link.paced is None:
            return self._use
        p = link.paced
        now, sent, came, skipped = p.now, p.sent, p.came, p.skipped  # before anybody asks the device
        starved = self.counters().get("starved", 0) if self.plan.sizes.counters else 0
        word = WORD // 8
        to, back = word * sent, word * came
        busy_to, busy_back = (8 * count / p.rate.bits_per_s for count in (to, back))
        idle = (starved + skipped) / p.clock
        return LinkUse(p.rate, to, back, now / p.clock, busy_to, busy_back, idle, p.clock, word)

    def findings(self) -> Findings:
        """See `Investigates`: what the link was loaded with."""
        use = self.link_use()
        return links_found({self.name: use} if use is not None else {})

    def close(self) -> None:
        try:
            if self.link is not None and not self.active:
                self._use = self.link_use()
        except ExecutionError:  # it is stuck
            pass
        super().close()


def _parted(argument: str) -> tuple[str, str]:
    """The number formats of a device's argument, and its lanes. AmphwError for lanes that there are not."""
    formats, lanes = [], GATES
    for piece in argument.split(","):
        key, equals, value = (part.strip() for part in piece.partition("="))
        if key != "lanes":
            formats.append(piece)
        elif value in LANES:
            lanes = value
        else:
            raise AmphwError(
                f"the device 'verilator:{argument}': lanes={value} is neither gates (the circuit as it is "
                "built, the default) nor model (the same words in the same cycles, simulated faster)"
            )
    return ",".join(formats) or DEFAULT, lanes


class SimulatedPart(HardwarePart):
    """A part whose link may be stated."""

    def __init__(self, argument: str):
        self.rate: LinkRate | None = None
        self._argument = argument
        super().__init__(self._made)

    def _made(self) -> VerilatorDevice:
        device = VerilatorDevice(self._argument)
        device.rate = self.rate
        return device

    def models_link(self) -> bool:
        """See `ModelsLink`."""
        return True

    def state_link(self, rate: LinkRate) -> None:
        self.rate = rate
        self.device = self._made()

    def link_use(self) -> LinkUse:
        assert isinstance(self.device, VerilatorDevice)
        while self._leaving():
            self._turn()
        with lost_if_stuck():
            found = self.device.link_use()
        assert found is not None
        return found
