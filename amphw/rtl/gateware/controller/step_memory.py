"""Control programs in hardware: words that say which step is next, and logic for the steps' expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data
from amaranth.utils import ceil_log2

from amphw.ir.expr import Const, Expr
from amphw.rtl.gateware.logic import ExpressionLogic
from amphw.rtl.isa.steps import CHANGES, SINCE, Step
from amphw.rtl.plan.control import ControlPlan
from amphw.rtl.timing.attribution import signals_of_nodes

SLOTS = "abcde"
"""The expressions of a step."""

WAITS = 31
"""The longest wait for an expression, in cycles."""


class StepLogic:
    """The expressions of all steps as logic; each of a .. e has a multiplexer over its distinct ones."""

    def __init__(self, m: Module, registers: Mapping[str, Any], plan: ControlPlan):
        self.plan = plan
        self.distinct: dict[str, list[Expr]] = {k: [] for k in SLOTS}
        for step in plan.steps:
            for k in SLOTS:
                e = getattr(step, k)
                if e is not None and e not in self.distinct[k]:
                    self.distinct[k].append(e)
        self._logic = ExpressionLogic(m, registers, signals_of_nodes(plan))
        self._built = {e: self._logic.build(e) for of in self.distinct.values() for e in of}

    def layout(self) -> data.StructLayout:
        """A step as a word: numbers of its expressions, and how long they take to settle."""
        ids = {k: max(1, ceil_log2(len(self.distinct[k]) + 1)) for k in SLOTS}
        pc = max(1, ceil_log2(len(self.plan.steps) + 1))
        path = max(1, ceil_log2(max(s.path for s in self.plan.steps) + 1))
        return data.StructLayout(
            {"op": 5, "n": 6, "m": 4, "target": pc, "path": path, "wait": ceil_log2(WAITS + 1), **ids}
        )

    def words(self) -> list[dict[str, int]]:
        steps = self.plan.steps
        return [self._word(*pair) for pair in zip(steps, [None, *steps], strict=False)]

    def _word(self, step: Step, before: Step | None) -> dict[str, int]:
        found = {k: e for k in SLOTS if (e := getattr(step, k)) is not None}
        ids = {k: self.distinct[k].index(e) for k, e in found.items()}
        changed = before is not None and before.op in CHANGES
        stages = max((self._built[e][1] for e in found.values()), default=0)
        wait = max(0, stages - (0 if changed else SINCE))
        assert wait <= WAITS, step
        target = max(step.target, 0)
        numbers = {"n": step.n, "m": step.m, "path": step.path}
        return {"op": int(step.op), "target": target, "wait": wait, **numbers, **ids}

    def chosen(self, m: Module, step: Any, bits: int) -> dict[str, Any]:
        """The value of each of the current step's expressions, signed."""
        out = {}
        for k in SLOTS:
            value = Signal(signed(bits), name=f"chosen_{k}")
            with m.Switch(getattr(step, k)):
                for number, e in enumerate(self.distinct[k]):
                    with m.Case(number):
                        m.d.comb += value.eq(e.value if isinstance(e, Const) else self._built[e][0])
            out[k] = value
        return out
