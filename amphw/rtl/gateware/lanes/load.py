"""First half of the lane engine's sequencer: commands become walks over beats, row by row.

It reads indices and dz ahead of the walks that need them. dz lies in one of two register files, so that the
next row's is loaded while the present one is worked with.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.lanes.shape import Kind, LaneShape, command_layout, walk_layout
from amphw.rtl.gateware.ports import ReadPort
from amphw.rtl.isa.commands import LaneOp
from amphw.rtl.isa.memory import READ_LATENCY
from amphw.rtl.numbers.formats import BITS


class Loader(wiring.Component):
    """Takes commands, hands out walks and fills the registers for dz.

    `alone` says that no other command is under way: then an UPDATE, CLIP, POKE or PEEK begins with
    `serial_start`; it reads `held`, the present command, and ends with `serial_done`. dz is written a
    word at a time: lane `dz_lanes` (one hot) of block `dz_block` of register `dz_file` becomes `dz_data`;
    lanes behind the last column become 0.
    """

    def __init__(self, shape: LaneShape) -> None:
        self.shape = shape
        # Set in the state ACCEPT alone, and a register of its own: the sequencer waits for it.
        self.accepts = Signal(init=1)
        self.waits = Signal()
        """It cannot go on: there is no command, the walk or the registers for dz are not free yet, or a
        serial command is not done."""
        super().__init__(
            {
                "command": In(stream.Signature(command_layout(shape))),
                "walk": Out(stream.Signature(walk_layout(shape))),
                "read": Out(ReadPort(shape.address_bits)),
                "held": Out(command_layout(shape)),
                "alone": In(1),
                "serial_start": Out(1),
                "serial_done": In(1),
                "released": In(2),
                "dz_lanes": Out(shape.lanes),
                "dz_file": Out(1),
                "dz_block": Out(shape.block_bits),
                "dz_data": Out(BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        held, r = self.held, _Registers(self.shape)
        m.d.comb += [
            r.indexed.eq((held.op == LaneOp.TAKE) | (held.op == LaneOp.TAKE_GRADIENT)),
            r.backward.eq((held.op == LaneOp.BACKWARD) | (held.op == LaneOp.TAKE_GRADIENT)),
        ]
        # One row of an embedding is a layer without a matrix, of which that row is the bias.
        m.d.sync += [
            r.rows.eq(Mux(r.indexed, 0, held.rows)),
            r.bias.eq(r.indexed | held.bias),
            r.want_dw.eq(Mux(r.indexed, 1, held.want_dw & ((held.rows != 0) | held.bias))),
            r.want_dx.eq(~r.indexed & held.want_dx & (held.rows != 0)),
        ]
        with m.If(self.walk.ready):
            m.d.sync += self.walk.valid.eq(0)
        m.d.sync += [r.free.eq(r.free | self.released), r.begins.eq(0)]
        m.d.comb += self.command.ready.eq(self.accepts)
        filler = _Filler(m, self, r)
        with m.FSM() as fsm:
            self._accept(m, r)
            self._choose(m, r, filler)
            self._walk(m, r)
            with m.State("SERIAL"), m.If(self.alone):
                m.d.comb += self.serial_start.eq(1)
                m.next = "SERIAL_RUNS"
            with m.State("SERIAL_RUNS"), m.If(self.serial_done):
                self._accepts_next(m)
            sends = Cat(
                fsm.ongoing(state) for state in ("FORWARD", "WEIGHT_GRADIENT", "INPUT_GRADIENT")
            ).any()
            m.d.comb += self.waits.eq(
                (fsm.ongoing("ACCEPT") & ~self.command.valid)
                | (sends & self.walk.valid)
                | (fsm.ongoing("CHOOSE") & r.backward & (r.want_dw | r.want_dx) & ~self._file_free(r))
                | (fsm.ongoing("SERIAL_RUNS") & ~self.serial_done)
            )
        return m

    def _accept(self, m: Module, r: _Registers) -> None:
        """A command comes; what works on parameters alone goes another way."""
        held, payload = self.held, self.command.payload
        with m.State("ACCEPT"):
            m.d.sync += [
                held.eq(payload),
                r.x.eq(payload.x),
                r.y.eq(payload.y),
                r.dz.eq(payload.dz),
                r.left.eq(payload.count),
                r.base.eq(payload.base),
            ]
            with m.If(self.command.valid):
                m.d.sync += self.accepts.eq(0)
                m.next = "DECODE"
        with m.State("DECODE"):
            m.d.sync += r.begins.eq(1)
            m.next = "ROW"
            serial = [LaneOp.UPDATE, LaneOp.POKE, LaneOp.PEEK, *[LaneOp.CLIP] * self.shape.clips]
            with m.If(Cat(held.op == op for op in serial).any()):
                m.next = "SERIAL"

    def _choose(self, m: Module, r: _Registers, filler: _Filler) -> None:
        """What a row needs before it walks: where an embedding's lies, and dz."""
        held = self.held
        index, offset = Signal(self.shape.beat_bits), Signal(self.shape.beat_bits)
        asks, comes = Signal(), Signal(READ_LATENCY)
        m.d.sync += comes.eq(Cat(asks, comes))
        with m.State("ROW"):
            with m.If(r.left == 0):
                m.next = "EMPTY"
            with m.Elif(r.indexed):
                m.d.comb += asks.eq(1)
                m.next = "INDEX"
            with m.Else():
                m.next = "CHOOSE"
        # Whether others may read hangs on `en`, so it comes from registers, and does not ask how many rows
        # are left.
        m.d.comb += [
            self.read.en.eq(filler.reading | (r.begins & r.indexed)),
            self.read.addr.eq(Mux(filler.reading, filler.at, r.x)),
        ]
        with m.State("INDEX"), m.If(comes[-1]):
            m.d.sync += index.eq(self.read.data)
            m.next = "MULTIPLY"
        with m.State("MULTIPLY"):
            m.d.sync += offset.eq(index * held.blocks)
            m.next = "ADD"
        with m.State("ADD"):
            m.d.sync += r.base.eq(held.base + offset)
            m.next = "CHOOSE"
        with m.State("CHOOSE"):
            with m.If(~r.backward):
                m.next = "FORWARD"
                with m.If((r.rows == 0) & ~r.bias):
                    m.next = "EMPTY"
            with m.Elif(~r.want_dw & ~r.want_dx):
                m.next = "EMPTY"
            with m.Elif(self._file_free(r)):
                m.d.sync += r.free.bit_select(r.dz_file, 1).eq(0)
                filler.start(m)
                m.next = "FILL"
        with m.State("FILL"):
            with m.If(filler.filled):
                m.next = "WEIGHT_GRADIENT"
                with m.If(~r.want_dw):
                    m.next = "INPUT_GRADIENT"

    @staticmethod
    def _file_free(r: _Registers) -> Any:
        return r.free.bit_select(r.dz_file, 1)

    def _walk(self, m: Module, r: _Registers) -> None:
        """A row's walks are handed out."""
        walk, last = self.walk.payload, r.left == 1
        # A walk of three beats or more is long enough for the next one to be there in time; behind a shorter
        # one is a gap.
        may_send = ~self.walk.valid
        with m.State("FORWARD"), m.If(may_send):
            self._send(m, r, Kind.FORWARD, 0, last)
            self._next_row(m, r)
        # Weights first: the walk leaves time for the sums of an earlier FORWARD to be written, and the
        # walk behind it leaves time for gradients to be written before they are read again.
        with m.State("WEIGHT_GRADIENT"), m.If(may_send):
            self._send(m, r, Kind.WEIGHT_GRADIENT, ~r.want_dx, last & ~r.want_dx)
            with m.If(r.want_dx):
                m.next = "INPUT_GRADIENT"
            with m.Else():
                self._next_row(m, r)
        with m.State("INPUT_GRADIENT"), m.If(may_send):
            self._send(m, r, Kind.INPUT_GRADIENT, 1, last)
            self._next_row(m, r)
        with m.State("EMPTY"), m.If(may_send):
            self._send(m, r, Kind.EMPTY, 0, 1)
            m.d.sync += [walk.last_row.eq(0), walk.last_block.eq(0), walk.release.eq(0)]
            self._accepts_next(m)

    def _send(self, m: Module, r: _Registers, kind: Any, row_ends: Any, final: Any) -> None:
        held, walk = self.held, self.walk.payload
        bias = r.bias & Const(kind != Kind.INPUT_GRADIENT)
        m.d.sync += [
            self.walk.valid.eq(1),
            walk.kind.eq(kind),
            walk.base.eq(r.base),
            walk.x.eq(r.x),
            walk.y.eq(r.y),
            walk.last_row.eq(r.rows - ~bias),
            walk.blocks.eq(held.blocks),
            walk.last_block.eq(held.blocks - 1),
            walk.tail.eq(held.columns - 1),
            walk.bias.eq(bias),
            walk.dz.eq(r.dz_file),
            walk.release.eq(row_ends & r.backward),
            walk.final.eq(final),
        ]

    def _next_row(self, m: Module, r: _Registers) -> None:
        m.d.sync += [
            r.left.eq(r.left - 1),
            r.x.eq(r.x + Mux(r.indexed, 1, r.rows)),
            r.y.eq(r.y + Mux(r.backward, r.rows, self.held.columns)),
            r.dz_file.eq(r.dz_file ^ r.backward),
            r.begins.eq(1),
        ]
        m.next = "ROW"
        with m.If(r.left == 1):
            self._accepts_next(m)

    def _accepts_next(self, m: Module) -> None:
        m.d.sync += self.accepts.eq(1)
        m.next = "ACCEPT"


class _Registers:
    """Where the present command is. dz_file: the register file that its dz goes to; free: those that are."""

    def __init__(self, shape: LaneShape) -> None:
        self.x = Signal(shape.address_bits)
        self.y = Signal(shape.address_bits)
        self.dz = Signal(shape.address_bits)
        self.left = Signal(shape.address_bits)
        self.base = Signal(shape.beat_bits)
        self.dz_file = Signal()
        self.free = Signal(2, init=0b11)
        self.begins = Signal()  # a row, in the state ROW, or what turns out to be none
        # What it is, a cycle behind `held`.
        self.indexed = Signal()
        self.backward = Signal()
        self.rows = Signal(shape.count_bits)
        self.bias = Signal()
        self.want_dw = Signal()
        self.want_dx = Signal()


class _Filler:
    """Reads a row of dz, a word a cycle, and writes it into a register file READ_LATENCY + 1 cycles later.

    reading: a word is read, at `at`. Behind the last column it reads on, to the end of the block, and takes
    what it reads there for 0. filled: the row may be walked over. What is still on its way is there before it
    is read: the first beat of a walk reads the register file 7 cycles later, and the last word is written
    after 3.
    """

    def __init__(self, m: Module, loader: Loader, r: _Registers) -> None:
        shape, held, read = loader.shape, loader.held, loader.read
        self.row, self.columns = r.dz, held.columns
        self.at = Signal(shape.address_bits)
        self.lane = lane = Signal(shape.lane_bits)
        self.block = block = Signal(shape.block_bits)
        self.reading = reading = Signal()
        last_block = block == (held.blocks - 1)[: shape.block_bits]
        real = ~(last_block & (lane > (held.columns - 1)[: shape.lane_bits]))
        with m.If(reading):
            m.d.sync += [self.at.eq(self.at + 1), lane.eq(lane + 1)]
            with m.If(lane == shape.lanes - 1):
                m.d.sync += [block.eq(block + 1), reading.eq(~last_block)]

        place = Cat(lane, block, r.dz_file, real)
        places = [Signal(place.shape(), name=f"place{cycle}") for cycle in range(READ_LATENCY + 1)]
        arriving, arrived = places[-2:]
        valid = Signal(len(places))
        m.d.sync += [
            valid.eq(Cat(reading, valid)),
            *(after.eq(before) for before, after in zip([place, *places], places, strict=False)),
            loader.dz_data.eq(Mux(arriving[-1], read.data, 0)),
        ]
        with m.If(valid[-1]):
            m.d.comb += loader.dz_lanes.eq(1 << arrived[: shape.lane_bits])
        m.d.comb += [
            loader.dz_block.eq(arrived[shape.lane_bits :][: shape.block_bits]),
            loader.dz_file.eq(arrived[-2]),
        ]
        self.filled = ~reading

    def start(self, m: Module) -> None:
        m.d.sync += [
            self.reading.eq(1),
            self.lane.eq(0),
            self.block.eq(0),
            self.at.eq(self.row),
            self.row.eq(self.row + self.columns),
        ]
