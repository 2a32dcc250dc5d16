"""What is proved about what stands around memories: an address that the prover chooses is followed."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Assert, Assume, Const, Cover, Module, Mux, ResetSignal, Signal

from amphw.rtl.isa.counters import CYCLES, LEVELS
from amphw.rtl.isa.memory import READ_LATENCY
from tests.rtl.formal.contracts import COUNT, Contract, as_bits, follow, within

ENGINES, PORTS = ("lanes", "vector"), ("read_a", "read_b", "write")
WRITERS = ("put", "receive")
READERS = ("look", "send")


class Serves(Contract):
    """Payload memory: engines never wait, nobody else's word is lost, and everyone has a turn.

    At the chosen address every port reads what had been written there last when its request was served. What
    the link asks for waits for one word of the controller's, if the controller rests after it.
    """

    def __init__(self, design: Any) -> None:
        address = design.address_bits
        ports: dict[str, int] = {}
        for name in (*(f"{e}_{port}" for e in ENGINES for port in PORTS), *WRITERS, *READERS):
            ports |= {f"{name}_en": 1, f"{name}_addr": address}
            if name in WRITERS or name.endswith("write"):
                ports[f"{name}_data"] = 16
        self.driven = tuple(ports)
        super().__init__(design, ports, {"address": design.address_bits})

    def check(self, m: Module, design: Any) -> None:
        for name in self.driven:
            port, _, member = name.rpartition("_")
            m.d.comb += getattr(getattr(design, port), member).eq(getattr(self, name))
        for port in PORTS:  # one engine works at a time
            m.d.comb += Assume(~(getattr(self, f"lanes_{port}_en") & getattr(self, f"vector_{port}_en")))
        known, kept = Signal(), Signal(16)
        writes = [getattr(design, f"{name}_write") for name in ENGINES]
        served = [(port, port.en) for port in writes]
        served += [(getattr(design, name), getattr(design, name).done) for name in WRITERS]
        for port, done in served:
            with m.If(done & (port.addr == self.address)):
                m.d.sync += [known.eq(1), kept.eq(port.data)]
        m.d.comb += Cover(known & (kept == 7))
        reads = [
            (port, port.en) for e in ENGINES for k in "ab" for port in (getattr(design, f"{e}_read_{k}"),)
        ]
        reads += [(getattr(design, name), getattr(design, name).done) for name in READERS]
        for number, (port, done) in enumerate(reads):
            asked, word = done & known & (port.addr == self.address), kept
            for cycle in range(READ_LATENCY):
                was = Signal(name=f"asked{number}_{cycle}"), Signal(16, name=f"word{number}_{cycle}")
                m.d.sync += [was[0].eq(asked), was[1].eq(word)]
                asked, word = was
            m.d.comb += [Assert(~asked | (port.data.as_unsigned() == word)), Cover(asked)]
        for names, engines in ((WRITERS, writes), (READERS, [reads[1][0], reads[3][0]])):
            first, second = (getattr(design, name) for name in names)
            free = ~(engines[0].en | engines[1].en)
            m.d.comb += [Assert(~port.done | port.en) for port in (first, second)]
            rested = Signal(name=f"{names[0]}_rests")
            with m.If(first.done | free):
                m.d.sync += rested.eq(first.done)
            m.d.comb += Assume(~(rested & first.en))
            waiting = Signal(COUNT, name=f"{names[1]}_waits")
            m.d.sync += waiting.eq(Mux(second.en & ~second.done, waiting + free, 0))
            m.d.comb += [Assert(waiting <= 1), Assert(~(free & first.en) | first.done)]


class Recalls(Contract):
    """A memory: of each part of the chosen word, what is read is what was written last in an earlier cycle.

    parts: what may be written alone. cycles: from an address to what lies there.
    """

    def __init__(self, design: Any, depth: int, parts: int, bits: int, cycles: int) -> None:
        self.parts, self.bits, self.cycles = parts, bits, cycles
        free = {"asked": range(depth), "into": range(depth), "written": parts, "word": parts * bits}
        super().__init__(design, free, {"address": range(depth)})

    def check(self, m: Module, design: Any) -> None:
        if hasattr(design, "write_addr"):
            into = self.into
            m.d.comb += [
                design.write_addr.eq(into),
                design.write_lanes.eq(self.written),
                design.write_data.as_value().eq(self.word),
            ]
        else:  # one address for both
            into = self.asked
            m.d.comb += [design.write.eq(self.written), design.value.eq(self.word)]
        m.d.comb += [design.addr.eq(self.asked), Assume(~ResetSignal())]  # it leaves memories as they are
        for k in range(self.parts):
            part = slice(k * self.bits, (k + 1) * self.bits)
            writes = self.written[k] & (into == self.address)
            kept = Signal(self.bits, name=f"kept{k}")
            with m.If(writes):
                m.d.sync += kept.eq(self.word[part])
            # What a read gives of a word that is written in that cycle is not defined.
            asked, expected = (self.asked == self.address) & ~writes, kept
            for cycle in range(self.cycles):
                was = Signal(name=f"asked{k}_{cycle}"), Signal(self.bits, name=f"word{k}_{cycle}")
                m.d.sync += [was[0].eq(asked), was[1].eq(expected)]
                asked, expected = was
            m.d.comb += Assert(~asked | (as_bits(design.data)[part] == expected))
            m.d.comb += Cover(asked & (expected == 1))


class KeepsOrder(Contract):
    """The queue of firings: everyone that was pushed comes to its head once, in order, soon."""

    def __init__(self, design: Any) -> None:
        super().__init__(design, {"push": 1, "pop": 1, "follows": 1, "value": range(design.depth)}, {})

    def check(self, m: Module, design: Any) -> None:
        m.d.comb += [
            design.push.eq(self.push),
            design.pop.eq(self.pop & design.there),
            design.value.eq(self.value),
        ]
        inside = follow(m, self.follows, self.push, self.value, design.pop, design.head)
        m.d.comb += [
            Assume(~self.push | (inside < design.depth)),  # no firing is in it twice
            Assert(design.level == inside),
            Cover(inside == design.depth),
        ]
        within(m, 4, (inside != 0) & ~design.pop, design.there)


class Joins(Contract):
    """The chosen firing is complete once, with the last message that it waits for."""

    def __init__(self, design: Any) -> None:
        free = {"set": 1, "arrive": 1, "addr": range(design.firings), "value": 3}
        super().__init__(design, free, {"firing": range(design.firings)})

    def check(self, m: Module, design: Any) -> None:
        for name in ("set", "arrive", "addr", "value"):
            m.d.comb += getattr(design, name).eq(getattr(self, name))
        m.d.comb += Assume(~(self.set & self.arrive))
        # For three cycles the address has stood, and nothing was written: meanwhile the count is read.
        ahead, begun, written = self.addr, Const(1), self.set | self.arrive
        for _ in range(3):
            kept = [Signal.like(ahead, init=0), Signal(), Signal()]
            m.d.sync += [later.eq(now) for later, now in zip(kept, (ahead, begun, written), strict=True)]
            ahead, begun, written = kept
            m.d.comb += Assume(~self.arrive | (begun & (ahead == self.addr) & ~written))
        needs, came, told = Signal(COUNT), Signal(COUNT), Signal()
        about = self.addr == self.firing
        m.d.comb += Assume(~(self.set & about) | (self.value != 0))
        with m.If(self.set & about):
            m.d.sync += [needs.eq(self.value), came.eq(0), told.eq(0)]
        arrives = self.arrive & about & (needs != 0)
        # One that is complete is told of a message too many at most: counts would wrap in the end.
        m.d.comb += Assume(~arrives | (came <= needs))
        with m.If(arrives):
            m.d.sync += [came.eq(came + 1), told.eq(told | design.last)]
            m.d.comb += Assert(design.last == (came + 1 == needs))
            if design.marks:
                m.d.comb += Assert(design.known == (came != 0))
        m.d.comb += [
            Assert(~design.last | self.arrive),
            Assert(told == ((needs != 0) & (came >= needs))),
            Cover(told & (needs == 2)),
        ]


class Remembers(Contract):
    """Activity: what is read is the counter that was asked for, as it was a few cycles ago at most."""

    DELAY = 4  # cycles for which the index must stand

    def __init__(self, design: Any) -> None:
        free = {"events": len(CYCLES), "sent": 1, "path": range(design.paths)}
        free |= {"asked": 16} | {name: len(getattr(design, name)) for name in LEVELS}
        super().__init__(design, free, {"index": 16})

    def check(self, m: Module, design: Any) -> None:
        for name in ("events", "sent", "path", *LEVELS):
            m.d.comb += getattr(design, name).eq(getattr(self, name))
        m.d.comb += design.index.eq(self.asked)
        m.d.comb += Assume(~ResetSignal())  # it leaves memories as they are
        before = Signal()
        m.d.sync += before.eq(self.sent)
        m.d.comb += Assume(~(before & self.sent))  # a message takes the controller several cycles
        first = len(CYCLES) + len(LEVELS)
        m.d.comb += Assume(self.index < first + design.paths)
        true = Signal(len(design.value))
        with m.Switch(self.index):
            for k in range(len(CYCLES)):
                with m.Case(k):
                    m.d.sync += true.eq(true + self.events[k])
            for k, name in enumerate(LEVELS):
                level = getattr(self, name)
                with m.Case(len(CYCLES) + k):
                    m.d.sync += true.eq(Mux(level > true, level, true))
            with m.Default():
                m.d.sync += true.eq(true + (self.sent & (self.path == self.index - first)))
        was, stood = true, Signal(range(self.DELAY + 1))
        for _ in range(self.DELAY + 1):
            older = Signal.like(true)
            m.d.sync += older.eq(was)
            was = older
        with m.If(self.asked != self.index):
            m.d.sync += stood.eq(0)
        with m.Elif(stood != self.DELAY):
            m.d.sync += stood.eq(stood + 1)
        with m.If(stood == self.DELAY):
            # Counters wrap.
            m.d.comb += Assert((design.value - was)[: len(true)] <= (true - was)[: len(true)])
        m.d.comb += Cover((self.index >= first) & (design.value == 2))
