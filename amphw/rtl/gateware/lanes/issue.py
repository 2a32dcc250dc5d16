"""Second half of the lane engine's sequencer: walks become beats, one a cycle without a gap between walks."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.lanes.shape import (
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
        self.active = Signal()
        """There is a walk, of which a beat is yet to be issued."""
        self.leaving = Signal(shape.lane_bits)
        """So many lanes of captured sums have still to leave."""
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
        # The beat that is next to be issued, unless it is `stuck`; the walk is a beat ahead of it.
        item, held, stuck = Signal(item_layout(shape)), Signal(), Signal()
        go, moves = Signal(), Signal()
        m.d.comb += [go.eq(held & ~stuck), moves.eq(~held | ~stuck)]

        active = self.active
        walk = Signal(walk_layout(shape))
        rows_left = Signal(shape.count_bits)
        row_end, one_row = Signal(), Signal()
        block = Signal(shape.block_bits)
        address = Signal(shape.beat_bits)
        column = Signal(shape.beat_bits)  # FORWARD: where the present block begins
        x, y = Signal(shape.address_bits), Signal(shape.address_bits)

        forward = walk.kind == Kind.FORWARD
        block_end = block == walk.last_block
        walk_end = row_end & block_end
        take = Signal()
        m.d.comb += [take.eq(~active | (moves & walk_end)), self.walk.ready.eq(take)]
        with m.If(take):
            new = self.walk.payload
            m.d.sync += [
                active.eq(self.walk.valid),
                walk.eq(new),
                rows_left.eq(new.last_row),
                row_end.eq(new.last_row == 0),
                one_row.eq(new.last_row == 0),
                block.eq(0),
                address.eq(new.base),
                column.eq(new.base + 1),
                x.eq(new.x),
                y.eq(new.y),
            ]
        with m.Elif(moves & forward):
            m.d.sync += [rows_left.eq(rows_left - 1), row_end.eq(rows_left == 1)]
            m.d.sync += [x.eq(x + 1), address.eq(address + walk.blocks)]
            with m.If(row_end):
                m.d.sync += [
                    rows_left.eq(walk.last_row),
                    row_end.eq(one_row),
                    x.eq(walk.x),
                    address.eq(column),
                    column.eq(column + 1),
                    block.eq(block + 1),
                    y.eq(y + shape.lanes),
                ]
        with m.Elif(moves):
            m.d.sync += [block.eq(block + 1), address.eq(address + 1)]
            with m.If(block_end):
                m.d.sync += [block.eq(0), rows_left.eq(rows_left - 1), row_end.eq(rows_left == 1)]
                m.d.sync += [x.eq(x + 1), y.eq(y + 1)]

        behind = Signal(item_layout(shape))
        m.d.comb += [
            behind.beat.forward.eq(forward),
            behind.beat.weight_gradient.eq(walk.kind == Kind.WEIGHT_GRADIENT),
            behind.beat.input_gradient.eq(walk.kind == Kind.INPUT_GRADIENT),
            behind.beat.beat.eq(address),
            behind.beat.dz.eq(walk.dz),
            behind.beat.block.eq(block),
            behind.beat.bias.eq(walk.bias & row_end),
            behind.beat.last.eq(Mux(forward, row_end, block_end)),
            behind.beat.tail.eq(Mux(block_end, walk.tail, shape.lanes - 1)),
            behind.beat.y.eq(y),
            behind.x.eq(x),
            behind.reads.eq((forward | behind.beat.weight_gradient) & ~behind.beat.bias),
            behind.captures.eq(forward & row_end),
            behind.settles.eq((forward & row_end) | behind.beat.input_gradient | walk_end),
            behind.ends.eq(walk_end & walk.final),
            behind.releases.eq(Mux(walk_end & walk.release, Cat(~walk.dz, walk.dz), 0)),
        ]
        with m.If(moves):
            m.d.sync += [held.eq(active), item.eq(behind)]
        beat = self.beat
        m.d.sync += [beat.eq(item.beat), self.read.en.eq(go & item.reads), self.read.addr.eq(item.x)]
        m.d.sync += [part.eq(go & kind) for part, kind in zip(_kinds(beat), _kinds(item.beat), strict=True)]
        m.d.comb += self.released.eq(Mux(go, item.releases, 0))
        self._stall(m, item, behind, go, moves, stuck)
        self._finish(m, item, go)
        return m

    def _stall(self, m: Module, item: Any, behind: Any, go: Any, moves: Any, stuck: Any) -> None:
        """Whether the next item must wait is decided a cycle ahead, with all as it will be then."""
        shape, beat = self.shape, self.beat
        # Captured sums of FORWARD leave one a cycle. Only then may the next be captured, may sums of
        # INPUT_GRADIENT leave, and may a later command be done.
        leaving = self.leaving
        unsettled = Mux(go & item.captures, item.beat.tail != 0, leaving[1:] != 0)
        # Sums of INPUT_GRADIENT reach the rounder behind the tree: FORWARD must not overtake them.
        in_tree = Signal(max(1, tree_levels(shape) - 1))
        m.d.sync += in_tree.eq(Cat(beat.input_gradient, in_tree))
        occupied = (go & item.beat.input_gradient) | Cat(beat.input_gradient, in_tree[:-1]).any()

        # A summed gradient is read again only after it has been written.
        issued = [(go & item.beat.weight_gradient, item.beat.beat), (beat.weight_gradient, beat.beat)]
        for _ in range(READ_AGAIN - 3):
            valid, at = Signal(), Signal(shape.beat_bits)
            m.d.sync += [valid.eq(issued[-1][0]), at.eq(issued[-1][1])]
            issued.append((valid, at))
        stale = Signal(len(issued))
        clashes = Mux(moves, Cat(valid & (at == behind.beat.beat) for valid, at in issued), stale << 1)
        m.d.sync += stale.eq(clashes)

        def waits(which: Any, clashes: Any) -> Any:
            gradient = which.beat.weight_gradient & clashes.any()
            return (which.settles & unsettled) | (which.captures & occupied) | gradient

        with m.If(moves):
            m.d.sync += stuck.eq(waits(behind, clashes))
        with m.Else():
            m.d.sync += stuck.eq(waits(item, stale[:-1]))

    def _finish(self, m: Module, item: Any, go: Any) -> None:
        shape = self.shape
        line = Signal(PRODUCTS + 6 + tree_levels(shape))
        owed = Signal()
        settled = self.leaving == 0
        ends, forward = go & item.ends, item.beat.forward
        with m.If(go & item.captures):
            m.d.sync += self.leaving.eq(item.beat.tail)
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


def item_layout(shape: LaneShape) -> data.StructLayout:
    """A beat, and what is known of it before it is issued.

    x: where its x lies, if it `reads` one. captures: it completes sums of FORWARD. settles: sums that were
    captured before must have left. ends: the last of a command. releases: registers for dz, one hot.
    """
    flags = dict.fromkeys(("reads", "captures", "settles", "ends"), 1)
    return data.StructLayout({"beat": beat_layout(shape), "x": shape.address_bits, **flags, "releases": 2})


def _kinds(beat: Any) -> tuple[Any, Any, Any]:
    return beat.forward, beat.weight_gradient, beat.input_gradient
