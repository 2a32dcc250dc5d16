"""A device that is simulated faster, and does the same in the same cycles.

Its lane engine multiplies in C++ (`lanes`), and its parts sleep while they have nothing to do (`sleep`).
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import DomainRenamer, Module, Signal

from amphw.rtl.gateware.device import Device
from amphw.rtl.gateware.payload_memory import PayloadMemory
from amphw.rtl.numbers.formats import BITS
from amphw.rtl.plan.hardware import HardwarePlan
from amphw.rtl.verilated.lanes import ModelledLanes
from amphw.rtl.verilated.sleep import ticks

SLEEPERS = {
    "vector": 31,
    "controller": 7,  # its memories' answers take two cycles, those of its queues of what is ready three
    "sequencer": 3,
    "keeper": 7,  # the constants of a parameter take SETTLE cycles
    "receiver": 1,
    "sender": 1,
}
"""Parts beside the lane engine, and in how many cycles each comes to rest."""


class QuickDevice(Device):
    """A `Device` for `Simulation`, which finds its clocks and its sources."""

    def __init__(self, plan: HardwarePlan, writes: bool = False):
        super().__init__(plan, writes)
        self._lanes = ModelledLanes(self.lanes_shape)
        domains = (*(name or "lanes" for name in self._lanes.quiet), *SLEEPERS)
        self.clocks = {name: Signal(name=f"ticks_{name}") for name in domains}
        self._parts: dict[str, Any] = {}

    def sources(self) -> dict[str, str]:
        """See `ModelledLanes`."""
        return self._lanes.sources()

    def lane_engine(self) -> Any:
        return self._lanes

    def payload_memory(self) -> Any:
        """In one piece, of whole words: a processor has no blocks to be filled."""
        words, bits = self.plan.sizes.payload, self.vector_shape.address_bits
        return PayloadMemory(bits, words, part=BITS, bank=1 << bits)

    def place(self, m: Module, name: str, part: Any) -> Any:
        self._parts[name] = part
        m.submodules[name] = DomainRenamer(name)(part) if name in self.clocks else part
        return part

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        quiet = {name or "lanes": condition for name, condition in self._lanes.quiet.items()}
        quiet |= {name: (condition, SLEEPERS[name]) for name, condition in self._quiet().items()}
        for name, tick in ticks(m, quiet).items():
            m.d.comb += self.clocks[name].eq(tick)
        return m

    def _quiet(self) -> dict[str, Any]:
        """Of each part, that it has nothing to do, is told nothing, and no one takes what it offers."""
        vector, controller, sequencer, keeper, receiver, sender = (self._parts[name] for name in SLEEPERS)
        begins = sequencer.run.valid & sequencer.run.ready
        return {
            "vector": vector.idle & ~vector.command.valid & ~vector.pointer.en,
            "controller": controller.waits
            & ~(begins | controller.table_en | controller.prelude.valid | controller.job.valid),
            "sequencer": (~sequencer.busy | sequencer.stalled) & ~begins & ~sequencer.registers.en,
            "keeper": ~keeper.hold & ~keeper.finished,
            "receiver": receiver.resting & ~receiver.words.valid,
            "sender": sender.resting,
        }
