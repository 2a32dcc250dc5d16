"""Generated hardware as a part of a run: frames become messages, and messages frames again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from amphw.engine.lowering.lower import Lowered, Unit
from amphw.engine.parts.costs import NodeTime
from amphw.engine.parts.part import PartFrame, PartResult
from amphw.engine.policy import BACKWARD
from amphw.ir.device import Capabilities, DeviceOptions, Mode, Statistics
from amphw.ir.errors import DeviceLostError, ExecutionError, GraphError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import NodeParameters, UpdateRule
from amphw.rtl.build.boards import assumed
from amphw.rtl.build.circuit import CircuitError
from amphw.rtl.driver.active import Active
from amphw.rtl.driver.border import Sent
from amphw.rtl.driver.device import HardwareDevice
from amphw.rtl.driver.frames import Brought, positions, together
from amphw.rtl.driver.layout import Layout, rows_of, way
from amphw.rtl.plan.hardware import Sizes, hardware_plan
from amphw.rtl.timing.circuit import CircuitModel

DEPTH = 32
"""Frames at a time: so many that the device seldom waits for the host."""

Firing = tuple[int, int]
"""(unit on the device, firing)."""


@dataclass
class _Open:
    """A frame. results: arrays of each firing that is done, by its number in the frame."""

    frame: PartFrame
    results: dict[int, list[np.ndarray | None]] = field(default_factory=dict)


@dataclass
class _Work:
    """What crosses the border of one firing, which the device may have run before its frame comes.

    outputs, sent: rows that it has sent so far, by output, and the number of messages. answers: by output,
    (row or -1, whom to answer). given: (operand, position) of the messages that it was sent; returned: their
    gradients. frame, number: which frame waits for it, and as which of its firings.
    """

    outputs: dict[int, np.ndarray] = field(default_factory=dict)
    sent: int = 0
    answers: dict[int, list[tuple[int, Mapping[str, int]]]] = field(default_factory=dict)
    given: set[tuple[int, int]] = field(default_factory=set)
    returned: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)
    frame: _Open | None = None
    number: int = 0


@dataclass
class _Held:
    """An instance, and its firings."""

    firings: dict[Firing, _Work] = field(default_factory=dict)
    ended: bool = False
    idle_at: int = 0  # messages that the device had been sent when it last had nothing to do


class HardwarePart:
    """make: a fresh device, which this part then drives.

    The device joins for itself what its nodes send each other. It is sent what a frame brings from elsewhere,
    and a frame is done once what its firings send elsewhere has come.
    """

    depth = DEPTH
    joins = True
    """See `Joins`."""
    heard = 0.0
    """See `ShowsLife`."""

    def __init__(self, make: Callable[[], HardwareDevice]):
        self.make = make
        self.device = make()

    def capabilities(self) -> Capabilities:
        return self.device.capabilities()

    def refused(self, graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule]) -> str:
        built = self.device.built
        if built is not None and not any(name in graph.nodes for name in built):
            raise CircuitError(
                f"the circuit was built for another model: its nodes are {', '.join(built)}, of which this "
                "one has none"
            )
        if built is not None and unit.name not in built:
            return f"its circuit was built for {', '.join(built)} alone (amphw rtl --nodes)"
        return self.refused_together(graph, [unit], rules)

    def refused_together(self, graph: Graph, units: Sequence[Unit], rules: Mapping[str, UpdateRule]) -> str:
        """See `RefusesTogether`: parameters and programs share memories."""
        try:
            hardware_plan(graph, rules, self.device.formats, Sizes(), [u.name for u in units])
        except GraphError as error:
            return str(error)
        return ""

    def node_time(
        self, graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule], rows: Mapping[str, float]
    ) -> NodeTime | None:
        """See `TellsTime`: what the circuit takes for it (`timing.circuit`), one firing after another, at the
        clock of a board. A group counts as one message."""
        plan = hardware_plan(graph, rules, self.device.formats, Sizes(), [unit.name])
        circuit, clock = CircuitModel(plan), assumed().clock_hz
        counts = {space: max(1, round(rows[space])) for space, _ in unit.behaviour.spaces}
        needs = len(unit.operands)
        # The engines rest while the controller fetches and delivers: a part has seldom two firings at hand.
        forward, backward = (
            (
                circuit.firing(unit.name, back, counts, needs)
                + sum(circuit.control(unit.name, back, needs, 1, counts.get("rows", 1)))
            )
            / clock
            for back in (False, True)
        )
        update = circuit.update(unit.name) / clock if unit.owns else 0.0
        how = (
            f"cycles of a circuit of {plan.sizes.lanes} lanes at {clock / 1e6:g} MHz (assumed, as of the "
            f"{assumed().name}; simulated, it takes longer)"
        )
        return NodeTime(forward, backward, update, "modelled", how)

    def load(
        self,
        graph: Graph,
        lowered: Lowered,
        units: Sequence[Unit],
        rules: Mapping[str, UpdateRule],
        options: DeviceOptions,
    ) -> None:
        self.device = d = self.make()
        d.nodes, d.border = [u.name for u in units], _Crossing(self)
        d.load(graph, rules, options)
        self._unit = {u.index: d.plan.lowered.by_name[u.name] for u in units}
        self._outbound = {path.index for path in d.plan.partition.outbound}
        self._held: dict[int, _Held] = {}
        self._done: list[PartResult] = []
        self._at_work = 0  # firings on the device

    # --- instances --------------------------------------------------------------------------------

    def begin(self, slot: int, generation: int, instance: Instance, mode: Mode) -> bool:
        if self._leaving():
            self._turn()
        if not self.device.admit(slot, generation, instance, mode):
            return False
        self._held[slot] = _Held()
        return True

    def end(self, slot: int) -> None:
        self._held[slot].ended = True
        self._let_go(self.device.active[slot])

    def idle(self, a: Active) -> None:
        self._held[a.slot].idle_at = a.sent
        self._let_go(a)

    def _let_go(self, a: Active) -> None:
        """Free its memory once the device does nothing for it any more."""
        held = self._held[a.slot]
        through = a.unreturned == 0 if a.report.mode is Mode.TRAIN else held.idle_at == a.sent
        if held.ended and through:
            self.device.retire(a)

    # --- frames -----------------------------------------------------------------------------------

    def start(self, frame: PartFrame) -> None:
        opened, brought = _Open(frame), Brought(frame)
        u = self._unit[frame.unit]
        for number, (slot, at) in enumerate(zip(frame.slots.tolist(), frame.firings.tolist(), strict=True)):
            a = self.device.active[slot]
            work = self._held[slot].firings.setdefault((u, at), _Work())
            work.frame, work.number = opened, number
            self._at_work += 1
            if frame.kind == BACKWARD:
                self._answer(a, frame, number, work)
                self._backward_done(a, u, at, work)
            else:
                self._feed(a, u, at, work, brought)
                self._forward_done(a, u, at, work)

    def _feed(self, a: Active, u: int, at: int, work: _Work, brought: Brought) -> None:
        """Send the device what the frame brings for one firing."""
        for k, position, rows in brought.messages(a.layout, u, at):
            work.given.add((k, position))
            along = way(self.device.plan, a.layout, u, k, position)
            self.device.deliver(a, along.path, along.table, along.delivery, rows)

    def sent(self, a: Active, m: Sent) -> None:
        u = m.path.source
        work = self._held[a.slot].firings.setdefault((u, m.at), _Work())
        k = m.path.value
        if k not in work.outputs:
            work.outputs[k] = np.zeros(self._shape(a, u, m.at, k), np.float32)
        row = int(m.table.row[m.delivery])
        if row < 0:
            work.outputs[k][:] = m.values
        else:
            work.outputs[k][row] = m.values[0]
        work.sent += 1
        work.answers.setdefault(k, []).append((row, m.answer))
        self._forward_done(a, u, m.at, work)

    def _shape(self, a: Active, u: int, at: int, k: int) -> tuple[int, int]:
        """Of an output."""
        program = self.device.plan.lowered.units[u].behaviour.program
        assert program is not None
        t = program.outputs_types[k]
        return rows_of(a.layout.plan.units[u].spaces[t.space], at), t.width

    def _forward_done(self, a: Active, u: int, at: int, work: _Work) -> None:
        if work.frame is None:  # the engine has yet to count what the firing received
            return
        unit = self.device.plan.lowered.units[u]
        tables = zip(unit.out, a.layout.plan.units[u].paths, strict=True)
        leaves = sum(int(t.start[at + 1] - t.start[at]) for path, t in tables if path.index in self._outbound)
        if work.sent < leaves:
            return
        program = unit.behaviour.program
        assert program is not None
        self._finish(work, [work.outputs.get(k) for k in range(len(program.outputs_types))])

    def _answer(self, a: Active, frame: PartFrame, number: int, work: _Work) -> None:
        """The sum of what came back for an output, to one of its messages; to the others, nothing."""
        program = self.device.plan.lowered.units[self._unit[frame.unit]].behaviour.program
        assert program is not None
        for k, answers in work.answers.items():
            array = frame.arrays[k]
            assert array is not None
            gradient = frame.cut(array, program.outputs_types[k].space, number)
            whole = next((i for i, (row, _) in enumerate(answers) if row < 0), None)
            answered: set[int] = set()
            for i, (row, to) in enumerate(answers):
                if row < 0:
                    self.device.answer(a, to, gradient if i == whole else None)
                else:
                    mine = whole is None and row not in answered
                    answered.add(row)
                    self.device.answer(a, to, gradient[row : row + 1] if mine else None)

    def returned(self, a: Active, place: int, gradient: np.ndarray) -> None:
        u, k, at, position = _receiver(a.layout, place)
        work = self._held[a.slot].firings[u, at]
        work.returned[k, position] = gradient
        self._backward_done(a, u, at, work)
        self._let_go(a)

    def _backward_done(self, a: Active, u: int, at: int, work: _Work) -> None:
        if work.frame is None or work.frame.frame.kind != BACKWARD or len(work.returned) < len(work.given):
            return
        unit = self.device.plan.lowered.units[u]
        values: list[np.ndarray | None] = []
        for k, o in enumerate(unit.operands):
            wanted = o.needs_gradient and unit.derivative is not None and k in unit.derivative.wrt
            if not wanted or all(operand != k for operand, _ in work.given):
                values.append(None)
                continue
            first, count = positions(a.layout, u, k, at)
            each = rows_of(a.layout.plan.units[u].rows[k], at)
            whole = np.zeros((count, each, o.width), np.float32)
            for (operand, position), words in work.returned.items():
                if operand == k and words.size:
                    real = self.device.formats.gradient.real(words)
                    whole[position - first] = real.reshape(each, o.width)
            values.append(whole.reshape(count * each, o.width))
        del self._held[a.slot].firings[u, at]
        self._finish(work, values)

    def _finish(self, work: _Work, values: list[np.ndarray | None]) -> None:
        opened = work.frame
        assert opened is not None
        opened.results[work.number] = values
        work.frame = None
        self._at_work -= 1
        if len(opened.results) == len(opened.frame.slots):
            unit = self.device.plan.lowered.units[self._unit[opened.frame.unit]]
            self._done.append(together(unit, opened.frame, opened.results))

    def finished(self, timeout: float) -> list[PartResult]:
        end = time.perf_counter() + timeout
        while not self._done and (self._at_work or self._leaving()):
            self._turn()
            if time.perf_counter() > end:
                break
        done, self._done = self._done, []
        return done

    def _leaving(self) -> bool:
        """Whether the device has yet to say that it is done with an instance."""
        return any(self._held[slot].ended for slot in self.device.active)

    def _turn(self) -> None:
        with lost_if_stuck():
            if self.device.turn():
                self.heard = time.perf_counter()

    # --- the rest ---------------------------------------------------------------------------------

    def update(self, nodes: Sequence[str]) -> None:
        with lost_if_stuck():
            self.device.update(nodes)

    def parameters(self) -> dict[str, NodeParameters]:
        while self._leaving():
            self._turn()
        with lost_if_stuck():
            return self.device.parameters()

    def statistics(self) -> Statistics:
        return self.device.statistics()

    def close(self) -> None:
        self.device.close()


@contextmanager
def lost_if_stuck() -> Iterator[None]:
    """To a run on several devices, a circuit that is silent or drops messages is lost: DeviceLostError."""
    try:
        yield
    except ExecutionError as error:
        raise DeviceLostError(str(error)) from error


@dataclass
class _Crossing:
    """The device's border, which the part is."""

    part: HardwarePart

    def prepare(self) -> None:
        """The part has nothing of its own on the host."""

    def begin(self, a: Active) -> None:
        """Frames bring what it is sent."""

    def sent(self, a: Active, message: Sent) -> None:
        self.part.sent(a, message)

    def returned(self, a: Active, place: int, gradient: np.ndarray) -> None:
        self.part.returned(a, place, gradient)

    def idle(self, a: Active) -> None:
        self.part.idle(a)


def _receiver(layout: Layout, place: int) -> tuple[int, int, int, int]:
    """(unit, operand, firing, position) of a place."""
    for (u, k), first in layout.operands.items():
        table = layout.plan.units[u]
        members, position = table.members[k], place - first
        if not 0 <= position < (table.space.size if members is None else int(members[-1])):
            continue
        at = position if members is None else int(np.searchsorted(members, position, side="right")) - 1
        return u, k, at, position
    raise ExecutionError(f"the device returned a message to place {place}, which is nobody's")
