"""A part of a graph as hardware, with the rest played from what the model of its arithmetic computed.

Every node is on one side of the border in one of the cases and on the other in the other, so messages and
gradients cross it in both directions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amphw.engine.lowering.plan import PathTable
from amphw.ir.device import DeviceOptions, Direction, Mode
from amphw.ir.update import UpdateRule
from amphw.rtl.driver.active import Active
from amphw.rtl.driver.border import HostBorder
from amphw.rtl.driver.layout import path_table
from amphw.rtl.driver.verilator import VerilatorDevice
from amphw.rtl.fixed.device import FixedDevice
from sim.replay import Firings, drive, written
from tests.rtl.cases import SMALL, problem

pytest.importorskip("amaranth")

FORMATS = "q6.10,g=q4.12"
RULES = {"*": UpdateRule(interval=1 << 20)}
"""Parameters stay as they are, so the order of messages changes nothing."""

PARTS = {
    "tree-leaves": ({"leaf", "branch", "scale"}, {"embed", "pair", "halves", "head"}),
    "message-passing": ({"edge0", "edge2", "update", "head"}, {"embed", "edge1", "readout"}),
}


def sender(table: PathTable, delivery: int) -> int:
    """Which firing of a node that decides nothing sends a delivery."""
    return int(np.searchsorted(table.start, delivery, side="right")) - 1


class Played:
    """A node that is not on the device: it sends, and answers with, what was recorded."""

    def __init__(self, device: VerilatorDevice, border: PlayedBorder, index: int, recorded: Firings):
        self.unit, self.device, self.recorded = device.plan.lowered.units[index], device, recorded
        self.border = border
        self.missing: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def send(self, a: Active) -> None:
        """All messages at once, whatever they would wait for."""
        for path in self.unit.out:
            table = path_table(self.device.plan, a.layout.plan, path)
            for k in range(len(table.firing)):
                key = (a.instance.number, self.unit.index, Direction.FORWARD, sender(table, k))
                if key not in self.recorded:  # it never fires
                    continue
                sent = self.device.formats.value.real(np.asarray(self.recorded[key][path.value]))
                row = int(table.row[k])
                sent = sent if row < 0 else sent[row : row + 1]
                if path.target in self.device.plan.partition.number:
                    self.device.deliver(a, path, table, k, sent)
                else:
                    self.border._arrive(a, path, table, k, sent, None)

    def begin(self, slot: int, plan: Any, instance: Any) -> None:
        need = plan.units[self.unit.index].need
        self.missing[slot] = need.copy(), need

    def end(self, slot: int, report: Any) -> None:
        left, need = self.missing.pop(slot)
        assert np.all((left == 0) | (left == need)), "some operands of a firing have not come"

    def arrive(
        self, slot: int, plan: Any, firing: int, operand: int, position: int, payload: np.ndarray, report: Any
    ) -> list[tuple[int, int, np.ndarray | None]]:
        """The gradient goes back at once."""
        self.missing[slot][0][firing] -= 1
        found = self.recorded[report.number, self.unit.index, Direction.BACKWARD, firing][operand]
        if found is None:
            return [(operand, position, None)]
        gradient = self.device.formats.gradient.real(np.asarray(found))
        members = plan.units[self.unit.index].members[operand]
        if members is not None:  # the gradients of a group, side by side
            gradient = np.split(gradient, members[firing + 1] - members[firing])[position - members[firing]]
        return [(operand, position, gradient)]


class PlayedBorder(HostBorder):
    """Plays the nodes that are not on the device, and keeps the gradients that leave it."""

    def prepare(self) -> None:
        super().prepare()
        self.left: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        self.played: list[Played] = []
        self.pumping = False

    def begin(self, a: Active) -> None:
        self.pumping = True
        super().begin(a)
        for played in self.played:
            played.send(a)
        self.pumping = False

    def returned(self, a: Active, place: int, gradient: np.ndarray) -> None:
        self.left.setdefault((a.instance.number, place), []).append(tuple(gradient.tolist()))
        super().returned(a, place, gradient)

    def _settle(self, a: Active) -> None:
        if not self.pumping:
            super()._settle(a)


@pytest.mark.hardware
@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_a_graph(name: str, part: int) -> None:
    graph, instances = problem(name)
    for number, instance in enumerate(instances):
        instance.number = number
    model = FixedDevice(FORMATS)
    model.load(graph, RULES, DeviceOptions(4, 0, "self", 3, False, {"observe": True}))
    _, recorded = drive(model, instances, 4, Mode.TRAIN)

    device = VerilatorDevice(FORMATS, PARTS[name][part])
    device.border = border = PlayedBorder(device)
    device.load(graph, RULES, DeviceOptions(4, 0, "self", 3, False, {"watch_writes": True, **SMALL}))
    for unit in device.plan.lowered.units:
        if unit.name in device.plan.elsewhere:
            played = Played(device, border, unit.index, recorded)
            border.losses[unit.index] = played  # type: ignore[assignment]
            border.played.append(played)
    drive(device, instances, 4, Mode.TRAIN)

    compared = 0
    for key, values in written(device).items():
        for got, want in zip(values, recorded[key], strict=True):
            if want is not None:
                assert got is not None and np.array_equal(got, np.asarray(want).reshape(got.shape)), key
                compared += 1
    assert compared > 100
    for instance in instances:
        assert_gradients_left(device, border, recorded, instance)
    device.close()


def assert_gradients_left(
    device: VerilatorDevice, border: PlayedBorder, recorded: Firings, instance: Any
) -> None:
    """What comes back over the border is what the model sent there."""
    layout = device._layout(instance)
    crossed = 0
    for path in device.plan.partition.inbound:
        if device.plan.lowered.units[path.source].behaviour.is_source:
            continue
        source = device.plan.lowered.units[path.source]
        table = layout.plan.units[path.source].paths[source.out.index(path)]
        members = layout.plan.units[path.target].members[path.operand]
        for k, (firing, position) in enumerate(
            zip(table.firing.tolist(), table.position.tolist(), strict=True)
        ):
            if (instance.number, path.source, Direction.FORWARD, sender(table, k)) not in recorded:
                continue  # it never fires
            found = recorded[instance.number, path.target, Direction.BACKWARD, firing][path.operand]
            want = np.asarray(found if found is not None else [])
            if members is not None and found is not None:
                want = np.split(want, members[firing + 1] - members[firing])[position - members[firing]]
            (got,) = border.left[instance.number, layout.operands[path.target, path.operand] + position]
            assert got == tuple(want.reshape(-1).tolist())
            crossed += 1
    assert crossed > 0
