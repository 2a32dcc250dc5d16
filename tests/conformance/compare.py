"""Where the CPU device first departs from the reference: one instance, message by message.

Both run the same graph (fused, where the device fuses) with updates off, so that their nodes and firings
coincide. What differs is reported in the order in which the reference computes, so the first one is where the
fault lies, or just behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amphw.cpu_runtime.device import CpuDevice
from amphw.engine.lowering.lower import Lowered, Unit
from amphw.ir.device import DeviceOptions, Direction, Mode
from amphw.ir.graph import Graph
from amphw.ir.in_flight import Firing
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice
from amphw.ir.state import KeySpace
from amphw.ir.update import UpdateRule

TOLERANCE = 1e-4
"""Allowed difference, relative to the largest value that the node computes there for the instance."""

Key = tuple[Direction, int, tuple[int, ...]]  # (direction, unit, firing state)
Values = Sequence[np.ndarray | None]


@dataclass(frozen=True)
class Difference:
    """One value, or one firing, that is not as the reference has it.

    what: the output or operand, "" for a firing that only one of the two has. at: (row, column).
    """

    instance: int
    node: str
    direction: Direction
    state: dict[str, int]
    what: str
    at: tuple[int, int]
    found: str
    expected: str

    def __str__(self) -> str:
        state = ", ".join(f"{name}={value}" for name, value in self.state.items())
        place = f", {self.what}, row {self.at[0]}, column {self.at[1]}" if self.what else ""
        return (
            f"instance {self.instance}: node '{self.node}', {self.direction.value}, state ({state}){place}: "
            f"{self.found}, the reference has {self.expected}"
        )


def first_difference(
    device: CpuDevice,
    graph: Graph,
    instance: Instance,
    *,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    tolerance: float = TOLERANCE,
) -> Difference | None:
    """Load the graph, train on the instance without updates, and compare; closes the device.

    seed: of the initial parameters. settings: the device's. None where nothing differs.
    """
    given = {**(settings or {}), "observe": True}
    device.load(graph, {"*": UpdateRule()}, DeviceOptions(1, 1, "off", seed, False, given))
    try:
        device.submit(0, 0, instance, Mode.TRAIN)
        device.drain()
        found = _of_device(device, instance)
    finally:
        device.close()
    precision = {k: v for k, v in given.items() if k == "precision"}
    expected = _of_reference(device.lowered, instance, seed, precision)
    return _compared(device.lowered, instance, found, expected, tolerance)


def _of_device(device: CpuDevice, instance: Instance) -> dict[Key, Values]:
    states: dict[int, list[tuple[int, ...]]] = {}
    out: dict[Key, Values] = {}
    for unit, direction, firing, values in device.plane.observed(0):
        if unit not in states:
            states[unit] = _states(device.lowered.units[unit], instance)
        out[(direction, unit, states[unit][firing])] = values
    return out


def _states(unit: Unit, instance: Instance) -> list[tuple[int, ...]]:
    """The unit's states by firing address."""
    space = KeySpace(unit.behaviour.state, instance)
    return [tuple(int(space.columns[n][i]) for n in unit.behaviour.state.names) for i in range(space.size)]


def _of_reference(
    lowered: Lowered, instance: Instance, seed: int, settings: Mapping[str, Any]
) -> dict[Key, Values]:
    """In float64, in the order in which it computes."""
    out: dict[Key, Values] = {}

    def note(direction: Direction, firing: Firing, values: Sequence[np.ndarray]) -> None:
        node, _, state = firing
        out[(direction, lowered.by_name[node], state)] = [v.copy() for v in values]

    reference = ReferenceDevice(dtype=np.float64)
    reference.probe = note
    reference.load(lowered.graph, {"*": UpdateRule()}, DeviceOptions(1, 1, "off", seed, settings=settings))
    reference.submit(0, 0, instance, Mode.TRAIN)
    reference.drain()
    return out


def _compared(
    lowered: Lowered,
    instance: Instance,
    found: dict[Key, Values],
    expected: dict[Key, Values],
    tolerance: float,
) -> Difference | None:
    largest: dict[tuple[Direction, int, int], float] = {}
    for (direction, number, _), values in expected.items():
        for k, v in enumerate(values):
            if v is not None and v.size:
                at = (direction, number, k)
                largest[at] = max(largest.get(at, 0.0), float(np.abs(v).max()))

    def difference(key: Key, what: str, at: tuple[int, int], found: str, expected: str) -> Difference:
        direction, number, state = key
        unit = lowered.units[number]
        named = dict(zip(unit.behaviour.state.names, state, strict=True))
        return Difference(instance.number, unit.name, direction, named, what, at, found, expected)

    for key, wanted in expected.items():
        direction, number, _ = key
        unit = lowered.units[number]
        if key not in found:
            if direction is Direction.BACKWARD and not any(o.needs_gradient for o in unit.operands):
                continue  # nothing upstream learns
            return difference(key, "", (0, 0), "does not run", "a firing")
        for k, (theirs, ours) in enumerate(zip(wanted, found[key], strict=False)):
            if ours is None or theirs is None or ours.dtype.kind != "f":
                continue
            what = _what(unit, direction, k)
            if ours.shape != theirs.shape:
                return difference(key, what, (0, 0), f"shape {ours.shape}", f"shape {theirs.shape}")
            limit = tolerance * max(largest.get((direction, number, k), 0.0), 1e-30)
            wrong = np.argwhere(~(np.abs(ours - theirs) <= limit))
            if len(wrong):
                row, column = (int(i) for i in wrong[0])
                numbers = f"{ours[row, column]:.8g}", f"{theirs[row, column]:.8g}"
                return difference(key, what, (row, column), *numbers)
    for key in found:
        if key not in expected:
            return difference(key, "", (0, 0), "runs", "no such firing")
    return None


def _what(unit: Unit, direction: Direction, k: int) -> str:
    if direction is Direction.FORWARD:
        return f"output {k}"
    return f"gradient of operand '{unit.operands[k].port}'"
