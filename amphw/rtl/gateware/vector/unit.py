"""The vector unit: everything that a partition computes but products with parameters, one element a cycle.

It carries out commands (`command`) on the payload memory, in order. A command's first read comes
after the last write of the command before it, unless it says that it does not depend on it (`overlap`).

In cycles: a command accepted in cycle 0 reads its first element in cycle 6, in cycle 16 where there is an
index; a result is written LATENCY (11) cycles after its element is read, and `done` follows the last write
by 1. After a command of n elements the next one reads n + 2 cycles later, but at least 8, if it overlaps;
else n + LATENCY. A row with an index takes inner + 2 cycles, but at least 9. A scatter-add waits for a word
that is still on its way.
"""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.ports import ReadPort, WritePort
from amphw.rtl.gateware.vector.command import VectorShape
from amphw.rtl.gateware.vector.elements import VectorElements
from amphw.rtl.gateware.vector.issue import VectorIssue
from amphw.rtl.gateware.vector.loops import PointerPort, VectorLoops


class VectorUnit(wiring.Component):
    """Commands in, reads and writes out.

    done: a command's writes are in the memory; once for each command, in order, also for one that does
    nothing. idle: so are those of every command accepted, and the next one is taken at once. pointer: writes
    the pointer file; not while a command that uses it is accepted but not done.
    """

    def __init__(self, shape: VectorShape) -> None:
        self.shape = shape
        super().__init__(
            {
                "command": In(stream.Signature(shape.command)),
                "pointer": In(PointerPort(shape)),
                "read_a": Out(ReadPort(shape.address_bits)),
                "read_b": Out(ReadPort(shape.address_bits)),
                "write": Out(WritePort(shape.address_bits)),
                "done": Out(1),
                "idle": Out(1, init=1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.loops = loops = VectorLoops(self.shape)
        m.submodules.issue = issue = VectorIssue(self.shape)
        m.submodules.elements = elements = VectorElements(self.shape)
        wiring.connect(m, wiring.flipped(self.command), loops.command)
        wiring.connect(m, wiring.flipped(self.pointer), loops.pointer)
        wiring.connect(m, loops.items, issue.items)
        m.d.comb += [
            self.read_a.en.eq(issue.read_a),
            self.read_a.addr.eq(issue.address_a),
            self.read_b.en.eq(issue.read_b),
            self.read_b.addr.eq(issue.address_b),
            self.write.en.eq(issue.write),
            self.write.addr.eq(issue.address_d),
            self.write.data.eq(elements.y),
            loops.taken.eq(issue.taking),
            loops.index.eq(self.read_b.data),
            loops.index_valid.eq(issue.fetch),
            elements.a.eq(self.read_a.data),
            elements.b.eq(self.read_b.data),
            elements.element.eq(issue.element),
            elements.first.eq(issue.first),
            elements.fresh.eq(issue.fresh),
            elements.controls.eq(loops.controls),
            self.done.eq(issue.done),
        ]
        # Commands accepted and not done, of which there are never more than stages.
        under_way, accepted = Signal(5), Signal()
        m.d.comb += accepted.eq(self.command.valid & self.command.ready)
        m.d.sync += [
            under_way.eq(under_way + accepted - issue.ends),
            self.idle.eq(~accepted & ((under_way == 0) | ((under_way == 1) & issue.ends))),
        ]
        return m
