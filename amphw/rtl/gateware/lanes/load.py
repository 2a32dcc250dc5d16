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
        shape, held = self.shape, self.held
        x, y, dz = (Signal(shape.address_bits, name=name) for name in ("x", "y", "dz"))
        left = Signal(shape.address_bits)
        base = Signal(shape.beat_bits)
        dz_file = Signal()

        indexed = Signal()
        backward = Signal()
        rows = Signal(shape.count_bits)
        bias = Signal()
        want_dw = Signal()
        want_dx = Signal()
        m.d.comb += [
            indexed.eq((held.op == LaneOp.TAKE) | (held.op == LaneOp.TAKE_GRADIENT)),
            backward.eq((held.op == LaneOp.BACKWARD) | (held.op == LaneOp.TAKE_GRADIENT)),
        ]
        # One row of an embedding is a layer without a matrix, of which that row is the bias.
        m.d.sync += [
            rows.eq(Mux(indexed, 0, held.rows)),
            bias.eq(indexed | held.bias),
            want_dw.eq(Mux(indexed, 1, held.want_dw & ((held.rows != 0) | held.bias))),
            want_dx.eq(~indexed & held.want_dx & (held.rows != 0)),
        ]

        walk = self.walk.payload
        # A walk of three beats or more is long enough for the next one to be there in time; behind a shorter
        # one is a gap.
        may_send = ~self.walk.valid
        with m.If(self.walk.ready):
            m.d.sync += self.walk.valid.eq(0)

        def send(kind: Any, row_ends: Any, final: Any) -> None:
            m.d.sync += [
                self.walk.valid.eq(1),
                walk.kind.eq(kind),
                walk.base.eq(base),
                walk.x.eq(x),
                walk.y.eq(y),
                walk.last_row.eq(rows - ~(bias & Const(kind != Kind.INPUT_GRADIENT))),
                walk.blocks.eq(held.blocks),
                walk.last_block.eq(held.blocks - 1),
                walk.tail.eq(held.columns - 1),
                walk.bias.eq(bias & Const(kind != Kind.INPUT_GRADIENT)),
                walk.dz.eq(dz_file),
                walk.release.eq(row_ends & backward),
                walk.final.eq(final),
            ]

        def next_row() -> None:
            m.d.sync += [
                left.eq(left - 1),
                x.eq(x + Mux(indexed, 1, rows)),
                y.eq(y + Mux(backward, rows, held.columns)),
                dz_file.eq(dz_file ^ backward),
            ]
            m.next = "ROW"
            with m.If(left == 1):
                m.next = "ACCEPT"

        free = Signal(2, init=0b11)
        m.d.sync += free.eq(free | self.released)
        filler = _Filler(m, self, dz, dz_file)
        index = Signal(shape.beat_bits)

        with m.FSM():
            with m.State("ACCEPT"):
                m.d.comb += self.command.ready.eq(1)
                m.d.sync += [
                    held.eq(self.command.payload),
                    x.eq(self.command.payload.x),
                    y.eq(self.command.payload.y),
                    dz.eq(self.command.payload.dz),
                    left.eq(self.command.payload.count),
                    base.eq(self.command.payload.base),
                ]
                with m.If(self.command.valid):
                    m.next = "DECODE"
            with m.State("DECODE"):
                m.next = "ROW"
                serial = [LaneOp.UPDATE, LaneOp.POKE, LaneOp.PEEK, *[LaneOp.CLIP] * shape.clips]
                with m.If(Cat(held.op == op for op in serial).any()):
                    m.next = "SERIAL"
            with m.State("ROW"):
                with m.If(left == 0):
                    m.next = "EMPTY"
                with m.Elif(indexed):
                    m.d.comb += [self.read.en.eq(1), self.read.addr.eq(x)]
                    m.next = "INDEX"
                with m.Else():
                    m.next = "CHOOSE"
            with m.State("INDEX"):
                m.d.sync += index.eq(self.read.data)
                m.next = "MULTIPLY"
            with m.State("MULTIPLY"):
                m.d.sync += index.eq(index * held.blocks)
                m.next = "ADD"
            with m.State("ADD"):
                m.d.sync += base.eq(held.base + index)
                m.next = "CHOOSE"
            with m.State("CHOOSE"):
                with m.If(~backward):
                    m.next = "FORWARD"
                    with m.If((rows == 0) & ~bias):
                        m.next = "EMPTY"
                with m.Elif(~want_dw & ~want_dx):
                    m.next = "EMPTY"
                with m.Elif(free.bit_select(dz_file, 1)):
                    m.d.sync += free.bit_select(dz_file, 1).eq(0)
                    filler.start(m)
                    m.next = "FILL"
            with m.State("FILL"):
                filler.step(m)
                with m.If(filler.filled):
                    m.next = "WEIGHT_GRADIENT"
                    with m.If(~want_dw):
                        m.next = "INPUT_GRADIENT"
            with m.State("FORWARD"), m.If(may_send):
                send(Kind.FORWARD, 0, left == 1)
                next_row()
            # Weights first: the walk leaves time for the sums of an earlier FORWARD to be written, and the
            # walk behind it leaves time for gradients to be written before they are read again.
            with m.State("WEIGHT_GRADIENT"), m.If(may_send):
                send(Kind.WEIGHT_GRADIENT, ~want_dx, (left == 1) & ~want_dx)
                with m.If(want_dx):
                    m.next = "INPUT_GRADIENT"
                with m.Else():
                    next_row()
            with m.State("INPUT_GRADIENT"), m.If(may_send):
                send(Kind.INPUT_GRADIENT, 1, left == 1)
                next_row()
            with m.State("EMPTY"), m.If(may_send):
                send(Kind.EMPTY, 0, 1)
                m.d.sync += [walk.last_row.eq(0), walk.last_block.eq(0), walk.release.eq(0)]
                m.next = "ACCEPT"
            with m.State("SERIAL"), m.If(self.alone):
                m.d.comb += self.serial_start.eq(1)
                m.next = "SERIAL_RUNS"
            with m.State("SERIAL_RUNS"), m.If(self.serial_done):
                m.next = "ACCEPT"
        return m


class _Filler:
    """Reads a row of dz, a word a cycle, and writes it into a register file two cycles later."""

    def __init__(self, m: Module, loader: Loader, dz: Signal, dz_file: Signal) -> None:
        shape, held, read = loader.shape, loader.held, loader.read
        self.read, self.dz = read, dz
        self.lane = lane = Signal(shape.lane_bits)
        self.block = block = Signal(shape.block_bits)
        self.reading = reading = Signal()
        self.last_lane = lane == shape.lanes - 1
        self.last_block = last_block = block == (held.blocks - 1)[: shape.block_bits]
        self.real = ~(last_block & (lane > (held.columns - 1)[: shape.lane_bits]))

        place = Cat(lane, block, dz_file, self.real)
        arriving, arrived = Signal(place.shape(), name="arriving"), Signal(place.shape(), name="arrived")
        valid = Signal(2)
        m.d.sync += [
            valid.eq(Cat(reading, valid[0])),
            arriving.eq(place),
            arrived.eq(arriving),
            loader.dz_data.eq(Mux(arriving[-1], read.data, 0)),
        ]
        with m.If(valid[1]):
            m.d.comb += loader.dz_lanes.eq(1 << arrived[: shape.lane_bits])
        m.d.comb += [
            loader.dz_block.eq(arrived[shape.lane_bits :][: shape.block_bits]),
            loader.dz_file.eq(arrived[-2]),
        ]
        self.filled = ~reading & ~valid.any()

    def start(self, m: Module) -> None:
        m.d.sync += [self.reading.eq(1), self.lane.eq(0), self.block.eq(0)]

    def step(self, m: Module) -> None:
        m.d.comb += [self.read.en.eq(self.reading), self.read.addr.eq(self.dz)]
        with m.If(self.reading):
            m.d.sync += [self.dz.eq(self.dz + self.real), self.lane.eq(self.lane + 1)]
            with m.If(self.last_lane):
                m.d.sync += self.block.eq(self.block + 1)
                with m.If(self.last_block):
                    m.d.sync += self.reading.eq(0)
