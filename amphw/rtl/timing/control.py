"""How many cycles the controller is busy with a firing: its control programs, counted step by step.

The states of a step are those of `gateware.controller.steps` and `gradients` there; waiting for engines
or for a full queue is not counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from amphw.ir.expr import Expr, Op
from amphw.rtl.isa.memory import READ_LATENCY
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
    StepOp.DECIDE: 2 + READ_LATENCY,
    StepOp.DELIVER: 5,
    StepOp.RETURN: 7,
}
"""Of steps with more than one."""


def control_cycles(
    plan: ControlPlan, unit: int, phase: Phase, messages: float = 1.0, rows: float = 1.0
) -> float:
    """Of a unit's program, which deals with so many messages, and has rows with integers.

    Its loops share the messages; those that send rows one by one go over all rows, and what their guards let
    through is as much as leaves those many messages. Guards elsewhere count as passed.
    """
    spent = float(BEGINS)
    program = _program(plan, unit, phase)
    loops = _Loops.of(plan, unit, phase, program, messages, rows)
    weights = [1.0]
    before: Step | None = None
    for at, step in enumerate(program):
        stages = max((_stages(e) for k in "abcde" if (e := getattr(step, k)) is not None), default=0)
        settled = 0 if before is not None and before.op in CHANGES else SINCE
        cycles = 1 + max(0, stages - settled) + STATES.get(step.op, 1)
        if step.op is StepOp.NEXT:
            weights[-1] = loops.count[loops.inner[at]]
            cycles += JUMP
        spent += weights[-1] * cycles
        if step.op is StepOp.LOOP:
            weights.append(loops.count[at])
        elif step.op is StepOp.NEXT:
            weights.pop()
        elif at in loops.last_guard:
            weights[-1] *= loops.passed
        before = step
    if phase is Phase.ROUTE:
        spent += len(plan.partition.lowered.units[unit].out) + 1
    elif phase is Phase.RETURN:
        spent += 1
    return spent


def _program(plan: ControlPlan, unit: int, phase: Phase) -> list[Step]:
    """Its steps, with the END."""
    steps = plan.steps[plan.entries[unit, phase] :]
    return steps[: 1 + next(k for k, step in enumerate(steps) if step.op is StepOp.END)]


@dataclass(frozen=True)
class _Loops:
    """Of a program's steps, by number. count: how often the body of a LOOP runs. inner: the LOOP of a NEXT.
    last_guard: the last guard in each loop that sends rows; passed: the share of the rows that it lets
    through."""

    count: Mapping[int, float]
    inner: Mapping[int, int]
    last_guard: Collection[int]
    passed: float

    @classmethod
    def of(
        cls,
        plan: ControlPlan,
        unit: int,
        phase: Phase,
        program: Sequence[Step],
        messages: float,
        rows: float,
    ) -> _Loops:
        open_: list[int] = []
        inner: dict[int, int] = {}
        guards: dict[int, int] = {}
        over: dict[int, StepOp] = {}
        for at, step in enumerate(program):
            if step.op is StepOp.LOOP:
                open_.append(at)
            elif step.op is StepOp.NEXT:
                inner[at] = open_.pop()
            elif open_ and step.op is StepOp.GUARD:
                guards[open_[-1]] = at
            elif open_ and step.op is not StepOp.READ:
                over.update({loop: step.op for loop in open_ if loop not in over})
        sending = [loop for loop, op in over.items() if op is not StepOp.PUT]
        by_row = phase is Phase.ROUTE and any(
            path.by_row is not None for path in plan.partition.lowered.units[unit].out
        )
        each = rows if by_row else messages / max(1, len(sending))
        count = {loop: each if loop in sending else rows for loop in over}
        guarded = [loop for loop in sending if loop in guards] if by_row else []
        wanted = messages - each * (len(sending) - len(guarded))
        passed = min(1.0, max(0.0, wanted / (each * len(guarded)))) if guarded and each else 1.0
        return cls(count, inner, [guards[loop] for loop in guarded], passed)


def _stages(e: Expr) -> int:
    """Registers that an expression goes through, as `gateware.logic` builds it."""
    if not isinstance(e, Op):
        return 0
    inner = max(map(_stages, e.args), default=0)
    return inner + {"hash": 3, "//": 0, "%": 0}.get(e.op, 1)
