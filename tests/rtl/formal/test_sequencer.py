"""The sequencer issues the commands of every short program once, in order, and waits where it must."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from amaranth.hdl import Array, Assert, Assume, Cover, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.controller.memory import ControlShape
from amphw.rtl.gateware.controller.ports import FrameKind
from amphw.rtl.gateware.controller.sequencer import LANE_FIELDS, LAYOUTS, VECTOR_FIELDS, Sequencer
from amphw.rtl.isa.commands import CODE_BITS, WORD, Code, Unit
from tests.rtl.formal.cases import Case, proofs_of
from tests.rtl.formal.contracts import Contract, keeps_offers, transfer, within

LENGTH = 3  # instructions of a program; behind them is END
BITS = 2  # of a command's fields, which are wider

SHAPE = ControlShape(
    firings=4, places=4, table=4, slots=2, units=1, outputs=1, state_bits=2,
    decisions=1, loops=1, reads=1, by_rows=False, paths=1,
)  # fmt: skip
LANES = data.StructLayout(
    {"op": 5, "bias": 1, "want_dx": 1, "want_dw": 1, **dict.fromkeys(LANE_FIELDS.values(), BITS)}
)


def _vector() -> data.StructLayout:
    fields: dict[str, Any] = {"op": 5, "mode": 3, "overlap": 1, "shift": 5, "table": 4}
    for path in VECTOR_FIELDS.values():
        if len(path) == 1:
            fields[path[0]] = BITS
    for group in dict.fromkeys(path[0] for path in VECTOR_FIELDS.values() if len(path) == 2):
        names = [path[1] for path in VECTOR_FIELDS.values() if path[0] == group]
        fields[group] = data.StructLayout(dict.fromkeys(names, BITS))
    return data.StructLayout(fields)


VECTOR = SimpleNamespace(command=_vector())


class AnyMemory(Memory):
    """A memory; one whose first words are signals is a program that the prover chooses."""

    def __new__(cls, *, shape: Any, depth: int, init: Any) -> Any:
        if not any(isinstance(word, Signal) for word in init):
            return Memory(shape=shape, depth=depth, init=init)
        return AnyProgram(init)


class AnyProgram(wiring.Component):
    def __init__(self, words: list[Signal]) -> None:
        self.words = Array(words)
        super().__init__({"en": In(1), "addr": In(range(len(words) + 1)), "data": Out(WORD)})

    def read_port(self) -> Any:
        return self

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        with m.If(self.en):
            m.d.sync += self.data.eq(self.words[self.addr])
        return m


class Runs(Contract):
    """Programs of three instructions of any kind, between engines that take and end when they please.

    `idle` may still be set in the cycle after a command was taken. With willing engines something happens
    every so many cycles.
    """

    def __init__(self, make: Any) -> None:
        self.words = [Signal(unsigned(WORD), name=f"instruction{k}") for k in range(LENGTH + 1)]
        design = make(SHAPE, VECTOR, LANES, self.words, {(0, FrameKind.FORWARD): 0})
        names = (
            "valid",
            "hold",
            "late",
            "writes",
            "vector_ready",
            "lanes_ready",
            "vector_ends",
            "lanes_ends",
        )
        free = {**dict.fromkeys(names, 1), "run": design.run.payload.shape()}
        super().__init__(design, free, {f"word{k}": WORD for k in range(LENGTH)})

    def check(self, m: Module, design: Any) -> None:
        codes, issues = self.program(m)
        m.d.comb += [
            design.run.valid.eq(self.valid),
            design.run.payload.as_value().eq(self.run),
            design.hold.eq(self.hold),
            design.registers.en.eq(self.writes),
            design.vector.ready.eq(self.vector_ready),
            design.lanes.ready.eq(self.lanes_ready),
            Assume((design.run.payload.kind == FrameKind.FORWARD) & (design.run.payload.unit == 0)),
        ]
        keeps_offers(m, design.run, Assume)
        left = {name: Signal(3, name=f"{name}_left") for name in ("vector", "lanes")}
        taken = {name: transfer(getattr(design, name)) for name in left}
        for name, count in left.items():
            ends = getattr(self, f"{name}_ends") & (count != 0)
            m.d.sync += count.eq(count + taken[name] - ends)
            m.d.comb += Assume(~taken[name] | (count < 4))
            keeps_offers(m, getattr(design, name), Assert)
        still = (left["vector"] == 0) & (left["lanes"] == 0)
        accepted, just, begins = Signal(), Signal(), transfer(design.run)
        m.d.comb += accepted.eq(taken["vector"] | taken["lanes"])
        m.d.sync += just.eq(accepted)
        m.d.comb += design.idle.eq(still | (just & self.late))
        # What has been taken, and the run that it belongs to.
        running, seen, before = Signal(), Signal(LENGTH), Signal(range(LENGTH + 1))
        run = Signal.like(design.run.payload)
        op = Signal(5)
        m.d.comb += op.eq(Mux(taken["vector"], design.vector.payload.op, design.lanes.payload.op))
        m.d.comb += [
            Assert(design.busy == running),
            Assert(~(taken["vector"] & taken["lanes"])),
            Assert(~begins | (~self.hold & still & ~running)),
            Assert(~(accepted | design.finished) | running),
            Assert(~taken["vector"] | (left["lanes"] == 0)),  # one engine at a time
            Assert(~taken["lanes"] | (left["vector"] == 0)),
            Assert(~accepted | ((op < LENGTH) & (op >= before))),
        ]
        with m.If(begins):
            m.d.sync += [running.eq(1), seen.eq(0), before.eq(0), run.eq(design.run.payload)]
        with m.If(accepted):
            m.d.sync += [seen.eq(seen | (1 << op)), before.eq(op + 1)]
        for k in range(LENGTH):
            here = accepted & (op == k)
            m.d.comb += Assert(~here | ((codes[k] == Code.ISSUE) & (issues[k].unit == taken["vector"])))
            for waits in range(k):  # no command passes a WAIT before all that stand ahead of it are done
                m.d.comb += Assert(~here | (codes[waits] != Code.WAIT) | (before > waits) | still)
        with m.If(design.finished):
            m.d.sync += running.eq(0)
            m.d.comb += [Assert(still), Assert(design.current.as_value() == run.as_value())]
            reached: Any = 1
            for k in range(LENGTH):
                m.d.comb += Assert(seen[k] == (reached & (codes[k] == Code.ISSUE)))
                reached = reached & (codes[k] != Code.END)
            m.d.comb += [Cover(seen[:2].all()), Cover(codes[1] == Code.WAIT)]
        willing = ~self.writes & ~self.hold & self.vector_ready & self.lanes_ready
        willing = willing & self.vector_ends & self.lanes_ends & (running | self.valid)
        within(m, 6 * LENGTH, willing, begins | accepted | design.finished)

    def program(self, m: Module) -> tuple[list[Any], list[Any]]:
        """Codes, and what ISSUE would say; a command's operation is its place in the program."""
        codes, issues = [], []
        for k, word in enumerate(self.words[:LENGTH]):
            m.d.comb += word.eq(getattr(self, f"word{k}"))
            codes.append(word[:CODE_BITS])
            layout = LAYOUTS[Code.ISSUE]
            issues.append(data.View(layout, word[CODE_BITS : CODE_BITS + layout.size]))
            m.d.comb += Assume((codes[k] != Code.ISSUE) | (issues[k].op == k))
            m.d.comb += Assume(codes[k] <= Code.END)
        m.d.comb += self.words[LENGTH].eq(Code.END)
        return codes, issues


assert Unit.VECTOR == 1

CASES = {
    "sequencer": Case(
        Sequencer,
        Runs,
        11,
        (
            ("clear.eq(self.idle & ~fresh)", "clear.eq(self.idle)"),  # does not wait
            ('does["halts"] & ~clear', 'does["ends"] & ~clear'),  # WAIT waits for nothing
            ("may.eq(clear | (last == issue.unit))", "may.eq(1)"),  # both engines at once
            ("(issues & ~accepted) | ", ""),  # retracts
            ("there[1].eq(there[0] & ~waits)", "there[1].eq(there[0])"),  # issues twice
            ("fetch.en.eq(moves)", "fetch.en.eq(1)"),  # loses
            ("~self.busy & ~self.hold & self.idle", "~self.busy & self.idle"),  # while parameters change
            ("last.eq(issue.unit)", "last.eq(~issue.unit)"),  # waits for itself
        ),
        {"Memory": AnyMemory, "ADDRESS": 4},
        every_day=False,
    ),
}
test_the_contract_is_kept, test_a_fault_is_found, test_something_is_left_to_prove = proofs_of(CASES)
