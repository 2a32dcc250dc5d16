"""What is proved about components at streams: each contract is a component around the design, of free inputs.

The prover chooses a payload that is followed: it comes out as it went in, when all that went in before it
have come out. So none is lost, doubled, changed or overtaken. All registers of a contract are reset with the
design: the prover may reset both at any time.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Assert, Assume, Cover, Module, Mux, Shape, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

COUNT = 5  # bits of how many payloads are inside, or cycles are waited for, which contracts limit


class Contract(wiring.Component):
    """Free inputs for the design's inputs, and the numbers that the prover chooses once."""

    def __init__(self, design: Any, free: dict[str, Any], chosen: dict[str, Any]) -> None:
        self.design, self._chosen = design, chosen
        super().__init__({name: In(Shape.cast(shape)) for name, shape in {**free, **chosen}.items()})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.design = self.design
        first = Signal(init=1)
        m.d.sync += first.eq(0)
        for name in self._chosen:
            before = Signal.like(getattr(self, name))
            m.d.sync += before.eq(getattr(self, name))
            m.d.comb += Assume(first | (getattr(self, name) == before))
        self.check(m, self.design)
        return m

    def check(self, m: Module, design: Any) -> None:
        raise NotImplementedError


def keeps_offers(m: Module, port: Any, must: Any) -> None:
    """What is offered and not taken stays, unchanged; `must` is Assert for outputs and Assume for inputs."""
    waited = Signal()
    before = Signal(Shape.cast(port.payload.shape()))
    m.d.sync += [waited.eq(port.valid & ~port.ready), before.eq(port.payload)]
    same = as_bits(port.payload) == before
    m.d.comb += must(~waited | (port.valid & same))


def as_bits(payload: Any) -> Any:
    return payload.as_value() if hasattr(payload, "as_value") else payload


def transfer(port: Any) -> Any:
    return port.valid & port.ready


def follow(
    m: Module, begins: Any, push: Any, given: Any, pop: Any, taken: Any, *, reached: int = 3
) -> Signal:
    """Assert that payloads are taken as and in the order in which they were given -> how many are inside.

    begins: a free input; the payload that is given while it is set is followed, unless another one is. Since
    the prover chooses which one, and may choose again whenever one has come out, what holds of the one holds
    of all. reached: how many are delivered within the depth of the proof, at least.
    """
    inside, ahead = Signal(COUNT), Signal(COUNT)  # all of them; those that come out before the one followed
    followed, kept = Signal(), Signal(len(given))
    chosen = push & begins & ~followed
    m.d.sync += inside.eq(inside + push - pop)
    m.d.comb += Assert(~pop | push | (inside != 0))  # nothing comes out that did not go in
    with m.If(followed & pop):
        m.d.comb += Assert((ahead != 0) | (taken == kept))
        m.d.sync += [ahead.eq(ahead - 1), followed.eq(ahead != 0)]
    with m.If(chosen):
        through = pop & (inside == 0)  # in the cycle in which it is given
        m.d.comb += Assert(~through | (taken == given))
        m.d.sync += [kept.eq(given), ahead.eq(inside - pop), followed.eq(~through)]
    delivered = Signal(range(reached + 1))
    m.d.sync += delivered.eq(delivered + (pop & (delivered != reached)))
    m.d.comb += Cover(delivered == reached)
    return inside


def within(m: Module, cycles: int, pending: Any, done: Any) -> None:
    """Assert that what is pending is done after at most so many cycles in a row of waiting."""
    waiting = Signal(COUNT)
    m.d.sync += waiting.eq(Mux(pending & ~done, waiting + 1, 0))
    m.d.comb += Assert(waiting <= cycles)


class PassesOn(Contract):
    """One input, one output: everything passes, in order; at most `capacity` are inside, and they move on.

    delay: cycles in which a willing receiver may be left waiting while something is inside. reached: how many
    are delivered within the depth of the proof, at least.
    """

    def __init__(self, design: Any, capacity: int, delay: int, reached: int = 3) -> None:
        self.capacity, self.delay, self.reached = capacity, delay, reached
        payload = design.i.payload.shape()
        super().__init__(design, {"valid": 1, "payload": payload, "ready": 1, "follows": 1}, {})

    def check(self, m: Module, design: Any) -> None:
        m.d.comb += [
            design.i.valid.eq(self.valid),
            as_bits(design.i.payload).eq(self.payload),
            design.o.ready.eq(self.ready),
        ]
        keeps_offers(m, design.i, Assume)
        keeps_offers(m, design.o, Assert)
        push, pop = transfer(design.i), transfer(design.o)
        inside = follow(
            m, self.follows, push, self.payload, pop, as_bits(design.o.payload), reached=self.reached
        )
        m.d.comb += Assert(inside <= self.capacity)
        m.d.comb += Cover(inside == self.capacity)
        if hasattr(design, "level"):
            m.d.comb += Assert(design.level == inside)
        within(m, self.delay, (inside != 0) & self.ready, pop)
        within(m, self.delay, self.valid & self.ready, push)
