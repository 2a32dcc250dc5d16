"""Everything done to one parameter after another: updates, norms, and reading and writing single words.

An update takes one weight a cycle, and so does a norm. Arithmetic is a straight pipeline.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.fixed.parameters import LFSR_TAPS, MU_BITS, VELOCITY
from amphw.rtl.gateware.lanes.clip import Clipper
from amphw.rtl.gateware.lanes.pipeline import Pipeline
from amphw.rtl.gateware.lanes.shape import RESPONSE_BITS, LaneShape, command_layout
from amphw.rtl.gateware.lanes.sum import choose_lane
from amphw.rtl.isa.commands import Bank, LaneOp
from amphw.rtl.numbers.arithmetic import round_shift, saturate
from amphw.rtl.numbers.formats import BITS


class Updater(wiring.Component):
    """Runs the UPDATE, CLIP, POKE or PEEK in `command` from `start` until `done`, `busy` in between.

    The beat at `addr` stands in `weights`, `low`, `gradients` and `velocities` two cycles later. Lane
    `write_lane` of beat `write_addr` is written in the banks of `write` (a bit for each `Bank`) with new_*.
    """

    def __init__(self, shape: LaneShape) -> None:
        self.shape = shape
        formats = shape.formats
        lanes = shape.lanes
        super().__init__(
            {
                "command": In(command_layout(shape)),
                "start": In(1),
                "busy": Out(1),
                "done": Out(1),
                "addr": Out(shape.beat_bits),
                "weights": In(data.ArrayLayout(BITS, lanes)),
                "low": In(data.ArrayLayout(formats.low_bits, lanes)),
                "gradients": In(data.ArrayLayout(signed(formats.sums), lanes)),
                "velocities": In(data.ArrayLayout(signed(VELOCITY.bits), lanes)),
                "write": Out(4),
                "write_lanes": Out(lanes),
                "write_addr": Out(shape.beat_bits),
                "new_weight": Out(BITS),
                "new_low": Out(formats.low_bits),
                "new_gradient": Out(signed(formats.sums)),
                "new_velocity": Out(signed(VELOCITY.bits)),
                "response": Out(stream.Signature(signed(RESPONSE_BITS))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        shape, command = self.shape, self.command
        update = command.op == LaneOp.UPDATE
        clip = command.op == LaneOp.CLIP if shape.clips else C(0)
        valid, last, lane = self._walk(m, update | clip)

        pipe = Pipeline(m, valid=valid, last=last, addr=self.addr, lane=lane)
        pipe.step()
        pipe.step()
        weight, low, gradient, velocity = self._choose(m, pipe.lane)
        pipe.step()
        pipe.step(weight=weight(), low=low(), gradient=gradient(), velocity=velocity())
        self._peek(m, pipe)
        scale = self._limited(m, pipe, update, clip) if shape.clips else command.scale
        # A PEEK or a CLIP ends here; the steps below may already see the command behind it.
        pipe.values["valid"] = pipe.valid & (command.op != LaneOp.PEEK) & ~clip
        master = Cat(pipe.low if shape.keeps_low else C(0, shape.formats.low_bits), pipe.weight).as_signed()
        pipe.step(drop=("weight", "low"), master=master)
        if shape.momentum:
            self._momentum(pipe, scale)
        else:
            self._descend(pipe, scale)
        self._apply(m, pipe)
        self._write(m, pipe, update)
        return m

    def _walk(self, m: Module, sweeps: Value) -> tuple[Signal, Value, Signal]:
        """One (addr, lane) a cycle: of a command that sweeps, over the real columns of all rows; else one."""
        shape, command = self.shape, self.command
        walking = Signal()
        rows = Signal(shape.count_bits)
        block, lane = Signal(shape.block_bits), Signal(shape.lane_bits)
        block_end = block == (command.blocks - 1)[: shape.block_bits]
        lane_end = lane == Mux(block_end, (command.columns - 1)[: shape.lane_bits], shape.lanes - 1)
        last = Signal()
        m.d.comb += last.eq(~sweeps | (block_end & lane_end & (rows == 1)))
        with m.If(self.start):
            m.d.sync += [
                self.busy.eq(1),
                walking.eq(~sweeps | (command.rows != 0)),
                self.addr.eq(command.base),
                rows.eq(command.rows),
                block.eq(0),
                lane.eq(Mux(sweeps, 0, command.lane)),
            ]
        with m.Elif(walking):
            m.d.sync += [lane.eq(lane + 1), walking.eq(~last)]
            with m.If(lane_end):
                m.d.sync += [lane.eq(0), self.addr.eq(self.addr + 1), block.eq(block + 1)]
                with m.If(block_end):
                    m.d.sync += [block.eq(0), rows.eq(rows - 1)]
        m.d.sync += self.done.eq(self.start & sweeps & (command.rows == 0))
        with m.If(self.done):
            m.d.sync += self.busy.eq(0)
        return walking, last, lane

    def _choose(self, m: Module, lane: Value) -> list[Any]:
        """The chosen lane of each bank, as functions to call a cycle later."""
        found = []
        for name in ("weights", "low", "gradients", "velocities"):
            words = getattr(self, name)
            chosen, high = choose_lane(m, [words[i] for i in range(self.shape.lanes)], lane, name)
            found.append(lambda chosen=chosen, high=high: Array(chosen)[high])
        return found

    def _peek(self, m: Module, pipe: Pipeline) -> None:
        command, response = self.command, self.response
        with m.Switch(command.bank):
            for bank, word in (
                (Bank.WEIGHT, pipe.weight.as_signed()),
                (Bank.LOW, pipe.low),
                (Bank.GRADIENT, pipe.gradient),
                (Bank.VELOCITY, pipe.velocity),
            ):
                with m.Case(bank):
                    with m.If(~response.valid):
                        m.d.sync += response.payload.eq(word)
        with m.If(pipe.valid & (command.op == LaneOp.PEEK)):
            m.d.sync += response.valid.eq(1)
        with m.If(response.valid & response.ready):
            m.d.sync += [response.valid.eq(0), self.done.eq(1)]

    def _limited(self, m: Module, pipe: Pipeline, update: Value, clip: Value) -> Value:
        """The update's coefficient, or the ceiling that a CLIP before it has found."""
        m.submodules.clipper = clipper = Clipper(self.shape.formats)
        scale = Signal.like(self.command.scale)
        m.d.comb += [
            clipper.begin.eq(self.start & clip),
            clipper.lift.eq(self.done & update),
            clipper.scale.eq(self.command.scale),
            clipper.limit.eq(self.command.data),
            clipper.valid.eq(pipe.valid & clip),
            clipper.last.eq(pipe.last),
            clipper.gradient.eq(pipe.gradient),
        ]
        m.d.sync += scale.eq(Mux(clipper.ceiling < self.command.scale, clipper.ceiling, self.command.scale))
        with m.If(clipper.done):
            m.d.sync += self.done.eq(1)
        return scale

    def _descend(self, pipe: Pipeline, scale: Value) -> None:
        pipe.multiply(drop=("gradient", "velocity"), product=(pipe.gradient, scale))
        pipe.step(drop=("product",), delta=round_shift(pipe.product, self.shape.s1))

    def _momentum(self, pipe: Pipeline, scale: Value) -> None:
        shape = self.shape
        pipe.multiply(
            drop=("gradient", "velocity"),
            product=(pipe.gradient, scale),
            kept=(pipe.velocity, C(shape.mu, MU_BITS)),
        )
        pipe.step(
            drop=("product",), g=round_shift(pipe.product, shape.s1), kept=round_shift(pipe.kept, MU_BITS)
        )
        pipe.step(drop=("g", "kept"), sum=pipe.g + pipe.kept)
        pipe.step(
            drop=("sum",), new_velocity=saturate(pipe.sum, VELOCITY.bits, Mux)[: VELOCITY.bits].as_signed()
        )
        pipe.multiply(product=(pipe.new_velocity, self.command.rate))
        pipe.step(drop=("product",), delta=round_shift(pipe.product, shape.s2))

    def _apply(self, m: Module, pipe: Pipeline) -> None:
        """m' = saturate(m - delta), with noise below the visible weight where that is all that is kept."""
        low_bits = self.shape.formats.low_bits
        pipe.step(drop=("delta", "master"), moved=pipe.master - pipe.delta)
        if not self.shape.keeps_low:
            noise = Signal(32)
            with m.If(self.start):
                m.d.sync += noise.eq(self.command.seed)
            with m.Elif(pipe.valid):
                m.d.sync += noise.eq((noise >> 1) ^ Mux(noise[0], LFSR_TAPS, 0))
            pipe.step(moved=pipe.moved + noise[:low_bits])
        pipe.step(drop=("moved",), master=saturate(pipe.moved, BITS + low_bits, Mux)[: BITS + low_bits])

    def _write(self, m: Module, pipe: Pipeline, update: Value) -> None:
        shape, command = self.shape, self.command
        low_bits = shape.formats.low_bits
        updated: list[Any] = [Bank.WEIGHT, Bank.GRADIENT]
        updated += [Bank.LOW] * shape.keeps_low + [Bank.VELOCITY] * shape.momentum
        banks = sum(1 << bank.value for bank in updated)
        poke = command.op == LaneOp.POKE
        ends = Signal()
        m.d.sync += [
            self.write.eq(Mux(pipe.valid, Mux(update, banks, Mux(poke, 1 << command.bank, 0)), 0)),
            self.write_addr.eq(pipe.addr),
            self.write_lanes.eq(1 << pipe.lane),
            self.new_weight.eq(Mux(poke, command.data, pipe.master[low_bits:])),
            self.new_low.eq(Mux(poke, command.data, pipe.master[:low_bits])),
            # Outside POKE this is 0: an update clears the gradient that it used.
            self.new_gradient.eq(Mux(pipe.valid & poke & (command.bank == Bank.GRADIENT), command.data, 0)),
            ends.eq(pipe.valid & pipe.last),
        ]
        if shape.momentum:
            m.d.sync += self.new_velocity.eq(Mux(poke, command.data, pipe.new_velocity))
        with m.If(ends):
            m.d.sync += self.done.eq(1)
