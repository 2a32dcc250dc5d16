"""What benches run on: components of some size, with the settings that their benches are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from amphw.rtl.gateware import activity as activity_module
from amphw.rtl.gateware.controller.keeper import Keeper
from amphw.rtl.gateware.controller.memory import ControlShape
from amphw.rtl.gateware.controller.ports import FrameKind
from amphw.rtl.gateware.controller.sequencer import Sequencer
from amphw.rtl.gateware.lanes.shape import LaneShape, command_layout
from amphw.rtl.gateware.link.uart import UartLink
from amphw.rtl.gateware.network.ethernet import EthernetLink
from amphw.rtl.gateware.network.internet import Addresses
from amphw.rtl.gateware.payload_memory import PayloadMemory
from amphw.rtl.gateware.vector.command import VectorShape
from sim.models.keeper import UNITS, owners
from sim.models.microprograms import random_program
from sim.parts import LinkPart
from sim.runner import BenchResult, record_bench, run_bench


@dataclass(frozen=True)
class Setup:
    """A component and its bench. name: of the folder that a failure leaves behind."""

    name: str
    make: Callable[[], Any]
    bench: str
    settings: Mapping[str, Any]

    def run(self, seed: int = 1) -> BenchResult:
        """See `run_bench`."""
        return run_bench(self.make, self.bench, name=self.name, seed=seed, settings=self.settings)

    def record(self, seed: int = 1) -> Path:
        """See `record_bench`."""
        return record_bench(self.make, self.bench, seed=seed, settings=self.settings)


def _control(**fields: Any) -> ControlShape:
    usual = {
        "firings": 64, "places": 64, "table": 64, "slots": 8, "outputs": 1, "state_bits": 8, "decisions": 1,
        "loops": 1, "reads": 1, "by_rows": False, "paths": 1,
    }  # fmt: skip
    return ControlShape(**{**usual, **fields})


_LANES = {"lanes": 4, "beats": 64, "widest_blocks": 4, "address_bits": 12}


def keeper(momentum: bool, clips: bool, runs: int, resets: int) -> Setup:
    control = _control(units=UNITS)
    settings = {
        "control": asdict(control), "lanes": _LANES, "momentum": momentum, "clips": clips, "runs": runs,
        "resets": resets,
    }  # fmt: skip

    def make() -> Keeper:
        return Keeper(control, owners(momentum, clips), command_layout(LaneShape(**_LANES)))

    return Setup("keeper" + "-momentum" * momentum + "-clips" * clips, make, "keeper_bench", settings)


def sequencer(firings: int, resets: int) -> Setup:
    units = 16
    control, vector = _control(units=units), {"address_bits": 12, "count_bits": 15}
    rng = np.random.default_rng(7)
    programs = [random_program(rng, int(rng.integers(0, 40))) for _ in range(3 * units)]
    microcode: list[int] = []
    entries = {}
    for number, program in enumerate(programs):
        entries[number // 3, FrameKind(number % 3)] = len(microcode)
        microcode += program
    settings = {
        "control": asdict(control), "vector": vector, "lanes": _LANES, "programs": programs,
        "firings": firings, "resets": resets,
    }  # fmt: skip

    def make() -> Sequencer:
        lanes = command_layout(LaneShape(**_LANES))
        return Sequencer(control, VectorShape(**vector), lanes, microcode, entries)

    return Setup("sequencer", make, "sequencer_bench", settings)


def link(messages: int, cuts: int, payload: int = 1024) -> Setup:
    """payload: words of memory, a power of two; one message takes nearly all of them."""
    shape = _control(places=32, table=128, slots=9, units=5, outputs=2, paths=2)
    settings = {
        "shape": asdict(shape), "payload": payload, "shared": 448, "own": 64,
        "messages": messages, "cuts": cuts,
    }  # fmt: skip
    return Setup("link", lambda: LinkPart(shape, payload), "link_bench", settings)


def memory(cycles: int) -> Setup:
    return Setup("memory", lambda: PayloadMemory(6, 64), "memory_bench", {"words": 64, "cycles": cycles})


def activity(bits: int, rounds: int, cycles: int) -> Setup:
    """bits: of a counter, fewer than there are for those that would not be through in a bench's time."""
    paths, level_bits = 5, 8
    settings = {"paths": paths, "level_bits": level_bits, "bits": bits, "rounds": rounds, "cycles": cycles}

    class Narrow(activity_module.Activity):
        def __init__(self) -> None:
            with mock.patch.object(activity_module, "BITS", bits):
                super().__init__(paths, level_bits)

        def elaborate(self, platform: Any) -> Any:
            with mock.patch.object(activity_module, "BITS", bits):
                return super().elaborate(platform)

    return Setup("activity", Narrow, "activity_bench", settings)


def uart(spoilt: int = 5) -> Setup:
    """spoilt: rounds of frames that are damaged."""
    settings = {"divisor": 8, "depth": 6, "spoilt": spoilt}
    return Setup("uart", lambda: UartLink(8, depth=6), "uart_bench", settings)


ABOUT = {"mac": 0x024D_0000_0032, "ip": 0xC0A8_0132, "identity": 0x0123_4567_89AB_CDEF}
TIMES = {"hold": 60_000, "retry": 8_000}


def ethernet() -> Setup:
    """Its bench needs cocotbext-eth."""

    def make() -> EthernetLink:
        return EthernetLink(Addresses(ABOUT["mac"], ABOUT["ip"]), ABOUT["identity"], 80e6, **TIMES)

    return Setup("ethernet", make, "ethernet_bench", {**ABOUT, **TIMES})
