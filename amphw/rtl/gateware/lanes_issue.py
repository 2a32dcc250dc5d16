"""Second half of the lane engine's sequencer: walks become beats, one a cycle without a gap between walks."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.lanes_shape import (
    PRODUCTS,
    READ_AGAIN,
    Kind,
    LaneShape,
    beat_layout,
    tree_levels,
    walk_layout,
)
from amphw.rtl.gateware.ports import ReadPort


class Issuer(wiring.Component):
    """Issues beats in `beat`, with the address of their x in `read`, and says when a command's effects are
    in memory.

    FORWARD takes the rows of one block after the other, and the blocks of a finished sum leave one lane a
    cycle; the gradients take the blocks of one row after the other. `released`: a register for dz, one hot,
    will not be read after the beat now issued. `done`: a command's effects are in memory, in order of the
    commands.
    """

    def __init__(self, shape: LaneShape) -> None:
        self.shape = shape
        super().__init__(
            {
                "walk": In(stream.Signature(walk_layout(shape))),
                "beat": Out(beat_layout(shape)),
                "read": Out(ReadPort(shape.address_bits)),
                "released": Out(2),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        shape = self.shape
        active = Signal()
        walk = Signal(walk_layout(shape))
        rows_left = Signal(shape.count_bits)
        block = Signal(shape.block_bits)
        address = Signal(shape.beat_bits)
        column = Signal(shape.beat_bits)  # FORWARD: where the present block begins
        x, y = Signal(shape.address_bits), Signal(shape.address_bits)

        forward = walk.kind == Kind.FORWARD
        weight_gradient = walk.kind == Kind.WEIGHT_GRADIENT
        input_gradient = walk.kind == Kind.INPUT_GRADIENT
        row_end = rows_left == 0
        block_end = block == walk.last_block
        inner_end = Mux(forward, row_end, block_end)
        walk_end = row_end & block_end

        go = Signal()
        take = Signal()
        m.d.comb += [
            go.eq(
                active & ~self._stall(m, forward, weight_gradient, input_gradient, row_end, walk_end, address)
            ),
            take.eq(~active | (go & walk_end)),
            self.walk.ready.eq(take),
        ]
        with m.If(take):
            new = self.walk.payload
            m.d.sync += [
                active.eq(self.walk.valid),
                walk.eq(new),
                rows_left.eq(new.last_row),
                block.eq(0),
                address.eq(new.base),
                column.eq(new.base + 1),
                x.eq(new.x),
                y.eq(new.y),
            ]
        with m.Elif(go & forward):
            m.d.sync += [rows_left.eq(rows_left - 1), x.eq(x + 1), address.eq(address + walk.blocks)]
            with m.If(row_end):
                m.d.sync += [
                    rows_left.eq(walk.last_row),
                    x.eq(walk.x),
                    address.eq(column),
                    column.eq(column + 1),
                    block.eq(block + 1),
                    y.eq(y + shape.lanes),
                ]
        with m.Elif(go):
            m.d.sync += [block.eq(block + 1), address.eq(address + 1)]
            with m.If(block_end):
                m.d.sync += [block.eq(0), rows_left.eq(rows_left - 1), x.eq(x + 1), y.eq(y + 1)]

        beat = self.beat
        last_is_bias = walk.bias & row_end
        tail = Mux(block_end, walk.tail, shape.lanes - 1)
        m.d.sync += [
            beat.forward.eq(go & forward),
            beat.weight_gradient.eq(go & weight_gradient),
            beat.input_gradient.eq(go & input_gradient),
            beat.beat.eq(address),
            beat.dz.eq(walk.dz),
            beat.block.eq(block),
            beat.bias.eq(last_is_bias),
            beat.last.eq(inner_end),
            beat.tail.eq(tail),
            beat.y.eq(y),
            self.read.en.eq(go & (forward | weight_gradient) & ~last_is_bias),
            self.read.addr.eq(x),
        ]
        m.d.comb += self.released.eq(Mux(go & walk_end & walk.release, Cat(~walk.dz, walk.dz), 0))

        self._finish(m, go & walk_end & walk.final, go & forward & row_end, forward, tail)
        return m

    def _stall(
        self,
        m: Module,
        forward: Any,
        weight_gradient: Any,
        input_gradient: Any,
        row_end: Any,
        walk_end: Any,
        address: Any,
    ) -> Any:
        """The beat at `address` must wait."""
        shape, beat = self.shape, self.beat
        # Captured sums of FORWARD leave one a cycle. Only then may the next be captured, may sums of
        # INPUT_GRADIENT leave, and may a later command be done.
        self.leaving = leaving = Signal(shape.lane_bits)
        settled = leaving == 0
        # Sums of INPUT_GRADIENT reach the rounder behind the tree: FORWARD must not overtake them.
        in_tree = Signal(tree_levels(shape) - 1) if tree_levels(shape) > 1 else Signal()
        m.d.sync += in_tree.eq(Cat(beat.input_gradient, in_tree))

        # A summed gradient is read again only after it has been written.
        issued = [(beat.weight_gradient, beat.beat)]
        for _ in range(READ_AGAIN - 2):
            valid, at = Signal(), Signal(shape.beat_bits)
            m.d.sync += [valid.eq(issued[-1][0]), at.eq(issued[-1][1])]
            issued.append((valid, at))
        stale = Cat(valid & (at == address) for valid, at in issued).any()

        must_settle = (forward & row_end) | input_gradient | walk_end
        overtakes = forward & row_end & (in_tree.any() | beat.input_gradient)
        return (must_settle & ~settled) | overtakes | (weight_gradient & stale)

    def _finish(self, m: Module, ends: Any, captures: Any, forward: Any, tail: Any) -> None:
        shape = self.shape
        line = Signal(PRODUCTS + 6 + tree_levels(shape))
        owed = Signal()
        settled = self.leaving == 0
        with m.If(captures):
            m.d.sync += self.leaving.eq(tail)
        with m.Elif(~settled):
            m.d.sync += self.leaving.eq(self.leaving - 1)
        with m.If(ends & forward):
            m.d.sync += owed.eq(1)
        with m.Elif(settled):
            m.d.sync += owed.eq(0)
        # FORWARD ends as its last lane leaves, which is a cycle before `leaving` is seen to be 0; hence the
        # second place of the line. Nothing else that ends comes to lie there.
        m.d.sync += line.eq(Cat(ends & ~forward, line[0] | (owed & settled), line[1:-1]))
        m.d.comb += self.done.eq(line[-1])
