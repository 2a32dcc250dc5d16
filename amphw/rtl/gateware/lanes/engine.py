"""The lane engine: matrix-vector products with parameters it keeps, their gradients, and their updates."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.fixed.parameters import VELOCITY
from amphw.rtl.gateware.lanes.gradient import GradientSums
from amphw.rtl.gateware.lanes.issue import Issuer
from amphw.rtl.gateware.lanes.load import Loader
from amphw.rtl.gateware.lanes.memory import BeatMemory
from amphw.rtl.gateware.lanes.multiply import LaneProducts
from amphw.rtl.gateware.lanes.round import Rounder
from amphw.rtl.gateware.lanes.shape import (
    BROADCAST_BITS,
    OPERANDS,
    PRODUCTS,
    RESPONSE_BITS,
    REWRITTEN,
    LaneShape,
    beat_layout,
    command_layout,
)
from amphw.rtl.gateware.lanes.sum import LaneSum, RowSums
from amphw.rtl.gateware.lanes.update import Updater
from amphw.rtl.gateware.ports import NO_COLLISION, ReadPort, WritePort
from amphw.rtl.isa.commands import Bank
from amphw.rtl.numbers.formats import BITS


class LaneEngine(wiring.Component):
    """Commands in, values in and out of the payload memory.

    command: what its operands say must be in the payload memory when it is accepted, and stay there until
    its `done`. read_a fetches x, read_b dz and indices. done: for a cycle, once for each command and in
    their order; all its effects are in memory. idle: every accepted command is done. response: the answers
    to PEEK.

    One beat a cycle: a row of a message takes (rows + bias) * blocks cycles forward, or `columns` or the
    lanes' number where that is more; as many for each of the two gradients, if there are as many rows as
    lanes; 1 a weight to update.
    """

    def __init__(self, shape: LaneShape) -> None:
        self.shape = shape
        formats, lanes = shape.formats, shape.lanes
        self.make_datapath()
        self.low = BeatMemory(shape.beats, lanes, formats.low_bits, False) if shape.keeps_low else None
        self.velocities = BeatMemory(shape.beats, lanes, VELOCITY.bits) if shape.momentum else None
        super().__init__(
            {
                "command": In(stream.Signature(command_layout(shape))),
                "read_a": Out(ReadPort(shape.address_bits)),
                "read_b": Out(ReadPort(shape.address_bits)),
                "write": Out(WritePort(shape.address_bits)),
                "response": Out(stream.Signature(signed(RESPONSE_BITS))),
                "done": Out(1),
                "idle": Out(1, init=1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        shape = self.shape
        loader = self.place(m, "loader", Loader(shape))
        issuer = self.place(m, "issuer", Issuer(shape))
        updater = self.place(m, "updater", Updater(shape))
        rounder = self.place(m, "rounder", Rounder(shape))
        self._count_commands(m, loader, issuer, updater)
        wiring.connect(m, wiring.flipped(self.command), loader.command)
        wiring.connect(m, loader.walk, issuer.walk)
        wiring.connect(m, wiring.flipped(self.read_b), loader.read)
        wiring.connect(m, wiring.flipped(self.read_a), issuer.read)
        wiring.connect(m, wiring.flipped(self.response), updater.response)
        wiring.connect(m, wiring.flipped(self.write), rounder.write)
        m.d.comb += [
            loader.released.eq(issuer.released),
            loader.serial_done.eq(updater.done),
            updater.start.eq(loader.serial_start),
            updater.command.eq(loader.held),
        ]
        self.datapath(m, loader, issuer, updater, rounder)
        return m

    # A simulation may do these otherwise.

    def place(self, m: Module, name: str, part: Any) -> Any:
        """Make a component a part of the engine -> the component."""
        m.submodules[name] = part
        return part

    def make_datapath(self) -> None:
        """The components that `datapath` connects."""
        shape = self.shape
        self.weights = BeatMemory(shape.beats, shape.lanes, BITS)
        self.products = LaneProducts(shape)
        self.gradients = GradientSums(shape, self.products.bits)

    def datapath(self, m: Module, loader: Loader, issuer: Issuer, updater: Updater, rounder: Rounder) -> None:
        """Memories of parameters, multipliers and sums, which do what the issuer's beats say."""
        beats = [issuer.beat]
        for cycle in range(1, REWRITTEN + 1):
            beat = Signal(beat_layout(self.shape), name=f"beat{cycle}")
            m.d.sync += beat.eq(beats[-1])
            beats.append(beat)
        self._operands(m, loader, updater, beats)
        self._sums(m, rounder, beats)
        self._parameters(m, updater, beats)
        self.masters(m, updater)

    def _count_commands(self, m: Module, loader: Loader, issuer: Issuer, updater: Updater) -> None:
        """Commands accepted and not done; there is no room for more than 32 between the two ends."""
        under_way = Signal(6)
        accepted = self.command.valid & self.command.ready
        m.d.comb += [self.done.eq(issuer.done | updater.done), loader.alone.eq(under_way == 1)]
        m.d.sync += [
            under_way.eq(under_way + accepted - self.done),
            self.idle.eq(~accepted & ((under_way == 0) | ((under_way == 1) & self.done))),
        ]

    def _operands(self, m: Module, loader: Loader, updater: Updater, beats: list[Any]) -> None:
        shape = self.shape
        m.submodules.weights = self.weights
        m.submodules.products = products = self.products
        m.d.comb += self.weights.addr.eq(Mux(updater.busy, updater.addr, beats[OPERANDS - 2].beat))

        one = 1 << (shape.formats.value.frac - shape.bias_shift)
        x = Signal(signed(BROADCAST_BITS), reset_less=True)
        m.d.sync += x.eq(self.read_a.data)
        with m.If(beats[OPERANDS - 1].bias):
            m.d.sync += x.eq(one)

        words = data.ArrayLayout(signed(BITS), shape.lanes)
        # The walk that reads a register for dz begins after its last write.
        attributes = {"ram_style": "block", **NO_COLLISION}
        files = memory.Memory(shape=words, depth=2 << shape.block_bits, init=[], attrs=attributes)
        m.submodules.dz = files
        write, read = files.write_port(granularity=1), files.read_port()
        reading = beats[OPERANDS - 2]
        dz = Signal(words, reset_less=True)
        m.d.comb += [
            write.en.eq(loader.dz_lanes),
            write.addr.eq(loader.dz_block | (loader.dz_file << shape.block_bits)),
            read.addr.eq(reading.block | (reading.dz << shape.block_bits)),
        ]
        m.d.comb += [write.data[lane].eq(loader.dz_data) for lane in range(shape.lanes)]
        m.d.sync += dz.eq(read.data)

        taken = beats[OPERANDS]
        m.d.comb += [
            products.weights.eq(self.weights.data),
            products.x.eq(x),
            products.dz.eq(dz),
            products.weight_gradient.eq(taken.weight_gradient),
            products.input_gradient.eq(taken.input_gradient),
            products.bias.eq(taken.bias),
        ]

    def _sums(self, m: Module, rounder: Rounder, beats: list[Any]) -> None:
        shape = self.shape
        m.submodules.row_sums = row_sums = RowSums(shape, self.products.bits)
        m.submodules.lane_sum = lane_sum = LaneSum(shape, self.products.bits)
        for unit in (row_sums, lane_sum):
            m.d.comb += [unit.beat.eq(beats[PRODUCTS]), unit.products.eq(self.products.products)]
        m.d.sync += [
            rounder.valid.eq(row_sums.valid | lane_sum.valid),
            rounder.sum.eq(Mux(lane_sum.valid, lane_sum.sum, row_sums.sum)),
            rounder.y.eq(Mux(lane_sum.valid, lane_sum.y, row_sums.y)),
        ]

    def _parameters(self, m: Module, updater: Updater, beats: list[Any]) -> None:
        """Ports of the parameters' memories that the updater uses, too."""
        m.submodules.gradients = gradients = self.gradients
        m.d.comb += [
            gradients.addr.eq(Mux(updater.busy, updater.addr, beats[PRODUCTS - 2].beat)),
            gradients.products.eq(self.products.products),
            gradients.write.eq(beats[REWRITTEN].weight_gradient),
            gradients.write_addr.eq(Mux(updater.busy, updater.write_addr, beats[REWRITTEN].beat)),
            gradients.serial.eq(updater.busy),
            gradients.serial_lanes.eq(_lanes_of(updater, Bank.GRADIENT)),
            gradients.poke.eq(updater.new_gradient),
            updater.weights.eq(self.weights.data),
            updater.gradients.eq(gradients.data),
        ]
        self._write(m, updater, self.weights, Bank.WEIGHT, updater.new_weight)

    def masters(self, m: Module, updater: Updater) -> None:
        """Memories that nobody but the updater uses."""
        if self.low is not None:
            self.place(m, "low", self.low)
            m.d.comb += [self.low.addr.eq(updater.addr), updater.low.eq(self.low.data)]
            self._write(m, updater, self.low, Bank.LOW, updater.new_low)
        if self.velocities is not None:
            self.place(m, "velocities", self.velocities)
            m.d.comb += [self.velocities.addr.eq(updater.addr), updater.velocities.eq(self.velocities.data)]
            self._write(m, updater, self.velocities, Bank.VELOCITY, updater.new_velocity)

    def _write(self, m: Module, updater: Updater, store: BeatMemory, bank: Any, word: Any) -> None:
        m.d.comb += [
            store.write_addr.eq(updater.write_addr),
            store.write_lanes.eq(_lanes_of(updater, bank)),
        ]
        m.d.comb += [store.write_data[lane].eq(word) for lane in range(self.shape.lanes)]


def _lanes_of(updater: Updater, bank: Any) -> Any:
    return Mux(updater.write[bank.value], updater.write_lanes, 0)
