"""The loops of a vector unit's commands: which elements, at which addresses, one a cycle.

Between two outer steps with an index there are two cycles without an element, and two between commands:
while a row runs, the next one's index is already fetched.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
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

    `controls` are those of the last command accepted; another one is accepted from `taken` on, which says
    that the datapath copies them a cycle later: the next one's are there after three. `index_valid` comes
    with the answer to a fetch.
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
        r = _Registers(self.shape)
        m.d.comb += [
            r.advance.eq(~self.items.valid | self.items.ready),
            r.item.a.eq(r.now["a"]),
            r.item.b.eq(r.now["b"]),
            r.item.d.eq(r.now["d"]),
            r.item.fresh.eq(r.fresh),
            r.item.waits.eq(r.fresh & ~r.command.overlap),
        ]
        with m.If(r.offer & r.advance):
            m.d.sync += r.fresh.eq(0)
        with m.If(self.taken):
            m.d.sync += r.held.eq(0)
        with m.If(self.index_valid):
            m.d.sync += [r.index.eq(self.index.as_unsigned()), r.arrived.eq(1)]
        moves = self._states(m, r)
        self._walk(m, r, moves)
        self._send(m, r)
        return m

    def _states(self, m: Module, r: _Registers) -> Value:
        """A command's course -> whether an element leaves now."""
        shape, command, item = self.shape, r.command, r.item
        controls, takes_a, takes_b = decode(m, shape, command, r.empty & r.reduces)
        # Decoded in the cycle after LOAD, and written in the one after: the datapath copies them later still.
        decoded, set_up = Signal.like(self.controls), Signal()
        m.d.sync += [decoded.eq(controls), r.reads_a.eq(takes_a), r.reads_b.eq(takes_b), set_up.eq(0)]
        with m.If(set_up):
            m.d.sync += self.controls.eq(decoded)

        with m.FSM() as states:
            with m.State("LOAD"):
                m.d.comb += self.command.ready.eq(~r.held | self.taken)
                # Registers take what is offered whether or not it is a command: so many of them would make
                # `valid` late.
                m.d.sync += [command.eq(self.command.payload), r.start.eq(1), r.last.eq(1)]
                self._classify(m, r, self.command.payload)
                with m.If(self.command.valid & self.command.ready):
                    m.d.sync += r.held.eq(1)
                    m.next = "SETUP"

            with m.State("SETUP"):
                m.d.sync += [
                    set_up.eq(1),
                    r.left.eq(command.inner),
                    r.last.eq(r.single),
                    r.last_row.eq(command.outer == 1),
                    r.first.eq(1),
                    r.fresh.eq(1),
                    r.start.eq(0),
                    r.primed.eq(0),
                    r.count.eq(0),
                ]
                with m.If(r.reduces):
                    m.d.sync += command.d.inner.eq(0)
                with m.If(r.nothing):
                    m.next = "END"
                with m.Elif(r.indexed):
                    m.next = "FETCH"
                with m.Else():
                    m.next = "RUN"

            with m.State("END"):
                m.d.comb += [r.offer.eq(1), item.final.eq(1)]
                with m.If(r.advance):
                    m.next = "LOAD"

            with m.State("FETCH"):
                m.d.comb += [
                    r.offer.eq(1),
                    item.fetch.eq(1),
                    item.reads_b.eq(1),
                    item.b.eq(command.index.base),
                ]
                with m.If(r.advance):
                    m.d.sync += [command.index.base.eq(command.index.base + 1), r.primed.eq(1)]
                    m.next = "RUN"
                    with m.If(~r.primed):
                        m.next = "ROW"

            with m.State("ROW"):
                # Elements of the row before that have not got their address yet go on in this cycle.
                with m.If(r.arrived & r.advance):
                    m.d.sync += [r.row.eq(r.index * command.index.scale), r.arrived.eq(0)]
                    m.next = "FETCH"
                    with m.If(r.last_row):
                        m.next = "RUN"

            with m.State("RUN"):
                self._run(m, r)
        return states.ongoing("RUN") & r.advance

    @staticmethod
    def _classify(m: Module, r: _Registers, offered: Any) -> None:
        """What kind of command it is."""
        reduction, empty = offered.op.matches(*REDUCTIONS), offered.inner == 0
        m.d.sync += [
            r.reduces.eq(reduction),
            r.indexed.eq(offered.mode.matches(IndexMode.A, IndexMode.D, IndexMode.ADD_D)),
            r.empty.eq(empty),
            r.single.eq(offered.inner[1:] == 0),
            r.nothing.eq((offered.outer == 0) | empty & ~reduction),
        ]

    def _run(self, m: Module, r: _Registers) -> None:
        """An element a cycle, until the row, or the command, is over."""
        command, item = r.command, r.item
        m.d.comb += [
            r.offer.eq(1),
            item.element.eq(1),
            item.reads_a.eq(r.reads_a),
            item.reads_b.eq(r.reads_b),
            item.first.eq(r.first),
            item.write.eq(r.last | ~r.reduces),
            item.adds.eq(command.mode == IndexMode.ADD_D),
            item.final.eq(r.last & r.last_row),
        ]
        with m.If(r.advance):
            m.d.sync += [
                r.left.eq(r.left - 1),
                r.last.eq(r.left == 2),
                r.first.eq(0),
                r.count.eq(r.count + 1),
            ]
            with m.If(r.last):
                m.d.sync += [
                    r.left.eq(command.inner),
                    r.last.eq(r.single),
                    r.first.eq(1),
                    r.count.eq(0),
                    command.outer.eq(command.outer - 1),
                    r.last_row.eq(command.outer == 2),
                ]
                with m.If(r.last_row):
                    m.next = "LOAD"
                with m.Elif(r.indexed):
                    m.next = "ROW"

    def _walk(self, m: Module, r: _Registers, moves: Value) -> None:
        """An adder for each operand: it moves the base at a row's end, and takes it as it is at the start."""
        for name in "abd":
            walk = r.command[name]
            step = Mux(r.start, 0, Mux(r.last, walk.outer, walk.inner))
            place = Mux(r.last, walk.base, r.now[name]) + step
            with m.If(r.start | moves):
                m.d.sync += r.now[name].eq(place)
            with m.If(moves & r.last):
                m.d.sync += walk.base.eq(place)

    def _send(self, m: Module, r: _Registers) -> None:
        """Items on their way out; next to an element travels what is added to its addresses."""
        shape, width = self.shape, self.shape.address_bits
        m.submodules.pointers = pointers = memory.Memory(
            shape=width, depth=shape.pointers, init=[], attrs=NO_COLLISION
        )
        write, read = pointers.write_port(), pointers.read_port()
        m.d.comb += [
            Cat(write.en, write.addr, write.data).eq(
                Cat(self.pointer.en, self.pointer.index[: len(write.addr)], self.pointer.data)
            ),
            read.en.eq(r.advance),
            read.addr.eq(r.count),
        ]
        bare, bare_valid, mode = Signal.like(r.item), Signal(), Signal(IndexMode)
        a, d = Signal(width), Signal(width)
        offset_a = Mux(mode == IndexMode.POINTERS, read.data, Mux(mode == IndexMode.A, r.row, 0))
        m.d.comb += [
            a.eq(bare.a + offset_a),
            d.eq(bare.d + Mux(mode.matches(IndexMode.D, IndexMode.ADD_D), r.row, 0)),
        ]
        with m.If(r.advance):
            m.d.sync += [
                bare_valid.eq(r.offer),
                bare.eq(r.item),
                mode.eq(r.command.mode),
                self.items.valid.eq(bare_valid),
                self.items.payload.eq(bare),
                self.items.payload.a.eq(a),
                self.items.payload.d.eq(d),
            ]
            with m.If(bare.adds):
                m.d.sync += self.items.payload.b.eq(d)


class _Registers:
    """The command that runs and where its loops are. Bases and counts move along with the outer loop."""

    def __init__(self, shape: VectorShape) -> None:
        width = shape.address_bits
        self.command: Any = Signal(shape.command, name="command")
        self.held = Signal()  # its controls are not yet taken
        self.reads_a = Signal()
        self.reads_b = Signal()
        self.reduces = Signal()
        self.indexed = Signal()
        self.now = {name: Signal(width, name=f"now_{name}") for name in "abd"}
        self.left = Signal(shape.count_bits)
        self.single = Signal()  # the inner loop has one element, or none
        self.empty = Signal()  # it has none
        self.nothing = Signal()  # and there is no result of that either
        self.start = Signal()
        self.first = Signal()
        self.last = Signal()
        self.last_row = Signal()
        self.fresh = Signal()
        self.count = Signal(shape.pointer_bits)
        self.index = Signal(width)  # the word that was fetched
        self.row = Signal(width)  # the row that it stands for
        self.arrived = Signal()
        self.primed = Signal()
        # What is offered to the pipeline behind the loops, and whether that goes on.
        self.item: Any = Signal(item_layout(shape), name="item")
        self.offer = Signal()
        self.advance = Signal()
