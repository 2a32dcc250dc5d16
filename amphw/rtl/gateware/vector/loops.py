"""The loops of a vector unit's commands: which elements, at which addresses, one a cycle.

Between two outer steps with an index there are two cycles without an element, and two between commands:
while a row runs, the next one's index is already fetched.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.ports import NO_COLLISION
from amphw.rtl.gateware.vector.command import VectorShape
from amphw.rtl.gateware.vector.decode import controls_layout, decode
from amphw.rtl.isa.commands import REDUCTIONS, IndexMode
from amphw.rtl.numbers.formats import BITS


class PointerPort(wiring.Signature):
    """Writes entry `index` of the pointer file, from the writer's point of view."""

    def __init__(self, shape: VectorShape) -> None:
        super().__init__({"en": Out(1), "index": Out(shape.pointer_bits), "data": Out(shape.address_bits)})


def _flags(*names: str) -> dict[str, int]:
    return dict.fromkeys(names, 1)


def item_layout(shape: VectorShape) -> data.StructLayout:
    """What the loops send on: an element of a command, or an index to be read, or just a command's end.

    fresh: the first of its command. waits: and all before it must be written first. element: is one; it
    begins (`first`) or writes (`write`) a result. adds: it reads at d. fetch: reads an index at b. final:
    the last.
    """
    return data.StructLayout(
        dict.fromkeys("abd", shape.address_bits)
        | _flags(
            "reads_a", "reads_b", "element", "first", "write", "adds", "fetch", "fresh", "waits", "final"
        )
    )


class VectorLoops(wiring.Component):
    """Commands in, items out.

    `controls` are those of the last command accepted; another one is accepted after `taken`, which says
    that the datapath has copied them. `index_valid` comes with the answer to a fetch.
    """

    def __init__(self, shape: VectorShape) -> None:
        self.shape = shape
        super().__init__(
            {
                "command": In(stream.Signature(shape.command)),
                "pointer": In(PointerPort(shape)),
                "items": Out(stream.Signature(item_layout(shape))),
                "controls": Out(controls_layout(shape)),
                "taken": In(1),
                "index": In(signed(BITS)),
                "index_valid": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape = self.shape
        width = shape.address_bits

        # The command; bases and counts move along with the outer loop.
        command = Signal(shape.command)
        reads_a, reads_b, reduces, indexed = Signal(), Signal(), Signal(), Signal()
        held = Signal()  # its controls are not yet taken
        now = {name: Signal(width, name=f"now_{name}") for name in "abd"}
        left = Signal(shape.count_bits)
        single = Signal()  # the inner loop has one element
        start, first, last, last_row, fresh = Signal(), Signal(), Signal(), Signal(), Signal()
        count = Signal(shape.pointer_bits)
        # The word that was fetched, and the row that it stands for.
        index, arrived, primed = Signal(width), Signal(), Signal()
        row = Signal(width)

        item = Signal(item_layout(shape))
        offer, advance = Signal(), Signal()
        m.d.comb += [
            advance.eq(~self.items.valid | self.items.ready),
            item.a.eq(now["a"]),
            item.b.eq(now["b"]),
            item.d.eq(now["d"]),
            item.fresh.eq(fresh),
            item.waits.eq(fresh & ~command.overlap),
        ]
        with m.If(offer & advance):
            m.d.sync += fresh.eq(0)
        with m.If(self.taken):
            m.d.sync += held.eq(0)
        with m.If(self.index_valid):
            m.d.sync += [index.eq(self.index.as_unsigned()), arrived.eq(1)]

        reduction, empty, indexing = Signal(), Signal(), Signal()
        m.d.comb += [
            reduction.eq(command.op.matches(*REDUCTIONS)),
            empty.eq(command.inner == 0),
            indexing.eq(command.mode.matches(IndexMode.A, IndexMode.D, IndexMode.ADD_D)),
        ]
        controls, takes_a, takes_b = decode(m, shape, command, empty & reduction)

        with m.FSM() as states:
            with m.State("LOAD"):
                m.d.comb += self.command.ready.eq(~held | self.taken)
                with m.If(self.command.valid & self.command.ready):
                    m.d.sync += [command.eq(self.command.payload), held.eq(1), start.eq(1), last.eq(1)]
                    m.next = "SETUP"

            with m.State("SETUP"):
                m.d.sync += [
                    self.controls.eq(controls),
                    reads_a.eq(takes_a),
                    reads_b.eq(takes_b),
                    reduces.eq(reduction),
                    indexed.eq(indexing),
                    left.eq(command.inner),
                    single.eq(command.inner[1:] == 0),
                    last.eq(command.inner[1:] == 0),
                    last_row.eq(command.outer == 1),
                    first.eq(1),
                    fresh.eq(1),
                    start.eq(0),
                    primed.eq(0),
                    count.eq(0),
                ]
                with m.If(reduction):
                    m.d.sync += command.d.inner.eq(0)
                with m.If((command.outer == 0) | empty & ~reduction):
                    m.next = "END"
                with m.Elif(indexing):
                    m.next = "FETCH"
                with m.Else():
                    m.next = "RUN"

            with m.State("END"):
                m.d.comb += [offer.eq(1), item.final.eq(1)]
                with m.If(advance):
                    m.next = "LOAD"

            with m.State("FETCH"):
                m.d.comb += [
                    offer.eq(1),
                    item.fetch.eq(1),
                    item.reads_b.eq(1),
                    item.b.eq(command.index.base),
                ]
                with m.If(advance):
                    m.d.sync += [command.index.base.eq(command.index.base + 1), primed.eq(1)]
                    m.next = "RUN"
                    with m.If(~primed):
                        m.next = "ROW"

            with m.State("ROW"):
                # Elements of the row before that have not got their address yet go on in this cycle.
                with m.If(arrived & advance):
                    m.d.sync += [row.eq(index * command.index.scale), arrived.eq(0)]
                    m.next = "FETCH"
                    with m.If(last_row):
                        m.next = "RUN"

            with m.State("RUN"):
                m.d.comb += [
                    offer.eq(1),
                    item.element.eq(1),
                    item.reads_a.eq(reads_a),
                    item.reads_b.eq(reads_b),
                    item.first.eq(first),
                    item.write.eq(last | ~reduces),
                    item.adds.eq(command.mode == IndexMode.ADD_D),
                    item.final.eq(last & last_row),
                ]
                with m.If(advance):
                    m.d.sync += [left.eq(left - 1), last.eq(left == 2), first.eq(0), count.eq(count + 1)]
                    with m.If(last):
                        m.d.sync += [
                            left.eq(command.inner),
                            last.eq(single),
                            first.eq(1),
                            count.eq(0),
                            command.outer.eq(command.outer - 1),
                            last_row.eq(command.outer == 2),
                        ]
                        with m.If(last_row):
                            m.next = "LOAD"
                        with m.Elif(indexed):
                            m.next = "ROW"

        # An adder for each operand. At the end of a row it moves the base; at the start it takes it as it is.
        moves = states.ongoing("RUN") & advance
        for name in "abd":
            walk = command[name]
            step = Mux(start, 0, Mux(last, walk.outer, walk.inner))
            place = Mux(last, walk.base, now[name]) + step
            with m.If(start | moves):
                m.d.sync += now[name].eq(place)
            with m.If(moves & last):
                m.d.sync += walk.base.eq(place)

        # Next to an element travels what is added to its addresses.
        m.submodules.pointers = pointers = memory.Memory(
            shape=width, depth=shape.pointers, init=[], attrs=NO_COLLISION
        )
        write, read = pointers.write_port(), pointers.read_port()
        m.d.comb += [
            Cat(write.en, write.addr, write.data).eq(
                Cat(self.pointer.en, self.pointer.index[: len(write.addr)], self.pointer.data)
            ),
            read.en.eq(advance),
            read.addr.eq(count),
        ]
        bare, bare_valid, mode = Signal.like(item), Signal(), Signal(IndexMode)
        a, d = Signal(width), Signal(width)
        offset_a = Mux(mode == IndexMode.POINTERS, read.data, Mux(mode == IndexMode.A, row, 0))
        m.d.comb += [
            a.eq(bare.a + offset_a),
            d.eq(bare.d + Mux(mode.matches(IndexMode.D, IndexMode.ADD_D), row, 0)),
        ]
        with m.If(advance):
            m.d.sync += [
                bare_valid.eq(offer),
                bare.eq(item),
                mode.eq(command.mode),
                self.items.valid.eq(bare_valid),
                self.items.payload.eq(bare),
                self.items.payload.a.eq(a),
                self.items.payload.d.eq(d),
            ]
            with m.If(bare.adds):
                m.d.sync += self.items.payload.b.eq(d)
        return m
