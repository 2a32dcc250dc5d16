"""How many messages each firing still waits for: a join happens once, when the last of them has come."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.controller.memory import ADDRESS, Store


class JoinCount(wiring.Component):
    """A count for each of `firings`.

    addr: the firing; in the three cycles before `arrive` it must have been the same, without `set` or
    `arrive`. set: the firing waits for `value` messages from now on. arrive: one of them has come; `last`
    says that it completes the firing. known, with `marks`: that another one has come before it.
    """

    def __init__(self, firings: int, marks: bool = False):
        self.firings, self.marks = firings, marks
        super().__init__(
            {
                "addr": In(range(firings)),
                "set": In(1),
                "value": In(ADDRESS),
                "arrive": In(1),
                "last": Out(1),
                "known": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = data.StructLayout({"left": ADDRESS, **({"known": 1} if self.marks else {})})
        m.submodules.store = store = Store(layout, self.firings)
        left = store.data.left
        m.d.comb += [
            store.addr.eq(self.addr),
            store.write.eq(self.set | self.arrive),
            store.value.left.eq(self.value),
            self.last.eq(self.arrive & (left == 1)),
        ]
        with m.If(self.arrive):
            m.d.comb += store.value.left.eq(left - 1)
        if self.marks:
            m.d.comb += [store.value.known.eq(self.arrive), self.known.eq(store.data.known)]
        return m
