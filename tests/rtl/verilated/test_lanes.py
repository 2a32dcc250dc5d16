# amaranth: UnusedElaboratable=no
"""The functional model of the lane engine beside its gates: the same words, in the same cycles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from amphw.rtl.gateware.lanes.shape import LaneShape, LaneShapeError
from amphw.rtl.isa.commands import LaneOp
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.verilated.lanes import ModelledLanes
from amphw.rtl.verilated.simulation import Simulation
from sim.models.lane_commands import LOWER, UPPER, banks, command, fill, random_command
from sim.models.lanes import Command, LaneModel
from tests.daily import daily
from tests.rtl.verilated.lane_streams import LaneStreams, ModelledStreams, answers, of_commands

MOMENTUM = {"momentum": True, "mu": 29491, "s1": 24, "s2": 20, "clips": True}
SHAPES: dict[str, tuple[int, str, dict[str, Any]]] = {
    "4 lanes": (4, "q4.12", MOMENTUM),
    "8 lanes, stochastic": (8, "q6.10,w=q3.13,round=stochastic", {}),
    "16 lanes, narrow sums": (16, "q2.14,w=q8.8,sum=32", {"clips": True}),
    "2 lanes, a 1.0 beyond the operand": (2, "q-4.20,w=q0.16,acc=48", {}),
}
COMMANDS = 3000
"""Of each shape: more than 10,000 in all."""


def every_word(shape: LaneShape, op: LaneOp, model: LaneModel) -> list[Command]:
    """POKE the model's contents, or PEEK all that there is."""
    return [
        command(op, bank=bank, base=beat, lane=lane, data=int(model.banks[bank][beat, lane]))
        for bank in banks(shape)
        for beat in range(shape.beats)
        for lane in range(shape.lanes)
    ]


def outcome(streams: LaneStreams, given: Sequence[np.ndarray]) -> tuple[list[int], list[int], list[int]]:
    """(what was seen in which cycle, answers, cycles of each row)"""
    said: list[int] = []
    cycles: list[int] = []
    with Simulation(streams, trace="seen", idle="idle") as simulation:
        for row in given:
            accepted, words, passed = simulation.exchange(row, 10_000_000, until_idle=True)
            assert accepted == len(row) and passed < 10_000_000
            said += answers(words)
            cycles.append(passed)
        return list(simulation.traced), said, cycles


@pytest.mark.parametrize("name", daily([], SHAPES))
def test_random_commands_are_those_of_the_gates(name: str) -> None:
    """However they follow each other; all parameters are looked at in the end."""
    lanes, formats, fields = SHAPES[name]
    shape = LaneShape(lanes, 32, 4, 8, formats=Formats.parse(formats), **fields)
    rng = np.random.default_rng(len(name))
    model = LaneModel(shape)
    fill(model, rng, weights=16, sums=shape.formats.sums - 1)
    work = [
        random_command(rng, shape, *((UPPER, LOWER) if n // 40 % 2 else (LOWER, UPPER)))
        for n in range(COMMANDS)
    ]
    given = [
        of_commands(shape, commands, together)
        for commands, together in (
            (every_word(shape, LaneOp.POKE, model), 1),
            (work[: COMMANDS // 2], 1),
            (work[COMMANDS // 2 :], 40),
            (every_word(shape, LaneOp.PEEK, model), 1),
        )
    ]
    seen, said, cycles = outcome(LaneStreams(shape, model.memory), given)
    assert sum(op["op"] == LaneOp.FORWARD for op in work) > COMMANDS // 8
    assert len(set(said)) > 100
    found = outcome(ModelledStreams(shape, model.memory), given)
    assert found == (seen, said, cycles)


def test_more_lanes_than_a_word_has_bits_are_refused() -> None:
    with pytest.raises(LaneShapeError) as error:
        ModelledLanes(LaneShape(lanes=128, beats=4, widest_blocks=1, address_bits=8))
    assert str(error.value) == "lanes=model with 128 lanes: it has at most 64; simulate lanes=gates"
