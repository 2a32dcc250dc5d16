"""What the numpy data plane keeps of an instance in flight.

Payloads are views into the arrays of the frames that produced them: nothing is copied on delivery, and a
frame's array is freed when the last message cut from it is done. The plan's tables become Python lists once a
structure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from amphw.engine.lowering.lower import Lowered
from amphw.engine.lowering.plan import Plan, integers
from amphw.ir.device import Mode, Report
from amphw.ir.instance import Instance
from amphw.ir.state import OUT_OF_DOMAIN

Origin = tuple[int, int, int]
"""Where an operand came from: (sender unit, sender's firing, number of its route)."""

Route = tuple[int, int, int, int, int, int]
"""(target unit, operand, target firing, position in the operand, row or -1, output that is sent)."""

FAULT = -1
"""Target of a route that stands for a fault; its operand is the number of the fault's text."""

DONE = object()
"""Stands where an operand has been consumed, so that a second message of the same state is noticed."""


class UnitPlan:
    """A unit's tables as lists, for access one firing at a time."""

    __slots__ = ("faults", "first", "members", "need", "routes", "rows", "size", "spaces", "width")

    def __init__(self, plan: Plan, lowered: Lowered, unit: int):
        table = plan.units[unit]
        u = lowered.units[unit]
        self.size = table.space.size
        self.need = table.need.tolist()
        self.spaces: dict[str, int | list[int]] = {
            s: v if isinstance(v, int) else v.tolist() for s, v in table.spaces.items()
        }
        self.members = [None if m is None else m.tolist() for m in table.members]
        self.rows = [v if isinstance(v, int) else v.tolist() for v in table.rows]
        outcomes = self.size * u.decisions
        self.routes: list[list[Route]] = [[] for _ in range(outcomes)]
        self.first: list[tuple[int, int]] = []  # a source's (first data row, rows) by delivery
        for p, t in zip(u.out, table.paths, strict=True):
            sender = np.repeat(np.arange(outcomes), np.diff(t.start)).tolist()
            entries = zip(sender, t.firing.tolist(), t.position.tolist(), t.row.tolist(), strict=True)
            for at, firing, position, row in entries:
                self.routes[at].append((p.target, p.operand, firing, position, row, p.value))
            if t.data is not None:
                self.first.extend(zip(t.data[0].tolist(), t.data[1].tolist(), strict=True))
        # A faulty outcome sends one impossible message, so that the usual path pays nothing for the check.
        self.faults = list(table.faults.values())
        for k, at in enumerate(table.faults):
            self.routes[at] = [(FAULT, k, OUT_OF_DOMAIN, OUT_OF_DOMAIN, -1, 0)]


@dataclass
class SlotPlan:
    """A plan in list form."""

    tables: Plan
    units: list[UnitPlan]


def finish_plan(lowered: Lowered, plan: Plan) -> SlotPlan:
    return SlotPlan(plan, [UnitPlan(plan, lowered, u.index) for u in lowered.units])


class UnitState:
    """Per firing: messages still missing, operands with their origin, gradients still missing."""

    __slots__ = ("faulty", "fired", "gradients", "ints", "left", "missing", "x")

    def __init__(self, plan: UnitPlan, n_operands: int):
        self.left = plan.need.copy()
        # operand -> position -> (payload, (sender unit, sender firing, sender's route number)) | None | DONE
        self.x: list[list[Any]] = [
            [None] * (plan.size if m is None else m[-1]) for m in plan.members[:n_operands]
        ]
        self.fired: list[Any] = [None] * plan.size  # (frame record, number in the frame)
        self.gradients: list[Any] = [None] * plan.size
        self.missing = [0] * plan.size
        self.ints: list[tuple[np.ndarray, list[int]]] | None = None
        self.faulty: frozenset[int] = frozenset()  # firings whose integer operands lie outside a table


class Slot:
    """One instance in flight."""

    __slots__ = (
        "age",
        "generation",
        "index",
        "instance",
        "mode",
        "outstanding",
        "parts",
        "plan",
        "report",
        "units",
    )

    def __init__(
        self, index: int, generation: int, instance: Instance, mode: Mode, plan: SlotPlan, lowered: Lowered
    ):
        self.index, self.generation = index, generation
        self.instance, self.mode, self.plan = instance, mode, plan
        self.report = Report(index, generation, instance.number, mode)
        self.outstanding = 0
        self.age = 0  # how many instances were pumped up to this one
        self.parts: dict[tuple[str, str], list[tuple[int, np.ndarray]]] = {}
        self.units = [UnitState(plan.units[u.index], len(u.operands)) for u in lowered.units]
        for u in lowered.units:
            if u.behaviour.program is not None and u.behaviour.program.ints:
                found, faulty = integers(u, plan.tables.units[u.index], instance)
                self.units[u.index].ints = [(values, starts.tolist()) for values, starts in found]
                self.units[u.index].faulty = faulty
