"""What a hardware part did, repeated on the model of its arithmetic: the same firings, the same updates."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from amphw.engine.lowering.lower import Unit
from amphw.engine.lowering.plan import Plan, Planner, integers
from amphw.engine.parts.kernel import KernelPart
from amphw.engine.parts.part import PartFrame, PartResult
from amphw.engine.policy import BACKWARD, INFER, KINDS
from amphw.ir.device import Mode
from amphw.ir.instance import Instance
from amphw.ir.service_log import SUM
from amphw.rtl.driver.device import HardwareDevice
from amphw.rtl.driver.frames import Brought, positions, together
from amphw.rtl.driver.layout import Layout, path_table, rows_of
from amphw.rtl.fixed.device import FixedDevice
from amphw.rtl.plan.hardware import HardwarePlan

Sender = tuple[int, int, int, int]
"""(unit, firing, output, row or -1) of a message."""


@dataclass
class _Waiting:
    """A frame that the engine waits for. results: of its firings, by their numbers."""

    frame: PartFrame
    results: dict[int, Sequence[np.ndarray | None]] = field(default_factory=dict)


@dataclass
class _Firing:
    """received: the operands' rows by (operand, position); given: those of them that frames brought; senders:
    of the others. returned: (gradient, row or -1) for each output, from nodes of the part; answered: what a
    frame brought of them. done: what the kernels made, by kind. wanted: frames that wait for that.
    """

    received: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)
    given: set[tuple[int, int]] = field(default_factory=set)
    senders: dict[tuple[int, int], Sender] = field(default_factory=dict)
    returned: dict[int, list[tuple[np.ndarray, int]]] = field(default_factory=dict)
    answered: list[np.ndarray | None] | None = None
    done: dict[int, PartResult] = field(default_factory=dict)
    wanted: dict[int, tuple[_Waiting, int]] = field(default_factory=dict)


@dataclass
class _Held:
    """An instance. integers: operands of each unit, as `lowering.plan.integers` gives them."""

    instance: Instance
    layout: Layout
    integers: dict[int, list[tuple[np.ndarray, np.ndarray]]] = field(default_factory=dict)
    firings: dict[tuple[int, int], _Firing] = field(default_factory=dict)


class ReplayedPart(KernelPart):
    """Computes firing by firing in the order of `log`, which a `HardwareDevice` kept, and updates as it did.

    formats, plan: of the hardware. It joins as the hardware did. A firing is computed when its turn has come
    and what the engine brings for it is there; a frame that sends nothing elsewhere is done at once.
    """

    depth = 1 << 30
    joins = True

    def __init__(self, formats: str, plan: HardwarePlan, log: Sequence[tuple[Any, ...]]):
        device = FixedDevice(formats)
        super().__init__(device.capabilities(), device._chosen)
        self._plan = plan
        self._planner: Planner[Plan] = Planner(plan.lowered, lambda p: p)
        self._log = deque(event for event in log if event[0] in ("start", "seal", "retire"))

    def load(self, graph: Any, lowered: Any, units: Sequence[Unit], rules: Any, options: Any) -> None:
        super().load(graph, lowered, units, rules, options)
        self._self_updating = False
        numbers = self._plan.lowered.by_name
        self._here = {u.index: numbers[u.name] for u in units}  # as the hardware numbers them
        self._there = {numbers[u.name]: u for u in units}
        self._owners = {log.node: log for log in self._logs.values()}
        self._slots: dict[tuple[int, str], int] = {}
        self._held: dict[int, _Held] = {}  # by slot
        self._whole: list[PartResult] = []

    def begin(self, slot: int, generation: int, instance: Instance, mode: Mode) -> bool:
        self._go_on()  # of the slot's last instance nothing is left
        self._slots[instance.number, mode.value] = slot
        self._held[slot] = _Held(instance, Layout(self._planner.plan(instance)))
        return super().begin(slot, generation, instance, mode)

    def end(self, slot: int) -> None:
        """The engine has all that it waits for; what nobody waits for may be yet to come."""

    # --- frames -----------------------------------------------------------------------------------

    def start(self, frame: PartFrame) -> None:
        waiting, brought = _Waiting(frame), Brought(frame)
        u = self._here[frame.unit]
        for i, (slot, at) in enumerate(zip(frame.slots.tolist(), frame.firings.tolist(), strict=True)):
            held = self._held[slot]
            firing = held.firings.setdefault((u, at), _Firing())
            if frame.kind == BACKWARD:
                firing.answered = self._cut(frame, i)
                leaves = bool(firing.given)
            else:
                for k, position, rows in brought.messages(held.layout, u, at):
                    firing.received[k, position] = rows
                    firing.given.add((k, position))
                leaves = any(True for _ in self._sent(held, u, at, within=False))
            if not leaves:
                waiting.results[i] = self._nothing(u, frame.kind)
            elif frame.kind in firing.done:
                waiting.results[i] = firing.done[frame.kind].arrays
            else:
                firing.wanted[frame.kind] = waiting, i
        self._close(waiting)

    def _nothing(self, u: int, kind: int) -> list[np.ndarray | None]:
        program = self._there[u].behaviour.program
        assert program is not None
        return [None] * len(self._there[u].operands if kind == BACKWARD else program.outputs_types)

    def _cut(self, frame: PartFrame, i: int) -> list[np.ndarray | None]:
        program = self._there[self._here[frame.unit]].behaviour.program
        assert program is not None
        spaces = [t.space for t in program.outputs_types]
        return [None if a is None else frame.cut(a, s, i) for a, s in zip(frame.arrays, spaces, strict=True)]

    def _sent(self, held: _Held, u: int, at: int, within: bool) -> Any:
        """(path, target's firing, position, row) of each message to nodes of the part, or else to others."""
        for path in self._plan.lowered.units[u].out:
            if (path.target in self._there) != within:
                continue
            table = path_table(self._plan, held.layout.plan, path)
            for k in range(int(table.start[at]), int(table.start[at + 1])):
                yield path, int(table.firing[k]), int(table.position[k]), int(table.row[k])

    def finished(self, timeout: float) -> list[PartResult]:
        self._go_on()
        done, self._whole = self._whole, []
        return done

    def _go_on(self) -> None:
        """What the log goes on with, as far as there is what it takes."""
        while self._log:
            if self._log[0][0] == "seal":
                _, node, cause = self._log.popleft()
                self._reduce(self._owners[node], cause != SUM)
                continue
            if self._log[0][0] == "retire":
                self._slots.pop(self._log.popleft()[1:], None)
                continue
            _, _, name, kind_name, ((number, mode, state),) = self._log[0]
            u, kind = self._plan.lowered.by_name[name], KINDS.index(kind_name)
            slot = self._slots.get((number, mode), -1)
            if slot < 0:
                return
            held = self._held[slot]
            at = held.layout.plan.units[u].space.address_of(state)
            firing = held.firings.setdefault((u, at), _Firing())
            if not self._ready(held, u, at, kind, firing):
                return
            self._log.popleft()
            self._compute(held, slot, u, at, kind, firing)

    def _ready(self, held: _Held, u: int, at: int, kind: int, firing: _Firing) -> bool:
        if kind != BACKWARD:
            return len(firing.received) == int(held.layout.plan.units[u].need[at])
        return firing.answered is not None or not any(True for _ in self._sent(held, u, at, within=False))

    def _compute(self, held: _Held, slot: int, u: int, at: int, kind: int, firing: _Firing) -> None:
        table = held.layout.plan.units[u]
        if u not in held.integers:
            held.integers[u] = integers(self._plan.lowered.units[u], table, held.instance)[0]
        one = PartFrame(
            0,
            self._there[u].index,
            kind,
            np.array([slot], np.int32),
            np.array([at], np.int32),
            {space: np.array([rows_of(rows, at)], np.int32) for space, rows in table.spaces.items()},
            self._returned(table.spaces, u, at, firing)
            if kind == BACKWARD
            else self._operands(held, u, at, firing),
            [values[starts[at] : starts[at + 1]] for values, starts in held.integers[u]],
        )
        super().start(one)
        (result,) = super().finished(0.0)
        if kind == BACKWARD:
            self._return(held, u, at, firing, result)
        else:
            self._send(held, u, at, result, keeps=kind != INFER)
        firing.done[kind] = result
        if kind in firing.wanted:
            waiting, i = firing.wanted.pop(kind)
            waiting.results[i] = result.arrays
            self._close(waiting)

    def _close(self, waiting: _Waiting) -> None:
        if len(waiting.results) == len(waiting.frame.slots):
            unit = self._there[self._here[waiting.frame.unit]]
            self._whole.append(together(unit, waiting.frame, waiting.results))

    # --- rows -------------------------------------------------------------------------------------

    def _operands(self, held: _Held, u: int, at: int, firing: _Firing) -> list[np.ndarray | None]:
        out: list[np.ndarray | None] = []
        for k, o in enumerate(self._there[u].operands):
            first, count = positions(held.layout, u, k, at)
            parts = [firing.received[k, position] for position in range(first, first + count)]
            out.append(np.concatenate(parts) if parts else np.zeros((0, o.width), np.float32))
        return out

    def _send(self, held: _Held, u: int, at: int, result: PartResult, keeps: bool) -> None:
        for path, target, position, row in self._sent(held, u, at, within=True):
            made = result.arrays[path.value]
            assert made is not None
            receiver = held.firings.setdefault((path.target, target), _Firing())
            receiver.received[path.operand, position] = made if row < 0 else made[row : row + 1]
            if keeps:
                receiver.senders[path.operand, position] = u, at, path.value, row

    def _returned(
        self, spaces: Mapping[str, Any], u: int, at: int, firing: _Firing
    ) -> list[np.ndarray | None]:
        """What came back for each output, summed: whole numbers of the format's steps, so in any order."""
        program = self._there[u].behaviour.program
        assert program is not None
        out: list[np.ndarray | None] = []
        for k, t in enumerate(program.outputs_types):
            if t.kind == "int":
                out.append(None)
                continue
            total = np.zeros((rows_of(spaces[t.space], at), t.width))
            answered = firing.answered[k] if firing.answered is not None else None
            if answered is not None:
                sent = self.arithmetic.to_payload(answered, "gradient")  # one message, which saturates
                total += self.arithmetic.to_float(sent, "gradient")
            for gradient, row in firing.returned.get(k, ()):
                total[slice(None) if row < 0 else slice(row, row + 1)] += gradient
            out.append(total.astype(np.float32))
        return out

    def _return(self, held: _Held, u: int, at: int, firing: _Firing, result: PartResult) -> None:
        for (k, position), (sender, sent_at, output, row) in firing.senders.items():
            gradient = result.arrays[k]
            if gradient is None:
                continue
            each = rows_of(held.layout.plan.units[u].rows[k], at)
            i = position - positions(held.layout, u, k, at)[0]
            to = held.firings[sender, sent_at].returned.setdefault(output, [])
            to.append((gradient[i * each : (i + 1) * each], row))


class ReplayedDevice(FixedDevice):
    """Takes the place of a device of hardware in the replay of a run: its part repeats what that one did.

    formats: as the hardware was given them; hardware: it has run, with its log kept.
    """

    def __init__(self, formats: str, hardware: HardwareDevice):
        super().__init__(formats)
        self._text, self._plan, self._done = formats, hardware.plan, list(hardware.log)

    def part(self) -> ReplayedPart:
        return ReplayedPart(self._text, self._plan, self._done)
