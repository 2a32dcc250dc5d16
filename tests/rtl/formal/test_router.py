"""The router delivers, sends and returns what a control program says, once, and is through in time."""

from __future__ import annotations

from functools import partial

import pytest

from amphw.rtl.gateware.controller.gradients import GradientSteps
from amphw.rtl.gateware.controller.ports import FrameKind
from amphw.rtl.gateware.controller.steps import ControllerSteps
from amphw.rtl.isa.steps import StepOp
from tests.rtl.formal.cases import Case, proofs_of
from tests.rtl.formal.router_contracts import Routes, Skeleton, router

pytestmark = pytest.mark.hardware


def case(
    component: type,
    ops: tuple[StepOp, ...],
    kind: FrameKind,
    cycles: int,
    *faults: tuple[str, str],
    bounded: bool = False,
) -> Case:
    """cycles: from one firing that has run to the next one, at most."""
    skeleton = Skeleton(ops, kind)
    # After a cycle for the first contents of memory, until the firing behind has been taken and looked at.
    around = partial(_around, skeleton, cycles - 1)
    return Case(component, around, cycles + 3, faults, bounded=bounded)


def _around(skeleton: Skeleton, limit: int, make: type) -> Routes:
    return Routes(router(make, skeleton), limit)


CASES = {
    "deliver": case(
        ControllerSteps,
        (StepOp.DELIVER,),
        FrameKind.FORWARD,
        21,
        ('place.addr.eq(self.v["b"])', 'place.addr.eq(self.v["a"])'),  # another place
        ("self.need.arrive.eq(1)", "self.need.arrive.eq(0)"),  # loses
        ("self.forward.value.eq(a)", "self.forward.value.eq(self.fid)"),  # another firing is ready
        ("place.value.link.eq(self.fid)", "place.value.link.eq(a)"),  # its gradient would go astray
    ),
    "send": case(
        ControllerSteps,
        (StepOp.SEND,),
        FrameKind.FORWARD,
        18,
        (
            "with m.If(self.job.ready):\n                m.d.comb += self.sent_one",
            "with m.If(1):\n                m.d.comb += self.sent_one",
        ),  # retracts
        (
            'self.sent.eq(self.sent + 1)]\n                m.next = "STEP"',
            'self.sent.eq(self.sent + 1)]\n                m.next = "SEND"',
        ),  # repeats
    ),
    "send two": case(
        ControllerSteps,
        (StepOp.SEND, StepOp.SEND),
        FrameKind.FORWARD,
        21,
        ("self.copy.eq(self.copy + self.plan.copies), ", ""),  # both would be the first on the path
    ),
    "send if": case(
        ControllerSteps,
        (StepOp.GUARD, StepOp.SEND),
        FrameKind.FORWARD,
        23,
        ("with m.If(a == 0):", "with m.If(a != 0):"),  # sends what is not to be sent
    ),
    "send in a loop": case(
        ControllerSteps,
        (StepOp.LOOP, StepOp.SEND, StepOp.NEXT),
        FrameKind.FORWARD,
        31,
        ("with m.If(a <= 0):", "with m.If(a < 0):"),  # turns where there is nothing to do
        ("now == last", "now != last"),  # goes on behind the end
        bounded=True,
    ),
    "return": case(
        GradientSteps,
        (StepOp.RETURN,),
        FrameKind.BACKWARD,
        21,
        ("place.value.more.eq(head.data[0])", "place.value.more.eq(0)"),  # loses those before it
        ("self.origin_fid.eq(origin)", "self.origin_fid.eq(self.fid)"),  # another firing's
        ("self.pending.arrive.eq(1)", "self.pending.arrive.eq(self.back_full)"),  # waits forever
        ("with m.If(self.job.ready):", "with m.If(1):"),  # retracts
    ),
}
test_the_contract_is_kept, test_a_fault_is_found, test_something_is_left_to_prove = proofs_of(CASES)
