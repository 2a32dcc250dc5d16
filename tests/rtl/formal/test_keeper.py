"""The keeper counts every row, tells of every run once, and holds everybody while it works.

What an update does to parameters is the lane engine's business, which is compared with its model elsewhere.
"""

from __future__ import annotations

from typing import Any

import pytest
from amaranth.hdl import Assert, Assume, Cover, Module, Mux, ResetSignal, Signal
from amaranth.lib import data

from amphw.rtl.fixed.parameters import FixedRule
from amphw.rtl.gateware.controller.keeper import Keeper, Owner, Segment
from amphw.rtl.gateware.controller.memory import ControlShape
from amphw.rtl.gateware.controller.ports import FrameKind
from amphw.rtl.gateware.lanes.shape import LaneShape, command_layout
from amphw.rtl.isa.commands import LaneOp
from amphw.rtl.isa.wire import Kind, Register
from amphw.rtl.numbers.formats import Formats
from tests.rtl.formal.cases import Case, proofs_of
from tests.rtl.formal.contracts import COUNT, Contract, follow, keeps_offers, transfer, within

pytestmark = pytest.mark.hardware

SHAPE = ControlShape(
    firings=4, places=4, table=4, slots=2, units=2, outputs=1, state_bits=2,
    decisions=1, loops=1, reads=1, by_rows=False, paths=1,
)  # fmt: skip
_COMMAND = command_layout(
    LaneShape(lanes=2, beats=8, widest_blocks=2, address_bits=4, formats=Formats(), s1=1)
)
LANES = data.StructLayout(
    {**_COMMAND.members, "seed": 1, "data": 1, "scale": 2, "rate": 1}
)  # the seed is a product of 32 bits
FIELDS = {
    "kind": 4,
    "output": 1,
    "slot": 1,
    "generation": 1,
    "unit": 2,
    "firing": 1,
    "place": 4,
    "payload": 1,
    "words": 1,
    "copy": 4,
    "state": COUNT,
}


class MessageLayout(data.StructLayout):
    """A header of fewer bits, as a proof is a matter of minutes with the real one."""

    def __init__(self) -> None:
        super().__init__(FIELDS)


SMALL = {
    "COEFFICIENT_BITS": 2,
    "SETTLE": 1,
    "PER_ROW": 0,
    "RATES": 2,
    "ADDRESS": 3,
    "MessageLayout": MessageLayout,
}
INTERVAL = 2
SEGMENTS = (Segment(1, 1, 1, 1, 0), Segment(3, 1, 1, 1, 1))
OWNER = Owner(FixedRule(INTERVAL, mean=True, rates=(1, 1), rate_step=0, mu=None), SEGMENTS, rows=None)


class Keeps(Contract):
    """Unit 0 has two parameters and an interval of two rows, unit 1 none; nobody runs while `hold` is set.

    Rows and updates are counted beside the keeper: what it reads, updates and tells agrees with them.
    """

    def __init__(self, design: Any, asked: bool) -> None:
        self.asked = asked  # whether there are requests; with them a proof is less deep
        names = (
            "begins",
            "ends",
            "ran_ready",
            "asks",
            "answer_ready",
            "lanes_ready",
            "lanes_end",
            "responds",
            "follows",
        )
        free = {**dict.fromkeys(names, 1), "run": design.current.shape(), "rows": 2}
        free["request"] = design.request.payload.shape()
        super().__init__(design, free, {})

    def check(self, m: Module, design: Any) -> None:
        running, run, rows, under_way = Signal(), Signal.like(design.current), Signal(2), Signal(2)
        m.d.comb += [
            Assume(~ResetSignal()),  # it leaves the counts as they are
            design.finished.eq(running & self.ends),
            design.current.eq(run),
            design.rows.eq(rows),
            design.busy.eq(running),
            design.idle.eq(under_way == 0),
            design.ran.ready.eq(self.ran_ready),
            design.request.valid.eq(self.asks),
            design.request.payload.as_value().eq(self.request),
            design.answer.ready.eq(self.answer_ready),
            design.lanes.ready.eq(self.lanes_ready),
            design.response.valid.eq(self.responds),
            Assume(design.request.payload.unit < 2),
            Assume(~self.asks | self.asked),
            Assume((self.run_of().unit < 2) & (self.run_of().kind.as_value() < 3)),
        ]
        keeps_offers(m, design.request, Assume)
        for port in (design.ran, design.answer, design.lanes):
            keeps_offers(m, port, Assert)
        with m.If(self.begins & ~running & ~design.hold & design.idle):
            m.d.sync += [running.eq(1), run.eq(self.run_of()), rows.eq(self.rows)]
        with m.If(design.finished):
            m.d.sync += running.eq(0)
        command = transfer(design.lanes)
        m.d.sync += under_way.eq(under_way + command - (self.lanes_end & (under_way != 0)))
        m.d.comb += [
            Assume(~command | (under_way < 3)),
            Assert(~design.lanes.valid | design.takes),
            Assert(~design.takes | (design.hold & ~running)),  # weights change while nobody reads them
        ]
        told = transfer(design.ran)
        waiting = follow(
            m, self.follows, design.finished, run.as_value(), told, design.ran.payload.as_value(), reached=1
        )
        m.d.comb += Assert(waiting <= 1)
        # Rows since the last update, updates, and commands of the one that is under way.
        summed, updates, parts = Signal(COUNT), Signal(COUNT), Signal(2)
        asked = self.requests(m, design, summed, updates)
        with m.If(design.finished & (run.kind == FrameKind.BACKWARD) & (run.unit == 0)):
            m.d.sync += summed.eq(summed + rows)
        with m.If(command & (design.lanes.payload.op == LaneOp.UPDATE)):
            m.d.sync += parts.eq(parts + 1)
            m.d.comb += Assert(
                design.lanes.payload.base == Mux(parts == 0, SEGMENTS[0].base, SEGMENTS[1].base)
            )
            m.d.comb += Assert(parts < len(SEGMENTS))
        with m.If(design.updated):
            m.d.sync += [summed.eq(0), updates.eq(updates + 1), parts.eq(0)]
            m.d.comb += [
                Assert((design.unit == 0) & (parts == len(SEGMENTS)) & design.idle),
                Assert((summed >= INTERVAL) | (asked & (summed != 0))),
            ]
        m.d.comb += Assert(~design.ran.valid | asked | (summed < INTERVAL))
        willing = self.ran_ready & self.answer_ready & self.lanes_ready & self.lanes_end & self.responds
        pending = design.ran.valid | design.takes | (self.asks & ~running)
        done = told | command | transfer(design.answer) | transfer(design.request) | design.updated
        within(m, 16, pending & willing, done)
        m.d.comb += Cover(told & (summed == 1))

    def run_of(self) -> Any:
        return self.design.current.shape()(self.run)

    def requests(self, m: Module, design: Any, summed: Any, updates: Any) -> Any:
        """Every question has its answer, before the next one is heard -> whether an update is asked for."""
        asks, answers = transfer(design.request), transfer(design.answer)
        request, open_ = Signal.like(design.request.payload), Signal()
        told = design.answer.payload
        m.d.comb += Assume(
            ~self.asks
            | (design.request.payload.kind == Kind.UPDATE)
            | (design.request.payload.kind == Kind.PEEK)
        )
        m.d.comb += Assume(~self.asks | (design.request.payload.place != Register.COUNTER))
        with m.If(asks):
            m.d.sync += [request.eq(design.request.payload), open_.eq(1)]
            m.d.comb += Assert(~open_)
        with m.If(answers):
            m.d.sync += open_.eq(0)
            m.d.comb += [Assert(open_), Assert(told.unit == request.unit)]
            counted = request.unit == 0
            with m.If(request.kind == Kind.UPDATE):
                m.d.comb += [
                    Assert(told.kind == Kind.UPDATED),
                    Assert(told.state == Mux(counted, updates, 0)),
                    Assert(~counted | (summed == 0)),
                ]
            with m.Else():
                m.d.comb += Assert(told.kind == Kind.VALUE)
            with m.If((request.kind == Kind.PEEK) & (request.place == Register.ROWS)):
                m.d.comb += Assert(told.state == Mux(counted, summed, 0))
            with m.If((request.kind == Kind.PEEK) & (request.place == Register.VERSION)):
                m.d.comb += Assert(told.state == Mux(counted, updates, 0))
        if self.asked:
            m.d.comb += [Cover(answers & (request.kind == kind)) for kind in (Kind.UPDATE, Kind.PEEK)]
        return open_ & (request.kind == Kind.UPDATE)


def case(asked: bool, depth: int, *faults: tuple[str, str]) -> Case:
    return Case(Keeper, lambda make: Keeps(make(SHAPE, {0: OWNER}, LANES), asked), depth, faults, SMALL)


CASES = {
    "rows": case(
        False,
        10,
        ("with m.If(total < interval):", "with m.If(total <= interval):"),  # a row too many
        (
            "self.ran.valid.eq(0), self.takes",
            "self.ran.valid.eq(1), self.takes",
        ),
        (" | self.request.valid | self.ran.valid)", " | self.request.valid)"),  # a run is forgotten
        ('self.takes.eq(~fsm.ongoing("IDLE"))', "self.takes.eq(1)"),
    ),
    "requests": case(
        True,
        9,
        ("self.request.valid & ~self.busy", "self.request.valid"),
        ("Mux(is_version, updates, counted)", "counted ^ is_version"),  # another register
        (
            'm.next = "ANSWER VALUE"\n                with m.If(request.kind == Kind.POKE)',
            'm.next = "IDLE"\n                with m.If(request.kind == Kind.POKE)',
        ),
    ),
}
test_the_contract_is_kept, test_a_fault_is_found, test_something_is_left_to_prove = proofs_of(CASES)
