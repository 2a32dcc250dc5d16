"""What a hardware part did, repeated on the model of its arithmetic: the same firings, the same updates."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from amphw.engine.lowering.lower import Unit
from amphw.engine.lowering.plan import Plan, Planner
from amphw.engine.parts.kernel import KernelPart
from amphw.engine.parts.part import PartFrame, PartResult
from amphw.engine.policy import BACKWARD, FORWARD, KINDS
from amphw.ir.device import Mode
from amphw.ir.instance import Instance
from amphw.ir.service_log import SUM
from amphw.rtl.driver.device import HardwareDevice
from amphw.rtl.fixed.device import FixedDevice
from amphw.rtl.plan.hardware import HardwarePlan


@dataclass
class _Open:
    frame: PartFrame
    results: dict[int, PartResult] = field(default_factory=dict)


class ReplayedPart(KernelPart):
    """Computes firing by firing in the order of `log`, which a `HardwareDevice` kept, and updates as it did.

    formats, plan: of the hardware. What it is handed waits until its turn comes. A firing that sent nothing
    goes backward at once on the hardware, before it is handed over: its result then waits.
    """

    depth = 1 << 30

    def __init__(self, formats: str, plan: HardwarePlan, log: Sequence[tuple[Any, ...]]):
        device = FixedDevice(formats)
        super().__init__(device.capabilities(), device._chosen)
        self._names = [u.name for u in plan.lowered.units]
        self._planner: Planner[Plan] = Planner(plan.lowered, lambda p: p)
        self._log = deque(event for event in log if event[0] in ("start", "seal"))

    def load(self, graph: Any, lowered: Any, units: Sequence[Unit], rules: Any, options: Any) -> None:
        super().load(graph, lowered, units, rules, options)
        self._self_updating = False
        self._by_name = {u.name: u for u in units}
        self._owners = {log.node: log for log in self._logs.values()}
        self._slots: dict[tuple[int, str], int] = {}
        self._handed: dict[tuple[int, int, int, int], tuple[_Open, int]] = {}  # unit, kind, slot, firing
        self._plans: dict[int, Plan] = {}  # by slot
        self._went: dict[tuple[int, int, int], PartFrame] = {}  # forward, by unit, slot and firing
        self._early: dict[tuple[int, int, int], PartResult] = {}
        self._whole: list[PartResult] = []

    def begin(self, slot: int, generation: int, instance: Instance, mode: Mode) -> bool:
        self._slots[instance.number, mode.value] = slot
        self._plans[slot] = self._planner.plan(instance)
        return super().begin(slot, generation, instance, mode)

    def start(self, frame: PartFrame) -> None:
        opened = _Open(frame)
        for i, (slot, firing) in enumerate(zip(frame.slots.tolist(), frame.firings.tolist(), strict=True)):
            early = self._early.pop((frame.unit, slot, firing), None) if frame.kind == BACKWARD else None
            if early is None:
                self._handed[frame.unit, frame.kind, slot, firing] = opened, i
            else:
                opened.results[i] = early
        self._close(opened)

    def finished(self, timeout: float) -> list[PartResult]:
        """What the log goes on with, as far as it has been handed over."""
        while self._log:
            if self._log[0][0] == "seal":
                _, node, cause = self._log.popleft()
                self._reduce(self._owners[node], cause != SUM)
                continue
            _, _, name, kind_name, ((number, mode, state),) = self._log[0]
            u, kind = self._by_name[name], KINDS.index(kind_name)
            slot = self._slots.get((number, mode), -1)
            if slot not in self._plans:
                break
            unit = self._names.index(name)
            firing = self._plans[slot].units[unit].space.address_of(state)
            if (u.index, kind, slot, firing) in self._handed:
                opened, i = self._handed.pop((u.index, kind, slot, firing))
                one = _one(u, opened.frame, i)
                if kind == FORWARD:
                    self._went[u.index, slot, firing] = one
                opened.results[i] = self._computed(one)
                self._close(opened)
            elif kind == BACKWARD and self._sent_nothing(unit, slot, firing):
                went = self._went[u.index, slot, firing]
                self._early[u.index, slot, firing] = self._computed(_nothing_came(u, went))
            else:
                break
            self._log.popleft()
        done, self._whole = self._whole, []
        return done

    def _computed(self, one: PartFrame) -> PartResult:
        super().start(one)
        (result,) = super().finished(0.0)
        return result

    def _close(self, opened: _Open) -> None:
        if len(opened.results) == len(opened.frame.slots):
            self._whole.append(_joined(opened))

    def _sent_nothing(self, unit: int, slot: int, firing: int) -> bool:
        """unit: as the hardware numbers it."""
        paths = self._plans[slot].units[unit].paths
        return all(t.start[firing] == t.start[firing + 1] for t in paths)


def _one(unit: Unit, frame: PartFrame, i: int) -> PartFrame:
    """One firing of a frame as a frame of its own."""
    program = unit.behaviour.program
    assert program is not None
    backward = frame.kind == BACKWARD
    spaces = [t.space for t in program.outputs_types] if backward else [o.space for o in unit.operands]

    return PartFrame(
        frame.number,
        frame.unit,
        frame.kind,
        frame.slots[i : i + 1],
        frame.firings[i : i + 1],
        {space: rows[i : i + 1] for space, rows in frame.rows.items()},
        [None if a is None else frame.cut(a, s, i) for a, s in zip(frame.arrays, spaces, strict=True)],
        [frame.cut(a, space, i) for a, (_, space) in zip(frame.ints, program.ints, strict=True)],
    )


def _nothing_came(unit: Unit, went: PartFrame) -> PartFrame:
    """The backward frame of a firing that nobody answers."""
    program = unit.behaviour.program
    assert program is not None
    arrays = [
        None if t.kind == "int" else np.zeros((went.totals[t.space], t.width), np.float32)
        for t in program.outputs_types
    ]
    return replace(went, kind=BACKWARD, arrays=arrays)


def _joined(opened: _Open) -> PartResult:
    each = [opened.results[i] for i in range(len(opened.results))]
    arrays: list[np.ndarray | None] = []
    for k in range(len(each[0].arrays)):
        found = [a for r in each if (a := r.arrays[k]) is not None]
        arrays.append(np.concatenate(found) if found else None)
    return PartResult(opened.frame.number, arrays)


class ReplayedDevice(FixedDevice):
    """Takes the place of a device of hardware in the replay of a run: its part repeats what that one did.

    formats: as the hardware was given them; hardware: it has run, with its log kept.
    """

    def __init__(self, formats: str, hardware: HardwareDevice):
        super().__init__(formats)
        self._text, self._plan, self._done = formats, hardware.plan, list(hardware.log)

    def part(self) -> ReplayedPart:
        return ReplayedPart(self._text, self._plan, self._done)
