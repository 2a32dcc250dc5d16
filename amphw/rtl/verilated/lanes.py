"""The lane engine with a functional model of its datapath: the same words, in the same cycles, sooner.

What decides when something happens (loader, issuer, updater) stays as it is. Memories of weights and summed
gradients, multipliers and sums are C++, which the simulation calls once a beat.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from amaranth.hdl import Cat, ClockSignal, DomainRenamer, Instance, Module, Signal, signed

from amphw.rtl.gateware.lanes.engine import LaneEngine
from amphw.rtl.gateware.lanes.issue import Issuer
from amphw.rtl.gateware.lanes.load import Loader
from amphw.rtl.gateware.lanes.round import Rounder
from amphw.rtl.gateware.lanes.shape import PRODUCTS, LaneShape, LaneShapeError, tree_levels
from amphw.rtl.gateware.lanes.update import Updater
from amphw.rtl.isa.commands import Bank
from amphw.rtl.isa.memory import READ_LATENCY
from amphw.rtl.numbers.arithmetic import saturate
from amphw.rtl.numbers.formats import BITS
from amphw.rtl.verilated.expression import function, select

MOST_LANES = 64
"""A lane is told as one bit of a word."""

DOMAINS = {"issuer": "walker", "rounder": "rounder"} | dict.fromkeys(
    ("updater", "low", "velocities"), "updater"
)
"""Parts that sleep apart from the rest of the engine, and the domain of each. A walk over a layer is long,
and whoever gives the next command waits for it; sums leave at its end; updates are seldom."""

_ROW_SUMS, _ROUNDER = 3, 1
"""Cycles from the last beat of a block to the sum of its first lane, and from a sum to the rounder."""


_REST = {"": 7, "walker": 31, "rounder": 3, "updater": 31}
"""The longest pipelines: the loader's, that of a beat, the rounder's, and an update's with momentum, which
has fewer than 20 steps."""


class ModelledLanes(LaneEngine):
    """A lane engine whose files (`sources`) belong to its simulation, in which it has several clocks."""

    def __init__(self, shape: LaneShape) -> None:
        if shape.lanes > MOST_LANES:
            raise LaneShapeError(
                f"lanes=model with {shape.lanes} lanes: it has at most {MOST_LANES}; simulate lanes=gates"
            )
        super().__init__(shape)
        self.quiet = {name: (Signal(name=f"quiet_{name}"), cycles) for name, cycles in _REST.items()}
        """Of each domain, that it has nothing to do, and in how many cycles it comes to rest (see `sleep`);
        "" is the domain of the engine."""

    def sources(self) -> dict[str, str]:
        """The texts that are compiled into the simulation, by file name."""
        shape = self.shape
        longest = PRODUCTS + max(_ROW_SUMS + shape.lanes, tree_levels(shape)) + 4
        fields = {
            "LANES": shape.lanes,
            "BEATS": shape.beats,
            "BLOCKS": 1 << shape.block_bits,
            # A call is made with a beat when its x has come, and what it says is seen a cycle later.
            "FORWARD_CYCLES": PRODUCTS + _ROW_SUMS + _ROUNDER - READ_LATENCY - 1,
            "INPUT_CYCLES": PRODUCTS + tree_levels(shape) + 1 + _ROUNDER - READ_LATENCY - 1,
            "RING": 1 << longest.bit_length(),
            "ONE": 1 << shape.formats.value.frac,
            "ADDRESSES": 1 << shape.address_bits,
            "ADDRESS_BITS": shape.address_bits,
            "BEAT_BITS": shape.beat_bits,
            "BLOCK_BITS": shape.block_bits,
            "LANE_BITS": shape.lane_bits,
            "SUMS": shape.formats.sums,
            "ACCUMULATOR": shape.formats.accumulator_bits,
            "SATURATED": function("saturated", lambda x: saturate(x, shape.formats.sums, select)),
        }
        made = {}
        for name in ("lanes.sv", "lanes.cpp"):
            text = resources.files("amphw.rtl.verilated").joinpath(f"{name}.in").read_text()
            for field, value in fields.items():
                text = text.replace(f"@{field}@", str(value))
            made[name] = text
        return made

    def place(self, m: Module, name: str, part: Any) -> Any:
        m.submodules[name] = DomainRenamer(DOMAINS[name])(part) if name in DOMAINS else part
        return part

    def make_datapath(self) -> None:
        """It is not made of components."""

    def datapath(self, m: Module, loader: Loader, issuer: Issuer, updater: Updater, rounder: Rounder) -> None:
        shape = self.shape
        beat = issuer.beat
        for cycle in range(READ_LATENCY):
            register = Signal.like(issuer.beat, name=f"beat{cycle + 1}")
            m.d.walker += register.eq(beat)
            beat = register
        weights, gradients = Signal(shape.lanes * BITS), Signal(shape.lanes * 64)
        total = Signal(signed(64))
        m.submodules.model = Instance(
            "amphw_lanes",
            i_clk=ClockSignal("walker"),
            i_clk_loader=ClockSignal(),
            i_clk_updater=ClockSignal("updater"),
            i_what=Cat(
                *(beat.forward, beat.weight_gradient, beat.input_gradient, beat.bias, beat.last, beat.dz)
            ),
            i_beat=beat.beat,
            i_block=beat.block,
            i_tail=beat.tail,
            i_y=beat.y,
            i_x=self.read_a.data,
            i_dz_lanes=loader.dz_lanes,
            i_dz_file=loader.dz_file,
            i_dz_block=loader.dz_block,
            i_dz_word=loader.dz_data,
            i_busy=updater.busy,
            i_read_beat=updater.addr,
            i_write_weight=updater.write[Bank.WEIGHT.value],
            i_write_gradient=updater.write[Bank.GRADIENT.value],
            i_write_beat=updater.write_addr,
            i_write_lanes=updater.write_lanes,
            i_new_weight=updater.new_weight,
            i_new_gradient=updater.new_gradient,
            o_valid=rounder.valid,
            o_sum=total,
            o_to=rounder.y,
            o_weights=weights,
            o_gradients=gradients,
        )
        m.d.comb += [rounder.sum.eq(total), updater.weights.as_value().eq(weights)]
        m.d.comb += [
            updater.gradients[lane].eq(gradients[64 * lane :][: shape.formats.sums].as_signed())
            for lane in range(shape.lanes)
        ]
        self._rest(m, loader, issuer, updater, rounder)
        self.masters(m, updater)

    def _rest(self, m: Module, loader: Loader, issuer: Issuer, updater: Updater, rounder: Rounder) -> None:
        walk = loader.walk
        quiet = {
            # Its state machine waits, and no one answers.
            "": loader.waits & ~(walk.valid & walk.ready) & ~issuer.released.any() & ~self.done,
            "walker": ~walk.valid & ~issuer.active & (issuer.leaving == 0),
            "rounder": ~rounder.valid,
            "updater": ~(loader.serial_start | updater.busy | updater.done | self.response.valid),
        }
        m.d.comb += [self.quiet[name][0].eq(condition) for name, condition in quiet.items()]
