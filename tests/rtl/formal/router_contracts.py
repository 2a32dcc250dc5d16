"""What is proved about the router: the controller does with messages what its programs say, and nothing else.

The controller is the real one, with its queues and counts, on a small shape. Two things stand in for others.
The memories begin with any contents, and what is read from a word in the cycle of its write is wrong. The
expressions of a step, whose logic is generated, are any numbers: the prover chooses where messages go.

Steps that read tables, what is fetched for a firing, and the host's messages are not in these proofs.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

from amaranth.hdl import (
    Assert,
    Assume,
    Cat,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
    signed,
)
from amaranth.lib import data

from amphw.rtl.gateware.controller.controller import Controller
from amphw.rtl.gateware.controller.join_count import JoinCount
from amphw.rtl.gateware.controller.memory import ControlShape, OwnerLayout, PlaceLayout, Store
from amphw.rtl.gateware.controller.ports import FrameKind
from amphw.rtl.isa.steps import StepOp
from amphw.rtl.plan.control import Phase
from tests.rtl.formal.cases import variant
from tests.rtl.formal.contracts import Contract, keeps_offers, transfer, within
from tests.rtl.formal.router_world import Meaning, of

ADDRESS = 3
SHAPE = ControlShape(
    firings=2, places=4, table=2, slots=2, units=2, outputs=2, state_bits=2,
    decisions=1, loops=1, reads=1, by_rows=True, paths=1,
)  # fmt: skip
PLACE = variant(PlaceLayout, "", "", {"ADDRESS": ADDRESS})(SHAPE)
COUNTED = data.StructLayout({"left": ADDRESS, "known": 1})
HEADER = {
    "kind": 4,
    "output": 3,
    "slot": 1,
    "generation": 1,
    "unit": 1,
    "firing": 1,
    "place": ADDRESS,
    "payload": ADDRESS,
    "words": ADDRESS,
    "copy": ADDRESS,
    "state": 3,
}


class MessageLayout(data.StructLayout):
    """A header of fewer bits, as a proof is a matter of minutes with the real one."""

    def __init__(self) -> None:
        super().__init__(HEADER)


class Job(data.StructLayout):
    def __init__(self) -> None:
        super().__init__({"header": MessageLayout(), "source": ADDRESS})


STEP = data.StructLayout(
    {"op": 5, "n": 2, "m": 1, "target": 2, "path": 1, "wait": 1} | dict.fromkeys("abcde", signed(ADDRESS + 2))
)
"""A step's word; in place of its expressions' numbers it has their values."""

WORLD = data.StructLayout(
    {
        "place": data.ArrayLayout(PLACE, SHAPE.places),
        "head": data.ArrayLayout(SHAPE.place_bits + 1, SHAPE.firings << SHAPE.output_bits),
        "need": data.ArrayLayout(COUNTED, SHAPE.firings),
        "pending": data.ArrayLayout(ADDRESS, SHAPE.firings),
        "state": data.ArrayLayout(SHAPE.state_bits, SHAPE.firings),
        "owner": data.ArrayLayout(OwnerLayout(SHAPE), SHAPE.firings),
        "record": data.ArrayLayout(ADDRESS, SHAPE.firings),
        "active": data.ArrayLayout(ADDRESS, SHAPE.slots),
        "taken": data.ArrayLayout(ADDRESS, SHAPE.slots),
        "infer": data.ArrayLayout(1, SHAPE.slots),
    }
)
"""All that the controller remembers from one message to the next."""


class Words(Elaboratable):
    """A memory that begins with `start`."""

    def __init__(self, shape: Any, depth: int) -> None:
        self.words, self.start = (Signal(data.ArrayLayout(shape, depth)) for _ in range(2))
        self.shape, self._reads, self._writes = shape, [], []

    def _port(self, ports: list[Any], domain: str) -> Any:
        address = range(len(self.words))
        ports.append(
            SimpleNamespace(domain=domain, en=Signal(), addr=Signal(address), data=Signal(self.shape))
        )
        return ports[-1]

    def read_port(self, domain: str = "sync") -> Any:
        return self._port(self._reads, domain)

    def write_port(self) -> Any:
        return self._port(self._writes, "sync")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for read in self._reads:
            word = Value.cast(of(self.words)[read.addr])
            collides: Any = 0
            for write in self._writes:
                collides = collides | (write.en & (write.addr == read.addr))
            if read.domain == "comb":
                m.d.comb += Value.cast(read.data).eq(word)
            else:
                m.d.sync += Value.cast(read.data).eq(Mux(collides, ~word, word))
        for write in self._writes:
            with m.If(write.en):
                m.d.sync += Value.cast(of(self.words)[write.addr]).eq(write.data)
        first = Signal(init=1)
        m.d.sync += first.eq(0)
        with m.If(first):
            m.d.sync += self.words.eq(self.start)
        return m


class Program(Elaboratable):
    """The memory of steps; its words are signals."""

    def __init__(self, words: list[Any]) -> None:
        self.words = words
        self.en, self.addr, self.data = Signal(), Signal(range(len(words))), Signal(STEP)

    def read_port(self) -> Any:
        return self

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        with m.Switch(self.addr):
            for k, word in enumerate(self.words):
                with m.Case(k):
                    m.d.sync += self.data.eq(word)
        return m


class AnySteps:
    """In place of StepLogic: expressions are numbers."""

    def __init__(self, m: Module, registers: Any, plan: Any, shape: Any) -> None:
        self.plan = plan

    def layout(self) -> Any:
        return STEP

    def words(self) -> list[Any]:
        return self.plan.steps

    def chosen(self, m: Module, step: Any, least: Any) -> dict[str, Any]:
        return {k: step[k] for k in "abcde"}


def _memory(*, shape: Any, depth: int, init: Any, attrs: Any = None) -> Any:
    return Program(init) if init else Words(shape, depth)


def _store(shape: Any, depth: int) -> Any:
    kept = Words(shape, depth)
    made = variant(Store, "", "", {"Memory": lambda **_: kept})(shape, depth)
    made.kept = kept
    return made


def _join_count(firings: int, marks: bool = False) -> Any:
    store = _store(COUNTED if marks else data.StructLayout({"left": ADDRESS}), firings)
    made = variant(JoinCount, "", "", {"ADDRESS": ADDRESS, "Store": lambda *_: store})(firings, marks)
    made.kept = store.kept
    return made


SMALL = {
    "ADDRESS": ADDRESS,
    "MessageLayout": MessageLayout,
    "Job": Job,
    "PlaceLayout": lambda shape: PLACE,
    "Memory": _memory,
    "Store": _store,
    "JoinCount": _join_count,
    "StepLogic": AnySteps,
}
"""Constants of the controller's module."""


TURNS = 2
"""Of a loop, at most."""


class Skeleton(NamedTuple):
    """A program of an operation or several, with END behind them, and how its firing has run.

    A GUARD or a LOOP is the first step; it goes to END, and a NEXT behind the loop's steps to the first one.
    """

    steps: tuple[StepOp, ...]
    kind: FrameKind

    def unrolled(self, steps: list[Any]) -> list[tuple[Any, Any]]:
        """The steps that send or return something, in their order, and whether they are done."""
        first = steps[0]
        if self.steps[0] is StepOp.GUARD:
            return [(step, first.a != 0) for step in steps[1:]]
        if self.steps[0] is StepOp.LOOP:
            return [(step, first.a > turn) for turn in range(TURNS) for step in steps[1:-1]]
        return [(step, 1) for step in steps]


def router(part: type, skeleton: Skeleton) -> Any:
    """The controller, one of whose classes is `part`; what it remembers and tells its queues can be seen."""
    whole = variant(Controller, "", "", SMALL)
    if part.__name__ == "Controller":
        bases: tuple[type, ...] = (part,)
    else:
        bases = (whole,) if part in whole.__mro__ else (part, whole)

    class Router(*bases):  # type: ignore[misc]
        def __init__(self) -> None:
            words = [Signal(STEP, name=f"step{k}") for k in range(len(skeleton.steps) + 1)]
            last = len(words) - 1
            entries = {
                (0, phase): last if phase in (Phase.FETCH, Phase.FETCH_BACKWARD) else 0 for phase in Phase
            }
            units = [SimpleNamespace(index=0)]
            plan = SimpleNamespace(
                steps=words,
                ops=frozenset(StepOp),  # also those of other programs
                copies=True,
                entries=entries,
                partition=SimpleNamespace(units=units),
                directory=SimpleNamespace(size=2),
            )
            super().__init__(plan, SHAPE, 0)
            self.skeleton = skeleton
            self.start, self.world = Signal(WORLD), Signal(WORLD)
            self.moved_to = Signal(ADDRESS)
            self.pushed = Signal(2)  # forward, backward
            self.pushes = [Signal(SHAPE.firing_bits, name=f"pushes{k}") for k in range(2)]

        def elaborate(self, platform: Any) -> Module:
            m = super().elaborate(platform)
            for name in ("place", "head", "need", "pending", "state", "owner", "record"):
                self._see(m, name, getattr(self, name).kept)
            for name in ("active", "taken", "infer"):
                self._see(m, name, getattr(m.submodules, name))
            m.d.comb += self.moved_to.eq(self.at)
            for k, queue in enumerate((self.forward, self.backward)):
                m.d.comb += [
                    self.pushed[k].eq(queue.push),
                    self.pushes[k].eq(queue.value),
                ]
            return m

        def _see(self, m: Module, name: str, kept: Words) -> None:
            m.d.comb += [
                Value.cast(kept.start).eq(Value.cast(self.start[name])),
                Value.cast(self.world[name]).eq(Value.cast(kept.words)),
            ]

    return Router()


class Routes(Contract):
    """A firing has run; behind it another one waits, so that it is seen when the router is through.

    Then its memories are what the program means, from any contents that they had. Meanwhile the host and the
    queues have been told what the program says: all of it, once, in order. What is offered to the host stays
    until it is taken. The router is through within `limit` cycles.

    Assumed, so that time is the same in all cases and the proof is short: no messages come from the host, all
    firings are of unit 0, whatever number of operands they wait for none is marked as come, so that no states
    can disagree, an expression is there at once, and the host's side takes what is offered in the second
    cycle. Firings train or only infer, as their owners say.
    """

    def __init__(self, design: Any, limit: int) -> None:
        self.limit = limit
        free = {"start": WORLD.size, "ran": design.ran.payload.shape(), "run_ready": 1}
        super().__init__(design, free, {f"step{k}": STEP for k in range(len(design.skeleton.steps))})

    def check(self, m: Module, design: Any) -> None:
        first, waited = Signal(init=1), Signal()
        m.d.sync += [first.eq(0), waited.eq(design.job.valid & ~waited)]
        m.d.comb += [
            Assume(~ResetSignal()),  # it leaves memories as they are
            design.start.as_value().eq(self.start),
            design.ran.valid.eq(~first),
            design.ran.payload.as_value().eq(self.ran),
            design.run.ready.eq(self.run_ready),
            design.job.ready.eq(waited),
            Assume(design.ran.payload.kind == design.skeleton.kind),
        ]
        m.d.comb += [Assume(owner.unit == 0) for owner in of(design.start.owner)]
        m.d.comb += [Assume(~need.known) for need in of(design.start.need)]
        steps = self._program(m, design)

        # In the cycle after it has turned to a firing, all that was done before is in memory.
        turns, turned, begun = transfer(design.ran), Signal(), Signal()
        coming, fid = Signal(SHAPE.firing_bits), Signal(SHAPE.firing_bits)
        before, at = Signal(WORLD), Signal(ADDRESS)
        m.d.sync += turned.eq(turns)
        with m.If(turns):
            m.d.sync += coming.eq(design.ran.payload.firing)
        with m.If(turned):
            m.d.sync += [fid.eq(coming), before.eq(design.world), at.eq(design.moved_to), begun.eq(1)]

        means = Meaning(m, before, at, Job(), SHAPE.firing_bits)
        owner = Signal(OwnerLayout(SHAPE))
        m.d.comb += owner.eq(of(before.owner)[fid])
        for step, when in design.skeleton.unrolled(steps):
            means.step(step, fid, owner, when)
        means.ends(design.skeleton.kind != FrameKind.BACKWARD, fid, owner)
        with m.If(turned & begun):
            for name in WORLD.members:
                same = Value.cast(design.world[name]) == Value.cast(means.world[name])
                m.d.comb += Assert(same)
            m.d.comb += Assert(design.moved_to == means.at)
        told = [
            self._tells(m, name, *mine, getattr(means, name), turned, begun)
            for name, mine in {
                "jobs": (transfer(design.job), design.job.payload.as_value()),
                "forward": (design.pushed[0], design.pushes[0]),
                "backward": (design.pushed[1], design.pushes[1]),
            }.items()
        ]
        keeps_offers(m, design.job, Assert)
        within(m, self.limit, design.ran.valid, turns)
        m.d.comb += Cover(turned & begun & (Cat(*told) != 0))

    def _program(self, m: Module, design: Any) -> list[Any]:
        steps = [data.View(STEP, getattr(self, f"step{k}")) for k in range(len(design.skeleton.steps))]
        for word, step, op in zip(design.plan.steps, steps, design.skeleton.steps, strict=False):
            m.d.comb += [word.eq(step), Assume(step.op == op), Assume(step.wait == 0)]
            m.d.comb += Assume(step.c == steps[0].c)
            if op in (StepOp.GUARD, StepOp.LOOP, StepOp.NEXT):
                m.d.comb += Assume(step.target == (1 if op is StepOp.NEXT else len(steps)))
            if op is StepOp.LOOP:
                m.d.comb += Assume(step.a <= TURNS)
            if op in (StepOp.LOOP, StepOp.NEXT):
                m.d.comb += Assume(step.n == 0)
        return steps

    def _tells(
        self, m: Module, name: str, told: Any, payload: Any, items: list[Any], turned: Any, begun: Any
    ) -> Signal:
        """What is told is the next one of the list; in the end all has been told -> how many have been."""
        count = Signal(3, name=f"{name}_told")
        m.d.sync += count.eq(Mux(turned, 0, count + told))
        m.d.comb += Assert(~told | (begun & ~turned))
        expected: Any = 0
        for item in items:
            here = item.valid & (count == expected) & told
            m.d.comb += Assert(~here | (payload == Value.cast(item.payload)))
            expected = expected + item.valid
        m.d.comb += [Assert(~told | (count < expected)), Assert(~(turned & begun) | (count == expected))]
        return count
