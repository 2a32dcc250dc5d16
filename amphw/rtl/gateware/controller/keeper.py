"""The keeper: counts gradient rows, has parameters updated, and serves whoever reads or writes them.

When a unit that owns parameters has run backward, its rows are counted; the run that completes an interval is
told to the controller only once the update is done. Meanwhile no other unit runs, so weights are unavailable
exactly while they change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from amphw.rtl.fixed.norm import LIMIT_BITS
from amphw.rtl.fixed.parameters import (
    COEFFICIENT_BITS,
    PER_ROW,
    RATES,
    RECIPROCAL,
    SEED_OF_PARAMETER,
    SEED_OF_UPDATE,
    FixedRule,
)
from amphw.rtl.gateware.controller.memory import ADDRESS, ControlShape, pause
from amphw.rtl.gateware.controller.ports import FrameKind, MessageLayout, Run
from amphw.rtl.gateware.lanes.multiply import wide_product
from amphw.rtl.gateware.lanes.shape import RESPONSE_BITS
from amphw.rtl.isa.commands import LaneOp
from amphw.rtl.isa.wire import Kind, Register

SETTLE = 4
"""Cycles from the number of a segment to its seed."""

SETTLED_COUNTER = 4
"""Cycles from the number of a counter to its value."""


@dataclass(frozen=True)
class Segment:
    """A parameter in the lane engine: first beat, rows, beats a row, columns, its number in its node."""

    base: int
    rows: int
    blocks: int
    columns: int
    number: int


@dataclass(frozen=True)
class Owner:
    """A unit with parameters. rows: of its messages, where that is a constant."""

    rule: FixedRule
    segments: tuple[Segment, ...]
    rows: int | None


class Keeper(wiring.Component):
    """finished, current, rows: what the sequencer has run. ran: the same, for the controller.

    hold: nothing may run. request: POKE, PEEK and UPDATE; answer: VALUE and UPDATED. lanes: commands, while
    `takes` is set. updated: the parameters of `unit` have changed.
    """

    def __init__(self, shape: ControlShape, owners: dict[int, Owner], lanes: data.StructLayout):
        self.shape, self.owners = shape, owners
        super().__init__(
            {
                "finished": In(1),
                "current": In(Run(shape)),
                "rows": In(ADDRESS),
                "ran": Out(stream.Signature(Run(shape))),
                "hold": Out(1),
                "busy": In(1),
                "idle": In(1),
                "request": In(stream.Signature(MessageLayout())),
                "answer": Out(stream.Signature(MessageLayout())),
                "lanes": Out(stream.Signature(lanes)),
                "takes": Out(1),
                "response": In(stream.Signature(signed(RESPONSE_BITS))),
                "updated": Out(1),
                "unit": Out(8),
                "counter": Out(16),
                "counted": In(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        units = max(2, self.shape.units)
        m.submodules.counted = counted = Memory(shape=unsigned(32), depth=units, init=[])
        m.submodules.versions = versions = Memory(shape=unsigned(32), depth=units, init=[])
        count, count_write = counted.read_port(domain="comb"), counted.write_port()
        version, version_write = versions.read_port(domain="comb"), versions.write_port()
        unit, total, asked, rows = Signal(8), Signal(32), Signal(), Signal(ADDRESS)
        request = Signal(MessageLayout())
        settled = Signal(range(SETTLE + 1))
        m.d.comb += self.unit.eq(unit)
        for port in (count, count_write, version, version_write):
            m.d.comb += port.addr.eq(unit)
        rate, interval, mean, limit = self._rule(m, unit, version.data)
        begins = "CLIP" if self._clips else "UPDATE"
        divisor = Signal(32)
        m.d.sync += divisor.eq(Mux(mean, total, 1))
        divides, quotient, divided = self._divider(m, rate, divisor)
        segment, number = self._segment(m, unit), self._next_segment
        seed = self._seed(m, version.data, segment)
        lane = self.lanes.payload
        m.d.comb += [
            lane.base.eq(segment.base),
            lane.rows.eq(segment.rows),
            lane.blocks.eq(segment.blocks),
            lane.columns.eq(segment.columns),
            lane.scale.eq(quotient),
            lane.rate.eq(rate),
            lane.seed.eq(seed),
            lane.op.eq(LaneOp.UPDATE),
        ]
        with m.If(self.ran.valid & self.ran.ready):
            m.d.sync += self.ran.valid.eq(0)
        with m.FSM(name="keeper") as fsm:
            m.d.comb += self.hold.eq(self.takes | self.request.valid | self.ran.valid)
            # From the first cycle of its work to the first of its rest, from a register: all firings and
            # lane commands wait for it, which the state itself would reach too late.
            m.d.sync += self.takes.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                m.d.sync += [asked.eq(0), number.eq(0)]
                with m.If(self.finished):
                    m.d.sync += [self.ran.payload.eq(self.current), unit.eq(self.current.unit)]
                    m.d.sync += self.ran.valid.eq(1)
                    with m.If((self.current.kind == FrameKind.BACKWARD) & self._owns(self.current.unit)):
                        m.d.sync += [self.ran.valid.eq(0), self.takes.eq(1)]
                        m.next = "COUNT"
                with m.Elif(self.request.valid & ~self.busy):
                    m.d.comb += self.request.ready.eq(1)
                    m.d.sync += [request.eq(self.request.payload), unit.eq(self.request.payload.unit)]
                    m.d.sync += self.takes.eq(1)
                    m.next = "REQUESTED"
            with m.State("COUNT"):
                m.d.sync += [total.eq(count.data), rows.eq(self._rows(m, unit))]
                m.next = "ADD"
            with m.State("ADD"):
                m.d.sync += total.eq(total + rows)
                m.next = "COUNTED"
            with m.State("COUNTED"):
                m.d.comb += [count_write.en.eq(1), count_write.data.eq(total)]
                m.next = "RATE"
                with m.If(total < interval):
                    m.next = "RAN"
            pause(m, "RATE", 3, "DIVIDE")  # the learning rate is read
            with m.State("DIVIDE"):
                m.d.comb += divides.eq(1)
                with m.If(divided):
                    m.next = begins
            if self._clips:
                self._clip(m, rate, limit)
            with m.State("UPDATE"):
                m.d.comb += self.lanes.valid.eq(1)
                with m.If(self.lanes.ready):
                    m.d.sync += number.eq(number + 1)
                    m.next = "SEGMENT"
            with m.State("SEGMENT"):  # until the next one's data stand
                m.d.sync += settled.eq(settled + 1)
                with m.If(settled == SETTLE):
                    m.d.sync += settled.eq(0)
                    m.next = begins
                    with m.If(segment.last):
                        m.next = "UPDATING"
            with m.State("UPDATING"):
                with m.If(self.idle):
                    m.d.comb += [
                        count_write.en.eq(1),
                        version_write.en.eq(1),
                        version_write.data.eq(version.data + 1),
                        self.updated.eq(1),
                    ]
                    m.next = "RAN"
            with m.State("RAN"):
                with m.If(asked):
                    m.next = "ANSWER UPDATE"
                with m.Else():
                    m.d.sync += self.ran.valid.eq(1)
                    m.next = "IDLE"
            self._requests(m, request, (count, count_write), (version, version_write), total, asked)
        return m

    def _clip(self, m: Module, rate: Any, limit: Any) -> None:
        """Before a parameter is updated, its coefficient is limited; without a limit nothing is said."""
        lane = self.lanes.payload
        with m.State("CLIP"):
            m.d.comb += [
                self.lanes.valid.eq(limit != 0),
                lane.op.eq(LaneOp.CLIP),
                lane.scale.eq(self._of_a_row(rate)),
                lane.data.eq(limit),
            ]
            with m.If(self.lanes.ready | (limit == 0)):
                m.next = "UPDATE"

    def _requests(self, m: Module, request: Any, count: Any, version: Any, total: Any, asked: Any) -> None:
        lane, answer = self.lanes.payload, self.answer.payload
        own = request.place[3]  # a register of the keeper, not a memory of the lane engine
        is_version = request.place == Register.VERSION
        value = Signal(64)
        counted, updates = Signal.like(count[0].data), Signal.like(version[0].data)
        m.d.sync += [counted.eq(count[0].data), updates.eq(version[0].data)]
        pause(m, "REQUESTED", 1, "REQUEST")  # its unit's count and version are read
        with m.State("REQUEST"):
            m.d.sync += [asked.eq(1), total.eq(counted)]
            with m.If(request.kind == Kind.UPDATE):
                with m.If(self._owns(request.unit) & (counted != 0)):
                    m.next = "RATE"
                with m.Else():
                    m.next = "ANSWER UPDATE"
            with m.Elif(~own):
                m.next = "LANES"
            with m.Else():
                m.d.sync += value.eq(Mux(is_version, updates, counted))
                m.d.sync += self.counter.eq(request.payload)
                with m.If(request.kind == Kind.POKE):
                    for port, chosen in ((version[1], is_version), (count[1], ~is_version)):
                        m.d.comb += [port.en.eq(chosen), port.data.eq(request.state)]
                m.next = "ANSWER VALUE"
                with m.If(request.kind == Kind.POKE):
                    m.next = "IDLE"
                with m.Elif(request.place == Register.COUNTER):
                    m.next = "COUNTER"
        with m.State("COUNTER"):  # its value settles
            waited = Signal(range(SETTLED_COUNTER + 1))
            m.d.sync += waited.eq(waited + 1)
            with m.If(waited == SETTLED_COUNTER):
                m.d.sync += value.eq(self.counted)
                m.next = "ANSWER VALUE"
        with m.State("LANES"):
            with m.If(self.idle):
                m.d.comb += [
                    self.lanes.valid.eq(1),
                    lane.op.eq(Mux(request.kind == Kind.POKE, LaneOp.POKE, LaneOp.PEEK)),
                    lane.bank.eq(request.place[:2]),
                    lane.base.eq(request.payload),
                    lane.lane.eq(request.firing),
                    lane.data.eq(Cat(request.state, request.copy[:4])),
                ]
                with m.If(self.lanes.ready):
                    m.next = "IDLE"
                    with m.If(request.kind == Kind.PEEK):
                        m.next = "LANES ANSWER"
        with m.State("LANES ANSWER"):
            m.d.comb += self.response.ready.eq(1)
            with m.If(self.response.valid):
                m.d.sync += value.eq(self.response.payload)
                m.next = "ANSWER VALUE"
        with m.State("ANSWER VALUE"):
            m.d.comb += [
                answer.eq(request),
                answer.kind.eq(Kind.VALUE),
                answer.words.eq(0),
                answer.state.eq(value[:32]),
                answer.copy.eq(value[32:]),
                self.answer.valid.eq(1),
            ]
            with m.If(self.answer.ready):
                m.next = "IDLE"
        with m.State("ANSWER UPDATE"):
            m.d.comb += [
                answer.kind.eq(Kind.UPDATED),
                answer.unit.eq(request.unit),
                answer.state.eq(updates),
                self.answer.valid.eq(1),
            ]
            with m.If(self.answer.ready):
                m.next = "IDLE"

    # --- constants by unit ------------------------------------------------------------------------

    def _owns(self, unit: Any) -> Any:
        found = Const(0)
        for number in self.owners:
            found = found | (unit == number)
        return found

    def _rows(self, m: Module, unit: Any) -> Any:
        """Gradient rows of the firing that has run."""
        rows = Signal(ADDRESS)
        m.d.comb += rows.eq(self.rows)
        with m.Switch(unit):
            for number, owner in self.owners.items():
                if owner.rows is not None:
                    with m.Case(number):
                        m.d.comb += rows.eq(owner.rows)
        return rows

    @property
    def _clips(self) -> bool:
        return any(owner.rule.limit for owner in self.owners.values())

    def _of_a_row(self, rate: Any) -> Any:
        """What rows divide: `FixedRule.of_a_row` in gates."""
        momentum = any(o.rule.mu is not None for o in self.owners.values())
        return Const(1 << RECIPROCAL, COEFFICIENT_BITS) if momentum else rate << PER_ROW

    def _rule(self, m: Module, unit: Any, version: Any) -> tuple[Any, Any, Any, Any]:
        """(learning rate, interval, whether rows divide, limit of a norm) of the current unit."""
        rules = list(dict.fromkeys(o.rule for o in self.owners.values()))
        words = [rate for rule in rules for rate in rule.rates] or [0]
        m.submodules.rates = rates = Memory(shape=unsigned(16), depth=len(words), init=words)
        read = rates.read_port()
        rate, interval, mean, limit = Signal(16), Signal(32), Signal(), Signal(LIMIT_BITS)
        address = Signal.like(read.addr)
        m.d.comb += [read.en.eq(1), read.addr.eq(address)]
        m.d.sync += rate.eq(read.data)
        with m.Switch(unit):
            for number, owner in self.owners.items():
                with m.Case(number):
                    past = version >> owner.rule.rate_step
                    at = Mux(past < RATES, past[:8], RATES - 1)
                    m.d.sync += [
                        interval.eq(owner.rule.interval),
                        mean.eq(int(owner.rule.mean)),
                        limit.eq(owner.rule.limit),
                        address.eq(rules.index(owner.rule) * RATES + at),
                    ]
        return rate, interval, mean, limit

    def _divider(self, m: Module, rate: Any, divisor: Any) -> tuple[Any, Any, Any]:
        """(begin, quotient, done): the coefficient of one row over the rows."""
        begin, done = Signal(), Signal()
        left, quotient = Signal(64), Signal(COEFFICIENT_BITS)
        steps = Signal(range(COEFFICIENT_BITS + 2))
        running = Signal()
        numerator = self._of_a_row(rate)
        part = Signal(33)
        m.d.comb += part.eq(left[COEFFICIENT_BITS - 1 :])
        with m.If(~running & begin & ~done):
            m.d.sync += [left.eq(numerator), quotient.eq(0), steps.eq(0), running.eq(1)]
        with m.If(running):
            rest = Signal(34)
            m.d.comb += rest.eq(part - divisor)
            fits = ~rest[-1]
            m.d.sync += [
                quotient.eq(Cat(fits, quotient)),
                left.eq(Cat(left[: COEFFICIENT_BITS - 1], Mux(fits, rest[:33], part)) << 1),
                steps.eq(steps + 1),
            ]
            with m.If(steps == COEFFICIENT_BITS - 1):
                m.d.sync += running.eq(0)
                m.d.sync += done.eq(1)
        with m.If(done):
            m.d.sync += done.eq(0)
        return begin, quotient, done

    def _segment(self, m: Module, unit: Any) -> Any:
        """The parameter that is updated next."""
        layout = data.StructLayout(
            {"base": ADDRESS, "rows": ADDRESS, "blocks": ADDRESS, "columns": ADDRESS, "salt": 32, "last": 1}
        )
        segment, self._next_segment = Signal(layout), Signal(4)
        with m.Switch(Cat(self._next_segment, unit)):
            for number, owner in self.owners.items():
                for k, s in enumerate(owner.segments):
                    with m.Case(k | number << 4):
                        m.d.sync += [
                            segment.base.eq(s.base),
                            segment.rows.eq(s.rows),
                            segment.blocks.eq(s.blocks),
                            segment.columns.eq(s.columns),
                            segment.salt.eq(s.number * SEED_OF_PARAMETER & 0xFFFFFFFF),
                            segment.last.eq(0),
                        ]
            with m.Default():
                m.d.sync += segment.last.eq(1)
        return segment

    def _seed(self, m: Module, version: Any, segment: Any) -> Any:
        """Where the random sequence of an update begins, as `amphw.rtl.fixed.parameters.lfsr_seed` has it.

        A version stands long before its update, so its product takes the cycles of a multiplier.
        """
        following, seed = Signal(32), Signal(32)
        m.d.sync += following.eq(version + 1)
        product, _ = wide_product(m, following.as_signed(), Const(SEED_OF_UPDATE, 32), "seed_product")
        m.d.sync += seed.eq((product + segment.salt) | 1)
        return seed
