"""What becomes of messages: joins, decisions, returns, reports and retirement, as a plain state machine.

Nothing here knows of threads. The data plane calls it with its lock held; a replay calls it from a log. Every
operand of a submitted instance has its place from the start (the reservation rule), so a unit always accepts
and nothing can deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from amphw.engine import faults
from amphw.engine.lowering.lower import Lowered, Unit, choices
from amphw.engine.numpy_plane.arithmetic import Arithmetic
from amphw.engine.numpy_plane.float32 import FLOAT32, Float32
from amphw.engine.numpy_plane.frames import (
    Frame,
    Task,
    UnitCode,
    count_staleness,
    forward_record,
    plain_operands,
    staleness_of,
    starts_of,
)
from amphw.engine.numpy_plane.gradients import GradientLog
from amphw.engine.numpy_plane.slots import DONE, FAULT, Origin, Route, Slot
from amphw.engine.policy import BACKWARD, FORWARD, INFER, KINDS, Queue
from amphw.ir.device import Mode, Report, Statistics
from amphw.ir.errors import NonFiniteError
from amphw.ir.service_log import COUNTS_ENDED
from amphw.ir.update import NodeParameters


class Delivery:
    """The instances in flight and the queues of firings that are ready.

    waits: whether instances whose gradients complete an interval retire only once the update is published.
    log: the service order, or None. replaying: nothing is queued, since the log says what runs next. held:
    the parameters of each unit that has some.
    """

    def __init__(
        self,
        lowered: Lowered,
        params: dict[str, NodeParameters],
        *,
        by_age: bool,
        waits: bool,
        log: list[Any] | None,
        arithmetic: Arithmetic = FLOAT32,
    ):
        self.lowered, self.params, self.waits, self.log = lowered, params, waits, log
        if log is not None:
            log.append(COUNTS_ENDED)
        self.replaying = False
        self.arithmetic = arithmetic
        self._sources = [u for u in lowered.units if u.behaviour.is_source]
        self._source = [u.behaviour.is_source for u in lowered.units]
        # Among floats there is nothing to tell apart.
        self._plain = frozenset() if isinstance(arithmetic, Float32) else plain_operands(lowered)
        self.code = {
            u.index: UnitCode(u, arithmetic, self._plain) for u in lowered.units if not u.behaviour.is_source
        }
        self.held = {
            u.index: self.code[u.index].arithmetic.parameters(u, params[u.name])
            for u in lowered.units
            if u.name in params
        }
        self.logs = {
            u.index: GradientLog(self.held[u.index])
            for u in lowered.units
            if u.owns and u.derivative is not None
        }
        self.queues = [[Queue(u.index, kind, u.depth, by_age) for kind in range(3)] for u in lowered.units]
        self.slots: dict[int, Slot] = {}
        self.done: list[Report] = []
        self.stats = Statistics()
        self._frames = 0
        self._arrivals = 0
        self._submitted = 0

    # --- in and out -------------------------------------------------------------------------------

    def admit(self, slot: Slot) -> None:
        """Put an instance into its slot and pump its sources."""
        self.slots[slot.index] = slot
        self._submitted += 1
        slot.age = self._submitted
        if self.log is not None:
            self.log.append(("submit", slot.instance.number, slot.mode.value))
        slot.outstanding = 1
        for unit in self._sources:
            self._pump(slot, unit)
        self.settle(slot, 1)

    def _pump(self, slot: Slot, unit: Unit) -> None:
        plan = slot.plan.units[unit.index]
        routes = plan.routes[0]
        if plan.faults:
            self._deliver(slot, routes[0], np.zeros((0, 0), self.arithmetic.dtype), (unit.index, 0, 0))
        slot.outstanding += len(routes)
        if slot.mode is Mode.TRAIN:
            self.stats.forward += len(routes)
        name = unit.behaviour.emits[0].data
        given = np.asarray(slot.instance.data[name], dtype=np.float32) if name is not None else None
        converted = self.arithmetic.to_payload(given, "value") if given is not None else None
        own, plain = self.arithmetic.dtype, self._plain
        for k, (route, (first, rows)) in enumerate(zip(routes, plan.first, strict=True)):
            data, dtype = converted, own
            if plain and route[:2] in plain:
                data, dtype = given, FLOAT32.dtype
            payload = np.zeros((rows, 0), dtype) if data is None else data[first : first + rows]
            row = route[4]
            if row >= 0:
                payload = payload[row : row + 1]
            self._deliver(slot, route, payload, (unit.index, 0, k))

    def settle(self, slot: Slot, n: int) -> None:
        """`n` of the slot's messages are accounted for; an instance without any left retires."""
        slot.outstanding -= n
        if slot.outstanding:
            return
        for (node, label), parts in slot.parts.items():
            parts.sort(key=lambda item: item[0])
            slot.report.outputs.setdefault(node, {})[label] = np.concatenate([v for _, v in parts])
        del self.slots[slot.index]
        if self.log is not None:
            self.log.append(("retire", slot.instance.number, slot.mode.value))
        self.done.append(slot.report)
        self.retired()

    def retired(self) -> None:
        """An instance has retired; for whoever wants to know."""

    # --- frames -----------------------------------------------------------------------------------

    def begin(self, unit: int, kind: int, tasks: list[Task]) -> Frame:
        """A frame of these firings, which uses the current version of the parameters."""
        self._frames += 1
        self.stats.frames += 1
        code = self.code[unit]
        for slot, at, _ in tasks:
            if at in slot.units[unit].faulty:
                raise faults.unreadable(code.unit, slot.instance, at)
        held = self.held.get(unit)
        if held is None:
            frame = Frame(self._frames, code, kind, tasks, {}, 0)
        else:
            frame = Frame(self._frames, code, kind, tasks, held.values, held.params.version)
        if self.log is not None:
            firings = tuple(
                (slot.instance.number, slot.mode.value, slot.plan.tables.units[unit].space.state(at))
                for slot, at, _ in tasks
            )
            self.log.append(("start", frame.number, code.unit.name, KINDS[kind], firings))
        return frame

    def origin(self, frame: Frame) -> int | None:
        """Number of the frame that produced the first operand, for a trace's arrows."""
        unit = frame.unit
        if frame.kind != FORWARD or not unit.operands:
            return None
        slot, at, _ = frame.tasks[0]
        starts = slot.plan.units[unit.index].members[0]
        if starts is not None and starts[at] == starts[at + 1]:
            return None
        source, firing, _ = slot.units[unit.index].x[0][at if starts is None else starts[at]][1]
        fired = slot.units[source].fired[firing] if not self._source[source] else None
        return fired[0].frame if fired else None

    def commit(self, frame: Frame) -> tuple[list[Task], GradientLog | None]:
        """Deliver a computed frame -> (firings that go backward at once, the log that grew)."""
        if self.log is not None:
            self.log.append(("end", frame.number))
        if frame.kind == BACKWARD:
            return [], self._commit_backward(frame)
        return self._commit_forward(frame), None

    # --- forward ----------------------------------------------------------------------------------

    def _commit_forward(self, frame: Frame) -> list[Task]:
        code, unit = frame.code, frame.unit
        u, train = unit.index, frame.kind == FORWARD
        record = forward_record(frame) if train else None
        n = len(frame.tasks)
        if record is not None:
            starts = record.starts
        else:
            starts = {s: starts_of(c, n) for s, c in frame.context.counts.items()}
        decided = self._decisions(frame) if unit.behaviour.decides else None
        if record is not None and decided is not None:
            record.outcomes = decided
        cuts = [(frame.outputs[k], starts[space]) for k, (space, _) in enumerate(code.outputs)]
        back: list[Task] = []
        for i, task in enumerate(frame.tasks):
            slot, at, _ = task
            routes = slot.plan.units[u].routes[decided[i] if decided is not None else at]
            views = [y[s[i] : s[i + 1]] for y, s in cuts]
            if code.is_sink:
                self._report(unit, slot, at, views)
            n_routes = len(routes)
            if train:
                state = slot.units[u]
                state.fired[at] = (record, i)
                state.missing[at] = n_routes
                state.gradients[at] = [None] * n_routes
                self.stats.forward += n_routes
            slot.outstanding += n_routes
            for k, route in enumerate(routes):
                view, row = views[route[5]], route[4]
                self._deliver(slot, route, view if row < 0 else view[row : row + 1], (u, at, k))
            if not train:
                self.settle(slot, self._consumed(unit, slot, at))
            elif not routes:
                # A sink, or a firing that sends nothing (an empty Flatmap), goes backward at once.
                back.append(task)
        return back

    def _decisions(self, frame: Frame) -> list[int]:
        """The sender's outcome of each firing: its address, then what it decided."""
        out = []
        for i, (_, at, _) in enumerate(frame.tasks):
            outcome = at
            for number, (f, k) in enumerate(frame.unit.behaviour.decides):
                value = int(frame.outputs[k][i])
                n = choices(f)
                if not 0 <= value < n:
                    raise faults.undecided(frame.unit, number, value, n)
                outcome = outcome * n + value
            out.append(outcome)
        return out

    def _deliver(self, slot: Slot, route: Route, payload: np.ndarray, origin: Origin) -> None:
        target, operand, firing, position, _, _ = route
        if firing < 0 or position < 0:
            unit = self.lowered.units[origin[0]]
            if target == FAULT:
                reason = slot.plan.units[origin[0]].faults[operand]
                raise faults.undeliverable(unit, slot.instance, origin[1], reason)
            raise faults.outside_domain(unit, self.lowered.units[target], slot.instance)
        state = slot.units[target]
        x = state.x[operand]
        if x[position] is not None:
            raise faults.twice(self.lowered.units[target], operand, slot.instance)
        x[position] = (payload, origin)
        left = state.left
        left[firing] -= 1
        if not left[firing]:
            self._push(target, FORWARD if slot.mode is Mode.TRAIN else INFER, slot, firing)

    def _consumed(self, unit: Unit, slot: Slot, at: int) -> int:
        """Operand messages of an inference firing; they are done with."""
        n = 0
        plan, state = slot.plan.units[unit.index], slot.units[unit.index]
        for x, members in zip(state.x, plan.members, strict=True):
            for position in (at,) if members is None else range(members[at], members[at + 1]):
                x[position] = DONE
                n += 1
        return n

    def _report(self, unit: Unit, slot: Slot, at: int, views: Sequence[np.ndarray]) -> None:
        b, report = unit.behaviour, slot.report
        sums = report.sums.setdefault(b.told, dict.fromkeys(b.report, 0.0))
        for label, value in zip(b.report, views, strict=True):
            sums[label] += float(value.sum(dtype=np.float64))
            if slot.mode is Mode.PREDICT:
                slot.parts.setdefault((b.told, label), []).append((at, value))
        if slot.mode is Mode.TRAIN and not np.isfinite(sums[b.report[0]]):
            raise NonFiniteError(b.told, "forward", f"the loss of instance {slot.instance.number}")
        report.rows[b.told] = report.rows.get(b.told, 0) + len(views[0])

    def _push(self, u: int, kind: int, slot: Slot, at: int) -> None:
        if self.replaying:
            return
        self._arrivals += 1
        rows = slot.plan.units[u].spaces["rows"]
        n = rows if isinstance(rows, int) else rows[at]
        self.queues[u][kind].push(slot.age, self._arrivals, (slot, at, n), n)

    # --- backward ---------------------------------------------------------------------------------

    def _commit_backward(self, frame: Frame) -> GradientLog | None:
        u = frame.unit.index
        log = self.logs.get(u)
        if log is not None:
            self._log_gradients(log, frame)
        given = dict(zip(frame.code.wrt, frame.outputs, strict=False))
        operands = [(k, given.get(k)) for k in range(len(frame.unit.operands))]
        offsets = [0] * len(operands)
        for slot, at, _ in frame.tasks:
            plan, state = slot.plan.units[u], slot.units[u]
            returned = 0
            for k, dx in operands:
                rows = plan.rows[k]
                height = rows if isinstance(rows, int) else rows[at]
                members, x = plan.members[k], state.x[k]
                for position in (at,) if members is None else range(members[at], members[at + 1]):
                    origin = x[position][1]
                    x[position] = DONE
                    start = offsets[k]
                    offsets[k] = start + height
                    if not self._source[origin[0]]:
                        self._return(slot, origin, DONE if dx is None else dx[start : start + height])
                    returned += 1
            state.fired[at] = state.gradients[at] = None
            self.stats.backward += returned
            self.settle(slot, returned)
        return log

    def _return(self, slot: Slot, origin: Origin, gradient: Any) -> None:
        """A backward message (DONE: an empty one) reaches its sender; the last one makes the firing ready."""
        u, at, k = origin
        state = slot.units[u]
        state.gradients[at][k] = gradient
        missing = state.missing
        missing[at] -= 1
        if not missing[at]:
            self._push(u, BACKWARD, slot, at)

    def _log_gradients(self, log: GradientLog, frame: Frame) -> None:
        outputs = frame.outputs
        log.add(
            frame.rows, [(None if t.a is None else outputs[t.a], outputs[t.dz]) for t in frame.code.terms]
        )
        histogram = self.stats.staleness.setdefault(log.node, {})
        count_staleness(histogram, log.params.version, *staleness_of(frame))
        if self.waits and log.rows >= log.params.rule.interval:
            # The instances whose gradients complete the interval retire only once the update is published:
            # with one key in flight, the next instance sees it.
            for slot, _, _ in frame.tasks:
                slot.outstanding += 1
                log.waiting.append(slot)

    # --- what is missing --------------------------------------------------------------------------

    def stuck(self) -> list[str]:
        """What the instances in flight wait for, for error messages."""
        return [line for slot in list(self.slots.values())[:4] for line in self._pending(slot)]

    def _pending(self, slot: Slot) -> list[str]:
        lines = []
        for unit in self.lowered.units:
            state, plan = slot.units[unit.index], slot.plan.units[unit.index]
            for at, left in enumerate(state.left):
                if not 0 < left < plan.need[at]:
                    continue
                lacking = [
                    k
                    for k, (x, members) in enumerate(zip(state.x, plan.members, strict=True))
                    if None in (x[at : at + 1] if members is None else x[members[at] : members[at + 1]])
                ]
                lines.append(faults.waiting(unit, left, lacking, slot.instance, at))
        return lines
