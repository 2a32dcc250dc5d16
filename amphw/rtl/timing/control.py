"""How many cycles the controller is busy with a firing: its control programs, counted step by step.

The states of a step are those of `gateware.controller.steps` and `gradients` there; waiting for engines
or for a full queue is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping

from amphw.ir.expr import Expr, Op
from amphw.rtl.gateware.ports import READ_LATENCY
from amphw.rtl.isa.steps import CHANGES, SINCE, Step, StepOp
from amphw.rtl.plan.control import ControlPlan, Phase

BEGINS = 7
"""Idle, reading whose firing it is, and the first step's word."""

JUMP = 2
"""A step that is not the next one is read."""

STATES: Mapping[StepOp, int] = {
    StepOp.READ: 2,
    StepOp.POINT: 4,
    StepOp.COPY: 4,
    StepOp.GRADIENT: 7,
    StepOp.DECIDE: 1 + READ_LATENCY,
    StepOp.DELIVER: 5,
    StepOp.RETURN: 7,
}
"""Of steps with more than one."""


def control_cycles(
    plan: ControlPlan, unit: int, phase: Phase, messages: float = 1.0, rows: float = 1.0
) -> float:
    """Of a unit's program, which deals with so many messages, and has rows with integers. Guards count as
    passed. The body of the innermost loop runs once for each message."""
    spent, weights = float(BEGINS), [1.0]
    before: Step | None = None
    steps = plan.steps[plan.entries[unit, phase] :]
    for at, step in enumerate(steps):
        stages = max((_stages(e) for k in "abcde" if (e := getattr(step, k)) is not None), default=0)
        settled = 0 if before is not None and before.op in CHANGES else SINCE
        cycles = 1 + max(0, stages - settled) + STATES.get(step.op, 1)
        if step.op is StepOp.NEXT:
            cycles += JUMP
        spent += weights[-1] * cycles
        if step.op is StepOp.LOOP:
            over = next(s.op for s in steps[at:] if s.op not in (StepOp.LOOP, StepOp.READ))
            weights.append(rows if over is StepOp.PUT else messages)
        elif step.op is StepOp.NEXT:
            weights.pop()
        elif step.op is StepOp.END:
            break
        before = step
    if phase is Phase.ROUTE:
        spent += len(plan.partition.lowered.units[unit].out) + 1
    elif phase is Phase.RETURN:
        spent += 1
    return spent


def _stages(e: Expr) -> int:
    """Registers that an expression goes through, as `gateware.logic` builds it."""
    if not isinstance(e, Op):
        return 0
    inner = max(map(_stages, e.args), default=0)
    return inner + {"hash": 3, "//": 0, "%": 0}.get(e.op, 1)
