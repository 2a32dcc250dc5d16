"""Regions: units whose rows stay in the memory of the executor that computes them.

An executor outside of the engine has kernels of its own and works in memory that it shares with the engine.
The engine forms its frames and joins its operands; a frame is described as places in that memory. So what the
units of one executor send each other never moves. What comes from elsewhere, or goes there, is copied where
the executor's memory is not the host's, just the rows of those messages.

Work enters an executor's queue in order. So a frame's messages within the region are handed on when it enters
the queue, since whatever reads them comes behind it. Messages that leave the region, and what the host itself
reads of a frame, wait until it is done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from amphw.engine.parts.executor import UPDATE, Executor, Running
from amphw.engine.plane import EnginePlane, NoRoom
from amphw.engine.policy import BACKWARD, KINDS
from amphw.ir.device import Mode, Report
from amphw.ir.errors import AmphwError, DeviceLostError
from amphw.ir.instance import Instance
from amphw.ir.update import NodeParameters, no_parameters

COMPILING = 120.0
"""Seconds that work of a kind that has not been done before may take."""

NAP = 0.05
"""Seconds after which a thread without work looks whether the device is closing."""

LETTING_GO = 1.0
"""Seconds that a lost executor is given to return."""


class Regions:
    """The executors of a plane, whose work one thread puts into their queues and takes out again."""

    def __init__(
        self, plane: EnginePlane, executors: Sequence[Executor], params: dict[str, NodeParameters]
    ) -> None:
        self.plane, self.executors, self.params = plane, list(executors), params
        self.engine, self.lowered = plane.engine, plane.lowered
        self.lock = threading.RLock()  # of the queues
        self.turn = threading.Lock()
        self.lost: dict[str, str] = {}
        """Why an executor is not there any more, by label."""
        self._at: dict[int, Executor] = {u: e for e in self.executors for u in e.parameters}
        self._reads = {u.index for u in self.lowered.units if u.behaviour.report or u.behaviour.decides}
        self._closed = False
        self._thread: threading.Thread | None = None
        self._written = True  # whether the host may have changed the parameters
        self._news = time.perf_counter()  # when work was last done, or given to an idle executor
        self._known: set[tuple[int, int]] = set()  # (unit, kind) of work that has been done before
        for executor in self.executors:
            executor.memory.upload(*self.engine.constants())

    @property
    def separate(self) -> bool:
        """Whether some executor has a memory of its own."""
        return not all(e.memory.shared for e in self.executors)

    # --- instances --------------------------------------------------------------------------------

    def pump(self, submit: Callable[[], None], slot: int, instance: Instance, mode: Mode) -> bool:
        """Call `submit`, which gives an instance to the engine -> whether there was room for it.

        Without room it has to wait for others to retire. Raises DeviceLostError if it will never fit.
        """
        if self._written or self.separate:
            # Parameters and data go first into the queue; `turn` keeps the other thread out meanwhile.
            with self.turn, self.lock:
                return self._pumped(submit, slot, instance, mode)
        return self._pumped(submit, slot, instance, mode)

    def _pumped(self, submit: Callable[[], None], slot: int, instance: Instance, mode: Mode) -> bool:
        self.push()
        if not self._room_for(submit, instance, mode):
            return False
        for executor in self.executors:
            if not executor.memory.shared:  # else the instance may have retired by now, and its data with it
                with self._told(executor):
                    executor.memory.upload(*self.engine.data_of(slot))
        return True

    def _room_for(self, submit: Callable[[], None], instance: Instance, mode: Mode) -> bool:
        try:
            submit()
            return True
        except NoRoom:
            if self.engine.in_flight():
                return False
        # The last ones have retired, but the queues may still be at work in their memory.
        self.complete()
        self.engine.trim()
        try:
            submit()
            return True
        except NoRoom:
            needed, size = self.plane.planned_bytes(instance, mode), self.plane.shared_bytes
            self.lost |= dict.fromkeys((e.label for e in self.executors), "an instance does not fit on it")
            where = f"{label}: " if (label := self.executors[0].label) else ""
            raise DeviceLostError(
                f"{where}instance {instance.number} does not fit on the device even alone: it takes "
                f"{needed} bytes, and its data, of the {size} that are set aside. Raise device.memory, or "
                "make instances smaller."
            ) from None

    # --- the driving thread -----------------------------------------------------------------------

    def start(self, stop: threading.Event) -> None:
        """Serve the executors in a thread of its own, until `stop` is set or something fails."""
        self._thread = threading.Thread(target=self._work, args=(stop,), name="amphw-regions", daemon=True)
        self._thread.start()

    def _work(self, stop: threading.Event) -> None:
        try:
            while not stop.is_set() and not self.plane.failed:
                if not self.step():
                    self.rest(NAP)
        except BaseException as error:  # whatever it is, the host must hear of it rather than wait forever
            self.plane.fail(error)

    def join(self) -> None:
        """Wait for the thread, whose `stop` is set. That of a driver that is lost may never let go: it ends
        with the process."""
        if self._thread is not None:
            self._thread.join(LETTING_GO if self.lost else None)
            self._thread = None

    def step(self) -> bool:
        """Go on as far as possible without waiting -> whether there was anything to do."""
        worked = False
        with self.turn:
            pass  # whoever waits for the lock goes first
        with self.lock:
            for executor in self.executors:
                with self._told(executor):
                    worked |= self._collect(executor)
                    while len(executor.running) < executor.depth and self._next(executor):
                        worked = True
        return worked

    def rest(self, seconds: float) -> None:
        """Wait until an executor has done something, or else until there is something to do."""
        running = [e for e in self.executors if e.running]
        if len(running) == 1:
            with self._told(running[0]):
                running[0].wait()
        elif running:
            time.sleep(2e-5)  # whichever is first
        else:
            self.engine.wait(self.executors[0].worker, seconds)

    def _told(self, executor: Executor) -> _Told:
        return _Told(self, executor)

    def _next(self, executor: Executor) -> bool:
        job = self.engine.take(executor.worker)
        if job is None:
            return False
        if not executor.running:
            self._news = time.perf_counter()
        self._begin(executor, job)
        return True

    def _begin(self, executor: Executor, job: tuple[Any, ...]) -> None:
        """Put a frame into the queue, and hand on what need not wait for it."""
        number, unit, kind = job[:3]
        waits = kind != BACKWARD and unit in self._reads
        flow = self.engine.origin(number) if self.plane.trace is not None else None
        leaves = False
        if waits:
            fetched = self.engine.reported(number) if not executor.memory.shared else ()
        else:
            leaves = self.engine.commit(number)
            fetched = self.engine.leaving(number) if leaves else ()
        running = executor.run(job, fetched)
        running.flow, running.waits, running.leaves = flow, waits, leaves
        if not waits:
            self._reduce_due(running)

    def _reduce_due(self, running: Running) -> None:
        if running.kind == BACKWARD and running.unit in self._at:
            self.reduce(running.unit)

    def reduce(self, unit: int, until_due: bool = False) -> None:
        """Put what is sealed of a node's log into the queue, with the updates that are due.

        until_due: no more than up to the next update.
        """
        executor = self._at[unit]
        while (job := self.engine.take_reduction(unit)) is not None:
            number, place, words, rows, due, gradient_rows, version = job
            began = time.perf_counter()
            with self._told(executor):
                executor.memory.upload(place, words)
                event = executor.parameters[unit].reduce(place, rows)
                if due and gradient_rows:
                    event = executor.parameters[unit].update(place + words, gradient_rows, version)
            self.engine.reduced(unit)
            with self._told(executor):
                executor.note(Running(number, event, began, unit, UPDATE if due else -1, 0))
            if due and until_due:
                return

    def _collect(self, executor: Executor) -> bool:
        ended = executor.done()
        for running in ended:
            self._hand_on(executor, running)
            now = time.perf_counter()
            self.engine.ended(running.number, executor.worker, now - max(running.began, executor.busy_until))
            self._news = executor.busy_until = now
            self._known.add((running.unit, running.kind))
            if self.plane.trace is not None and running.kind >= 0:
                self._traced(executor, running, now)
        return bool(ended)

    def _hand_on(self, executor: Executor, running: Running) -> None:
        """What waited for a frame that is done."""
        if running.waits:
            running.leaves = self.engine.commit(running.number)
            for place, words in self.engine.leaving(running.number) if running.leaves else ():
                executor.memory.download(place, words)
        if running.leaves:
            self.engine.sent(running.number)

    def _traced(self, executor: Executor, running: Running, now: float) -> None:
        assert self.plane.trace is not None
        kind = "update" if running.kind == UPDATE else KINDS[running.kind]
        frame = running.number if running.number > 0 else None
        begin, length = running.began * 1e6, (now - running.began) * 1e6
        name = self.lowered.units[running.unit].name
        flow = running.flow if running.flow is not None and running.flow >= 0 else None
        self.plane.trace(executor.worker, name, kind, begin, length, running.rows, flow, frame)

    def complete(self) -> None:
        """Wait for all that the queues hold, and hand it on."""
        with self.lock:
            while any(e.running for e in self.executors):
                for executor in self.executors:
                    with self._told(executor):
                        executor.finish()
                        self._collect(executor)

    def carried(self) -> dict[str, tuple[int, int]]:
        """By label, bytes of the messages that have crossed a region's border, to it and from it."""
        found = self.engine.crossed()
        return {e.label: found.get(e.worker, (0, 0)) for e in self.executors}

    def lose(self, executor: Executor, why: str) -> None:
        """Nothing more is to be expected of an executor: the run ends."""
        self.lost.setdefault(executor.label, why)

    def watch(self, seconds: float) -> None:
        """Give up an executor that owes something, where none has done anything for so long.

        Drivers compile a kernel when it is first launched: work of a new kind is given `COMPILING` seconds.
        """
        waited = time.perf_counter() - self._news
        if waited < seconds or self.plane.failed:
            return
        for executor in self.executors:
            owed = list(executor.running)
            new = any((r.unit, r.kind) not in self._known for r in owed)
            if not owed or (new and waited < COMPILING):
                continue
            names = dict.fromkeys(self.lowered.units[r.unit].name for r in owed)
            why = f"has done nothing for {waited:.1f} s; it owes {len(owed)} job(s) of {', '.join(names)}"
            self.lose(executor, why)
            self.plane.fail(DeviceLostError(f"{executor.label}: {why}"))

    # --- replay -----------------------------------------------------------------------------------

    def replay_start(self, number: int, unit: int, direction: int, keys: list[tuple[int, int]]) -> None:
        """Compute a frame of a log, and wait for it."""
        job = self.engine.replay_take(number, unit, direction, keys)
        self.plane.check()
        executor = next(e for e in self.executors if e.runs(unit))
        executor.run(job)
        executor.finish()
        executor.running.clear()
        if not executor.memory.shared:
            for place, words in self.engine.reported(number):
                executor.memory.download(place, words)

    def replay_end(self, number: int, unit: int) -> None:
        """Hand on what the frame has sent."""
        executor = next(e for e in self.executors if e.runs(unit))
        if self.engine.commit(number):
            for place, words in self.engine.leaving(number):
                executor.memory.download(place, words)
            self.engine.sent(number)
        self.plane.check()
        self.engine.ended(number, executor.worker, 0.0)

    # --- parameters -------------------------------------------------------------------------------

    def runs(self, unit: int) -> bool:
        """Whether an executor computes the unit's frames."""
        return any(e.runs(unit) for e in self.executors)

    def has(self, unit: int) -> bool:
        """Whether the unit's parameters are with an executor."""
        return unit in self._at

    def update(self, nodes: Iterable[str]) -> None:
        """Reduce and publish on behalf of the controller."""
        with self.lock:
            self.plane.check()
            self.push()
            self.complete()
            for name in nodes:
                unit = self.lowered.by_name.get(name, -1)
                if unit not in self._at:
                    raise AmphwError(no_parameters(name))
                self.engine.seal(unit, True)
                self.reduce(unit)
            self._settle()

    def flush(self) -> None:
        """Reduce what is logged without publishing, so that the accumulated gradients are complete."""
        with self.lock:
            self.plane.check()
            self.complete()
            for unit in self._at:
                self.engine.seal(unit, False)
                self.reduce(unit)
            self._settle()

    def _settle(self) -> None:
        self.complete()
        self.check_faults()
        self.plane.check()
        self.plane.collect_log()

    def check_predicted(self, reports: Sequence[Report]) -> None:
        """What is predicted from an index outside its range must not reach anybody."""
        if any(report.mode is Mode.PREDICT for report in reports):
            with self.turn, self.lock:
                self.check_faults()

    def check_faults(self) -> None:
        """Raise what kernels have reported."""
        for executor in self.executors:
            with self._told(executor):
                error = executor.fault()
            if error is not None:
                self.plane.fail(error)
                raise error

    def largest_gradients(self) -> dict[str, list[float]]:
        """Those of the executors, which make the updates: as of the last time that all work was done."""
        with self.lock:
            # Not while work is in the queues: reports of progress would wait for it.
            lost = self._closed or isinstance(self.plane.failure, DeviceLostError)
            if not lost and (self.plane.failed or self.engine.settled()):
                for executor in self.executors:
                    executor.read_gradients()
        return {node: lately for e in self.executors for node, lately in e.largest_gradients.items()}

    def fetch(self) -> None:
        """Bring `params` up to date; while nothing is in flight, what is written there takes effect."""
        with self.lock:
            if isinstance(self.plane.failure, DeviceLostError):
                raise self.plane.failure  # the host's copy is of some time before
            if self._written or self._closed:
                return  # the host's copy is the newer one
            for unit, executor in self._at.items():
                node = self.params[self.lowered.units[unit].name]
                version, rows, _ = self.engine.parameter_state(unit)
                with self._told(executor):
                    executor.parameters[unit].fetch(node)
                node.version, node.rows = version, rows
            self._written = bool(self.engine.settled())

    def push(self) -> None:
        """Take over what the host has written into `params`."""
        if not self._written:
            return
        self._written = False
        for unit, executor in self._at.items():
            node = self.params[self.lowered.units[unit].name]
            with self._told(executor):
                executor.parameters[unit].push(node)
            self.engine.loaded(unit, node.version, node.rows, [])

    def close(self) -> None:
        """Let go of all memory; reports and statistics can still be asked for."""
        self._closed = True
        for executor in self.executors:
            executor.close()


class _Told:
    """Errors of an executor's calls, in the words of `Executor.explained`; the plane hears of a lost one."""

    def __init__(self, regions: Regions, executor: Executor) -> None:
        self.regions, self.executor = regions, executor

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is None:
            return
        told = self.executor.explained(error)
        if told is error:
            return
        self.regions.lose(self.executor, str(told))
        self.regions.plane.fail(told)
        assert self.regions.plane.failure is not None
        raise self.regions.plane.failure from error  # the first that went wrong is the one to look into
