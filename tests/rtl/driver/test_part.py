"""Hardware as a part of a run, where the circuit does not do its own part."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from amphw.engine.lowering.lower import lower
from amphw.ir.device import DeviceOptions, LinkRate, Mode
from amphw.ir.errors import DeviceLostError
from amphw.ir.update import UpdateRule
from amphw.rtl.driver.device import HardwareDevice
from amphw.rtl.driver.part import HardwarePart
from amphw.rtl.driver.verilator import SimulatedLink, SimulatedPart, VerilatorDevice
from amphw.rtl.isa.wire import Fault, Kind, pack
from amphw.rtl.plan.hardware import HardwarePlan
from tests.rtl.cases import SMALL, case, problem


class Circuit:
    """Takes every word and, if it says anything, says that it dropped a message."""

    def __init__(self, complains: bool):
        self.complains, self.closed = complains, False

    def exchange(self, words: np.ndarray, cycles: int) -> tuple[int, np.ndarray, list[int]]:
        said = pack(Kind.FAULT, output=Fault.LENGTH) if self.complains and len(words) else []
        return len(words), np.array(said, np.uint16), []

    def close(self) -> None:
        self.closed = True


class Broken(HardwareDevice):
    complains = False

    def make_link(self, plan: HardwarePlan, writes: bool) -> Circuit:
        return Circuit(self.complains)


class Complaining(Broken):
    complains = True


class StuckSimulation(Circuit, SimulatedLink):
    """Behind a link with a rate."""

    def __init__(self, *_: object):
        super().__init__(complains=False)
        self.paced = SimpleNamespace(rate=LinkRate(1e8), clock=5e7, now=0, sent=0, came=0, skipped=0)  # type: ignore[assignment]

    def rests(self) -> bool:
        return False


def loaded(part: HardwarePart, **sizes: int) -> HardwarePart:
    graph = case("tree-leaves").build()
    lowered = lower(graph)
    units = [lowered.units[lowered.by_name[name]] for name in ("leaf", "branch")]
    options = DeviceOptions(4, 0, "none", 3, settings={**SMALL, **sizes})
    part.load(graph, lowered, units, {"*": UpdateRule()}, options)
    return part


@pytest.mark.parametrize(
    ("make", "why"), [(Broken, "the device is silent"), (Complaining, r"dropped .*LENGTH")]
)
def test_a_circuit_that_does_not_answer_is_lost(make: type[Broken], why: str) -> None:
    """Whatever is asked of it: the run then goes on without it."""
    part = loaded(HardwarePart(make))
    with pytest.raises(DeviceLostError, match=why):
        part.update(["branch"])
    part = loaded(HardwarePart(make))
    with pytest.raises(DeviceLostError, match=why):
        part.parameters()


def test_a_circuit_too_small_for_an_instance_is_lost() -> None:
    """The CPU has room."""
    part = loaded(HardwarePart(Broken), firings=1)
    with pytest.raises(
        DeviceLostError, match=r"instance 0 .* of its firings memory, which has 1 .*place=NODE=cpu"
    ):
        part.begin(0, 1, problem("tree-leaves")[1][0], Mode.TRAIN)


@pytest.mark.parametrize("make", [Broken, Complaining])
def test_a_circuit_that_does_not_answer_can_be_let_go(make: type[Broken]) -> None:
    part = loaded(HardwarePart(make))
    link = part.device.link
    assert isinstance(link, Circuit)
    part.close()
    assert link.closed
    assert part.parameters() == part.device.given


def test_a_stuck_simulation_does_not_say_what_its_link_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amphw.rtl.driver.verilator.missing", lambda *_: "")
    monkeypatch.setattr(VerilatorDevice, "make_link", StuckSimulation)
    part = SimulatedPart("q6.10,g=q4.12")
    loaded(part)
    link = part.device.link
    with pytest.raises(DeviceLostError, match="the device is silent"):
        part.link_use()
    assert isinstance(link, StuckSimulation)
    part.close()
    assert link.closed
