"""A small circuit whose faults are known."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.mutation.netlist import Mutant, Netlist
from amphw.rtl.mutation.play import Script, Subject


class Absorbs(wiring.Component):
    """Each word plus the one before it, a cycle later. Half of its logic does nothing: x | (x & y) is x."""

    def __init__(self) -> None:
        word = stream.Signature(unsigned(16))
        super().__init__({"link_in": In(word), "link_out": Out(word), "idle": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        last, total, full = Signal(16), Signal(16), Signal()
        m.d.comb += [
            self.link_in.ready.eq(~full | self.link_out.ready),
            self.link_out.valid.eq(full),
            self.link_out.payload.eq(total | (total & last)),
            self.idle.eq(~full),
        ]
        with m.If(self.link_in.ready):
            m.d.sync += full.eq(self.link_in.valid)
            with m.If(self.link_in.valid):
                m.d.sync += [last.eq(self.link_in.payload), total.eq(self.link_in.payload + last)]
        return m


class Forgets(wiring.Component):
    """A sum of 16 bits, of which 8 leave, where they are offered; the others go round and round."""

    def __init__(self) -> None:
        super().__init__(
            {"x": In(16), "go": In(1), "o": Out(stream.Signature(unsigned(8), always_ready=False))}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        total = Signal(16)
        m.d.sync += [total.eq(total + self.x), self.o.valid.eq(self.go)]
        m.d.comb += self.o.payload.eq(Mux(self.o.valid, total[:8], 0x55))
        return m


class Waits(wiring.Component):
    """Keeps a word when told to go and says it afterwards; while it waits it keeps whatever comes."""

    def __init__(self) -> None:
        super().__init__(
            {"x": In(8), "go": In(1), "o": Out(stream.Signature(unsigned(8), always_ready=False))}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        kept = Signal(8)
        with m.FSM(name="waits"):
            with m.State("IDLE"):
                m.d.sync += kept.eq(self.x)
                with m.If(self.go):
                    m.next = "LOAD"
            with m.State("LOAD"):
                m.d.sync += kept.eq(self.x + 1)
                m.next = "SAY"
            with m.State("SAY"):
                m.d.comb += [self.o.valid.eq(1), self.o.payload.eq(kept)]
                m.next = "IDLE"
        return m


class Holds(wiring.Component):
    """Keeps a word when told to go, and says its complement `after` so many cycles, 3 at most. begins: that
    it says what it holds in the beginning, too, in the first cycle."""

    def __init__(self, after: int, begins: bool = False) -> None:
        self.after, self.begins = after, begins
        super().__init__(
            {"x": In(8), "go": In(1), "o": Out(stream.Signature(unsigned(8), always_ready=False))}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        kept, busy = Signal(8), Signal(init=self.begins)
        count = Signal(2, init=(self.after - 1) * self.begins)
        over = busy & (count == self.after - 1)
        with m.If(self.go):
            m.d.sync += [kept.eq(self.x), busy.eq(1), count.eq(0)]
        with m.Else():
            m.d.sync += [busy.eq(busy & ~over), count.eq(count + 1)]
        m.d.comb += [self.o.valid.eq(over), self.o.payload.eq(~kept)]
        return m


def fault(netlist: Netlist, kind: str, mode: str, port: str, bit: int) -> Mutant:
    """The fault at the widest cell of a kind."""
    cells = netlist.module["cells"]
    found = [name for name, cell in cells.items() if cell["type"] == kind]
    cell = max(found, key=lambda name: len(cells[name]["connections"][port]))
    module, file, sources = netlist.place(cell)
    return Mutant(mode, cell, port, bit, -1, module, file, kind, "", sources)


def subject(name: str = "absorbs", words: int = 200) -> Subject:
    """The words are few where a fault in a high bit is to be missed."""

    def scripts() -> list[Script]:
        said = [k * 40_503 % 65_521 for k in range(words)]
        return [Script("words", [(0, said[:100]), (50, said[100:])], (0.7, 0.6), 2)]

    return Subject(name, Absorbs, scripts)
