"""A device that is simulated faster, and does the same in the same cycles.

Its lane engine multiplies in C++ (`lanes`), and its parts sleep while they have nothing to do (`sleep`).
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import DomainRenamer, Module, Signal

from amphw.rtl.gateware.device import Device
from amphw.rtl.plan.hardware import HardwarePlan
from amphw.rtl.verilated.lanes import UPDATER, ModelledLanes
from amphw.rtl.verilated.sleep import ticks

SLEEPERS = {
    "lanes": 31,
    "vector": 31,
    "controller": 7,  # its memories' answers take two cycles, those of its queues of what is ready three
    "sequencer": 3,
    "keeper": 7,  # the constants of a parameter take SETTLE cycles
    "receiver": 1,
    "sender": 1,
    UPDATER: 31,
}
"""Parts, and in how many cycles each comes to rest. The longest pipeline, that of an update with momentum,
has fewer than 25 steps."""


class QuickDevice(Device):
    """A `Device` for `Simulation`, which finds its clocks and its sources."""

    def __init__(self, plan: HardwarePlan, writes: bool = False):
        super().__init__(plan, writes)
        self.clocks = {name: Signal(name=f"ticks_{name}") for name in SLEEPERS}
        self._parts: dict[str, Any] = {}
        self._lanes = ModelledLanes(self.lanes_shape)

    def sources(self) -> dict[str, str]:
        """See `ModelledLanes`."""
        return self._lanes.sources()

    def lane_engine(self) -> Any:
        return self._lanes

    def place(self, m: Module, name: str, part: Any) -> Any:
        self._parts[name] = part
        m.submodules[name] = DomainRenamer(name)(part) if name in SLEEPERS else part
        return part

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        for name, tick in ticks(m, {k: (v, SLEEPERS[k]) for k, v in self._quiet().items()}).items():
            m.d.comb += self.clocks[name].eq(tick)
        return m

    def _quiet(self) -> dict[str, Any]:
        """Of each part, that it has nothing to do, is told nothing, and no one takes what it offers."""
        lanes, vector, controller, sequencer, keeper, receiver, sender = (
            self._parts[name] for name in SLEEPERS if name != UPDATER
        )
        begins = sequencer.run.valid & sequencer.run.ready
        nothing_ready = (controller.ready == 0) & (controller.ready_backward == 0)
        return {
            "lanes": lanes.idle & ~lanes.command.valid,
            "vector": vector.idle & ~vector.command.valid & ~vector.pointer.en,
            # It fetches no firing while it offers one.
            "controller": controller.idling
            & (controller.run.valid | nothing_ready)
            & ~(begins | controller.ran.valid | controller.event.valid)
            & ~(controller.table_en | controller.prelude.valid | controller.job.valid),
            "sequencer": (~sequencer.busy | sequencer.stalled) & ~begins & ~sequencer.registers.en,
            "keeper": ~keeper.hold & ~keeper.finished,
            "receiver": receiver.resting & ~receiver.words.valid,
            "sender": sender.resting,
            UPDATER: ~lanes.updates,
        }
