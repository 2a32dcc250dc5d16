"""How long firings take, from their programs alone, beside what the simulated circuit took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from amphw.engine.numbering import FrameKind
from amphw.host.config import resolve
from amphw.host.run_model import chosen_instances
from amphw.host.session import graph_of, update_rules
from amphw.ir.device import DeviceOptions, Mode
from amphw.models import get_model
from amphw.rtl.driver.layout import rows_of
from amphw.rtl.isa.events import What, unpack
from amphw.rtl.microcode.timing import firing_cycles
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.plan.control import Phase
from amphw.rtl.plan.hardware import HardwarePlan, Sizes, hardware_plan
from amphw.rtl.timing.control import control_cycles

LISTS = "list-reduction", 16, ("hidden=32", "batch=1", "optimizer=sgd")
TREES = "tree-lstm", 4, ("sample=true", "hidden=16", "embedding=16", "vocabulary=1000", "optimizer=momentum")
MOLECULES = "ggnn", 8, ("sample=true", "hidden=8", "optimizer=momentum")
Model = tuple[str, int, Sequence[str]]

MEASURED: Sequence[tuple[Model, Mapping[tuple[str, int], tuple[int, int]]]] = [
    (
        LISTS,
        {("cell", 1): (328, 480), ("relu", 1): (57, 61), ("h0", 1): (56, 5), ("head", 1): (78, 122)},
    ),
    (
        TREES,
        {
            ("leaf", 4): (1365, 3200),
            ("leaf", 12): (3893, 9184),
            ("head", 7): (272, 509),
            ("head", 23): (816, 1565),
            ("group_n", 7): (137, 140),
            ("embed", 9): (184, 258),
        },
    ),
    (
        MOLECULES,
        {
            ("update", 1): (297, 455),
            ("update", 4): (321, 479),
            ("embed", 17): (177, 320),
            ("sum", 17): (165, 163),
        },
    ),
]
"""Cycles of a firing, forward and backward, by node and rows, as the last test sees them in the circuit."""


def made(model: Model) -> tuple[Any, Any, Any]:
    """The model, its settings and its graph."""
    found: Any = get_model(model[0])
    cfg = resolve(found.config, found.defaults, None, model[2])
    found.prepare(cfg.model, cfg.train.seed)
    return found, cfg, graph_of(found, cfg)


def plan_of(model: Model) -> HardwarePlan:
    _, cfg, graph = made(model)
    return hardware_plan(graph, update_rules(cfg, graph), Formats.parse("q4.12"), Sizes(lanes=model[1]))


def cycles(plan: HardwarePlan, unit: int, kind: FrameKind, rows: Sequence[int], lanes: int) -> int:
    code = plan.codes[unit]
    program = {
        FrameKind.FORWARD: code.forward,
        FrameKind.INFER: code.inference,
        FrameKind.BACKWARD: code.backward,
    }
    return firing_cycles(program[kind].words, rows, lanes)


@pytest.mark.parametrize("model, measured", MEASURED, ids=lambda of: of[0] if isinstance(of, tuple) else "")
def test_firings_take_what_they_took(
    model: Model, measured: Mapping[tuple[str, int], tuple[int, int]]
) -> None:
    plan = plan_of(model)
    for (node, rows), expected in measured.items():
        unit, counts = plan.lowered.by_name[node], [rows] * 8
        found = tuple(
            cycles(plan, unit, kind, counts, model[1]) for kind in (FrameKind.FORWARD, FrameKind.BACKWARD)
        )
        assert found == expected, (node, rows)


def test_more_lanes_take_no_longer_and_more_rows_no_less() -> None:
    name, _, settings = TREES
    by_lanes = []
    for lanes in (4, 8, 16):
        plan = plan_of((name, lanes, settings))
        by_lanes.append(
            [
                cycles(plan, u.index, kind, [rows] * 8, lanes)
                for u in plan.partition.units
                for kind in FrameKind
                for rows in (1, 2, 5)
            ]
        )
    for few, many in zip(by_lanes, by_lanes[1:], strict=False):
        assert sum(many) < sum(few)
    for at in range(0, len(by_lanes[0]), 3):
        one, two, five = by_lanes[0][at : at + 3]
        assert one <= two <= five


def test_the_controller_is_busy_with_every_message() -> None:
    control = plan_of(TREES).control
    unit = control.partition.lowered.by_name["group_n"]
    few, many = (control_cycles(control, unit, Phase.FETCH, messages, 4) for messages in (1, 9))
    assert 0 < few < many
    leaf = control.partition.lowered.by_name["leaf"]
    assert control_cycles(control, leaf, Phase.RETURN) < control_cycles(control, leaf, Phase.ROUTE, 8)


@pytest.mark.parametrize("rows, measured", [(6, 591), (9, 867), (11, 1051)])
def test_rows_that_go_one_by_one_are_looked_at_on_each_path(rows: int, measured: int) -> None:
    """Leaves of a tree go to the losses, and half of them to either side of a branch each. Measured
    in the circuit: from the end of their firing to the first branch, which the controller fetches behind."""
    small = "sample=true", "hidden=4", "embedding=4", "vocabulary=500", "optimizer=sgd"
    control = plan_of(("tree-lstm", 32, small)).control
    leaf, branch = (control.partition.lowered.by_name[name] for name in ("leaf", "branch"))
    found = control_cycles(control, leaf, Phase.ROUTE, 2 * rows, rows)
    found += control_cycles(control, branch, Phase.FETCH)
    assert found == pytest.approx(measured, rel=0.05)


# --- beside the circuit -------------------------------------------------------------------------------


class Stamps:
    """Steps a simulated device cycle by cycle, and notes when it said what."""

    def __init__(self, device: Any) -> None:
        self.simulation = device.link.simulation
        self.at: list[tuple[int, int]] = []
        self._exchange = self.simulation.exchange
        self.simulation.exchange = self.stepped

    def stepped(self, words: np.ndarray, max_cycles: int, *, until_idle: bool = False) -> Any:
        accepted = cycles = 0
        came: list[np.ndarray] = []
        while cycles < max_cycles:
            told = len(self.simulation.traced)
            found = self._exchange(words[accepted:], 1, until_idle=until_idle)
            if not found.cycles:
                break
            accepted, cycles = accepted + found.accepted, cycles + found.cycles
            came.append(found.words)
            self.at += [(self.simulation.cycles, event) for event in self.simulation.traced[told:]]
        whole = np.concatenate(came) if came else words[:0]
        return found._replace(accepted=accepted, words=whole, cycles=cycles)


@pytest.mark.hardware
@pytest.mark.parametrize("model", [LISTS, TREES, MOLECULES], ids=lambda of: of[0])
def test_the_circuit_takes_as_long(model: Model) -> None:
    from amphw.rtl.driver.verilator import VerilatorDevice

    found, cfg, graph = made(model)
    device = VerilatorDevice("q4.12")
    options = DeviceOptions(2, 1, settings={"lanes": model[1], "watch": True})
    device.load(graph, update_rules(cfg, graph), options)
    stamps, plan = Stamps(device), device.plan
    free, waiting = [0, 1], list(enumerate(chosen_instances(found, cfg, 4)))
    seen = total = 0
    begun: tuple[int, dict[str, Any]] = (0, {})
    left = len(waiting)
    while left:
        while waiting and free:
            number, instance = waiting.pop(0)
            instance.number = number
            device.submit(free.pop(), number, instance, Mode.TRAIN)
        rows: dict[tuple[int, int], list[int]] = {}  # firings' numbers are used again, by later instances
        for active in device.active.values():
            rows |= _rows_of(plan, active)
        for report in device.poll():
            free.append(report.slot)
            left -= 1
        for now, event in stamps.at:
            fields = unpack(event)
            if fields["what"] == What.BEGIN:
                key = plan.partition.units[fields["unit"]].index, fields["firing"]
                begun = now, {**fields, "rows": rows[key]}
            elif fields["what"] == What.END:
                then, of = begun
                unit = plan.partition.units[of["unit"]].index
                expected = cycles(plan, unit, FrameKind(of["kind"]), of["rows"], model[1])
                off = now - then - expected
                assert abs(off) <= 1, (plan.lowered.units[unit].name, of, expected)
                seen, total = seen + 1, total + off
        stamps.at.clear()
    device.close()
    assert seen > 50 and abs(total) < seen / 10


def _rows_of(plan: HardwarePlan, active: Any) -> dict[tuple[int, int], list[int]]:
    """Of an instance on the device: registers of rows by unit and the firing's number there."""
    found = {}
    for unit in plan.partition.units:
        table, code = active.layout.plan.units[unit.index], plan.codes[unit.index]
        first = active.at.firings + active.layout.firings[unit.index].first
        for at in range(table.space.size):
            counts = [0] * 8
            for space, register in code.spaces.register.items():
                counts[register] = rows_of(table.spaces[space], at)
            found[unit.index, first + at] = counts
    return found
