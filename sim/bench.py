"""What runs inside the simulator: a clock, agents at the component's ports, and a report of what was seen.

Time is one loop. After each rising edge every agent sets its signals for the cycle; in the middle of the
cycle, when all has settled, every agent looks at what the next edge will do. So nothing depends on the order
in which a simulator runs callbacks at an edge.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from sim.runner import REPORT, SETTINGS

Pace = Callable[[], bool]
"""Asked once a cycle: does the agent offer, or take, in this one?"""


def settings() -> dict[str, Any]:
    """The component's parameters, from `run_bench`."""
    result: dict[str, Any] = json.loads(os.environ[SETTINGS])
    return result


def counted(what: str, number: int) -> None:
    """Add to what the bench reports to have tried."""
    _report["counts"][what] = _report["counts"].get(what, 0) + number
    _write_report()


def generator() -> np.random.Generator:
    """Random numbers that follow from the bench's seed."""
    return np.random.default_rng(random.getrandbits(32))


def always() -> bool:
    return True


def never() -> bool:
    return False


def sometimes(probability: float) -> Pace:
    """In each cycle with this probability."""
    return lambda: random.random() < probability


def bursts(longest: int) -> Pace:
    """Some cycles on, some cycles off, up to so many each: fills and empties whatever stands behind."""
    left, on = 0, False

    def pace() -> bool:
        nonlocal left, on
        if left == 0:
            left, on = random.randint(1, longest), not on
        left -= 1
        return on

    return pace


PACES: dict[str, Callable[[], Pace]] = {
    "always": lambda: always,
    "half": lambda: sometimes(0.5),
    "rarely": lambda: sometimes(0.1),
    "bursts": lambda: bursts(12),
}


class Agent(Protocol):
    """Stands at some ports of the component."""

    def drive(self) -> None:
        """Set signals, after an edge."""

    def sample(self) -> None:
        """Look at signals, before the next one."""

    def restart(self) -> None:
        """The component is being reset: forget what was on its way."""


class Bench:
    """A component under test and the agents at its ports."""

    def __init__(self, dut: Any, *agents: Agent) -> None:
        self.dut, self.agents = dut, agents
        self.cycles = 0
        self._states = _States(dut)

    async def start(self) -> None:
        """Start the clock, and reset."""
        Clock(self.dut.clk, 10, unit="ns").start()
        await self.reset()

    async def reset(self, cycles: int = 2) -> None:
        """Reset now, whatever is on its way; agents hold still meanwhile."""
        self.dut.rst.value = 1
        for agent in self.agents:
            agent.restart()
        for _ in range(cycles):
            await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0

    async def step(self, cycles: int = 1) -> None:
        for _ in range(cycles):
            for agent in self.agents:
                agent.drive()
            await FallingEdge(self.dut.clk)
            for agent in self.agents:
                agent.sample()
            self._states.sample()
            await RisingEdge(self.dut.clk)
            self.cycles += 1

    async def until(self, condition: Callable[[], bool], limit: int, what: str) -> None:
        """Step until the condition holds; after the limit an AssertionError says `what` was waited for."""
        for _ in range(limit):
            if condition():
                return
            await self.step()
        raise AssertionError(f"after {limit} cycles still waiting: {what}")


_report: dict[str, dict[str, Any]] = {"counts": {}, "states": {}}
"""Of all tests of this bench."""


def _write_report() -> None:
    Path(REPORT).write_text(json.dumps(_report))


class _States:
    """Collects the values of the state machines' signals over all tests of a bench."""

    def __init__(self, dut: Any) -> None:
        self.signals = []
        for path in settings()["state_machines"]:
            handle = dut.design
            for name in path.split("."):
                handle = handle[name]
            self.signals.append((handle, _report["states"].setdefault(path, [])))

    def sample(self) -> None:
        for signal, seen in self.signals:
            value = int(signal.value)
            if value not in seen:
                seen.append(value)
                _write_report()


def log(message: str) -> None:
    cocotb.log.info(message)
