"""The engines alone, with random commands, as their benches have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data

from amphw.rtl.fixed.curves import curve
from amphw.rtl.gateware.lanes.engine import LaneEngine
from amphw.rtl.gateware.lanes.shape import LaneShape, command_layout
from amphw.rtl.gateware.vector.command import VectorShape
from amphw.rtl.gateware.vector.unit import VectorUnit
from amphw.rtl.isa.commands import LaneOp
from amphw.rtl.mutation.play import Said, Script, Subject
from amphw.rtl.numbers.formats import Formats
from sim.engine_streams import EngineStreams, words_of_commands
from sim.models.lane_commands import LOWER, UPPER, banks, command, fill, random_command
from sim.models.lanes import LaneModel
from sim.models.vector import execute
from sim.models.vector_commands import memory, random_commands

ENGINE = "engine"
_NOISE = 0x1D872B41  # of a xorshift generator's seed; any other will do


class Watched(EngineStreams):
    """An engine whose payload memory gives noise where nothing was asked for, or what is being written.

    seen: each write, and each cycle in which a command is done or `idle` changes.
    """

    def __init__(self, engine: Any, layout: Any, address_bits: int, contents: Iterable[int]) -> None:
        super().__init__(engine, layout, address_bits, contents)
        self.noise = Signal(32, init=_NOISE)

    def payload(self, m: Module) -> None:
        once = self.noise ^ (self.noise << 13)[:32]
        twice = once ^ (once >> 17)
        m.d.sync += self.noise.eq(twice ^ (twice << 5)[:32])
        super().payload(m)

    def read(self, m: Module, port: Any, word: Any) -> Any:
        write, clear = self.engine.write, Signal()
        m.d.sync += clear.eq(port.en & ~(write.en & (write.addr == port.addr)))
        return Mux(clear, word, self.noise[:16])

    def see(self, m: Module) -> None:
        engine, before = self.engine, Signal(init=1)
        write = engine.write
        m.d.sync += before.eq(engine.idle)
        bits = Cat(engine.idle, engine.done, write.en, Mux(write.en, Cat(write.addr, write.data), 0))
        m.d.comb += [
            self.seen.valid.eq(write.en | engine.done | (engine.idle != before)),
            self.seen.payload.as_value().eq(bits),
        ]


class VectorWatched(Watched):
    """A command whose last bit but one is set is none: it writes a pointer, when the unit is idle."""

    def give(self, m: Module, queue: Any, go: Any) -> None:
        unit, pointer = self.engine, self.engine.pointer
        layout = data.StructLayout({"index": len(pointer.index), "data": len(pointer.data)})
        writes = data.View(layout, queue.r_data[: layout.size])
        is_pointer = queue.r_data[-2]
        begins = queue.r_rdy & go
        m.d.comb += [
            unit.command.payload.as_value().eq(queue.r_data),
            unit.command.valid.eq(begins & ~is_pointer),
            pointer.en.eq(begins & is_pointer & unit.idle),
            pointer.index.eq(writes.index),
            pointer.data.eq(writes.data),
            queue.r_en.eq(Mux(is_pointer, pointer.en, unit.command.ready & go)),
        ]


def same_cycles(wanted: Said, said: Said) -> str:
    """The engine's own cycles are compared by other benches, one by one."""
    late = np.flatnonzero(wanted.at != said.at)
    return f"record {late[0]} in cycle {said.at[late[0]]}, not {wanted.at[late[0]]}" if len(late) else ""


# --- lanes ----------------------------------------------------------------------------------------

ROUND = 400
"""Random commands between two times that all memories of parameters are looked at and filled anew."""

MOMENTUM = {"momentum": True, "mu": 29491, "s1": 24, "s2": 20, "clips": True}


def lanes(name: str, formats: str, number: int, share: int, **fields: Any) -> Subject:
    shape = LaneShape(
        **{"lanes": 4, "beats": 32, "widest_blocks": 4, "address_bits": 8, **fields},
        formats=Formats.parse(formats),
    )
    rng = np.random.default_rng(7)
    model = LaneModel(shape)
    fill(model, rng, weights=16, sums=shape.formats.sums - 1)
    layout = command_layout(shape)

    def every(op: LaneOp) -> list[int]:
        """All that the memories hold; new contents are large or small, else most results would be limits."""
        if op == LaneOp.POKE:
            fill(model, rng, weights=int(rng.integers(9, 17)), sums=int(rng.integers(20, shape.formats.sums)))
        return [
            bits(command(op, bank=bank, base=beat, lane=lane, data=int(model.banks[bank][beat, lane])))
            for bank in banks(shape)
            for beat in range(shape.beats)
            for lane in range(shape.lanes)
        ]

    def bits(fields: Any) -> int:
        return int(layout.const(fields).as_bits())

    def scripts() -> Sequence[Script]:
        found = []
        for together, taking in ((1, 1.0), (40, 0.3), (40, 1.0)):
            words = []
            for _ in range(number // ROUND):
                work = [
                    bits(random_command(rng, shape, *((UPPER, LOWER) if n // 40 % 2 else (LOWER, UPPER))))
                    for n in range(ROUND)
                ]
                words += [
                    words_of_commands(layout, commands, size)
                    for commands, size in ((every(LaneOp.POKE), 1), (work, together), (every(LaneOp.PEEK), 1))
                ]
            found.append(
                Script(
                    f"random commands, {together} together, answers taken {taking:.0%}",
                    [(0, np.concatenate(words).tolist())],
                    (1.0, taking),
                    cycles=same_cycles,
                    seed=together,
                )
            )
        return found

    return Subject(
        name,
        lambda: Watched(LaneEngine(shape), layout, shape.address_bits, model.memory),
        scripts,
        within=ENGINE,
        trace="seen",
        share=share,
    )


# --- vector unit ----------------------------------------------------------------------------------


def vector(name: str, formats: str, address_bits: int, number: int, share: int) -> Subject:
    given = Formats.parse(formats)
    curves = tuple(curve(each, given.value.frac) for each in ("sigmoid", "tanh"))
    shape = VectorShape(address_bits, 8, given, curves, pointers=16)
    rng = np.random.default_rng(7)
    contents = memory(rng, 1 << address_bits)
    pointers = rng.integers(0, 1 << address_bits, shape.pointers).tolist()
    layout = shape.command
    flag = 1 << 16 * ((layout.size + 1) // 16 + 1) - 2

    def scripts() -> Sequence[Script]:
        written = [index | address << shape.pointer_bits | flag for index, address in enumerate(pointers)]
        found = []
        now = list(contents)
        for together, giving in ((1, 1.0), (40, 1.0), (64, 0.5)):
            # Rows in which commands use one another's results.
            now = list(contents)
            rows = []
            for _ in range(number // 100):
                commands = random_commands(rng, shape, now, pointers, 100)
                for each in commands:
                    execute(each, now, pointers, shape.curves)
                rows += [int(layout.const(each.fields()).as_bits()) for each in commands]
            words = [words_of_commands(layout, written, 1), words_of_commands(layout, rows, together)]
            found.append(
                Script(
                    f"random commands, {together} together, offered {giving:.0%}",
                    [(0, np.concatenate(words).tolist())],
                    (giving, 1.0),
                    seed=together,
                )
            )
        return found

    return Subject(
        name,
        lambda: VectorWatched(VectorUnit(shape), layout, address_bits, contents),
        scripts,
        within=ENGINE,
        trace="seen",
        share=share,
    )
