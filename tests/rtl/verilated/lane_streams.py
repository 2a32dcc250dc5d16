"""A lane engine and its payload memory between two streams of words, to be simulated in this process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from amaranth.hdl import DomainRenamer, Module, Signal

from amphw.rtl.gateware.lanes.engine import LaneEngine
from amphw.rtl.gateware.lanes.shape import RESPONSE_BITS, LaneShape, command_layout
from amphw.rtl.verilated.lanes import ModelledLanes
from amphw.rtl.verilated.sleep import ticks
from sim.engine_streams import EngineStreams, words_of_commands
from sim.models.lanes import Command


class LaneStreams(EngineStreams):
    """Commands as `of_commands` gives them, and answers to PEEK."""

    def __init__(self, shape: LaneShape, contents: Iterable[int]) -> None:
        super().__init__(self.lane_engine(shape), command_layout(shape), shape.address_bits, contents)

    def lane_engine(self, shape: LaneShape) -> Any:
        return LaneEngine(shape)


class ModelledStreams(LaneStreams):
    """The same with the functional model, whose parts sleep."""

    def __init__(self, shape: LaneShape, contents: Iterable[int]) -> None:
        super().__init__(shape, contents)
        self.clocks = {name or "lanes": Signal() for name in self.engine.quiet}

    def lane_engine(self, shape: LaneShape) -> Any:
        return ModelledLanes(shape)

    def sources(self) -> dict[str, str]:
        sources: dict[str, str] = self.engine.sources()
        return sources

    def place(self, m: Module) -> None:
        m.submodules.engine = DomainRenamer("lanes")(self.engine)
        quiet = {name or "lanes": condition for name, condition in self.engine.quiet.items()}
        for name, tick in ticks(m, quiet).items():
            m.d.comb += self.clocks[name].eq(tick)


def of_commands(shape: LaneShape, commands: Iterable[Command], together: int) -> np.ndarray:
    """The words of commands, uint16, that begin when so many are there."""
    layout = command_layout(shape)
    return words_of_commands(layout, (layout.const(fields).as_bits() for fields in commands), together)


def answers(words: np.ndarray) -> list[int]:
    """The numbers that PEEKs were answered with."""
    wide = words.astype(np.int64).reshape(-1, 3) << np.array([0, 16, 32])
    found = wide.sum(axis=1) & ((1 << RESPONSE_BITS) - 1)
    return [int(x) - (1 << RESPONSE_BITS) * (int(x) >> RESPONSE_BITS - 1) for x in found]
