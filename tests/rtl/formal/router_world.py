"""What control programs mean for messages: the router's memories after them, and what it tells.

A specification: every step takes effect at once, in the order of the program, as `amphw.rtl.isa.steps` and
`amphw.rtl.isa.wire` describe them.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value

from amphw.rtl.isa.steps import StepOp
from amphw.rtl.isa.wire import Fault, Kind


def of(words: Any) -> Any:
    """An array whose index chooses among its words; a view's index would shift, which is harder to prove."""
    return Array(words[k] for k in range(len(words)))


class Told:
    """What may be told once: whether it is, and what."""

    def __init__(self, shape: Any, name: str) -> None:
        self.valid, self.payload = Signal(name=f"{name}_valid"), Signal(shape, name=name)

    def tell(self, payload: Any) -> list[Any]:
        return [self.valid.eq(1), Value.cast(self.payload).eq(payload)]


class Meaning:
    """From `world` and `at`, where the router's address stands, on; `at`, `copy` and `sent` are its own.

    jobs, forward, backward: what is told to the host and to the two queues, in order. idle: that the host is
    told last that an instance has come to rest.
    """

    def __init__(self, m: Module, world: Any, at: Any, job: Any, firing_bits: int) -> None:
        self.m, self.job, self.firing_bits = m, job, firing_bits
        self.world, self.at = world, at
        self.address = at.shape()
        self.copy: Any = Signal(self.address)
        self.sent: Any = Signal(self.address)
        self.jobs: list[Told] = []
        self.forward: list[Told] = []
        self.backward: list[Told] = []

    def _begin(self) -> tuple[Any, Any]:
        """What follows happens to a new world, from the one before it, which is returned."""
        m, before = self.m, self.world
        self.world = Signal(before.shape(), name="world")
        m.d.comb += self.world.eq(before)
        was = (self.at, self.copy, self.sent)
        self.at, self.copy, self.sent = (Signal(self.address, name=name) for name in ("at", "copy", "sent"))
        m.d.comb += [now.eq(then) for now, then in zip((self.at, self.copy, self.sent), was, strict=True)]
        self.jobs.append(Told(self.job, "job"))
        self.forward.append(Told(self.firing_bits, "forward"))
        self.backward.append(Told(self.firing_bits, "backward"))
        return before, was

    def step(self, step: Any, fid: Any, owner: Any, when: Any = 1) -> None:
        """One step of a firing's program, if it is done."""
        m = self.m
        before, (at, copy, sent) = self._begin()
        a, b, c, d, e = (step[k] for k in "abcde")
        header = self.jobs[-1].payload.header
        with m.If(when & (step.op == StepOp.DELIVER)):
            place = of(self.world.place)[b[: self._bits(before.place)]]
            m.d.comb += Value.cast(place).eq(0)
            m.d.comb += [place.address.eq(d), place.link.eq(fid), place.output.eq(step.m)]
            m.d.comb += [place.row.eq(e), place.single.eq(step.n[0]), self.sent.eq(sent + 1)]
            self._arrives(before, a[: self.firing_bits], c, owner.slot)
        with m.If(when & (step.op == StepOp.SEND)):
            m.d.comb += [self.jobs[-1].valid.eq(1), self.jobs[-1].payload.source.eq(a)]
            m.d.comb += [header.kind.eq(Kind.FORWARD), header.output.eq(step.m), header.place.eq(step.n)]
            m.d.comb += [header.slot.eq(owner.slot), header.unit.eq(owner.unit), header.firing.eq(fid)]
            m.d.comb += [header.words.eq(b), header.copy.eq(copy), header.state.eq(c), header.payload.eq(e)]
            m.d.comb += [self.copy.eq(copy + 1), self.sent.eq(sent + 1)]
        with m.If(when & (step.op == StepOp.RETURN)):
            number = a[: self._bits(before.place)]
            operand, full = of(before.place)[number], step.n[0]
            with m.If(full):
                m.d.comb += self.at.eq(at + b)
            with m.If(operand.host):
                m.d.comb += [self.jobs[-1].valid.eq(1), self.jobs[-1].payload.source.eq(at)]
                m.d.comb += [header.kind.eq(Kind.BACKWARD), header.slot.eq(owner.slot)]
                m.d.comb += [header.place.eq(a), header.words.eq(Mux(full, b, 0))]
            with m.Else():
                origin = operand.link[: self.firing_bits]
                self._goes_back(
                    before, origin, operand.output, number, at, full, operand.row, operand.single, owner.slot
                )

    def ends(self, routes: Any, fid: Any, owner: Any) -> None:
        """The end of a firing's program after it has run; routes: forward."""
        m = self.m
        before, (_, _, sent) = self._begin()
        waits = routes & ~owner.infer
        running = of(before.active)[owner.slot]
        with m.If(waits):
            m.d.comb += of(self.world.pending)[fid].eq(sent)
            m.d.comb += [of(self.world.head)[Cat(k, fid)].eq(0) for k in (False, True)]
        with m.If(waits & (sent == 0)):
            m.d.comb += self.backward[-1].tell(fid)
        with m.Else():
            m.d.comb += of(self.world.active)[owner.slot].eq(running - 1)
            with m.If(owner.infer & (running == 1)):
                header = self.jobs[-1].payload.header
                m.d.comb += [self.jobs[-1].valid.eq(1), header.kind.eq(Kind.IDLE)]
                m.d.comb += [header.slot.eq(owner.slot), header.copy.eq(of(before.taken)[owner.slot])]

    def _arrives(self, before: Any, firing: Any, state: Any, slot: Any) -> None:
        """An operand has come for a firing: the last one makes it ready; they must agree about its state."""
        m, count = self.m, of(before.need)[firing]
        header, kept = self.jobs[-1].payload.header, of(before.state)[firing]
        m.d.comb += [
            of(self.world.need)[firing].left.eq(count.left - 1),
            of(self.world.need)[firing].known.eq(1),
        ]
        m.d.comb += of(self.world.state)[firing].eq(state)
        with m.If(count.left == 1):
            m.d.comb += self.forward[-1].tell(firing)
            m.d.comb += of(self.world.active)[slot].eq(of(before.active)[slot] + 1)
        with m.If(count.known & (kept != state[: len(kept)])):
            m.d.comb += [self.jobs[-1].valid.eq(1), header.kind.eq(Kind.FAULT), header.output.eq(Fault.STATE)]
            m.d.comb += [header.slot.eq(slot), header.firing.eq(firing), header.state.eq(state)]

    def _goes_back(
        self, before: Any, origin: Any, output: Any, number: Any, at: Any, full: Any, row: Any, single: Any,
        slot: Any,
    ) -> None:  # fmt: skip
        """A gradient has come to an output: it joins the list; the last one makes the firing ready."""
        m, index = self.m, Cat(output, origin)
        left = of(before.pending)[origin]
        with m.If(full):
            place, head = of(self.world.place)[number], of(before.head)[index]
            m.d.comb += Value.cast(place).eq(0)
            m.d.comb += [place.address.eq(at), place.link.eq(head >> 1), place.more.eq(head[0])]
            m.d.comb += [place.row.eq(row), place.single.eq(single)]
            m.d.comb += of(self.world.head)[index].eq(Cat(True, number))
        m.d.comb += of(self.world.pending)[origin].eq(left - 1)
        with m.If(left == 1):
            m.d.comb += self.backward[-1].tell(origin)
            m.d.comb += of(self.world.active)[slot].eq(of(before.active)[slot] + 1)

    @staticmethod
    def _bits(words: Any) -> int:
        return (words.shape().length - 1).bit_length()
