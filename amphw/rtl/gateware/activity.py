"""Counters of what a device did: cycles by what they went into, the fullest queues, messages by path.

They are read with PEEK; `amphw.rtl.isa.counters` says which number is what.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Module, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from amphw.rtl.isa.counters import CYCLES, LEVELS

BITS = 32

GROUP = 4
"""Counters of which one is chosen at a time."""


class Activity(wiring.Component):
    """events: of this cycle, in the order of CYCLES. levels: of queues. sent: a message on path `path`.

    index: of a counter, whose value is there three cycles later, or four if a message is sent meanwhile; from
    one message to the next there is a cycle without. Everything is counted a cycle late.
    """

    def __init__(self, paths: int, level_bits: int):
        self.paths = max(2, paths)
        super().__init__(
            {
                "events": In(len(CYCLES)),
                **{name: In(level_bits) for name in LEVELS},
                "sent": In(1),
                "path": In(ceil_log2(self.paths)),
                "index": In(16),
                "value": Out(BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        counters: list[Any] = []
        events = Signal.like(self.events)
        m.d.sync += events.eq(self.events)
        for k, name in enumerate(CYCLES):
            counter = Signal(BITS, name=name)
            m.d.sync += counter.eq(counter + events[k])
            counters.append(counter)
        for name in LEVELS:
            now, most = (Signal.like(getattr(self, name), name=f"{name}_{when}") for when in ("now", "most"))
            m.d.sync += now.eq(getattr(self, name))
            with m.If(now > most):
                m.d.sync += most.eq(now)
            counters.append(most)
        m.submodules.messages = messages = Memory(shape=unsigned(BITS), depth=self.paths, init=[])
        read, write = messages.read_port(), messages.write_port()
        adding, looked, path = Signal(), Signal(), Signal.like(self.path)
        m.d.sync += [adding.eq(self.sent), looked.eq(~self.sent), path.eq(self.path)]
        m.d.comb += [
            read.en.eq(1),
            read.addr.eq(self.index - len(counters)),
            write.en.eq(adding),
            write.addr.eq(path),
            write.data.eq(read.data + 1),
        ]
        with m.If(self.sent):
            m.d.comb += read.addr.eq(self.path)
        # One of a few counters first, then one of a few groups: of all at once it would be late.
        sent = Signal(BITS, name="sent_value")
        with m.If(looked):  # else it is another's, which is counted on
            m.d.sync += sent.eq(read.data)
        within = self.index[: ceil_log2(GROUP)]
        groups = [Signal(BITS, name=f"group{k}") for k in range(-(-len(counters) // GROUP))]
        for k, group in enumerate(groups):
            m.d.sync += group.eq(Array(counters[k * GROUP : (k + 1) * GROUP])[within])
        m.d.sync += self.value.eq(sent)
        with m.Switch(self.index[len(within) :]):
            for k, group in enumerate(groups):
                with m.Case(k):
                    m.d.sync += self.value.eq(group)
        if left := len(counters) % GROUP:  # the last group has numbers of messages, too
            last = len(counters) // GROUP
            with m.If((self.index[len(within) :] == last) & (within >= left)):
                m.d.sync += self.value.eq(sent)
        return m
