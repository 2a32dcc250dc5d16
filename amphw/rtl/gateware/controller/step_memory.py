"""Control programs in hardware: words that say which step is next, and logic for the steps' expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amaranth.hdl import Module, Shape, Signal, Value
from amaranth.lib import data
from amaranth.utils import ceil_log2

from amphw.ir.expr import Const, Expr
from amphw.rtl.gateware.controller.memory import ADDRESS, ControlShape
from amphw.rtl.gateware.logic import ALL, ExpressionLogic
from amphw.rtl.isa.steps import CHANGES, SINCE, Step, StepOp
from amphw.rtl.isa.wire import FIELDS, WORD
from amphw.rtl.plan.control import ControlPlan
from amphw.rtl.timing.attribution import signals_of_nodes

SLOTS = "abcde"
"""The expressions of a step."""

WAITS = 31
"""The longest wait for an expression, in cycles."""


def bits_of_steps(shape: ControlShape) -> dict[StepOp, dict[str, int]]:
    """How many low bits of each of its expressions a step looks at."""
    op = StepOp
    return {
        op.READ: {"a": ceil_log2(shape.table)},
        op.GUARD: {"a": ALL},
        op.LOOP: {"a": ALL},
        op.ROWS: {"a": ADDRESS},
        op.ADDRESS: {"a": ADDRESS},
        op.POINT: {"a": shape.place_bits},
        op.PUT: {"a": WORD},
        op.AT: {"a": ADDRESS},
        op.COPY: {"a": shape.place_bits, "b": ADDRESS},
        op.GRADIENT: {"b": ADDRESS, "d": ADDRESS, "e": ADDRESS},
        op.DECIDE: {"a": ADDRESS},
        op.DELIVER: {
            "a": shape.firing_bits,
            "b": shape.place_bits,
            "c": shape.state_bits,
            "d": ADDRESS,
            "e": ADDRESS,
        },
        op.SEND: {"a": ADDRESS, "b": ADDRESS, "c": dict(FIELDS)["state"], "e": ADDRESS},
        op.RETURN: {"a": shape.place_bits, "b": ADDRESS},
    }


class StepLogic:
    """The expressions of all steps as logic; each of a .. e has a multiplexer over its distinct ones."""

    def __init__(self, m: Module, registers: Mapping[str, Any], plan: ControlPlan, shape: ControlShape):
        self.plan = plan
        self.distinct: dict[str, list[Expr]] = {k: [] for k in SLOTS}
        self._bits = dict.fromkeys(SLOTS, 1)
        wanted, of_steps = dict[Expr, int](), bits_of_steps(shape)
        for step in plan.steps:
            for k in SLOTS:
                e = getattr(step, k)
                if e is None:
                    continue
                if e not in self.distinct[k]:
                    self.distinct[k].append(e)
                bits = of_steps[step.op][k]
                wanted[e] = max(bits, wanted.get(e, 0))
                self._bits[k] = max(bits, self._bits[k])
        logic = ExpressionLogic(m, registers, wanted, signals_of_nodes(plan))
        self._built = {e: logic.build(e) for e in wanted}

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

    def chosen(self, m: Module, step: Any, least: Mapping[str, int]) -> dict[str, Any]:
        """The value of each of the current step's expressions, as wide as what is looked at of any step's.

        least: bits of some that are put where these are, but come from elsewhere.
        """
        out = {}
        for k in SLOTS:
            of = self.distinct[k]
            values = [Value.cast(e.value) if isinstance(e, Const) else self._built[e][0] for e in of]
            shape = self._shape(k, [each.shape() for each in values], least.get(k, 1))
            value = Signal(shape, name=f"chosen_{k}")
            with m.Switch(getattr(step, k)):
                for number, each in enumerate(values):
                    with m.Case(number):
                        m.d.comb += value.eq(each)
            out[k] = value
        return out

    def _shape(self, slot: str, shapes: Sequence[Shape], least: int) -> Shape:
        """Of whatever may be chosen; a number of which only low bits are looked at has no sign."""
        is_signed = any(each.signed for each in shapes)
        bits = max((each.width + (is_signed and not each.signed) for each in shapes), default=1)
        if bits > self._bits[slot]:
            is_signed, bits = False, self._bits[slot]
        return Shape(max(bits, least + is_signed), is_signed)
