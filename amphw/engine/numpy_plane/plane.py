"""The numpy data plane: `Delivery` behind one lock, served by any number of workers.

It is the fallback where no compiled plane exists, and the shape that a compiled one has: `submit` pumps an
instance, `run` lets a worker serve frames for a while, `poll` returns what has retired. The lock guards all
bookkeeping; frames are gathered and computed, and logs reduced, outside it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from amphw.engine import faults
from amphw.engine.lowering.lower import Lowered, Observation
from amphw.engine.lowering.plan import Planner, check_data
from amphw.engine.numpy_plane.arithmetic import Arithmetic
from amphw.engine.numpy_plane.delivery import Delivery
from amphw.engine.numpy_plane.float32 import Float32
from amphw.engine.numpy_plane.frames import Frame, compute, computed
from amphw.engine.numpy_plane.gradients import GradientLog, Share
from amphw.engine.numpy_plane.slots import Slot, SlotPlan, finish_plan
from amphw.engine.policy import BACKWARD, KINDS, POLICIES, PolicyTable, Queue, choose
from amphw.ir.device import Direction, Mode, Report, Statistics
from amphw.ir.errors import AmphwError
from amphw.ir.exchange import (
    Names,
    NodeGradient,
    Rows,
    give_gradients,
    gradients_of,
    keep_values,
    put_values,
    take_told,
    tell_all,
)
from amphw.ir.instance import Instance
from amphw.ir.instance_check import check_instance
from amphw.ir.precision import precision_of
from amphw.ir.received import Received, checked, receive
from amphw.ir.service_log import INTERVAL, SUM, UPDATE
from amphw.ir.update import Applied, NodeParameters, no_parameters

TraceCallback = Callable[[int, str, str, float, float, int, int | None, int | None], None]
"""(worker, node, "forward" | "backward" | "infer" | "update", begin us, duration us, rows, number of the
frame that its first operand came from, its own number). Workers call it from their threads, outside the
lock."""


class NumpyPlane(Delivery):
    """settings: policy, min_rows, frame_cap (messages), frame_rows (a frame with as many takes no further
    message), sleep {node or "*": seconds a message}, trace, observe (keep what firings compute, for
    `observed`), precision. arithmetic: what is computed with, and in what form parameters are held; None:
    floats, of that precision.
    """

    name = "numpy data plane"

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
        keys: int = 1,
        arithmetic: Arithmetic | None = None,
    ):
        policy = POLICIES[settings.get("policy", "default")]
        self.self_updating = updates == "self"
        super().__init__(
            lowered,
            params,
            by_age=policy.by_age,
            waits=self.self_updating,
            log=log,
            arithmetic=arithmetic or Float32(precision_of(settings)),
        )
        self.policy = policy.table(lowered, int(settings.get("min_rows", 1)))
        self.frame_cap = int(settings.get("frame_cap", 64))
        self.frame_rows = int(settings.get("frame_rows", 512))
        self.sleep: Mapping[str, float] = settings.get("sleep", {})
        self.trace: TraceCallback | None = settings.get("trace")
        self.planner: Planner[SlotPlan] = Planner(lowered, lambda plan: finish_plan(lowered, plan))
        everything = [q for kinds in self.queues for q in kinds]
        self._served: list[list[Queue]] = [
            everything if placement is None else [q for q in everything if q.unit in placement[w]]
            for w in range(workers)
        ]
        self._shared = placement is None
        self.lock = threading.Lock()
        self.work = threading.Condition(self.lock)  # a queue has filled
        self.news = threading.Condition(self.lock)  # something has retired or failed
        self._calm = threading.Condition(self.lock)  # a log is no longer being reduced
        self.failure: BaseException | None = None
        self._observed: dict[int, list[Observation]] | None = {} if settings.get("observe") else None
        self.stats = Statistics(busy=[0.0] * workers)
        self._idle = 0
        self._running = 0
        self._written = True  # whether the host may have changed the parameters

    # --- host side --------------------------------------------------------------------------------

    def submit(self, index: int, generation: int, instance: Instance, mode: Mode) -> None:
        check_instance(self.lowered.graph.schema, instance)
        plan = self.planner.plan(instance)
        check_data(self.lowered, plan.tables, instance)
        slot = Slot(index, generation, instance, mode, plan, self.lowered)
        with self.lock:
            self._check()
            if index in self.slots:
                raise faults.occupied(index, self.slots[index].instance)
            self.push()
            if self._observed is not None:
                self._observed[index] = []
            try:
                self.admit(slot)
            except BaseException as error:  # the instance is half pumped: there is no way to go on
                self._fail(error)
                raise
            self._wake()

    def planned_bytes(self, instance: Instance, mode: Mode) -> int | None:
        """Frames own their arrays here, so nothing is known ahead."""
        return None

    def poll(self, timeout: float) -> list[Report]:
        """What has retired. Raises what a worker raised, and ExecutionError once nothing can move."""
        with self.lock:
            if timeout > 0:
                self.news.wait_for(lambda: self.done or self.failure is not None, timeout)
            self._check()
            if self.slots and not self.done and not self.replaying and self._at_rest():
                raise faults.stuck(len(self.slots), self.stuck())
            done, self.done = self.done, []
            return done

    @property
    def in_flight(self) -> int:
        """Instances submitted whose reports have not been polled."""
        with self.lock:
            return len(self.slots) + len(self.done)

    @property
    def failed(self) -> bool:
        return self.failure is not None

    def fetch(self) -> None:
        """Bring `params` up to date; while nothing is in flight, what is written there takes effect."""
        with self.lock:
            if self._written:
                return  # the host's copy is the newer one
            for held in self.held.values():
                held.fetch()
            # Only then is everything there: what is still in a log would be lost if this were taken over.
            self._written = not self.slots and not any(log.busy or log.entries for log in self.logs.values())

    def push(self) -> None:
        """Take over what the host has written into `params`; called under the lock."""
        if self._written:
            self._written = False
            for held in self.held.values():
                held.push()

    def wake(self) -> None:
        with self.lock:
            self.work.notify_all()

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _at_rest(self) -> bool:
        """Whether nothing runs and nothing waits to be run: only a new instance could change that."""
        return (
            not self._running
            and not any(q.heap for kinds in self.queues for q in kinds)
            and not any(log.busy for log in self.logs.values())
        )

    def retired(self) -> None:
        self.news.notify_all()

    def update(self, nodes: Iterable[str]) -> None:
        """Reduce and publish on behalf of the controller."""
        with self.lock:
            self.push()
        for name in nodes:
            at = self.lowered.by_name.get(name)
            if at is None or at not in self.logs:
                raise AmphwError(no_parameters(name))
            self._reduce(-1, self._wait_and_take(self.logs[at], UPDATE))

    def flush(self) -> None:
        """Reduce what is logged without publishing, so that the accumulated gradients are complete."""
        for log in self.logs.values():
            self._reduce(-1, self._wait_and_take(log, SUM))

    def gradients(self, by_rows: Names) -> dict[str, NodeGradient]:
        """See `Exchanges`."""
        self.flush()
        self.fetch()
        return gradients_of(self.params, by_rows)

    def give(self, gradients: Mapping[str, NodeGradient]) -> None:
        """See `Exchanges`."""
        self.fetch()
        give_gradients(self.params, gradients)

    def keep(self, names: Names, away: Names) -> None:
        """See `Exchanges`; it lets go of nothing."""
        keep_values(self.params, names)

    def put(self, values: Mapping[str, Mapping[str, np.ndarray | Rows]]) -> None:
        """See `Exchanges`."""
        self.fetch()
        put_values(self.params, values)

    def tell(self) -> None:
        """See `Tells`."""
        tell_all(self.params)

    def told(self) -> dict[str, Applied]:
        """See `Tells`."""
        found: dict[str, Applied] = {}
        for log in self.logs.values():
            with self._held(log):
                found |= take_told({log.node: log.params})
        return found

    def receive(self, ranges: Sequence[Received]) -> None:
        """See `Receives`; of an arithmetic whose values are those of `params`, as `move`."""
        given = checked(ranges)
        for log in self.logs.values():
            with self._held(log):
                receive({log.node: log.params}, [each for each in given if each.node == log.node])

    def latest(self, nodes: Iterable[str]) -> dict[str, dict[str, np.ndarray]]:
        """See `Moves`."""
        return {node: {n: v.copy() for n, v in self.params[node].values.items()} for node in nodes}

    def move(self, moves: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """See `Moves`; of an arithmetic whose values are those of `params`."""
        for node, given in moves.items():
            log = self.logs[self.lowered.by_name[node]]
            with self._held(log):
                log.params.values = {n: v + given[n] for n, v in log.params.values.items()}

    @contextmanager
    def _held(self, log: GradientLog) -> Iterator[None]:
        """Inside, no update of the node is prepared or published."""
        with self.lock:
            self._calm.wait_for(lambda: not log.busy or self.failure is not None)
            self._check()
            yield

    def parameter_bytes(self) -> int:
        """Nothing, beside `params`."""
        return 0

    def pulled(self) -> dict[str, dict[str, Rows]]:
        """See `Exchanges`."""
        return {}

    def _wait_and_take(self, log: GradientLog, cause: str) -> Share:
        with self._held(log):
            return self.take(log, cause)

    def statistics(self) -> Statistics:
        with self.lock:
            out, self.stats = self.stats, Statistics(busy=[0.0] * len(self.stats.busy))
            out.gradients = {log.node: list(log.params.lately) for log in self.logs.values()}
            return out

    def observed(self, index: int) -> list[Observation]:
        """What the firings of the slot's last instance computed, as payloads; needs the setting `observe`.

        A loss computes in float32, and sends payloads back.
        """
        assert self._observed is not None
        with self.lock:
            return list(self._observed[index])

    def observe(self, frame: Frame) -> None:
        """Keep what a computed frame made, if that is wanted; under the lock."""
        if self._observed is None:
            return
        direction = Direction.BACKWARD if frame.kind == BACKWARD else Direction.FORWARD
        for (slot, at, _), values in zip(frame.tasks, computed(frame), strict=True):
            self._observed[slot.index].append((frame.unit.index, direction, at, values))

    def edit_policy(self, table: PolicyTable) -> None:
        """Workers go by this table from now on."""
        self.policy = table

    # --- worker side ------------------------------------------------------------------------------

    def run(self, worker: int, budget: float) -> bool:
        """Serve frames for about `budget` seconds -> whether there was anything to do."""
        end = time.perf_counter() + budget
        worked = False
        while True:
            over = worked and time.perf_counter() > end
            with self.lock:
                self._running -= worked  # the frame before this one
                frame = None if over or self.failure is not None else self._next(worker)
                self._running += frame is not None
            if frame is None:
                return worked
            worked = True
            self._serve(worker, frame)

    def wait(self, worker: int, timeout: float) -> None:
        """Sleep until a queue that the worker serves fills."""
        with self.lock:
            if self.failure is None and not any(q.heap for q in self._served[worker]):
                self._idle += 1
                self.work.wait(timeout)
                self._idle -= 1

    def _wake(self) -> None:
        """Called with firings pushed: as many sleepers as there are frames to serve."""
        if not self._idle:
            return
        if self._shared:
            frames = sum(-(-len(q.heap) // self.frame_cap) for kinds in self.queues for q in kinds)
            self.work.notify(frames)
        else:
            self.work.notify_all()

    def fail(self, error: BaseException) -> None:
        with self.lock:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """The first error stays; everybody who waits is woken to hear of it."""
        if self.failure is None:
            self.failure = error
        for condition in (self.news, self.work, self._calm):
            condition.notify_all()

    def _next(self, worker: int) -> Frame | None:
        ready = [q for q in self._served[worker] if q.heap]
        if not ready:
            return None
        queue = ready[0] if len(ready) == 1 else choose(self.policy, ready)
        frame = self.begin(queue.unit, queue.kind, queue.pop(self.frame_cap, self.frame_rows))
        if self.trace is not None:
            frame.flow_in = self.origin(frame)
        return frame

    def _serve(self, worker: int, frame: Frame) -> None:
        began = time.perf_counter()
        compute(frame)
        if self.sleep:
            self._pause(frame.unit.name, len(frame.tasks))
        with self.lock:
            self.observe(frame)
            back, log = self.commit(frame)
            self._wake()
            follow = self.begin(frame.unit.index, BACKWARD, back) if back else None
            share = self._claim(log) if log is not None else None
            ended = time.perf_counter()
            self.stats.busy[worker] += ended - began
        if self.trace is not None:
            times = began * 1e6, (ended - began) * 1e6
            kind = KINDS[frame.kind]
            self.trace(worker, frame.unit.name, kind, *times, frame.rows, frame.flow_in, frame.number)
        if share is not None:
            self._reduce(worker, share)
        if follow is not None:
            self._serve(worker, follow)

    def _pause(self, node: str, messages: int) -> None:
        seconds = self.sleep.get(node, self.sleep.get("*", 0.0))
        if seconds:
            time.sleep(seconds * messages)

    # --- updates ----------------------------------------------------------------------------------

    def _claim(self, log: GradientLog) -> Share | None:
        """A share of the log, if it is worth reducing and nobody else is at it."""
        if not log.wants(self.self_updating):
            return None
        due = self.self_updating and log.rows >= log.params.rule.interval
        return self.take(log, INTERVAL if due else SUM)

    def take(self, log: GradientLog, cause: str) -> Share:
        """All that is logged, for one sum; cause: see `amphw.ir.service_log`."""
        share = log.take(cause != SUM)
        if self.log is not None:
            self.log.append(("seal", log.node, cause))
        return share

    def _reduce(self, worker: int, share: Share | None) -> None:
        """Reduce a share, publish if it completes an interval, and go on while more has become due meanwhile.

        worker -1 is the host's thread.
        """
        while share is not None:
            log = share.log
            began = time.perf_counter()
            try:
                log.reduce(share)
            except BaseException as error:
                self.fail(error)  # before anybody can wait for this log
                raise
            ended = time.perf_counter()
            with self.lock:
                self.reduced(share)
                if worker >= 0:
                    self.stats.busy[worker] += ended - began
                due, share = share.due, self._claim(log)
            if due and self.trace is not None:
                self.trace(worker, log.node, "update", began * 1e6, (ended - began) * 1e6, 0, None, None)

    def reduced(self, share: Share) -> None:
        """A share is done: publish its version and release who waited for it.

        Versions change under the lock only, so the log orders them among the frames.
        """
        share.log.finish(share)
        if self.log is not None and share.due:
            self.log.append(("reduced", share.log.node))
        if share.values is not None:
            self.stats.updates += 1
        for slot in share.waiting:
            self.settle(slot, 1)
        self._calm.notify_all()
