"""The numpy data plane: queues, joins, delivery and retirement, with numpy for the mathematics.

It is the fallback where no compiled plane exists, and the shape that a compiled one has: `submit` pumps an
instance, `run` lets a worker serve frames for a while, `poll` returns what has retired. One lock guards all bookkeeping; the
mathematics of a frame runs outside it. Every operand of a submitted instance has its place from the start
(the reservation rule), so a unit always accepts and nothing can deadlock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from amphw.cpu_runtime.frames import (
    Frame,
    Task,
    compute,
    forward_record,
    gather_ints,
    gather_operands,
    row_context,
)
from amphw.cpu_runtime.gradients import GradientLog, Share
from amphw.cpu_runtime.lower import Lowered, Unit
from amphw.cpu_runtime.plan import Planner
from amphw.cpu_runtime.policy import BACKWARD, FORWARD, INFER, KINDS, POLICIES, Queue
from amphw.cpu_runtime.slots import DONE, Slot, SlotPlan, finish_plan, starts_of
from amphw.ir.device import Mode, Report, Statistics
from amphw.ir.errors import AmphwError, ExecutionError, NonFiniteError, StateError
from amphw.ir.instance import Instance
from amphw.ir.update import NodeParameters

TraceCallback = Callable[[int, str, str, float, float, int, int | None, int | None], None]


class NumpyPlane:
    """settings: policy, min_rows, frame_cap (messages), sleep {node or "*": seconds a message}, trace."""

    def __init__(
        self,
        lowered: Lowered,
        params: dict[str, NodeParameters],
        *,
        updates: str,
        workers: int,
        placement: Sequence[set[int]] | None,
        settings: Mapping[str, Any],
        log: list[Any] | None,
    ):
        self.lowered, self.params, self.updates, self.log = lowered, params, updates, log
        self.placement = placement
        self.policy = POLICIES[settings.get("policy", "default")]
        self.min_rows = int(settings.get("min_rows", 1))
        self.frame_cap = int(settings.get("frame_cap", 16))
        self.sleep: Mapping[str, float] = settings.get("sleep", {})
        self.trace: TraceCallback | None = settings.get("trace")
        self.planner: Planner[SlotPlan] = Planner(lowered, lambda plan: finish_plan(lowered, plan))
        self.queues = [[Queue(u.index, kind, u.depth) for kind in range(3)] for u in lowered.units]
        self.logs = {
            u.index: GradientLog(u.name, params[u.name], u.derivative.terms)
            for u in lowered.units
            if u.owns and u.derivative is not None
        }
        self.lock = threading.Lock()
        self.work = threading.Condition(self.lock)  # a queue has filled
        self.news = threading.Condition(self.lock)  # something has retired or failed
        self.slots: dict[int, Slot] = {}
        self.done: list[Report] = []
        self.failure: BaseException | None = None
        self.stats = Statistics(busy=[0.0] * workers)
        self._arrivals = 0
        self._frames = 0
        self._idle = 0
        self._running = 0
        self.replaying = False

    # --- host side ------------------------------------------------------------------------------------------------

    def submit(self, index: int, generation: int, instance: Instance, mode: Mode) -> None:
        plan = self.planner.plan(instance)
        slot = Slot(index, generation, instance, mode, plan, self.lowered)
        with self.lock:
            if index in self.slots:
                raise ExecutionError(f"slot {index} still holds instance {self.slots[index].instance.number}")
            self.slots[index] = slot
            if self.log is not None:
                self.log.append(("submit", instance.number, mode.value))
            slot.outstanding = 1
            for u in self.lowered.units:
                if u.behaviour.is_source:
                    self._pump(slot, u)
            self._settle(slot, 1)
            self._wake()

    def poll(self, timeout: float) -> list[Report]:
        with self.lock:
            if not self.done and self.failure is None and timeout > 0:
                self.news.wait(timeout)
            if self.failure is not None:
                raise self.failure
            done, self.done = self.done, []
            return done

    def update(self, nodes: Iterable[str]) -> None:
        """Reduce and publish on behalf of the controller."""
        for name in nodes:
            at = self.lowered.by_name.get(name)
            if at is None or at not in self.logs:
                raise AmphwError(f"node '{name}' owns no parameters to update")
            self._reduce(-1, self._wait_and_take(self.logs[at], due=True))

    def flush(self) -> None:
        """Reduce what is logged without publishing, so that the accumulated gradients are complete."""
        for log in self.logs.values():
            self._reduce(-1, self._wait_and_take(log, due=False))

    def _wait_and_take(self, log: GradientLog, due: bool) -> Share:
        with self.lock:
            while log.busy and self.failure is None:
                self.news.wait(0.01)
            return self.take(log, due)

    def busy(self) -> bool:
        """Whether a frame is being computed or waits to be."""
        with self.lock:
            return self._running > 0 or self._any()

    def statistics(self) -> Statistics:
        with self.lock:
            out, self.stats = self.stats, Statistics(busy=[0.0] * len(self.stats.busy))
            return out

    def stuck(self) -> str:
        """What the instances in flight wait for, for error messages."""
        lines = []
        for slot in list(self.slots.values())[:4]:
            for u in self.lowered.units:
                state, need = slot.units[u.index], slot.plan.units[u.index].need
                for at, left in enumerate(state.left):
                    if 0 < left < need[at]:
                        lines.append(f"node '{u.name}' waits for {left} more message(s), instance {slot.instance.number}, firing {at}")
        return "; ".join(lines[:6]) or "no operand is pending"

    # --- worker side ----------------------------------------------------------------------------------------------

    def run(self, worker: int, budget: float) -> bool:
        """Serve frames for about `budget` seconds -> whether there was anything to do."""
        start = time.perf_counter()
        worked = False
        while True:
            with self.lock:
                frame = None if self.failure is not None else self._next(worker)
                self._running += frame is not None
            if frame is None:
                return worked
            worked = True
            self._serve(worker, frame)
            with self.lock:
                self._running -= 1
            if time.perf_counter() - start > budget:
                return True

    def wait(self, timeout: float) -> None:
        """Sleep until a queue fills."""
        with self.lock:
            if self.failure is None and not self._any():
                self._idle += 1
                self.work.wait(timeout)
                self._idle -= 1

    def _any(self) -> bool:
        return any(q.tasks for kinds in self.queues for q in kinds)

    def _wake(self) -> None:
        if self._idle:
            self.work.notify_all()

    def fail(self, error: BaseException) -> None:
        with self.lock:
            self.failure = self.failure or error
            self.news.notify_all()

    def _next(self, worker: int) -> Frame | None:
        allowed = self.placement[worker] if self.placement is not None else None
        ready = [q for kinds in self.queues for q in kinds if q.tasks and (allowed is None or q.unit in allowed)]
        if not ready:
            return None
        queue = ready[0] if len(ready) == 1 else self.policy(ready, self.min_rows)
        tasks = [queue.tasks.popleft() for _ in range(min(self.frame_cap, len(queue.tasks)))]
        queue.oldest = queue.tasks[0][2] if queue.tasks else 0
        frame = self.begin(self.lowered.units[queue.unit], queue.kind, tasks)
        queue.rows = max(0, queue.rows - frame.rows) if queue.tasks else 0
        return frame

    def _serve(self, worker: int, frame: Frame) -> None:
        began = time.perf_counter()
        compute(frame)
        self._pause(frame.unit.name, len(frame.tasks))
        with self.lock:
            back, log = self.commit(frame)
            follow = self.begin(frame.unit, BACKWARD, back) if back else None
            share = self._claim(log) if log is not None else None
        ended = time.perf_counter()
        self._account(worker, frame.unit.name, KINDS[frame.kind], began, ended, frame)
        if share is not None:
            self._reduce(worker, share)
        if follow is not None:
            self._serve(worker, follow)

    def _pause(self, node: str, messages: int) -> None:
        seconds = self.sleep.get(node, self.sleep.get("*", 0.0)) if self.sleep else 0.0
        if seconds:
            time.sleep(seconds * messages)

    def _account(self, worker: int, node: str, kind: str, began: float, ended: float, frame: Frame | None) -> None:
        if worker >= 0:
            self.stats.busy[worker] += ended - began
        if self.trace is not None:
            rows, number, flow = (frame.rows, frame.number, frame.flow_in) if frame else (0, None, None)
            self.trace(worker, node, kind, began * 1e6, (ended - began) * 1e6, rows, flow, number)

    # --- frames: gathered and committed under the lock ------------------------------------------------------------

    def begin(self, unit: Unit, kind: int, tasks: list[Task]) -> Frame:
        """Gather a frame and pin the parameter version that it uses."""
        self._frames += 1
        self.stats.frames += 1
        node = self.params.get(unit.name)
        frame = Frame(
            self._frames,
            unit,
            kind,
            tasks,
            row_context(unit, tasks),
            [] if kind == BACKWARD else gather_operands(unit, tasks),
            gather_ints(unit, tasks),
            node.values if node is not None else {},
            node.version if node is not None else 0,
        )
        if kind == BACKWARD:
            frame.records = [slot.units[unit.index].fired[at] for slot, at, _ in tasks]
        if self.trace is not None:
            frame.flow_in = self._origin(frame)
        if self.log is not None:
            keys = tuple((slot.instance.number, slot.mode.value, at) for slot, at, _ in tasks)
            self.log.append(("start", frame.number, unit.index, kind, keys))
        return frame

    def _origin(self, frame: Frame) -> int | None:
        """Number of the frame that produced the first operand, for the trace's arrows."""
        if frame.kind != FORWARD or not frame.unit.operands:
            return None
        slot, at, _ = frame.tasks[0]
        starts = slot.plan.units[frame.unit.index].members[0]
        entry = slot.units[frame.unit.index].x[0][at if starts is None else starts[at]] if starts is None or starts[at] < starts[at + 1] else None
        if entry is None or entry is DONE:
            return None
        unit, firing, _ = entry[1]
        fired = slot.units[unit].fired[firing]
        return fired[0].frame if fired else None

    def commit(self, frame: Frame) -> tuple[list[Task], GradientLog | None]:
        """Deliver a computed frame -> (firings that go backward at once, the log that grew)."""
        if self.log is not None:
            self.log.append(("end", frame.number))
        if frame.kind == BACKWARD:
            return [], self._commit_backward(frame)
        return self._commit_forward(frame), None

    def _commit_forward(self, frame: Frame) -> list[Task]:
        unit, u = frame.unit, frame.unit.index
        b, program = unit.behaviour, unit.behaviour.program
        assert program is not None
        train = frame.kind == FORWARD
        types = program.outputs_types
        n = len(types)
        record = forward_record(frame) if train else None
        counts = frame.context.counts
        starts = record.starts if record else {s: starts_of(c, len(frame.tasks)) for s, c in counts.items()}
        decided = self._decisions(frame)
        if record is not None:
            record.outcomes = decided
        back: list[Task] = []
        for i, (slot, at, _) in enumerate(frame.tasks):
            plan, state = slot.plan.units[u], slot.units[u]
            routes = plan.routes[decided[i] if decided else at]
            views = []
            for k in range(n):
                s = starts[types[k].space]
                views.append(frame.outputs[k][s[i] : s[i + 1]])
            if b.report:
                self._report(unit, slot, at, views)
            if train:
                state.fired[at] = (record, i)
                state.missing[at] = len(routes)
                state.gradients[at] = [None] * len(routes)
                self.stats.forward += len(routes)
            slot.outstanding += len(routes)
            for k, route in enumerate(routes):
                view = views[route[5]]
                self._deliver(slot, route, view if route[4] < 0 else view[route[4] : route[4] + 1], (u, at, k))
            if train:
                if not routes:
                    back.append((slot, at, 0))
            else:
                self._settle(slot, self._consumed(unit, slot, at))
        self._wake()
        # A sink, or a firing that sends nothing (an empty Flatmap), goes backward at once.
        return back

    def _decisions(self, frame: Frame) -> list[int]:
        decides = frame.unit.behaviour.decides
        if not decides:
            return []
        out = []
        for i, (_, at, _) in enumerate(frame.tasks):
            outcome = at
            for f, k in decides:
                value = int(frame.outputs[k][i])
                if not 0 <= value < f.bound:
                    raise StateError(f"node '{frame.unit.name}': decided {f.name} = {value}, outside 0..{f.bound - 1}")
                outcome = outcome * f.bound + value
            out.append(outcome)
        return out

    def _commit_backward(self, frame: Frame) -> GradientLog | None:
        unit, d = frame.unit, frame.unit.derivative
        assert d is not None
        u = unit.index
        given: dict[int, np.ndarray] = dict(zip(d.wrt, frame.outputs, strict=False))
        offsets = [0] * len(unit.operands)
        log = self.logs.get(u)
        if log is not None:
            self._log_gradients(log, frame)
        for slot, at, _ in frame.tasks:
            plan, state = slot.plan.units[u], slot.units[u]
            returned = 0
            for k in range(len(unit.operands)):
                rows = plan.rows[k]
                height = rows if isinstance(rows, int) else rows[at]
                members = plan.members[k]
                positions = (at,) if members is None else range(members[at], members[at + 1])
                dx, x = given.get(k), state.x[k]
                for position in positions:
                    origin = x[position][1]
                    x[position] = DONE
                    start = offsets[k]
                    offsets[k] = start + height
                    self._return(slot, origin, None if dx is None else dx[start : start + height])
                    returned += 1
            state.fired[at] = state.gradients[at] = None
            self.stats.backward += returned
            self._settle(slot, returned)
        self._wake()
        return log

    def _log_gradients(self, log: GradientLog, frame: Frame) -> None:
        terms = frame.unit.derivative.terms if frame.unit.derivative else ()
        log.add(frame.rows, [(None if t.a is None else frame.outputs[t.a], frame.outputs[t.dz]) for t in terms])
        histogram = self.stats.staleness.setdefault(log.node, {})
        counts = frame.context.counts["rows"]
        for i, (record, _) in enumerate(frame.records):
            behind = log.params.version - record.version
            histogram[behind] = histogram.get(behind, 0) + (counts if isinstance(counts, int) else int(counts[i]))
        if self.updates == "self" and log.rows >= log.params.rule.interval:
            # The instances whose gradients complete the interval retire only once the update is published:
            # with one key in flight, the next instance sees it.
            for slot, _, _ in frame.tasks:
                slot.outstanding += 1
                log.waiting.append(slot)

    def _return(self, slot: Slot, origin: tuple[int, int, int], gradient: np.ndarray | None) -> None:
        """A backward message reaches its sender; the last one makes the firing ready."""
        u, at, k = origin
        unit = self.lowered.units[u]
        if unit.behaviour.is_source:
            return
        state = slot.units[u]
        state.gradients[at][k] = gradient if gradient is not None else DONE
        state.missing[at] -= 1
        if state.missing[at] == 0:
            self._push(u, BACKWARD, slot, at)

    def _deliver(self, slot: Slot, route: tuple[int, ...], payload: np.ndarray, origin: tuple[int, int, int]) -> None:
        target, operand, firing, position = route[0], route[1], route[2], route[3]
        if firing < 0 or position < 0:
            raise StateError(
                f"node '{self.lowered.units[origin[0]].name}' sends a state outside its domain to "
                f"'{self.lowered.units[target].name}' (instance {slot.instance.number}); check the extents and the guards before it"
            )
        state = slot.units[target]
        x = state.x[operand]
        if x[position] is not None:
            unit = self.lowered.units[target]
            raise ExecutionError(
                f"node '{unit.name}' port '{unit.operands[operand].port}': instance {slot.instance.number} brings one state a "
                "second time; a loop or region must add a field that tells the two apart"
            )
        x[position] = (payload, origin)
        state.left[firing] -= 1
        if state.left[firing] == 0:
            self._push(target, FORWARD if slot.mode is Mode.TRAIN else INFER, slot, firing)

    def _consumed(self, unit: Unit, slot: Slot, at: int) -> int:
        """Operand messages of an inference firing; they are done with."""
        n = 0
        for k in range(len(unit.operands)):
            members = slot.plan.units[unit.index].members[k]
            positions = (at,) if members is None else range(members[at], members[at + 1])
            for position in positions:
                slot.units[unit.index].x[k][position] = DONE
                n += 1
        return n

    def _pump(self, slot: Slot, unit: Unit) -> None:
        plan = slot.plan.units[unit.index]
        routes = plan.routes[0]
        slot.outstanding += len(routes)
        if slot.mode is Mode.TRAIN:
            self.stats.forward += len(routes)
        name = unit.behaviour.emits[0].data
        for k, (route, (first, rows)) in enumerate(zip(routes, plan.first, strict=True)):
            if name is None:
                payload = np.zeros((rows, 0), dtype=np.float32)
            else:
                payload = slot.instance.data[name][first : first + rows]
            row = route[4]
            self._deliver(slot, route, payload if row < 0 else payload[row : row + 1], (unit.index, 0, k))

    def _push(self, u: int, kind: int, slot: Slot, at: int) -> None:
        if self.replaying:
            return  # the log says what runs next
        self._arrivals += 1
        queue = self.queues[u][kind]
        if not queue.tasks:
            queue.oldest = self._arrivals
        queue.tasks.append((slot, at, self._arrivals))
        rows = slot.plan.units[u].spaces["rows"]
        queue.rows += rows if isinstance(rows, int) else rows[at]

    # --- updates, reports, retirement -----------------------------------------------------------------------------

    def _claim(self, log: GradientLog) -> Share | None:
        """A share of the log, if it is worth reducing and nobody else is at it."""
        if not log.wants(self.updates == "self"):
            return None
        return self.take(log, due=self.updates == "self" and log.rows >= log.params.rule.interval)

    def take(self, log: GradientLog, due: bool, n: int | None = None) -> Share:
        share = log.take(due, n)
        if self.log is not None:
            self.log.append(("flush", log.node, len(share.entries), due))
        return share

    def _reduce(self, worker: int, share: Share | None) -> None:
        """Reduce a share, publish if it completes an interval, and go on while more has become due meanwhile."""
        while share is not None:
            log = share.log
            began = time.perf_counter()
            log.reduce(share)
            ended = time.perf_counter()
            if share.due:
                self._account(worker, log.node, "update", began, ended, None)
            with self.lock:
                self.reduced(share)
                share = self._claim(log) if worker >= 0 else None

    def reduced(self, share: Share) -> None:
        """A share is done: publish its version and release who waited for it.

        Versions change under the lock only, so the log orders them among the frames.
        """
        share.log.busy = False
        if self.log is not None:
            self.log.append(("reduced", share.log.node))
        if share.values is not None:
            share.log.params.publish(share.values)
            self.stats.updates += 1
        for slot in share.waiting:
            self._settle(slot, 1)
        self.news.notify_all()

    def _report(self, unit: Unit, slot: Slot, at: int, views: list[np.ndarray]) -> None:
        b, report = unit.behaviour, slot.report
        sums = report.sums.setdefault(unit.name, dict.fromkeys(b.report, 0.0))
        for label, value in zip(b.report, views, strict=True):
            sums[label] += float(value.sum(dtype=np.float64))
            if slot.mode is Mode.PREDICT:
                slot.parts.setdefault((unit.name, label), []).append((at, value))
        if slot.mode is Mode.TRAIN and not np.isfinite(sums[b.report[0]]):
            raise NonFiniteError(unit.name, "forward", f"the loss of instance {slot.instance.number}")
        report.rows[unit.name] = report.rows.get(unit.name, 0) + len(views[0])

    def _settle(self, slot: Slot, n: int) -> None:
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
        self.news.notify_all()


def _starts(frame: Frame, space: str) -> list[int]:
    from amphw.cpu_runtime.slots import starts_of

    return starts_of(frame.context.counts[space], len(frame.tasks))


__all__ = ["ForwardRecord", "NumpyPlane"]
