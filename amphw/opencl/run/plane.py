"""The engine with OpenCL devices for its workers: frames out, events in, messages on their way.

One thread drives all devices (`step`): it takes frames from the engine, puts them into the devices' queues,
and hands their messages on. With one device it does so at once, since the queue keeps the order; a frame
that the host must read, and every frame where there are several devices, waits for its event first. The
engine's parameters are only counted; their values are on the device that runs the node.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from amphw.engine import faults
from amphw.engine.lowering.lower import Lowered
from amphw.engine.plane import EnginePlane, NoRoom
from amphw.engine.policy import BACKWARD, KINDS
from amphw.ir.config_fields import picked
from amphw.ir.device import Mode, Report
from amphw.ir.errors import AmphwError, DeviceLostError
from amphw.ir.instance import Instance
from amphw.ir.update import NodeParameters, no_parameters
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.variants import Tune
from amphw.opencl.options import OpenCLOptions
from amphw.opencl.platform.platforms import Found, MemorySettingError
from amphw.opencl.run.executor import Executor, Running
from amphw.opencl.run.memory import LEAST, Arena

Submission = tuple[int, int, Instance, Mode]


class OpenCLPlane(EnginePlane):
    """Same methods as the other planes, and `step` in the place of workers.

    settings: also memory (bytes that a device may use for instances in flight), depth (frames in a device's
    queue), zero_copy (whether devices work in the host's memory; default: where they can).
    """

    name = "OpenCL data plane"

    def __init__(
        self,
        lowered: Lowered,
        params: dict[str, NodeParameters],
        devices: Sequence[Found],
        forms: Sequence[tuple[Form, Tune]],
        *,
        placement: Sequence[set[int]],
        settings: Mapping[str, Any],
        **options: Any,
    ):
        self.arena = Arena(arena_bytes(devices, settings))
        try:
            super().__init__(
                lowered,
                params,
                settings=settings,
                workers=len(devices),
                placement=placement,
                shared=(self.arena.address, self.arena.size),
                **options,
            )
        except MemoryError as error:
            raise MemorySettingError(
                f"device.memory = {self.arena.size} bytes are too few for this graph's constants; raise it"
            ) from error
        self.depth = picked(OpenCLOptions, settings).depth
        self.lock = threading.RLock()  # of the queues
        self.turn = threading.Lock()
        self.executors = []
        for index, (device, (form, tune)) in enumerate(zip(devices, forms, strict=True)):
            units = [
                (u, t)
                for u, t in zip(lowered.units, self.tiled, strict=True)
                if t is not None and u.index in placement[index]
            ]
            self.executors.append(Executor(index, device, self.arena, form, tune, settings, units, params))
            self.executors[-1].memory.upload(*self.engine.constants())
        self._at = {u: e for e in self.executors for u in e.parameters}
        self._reads = {u.index for u in lowered.units if u.behaviour.report or u.behaviour.decides}
        self._waiting: list[Submission] = []  # for room
        self._closed = False
        self._written = True  # whether the host may have changed the parameters

    # --- instances --------------------------------------------------------------------------------

    def submit(self, index: int, generation: int, instance: Instance, mode: Mode) -> None:
        """As `EnginePlane.submit`; an instance for which there is no room waits for others to retire."""
        self.check()
        for waiting in self._waiting:
            if waiting[0] == index:
                raise faults.occupied(index, waiting[2])
        if self._waiting or not self._fits(index, generation, instance, mode):
            self._waiting.append((index, generation, instance, mode))

    def _fits(self, index: int, generation: int, instance: Instance, mode: Mode) -> bool:
        if self._written or not all(e.memory.shared for e in self.executors):
            # Parameters and data go first into the queue; `turn` keeps the other thread out meanwhile.
            with self.turn, self.lock:
                return self._pumped(index, generation, instance, mode)
        return self._pumped(index, generation, instance, mode)

    def _pumped(self, index: int, generation: int, instance: Instance, mode: Mode) -> bool:
        if not self._room_for(index, generation, instance, mode):
            return False
        for executor in self.executors:
            if not executor.memory.shared:  # else the instance may have retired by now, and its data with it
                executor.memory.upload(*self.engine.data_of(index))
        return True

    def _room_for(self, index: int, generation: int, instance: Instance, mode: Mode) -> bool:
        """Submit to the engine; False while what is in flight leaves no room."""
        try:
            super().submit(index, generation, instance, mode)
            return True
        except NoRoom:
            if self.engine.in_flight():
                return False
        # The last ones have retired, but the queues may still be at work in their memory.
        self.complete()
        self.engine.trim()
        try:
            super().submit(index, generation, instance, mode)
            return True
        except NoRoom:
            needed = self.planned_bytes(instance, mode)
            raise DeviceLostError(
                f"instance {instance.number} does not fit on the device even alone: it takes {needed} bytes, "
                f"and its data, of the {self.arena.size} that are set aside. Raise device.memory, or make "
                "instances smaller."
            ) from None

    @property
    def in_flight(self) -> int:
        return super().in_flight + len(self._waiting)

    def poll(self, timeout: float) -> list[Report]:
        reports = super().poll(timeout)
        try:
            if any(report.mode is Mode.PREDICT for report in reports):
                with self.turn, self.lock:
                    self.check_faults()  # what is predicted from a wrong index must not reach anybody
        except BaseException:
            self._unpolled = reports
            raise
        try:
            while self._waiting and not self._closed and self._fits(*self._waiting[0]):
                self._waiting.pop(0)
        except BaseException:
            del self._waiting[0]  # it is refused, not in flight
            self._unpolled = reports
            raise
        return reports

    # --- the driving thread -----------------------------------------------------------------------

    def step(self) -> bool:
        """Go on as far as possible without waiting -> whether there was anything to do."""
        worked = False
        with self.turn:
            pass  # whoever waits for the lock goes first
        with self.lock:
            for executor in self.executors:
                worked |= self._collect(executor)
                while len(executor.running) < self.depth and self._next(executor):
                    worked = True
        return worked

    def rest(self, seconds: float) -> None:
        """Wait until a device has done something, or else until there is something to do."""
        running = [e for e in self.executors if e.running]
        if len(running) == 1:
            running[0].wait()
        elif running:
            time.sleep(2e-5)  # whichever is first
        else:
            self.engine.wait(0, seconds)

    def _next(self, executor: Executor) -> bool:
        job = self.engine.take(executor.index)
        if job is None:
            return False
        self.begin(executor, job)
        return True

    def begin(self, executor: Executor, job: tuple[Any, ...]) -> Running:
        """Put a frame into the device's queue, and hand its messages on unless something must wait for it."""
        number, unit, kind = job[:3]
        waits = len(self.executors) > 1 or (kind != BACKWARD and unit in self._reads)
        flow = self.engine.origin(number) if self.trace is not None else None
        running = executor.run(job, waits)
        running.flow = flow
        if not waits:
            self.deliver(running)
        return running

    def deliver(self, running: Running) -> None:
        """Hand a frame's messages on, and reduce the node's log where that has become due."""
        self.engine.commit(running.number)
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
            executor.memory.upload(place, words)
            event = executor.parameters[unit].reduce(place, rows)
            if due and gradient_rows:
                event = executor.parameters[unit].update(place + words, gradient_rows, version)
            self.engine.reduced(unit)
            kind = len(KINDS) if due else -1
            executor.note(Running(number, event, began, unit, kind, 0))
            if due and until_due:
                return

    def _collect(self, executor: Executor) -> bool:
        ended = executor.done()
        for running in ended:
            if running.waits:
                self.fetch_results(executor, running)
                self.deliver(running)
            now = time.perf_counter()
            self.engine.ended(running.number, executor.index, now - max(running.began, executor.busy_until))
            executor.busy_until = now
            if self.trace is not None and running.kind >= 0:
                self._traced(executor, running, now)
        return bool(ended)

    def fetch_results(self, executor: Executor, running: Running) -> None:
        """Bring what the host reads of a frame to its view, and what other devices read to theirs."""
        several = len(self.executors) > 1
        if executor.memory.shared and not several:
            return
        rows, made, made_words = self.engine.results(running.number)
        executor.memory.download(made, made_words)
        executor.memory.download_rows(rows)
        for other in self.executors:
            if other is not executor:
                other.memory.upload_rows(rows)

    def _traced(self, executor: Executor, running: Running, now: float) -> None:
        assert self.trace is not None
        kind = "update" if running.kind == len(KINDS) else KINDS[running.kind]
        frame = running.number if running.number > 0 else None
        begin, length = running.began * 1e6, (now - running.began) * 1e6
        name = self.lowered.units[running.unit].name
        flow = running.flow if running.flow is not None and running.flow >= 0 else None
        self.trace(executor.index, name, kind, begin, length, running.rows, flow, frame)

    def complete(self) -> None:
        """Wait for all that the queues hold, and hand it on."""
        with self.lock:
            while any(e.running for e in self.executors):
                for executor in self.executors:
                    executor.finish()
                    self._collect(executor)

    # --- parameters -------------------------------------------------------------------------------

    def update(self, nodes: Iterable[str]) -> None:
        """Reduce and publish on behalf of the controller."""
        with self.lock:
            self.check()
            self.push()
            self.complete()
            for name in nodes:
                if name not in self.params or name not in self.lowered.by_name:
                    raise AmphwError(no_parameters(name))
                unit = self.lowered.by_name[name]
                self.engine.seal(unit, True)
                self.reduce(unit)
            self._settle()

    def flush(self) -> None:
        """Reduce what is logged without publishing, so that the accumulated gradients are complete."""
        with self.lock:
            self.check()
            self.complete()
            for unit in self._at:
                self.engine.seal(unit, False)
                self.reduce(unit)
            self._settle()

    def _settle(self) -> None:
        self.complete()
        self.check_faults()
        self.check()
        self.collect_log()

    def check_faults(self) -> None:
        """Raise what kernels have reported."""
        for executor in self.executors:
            if (error := executor.fault()) is not None:
                self.fail(error)
                raise error

    def largest_gradients(self) -> dict[str, list[float]]:
        """Those of the executors, which make the updates: as of the last time that all work was done."""
        with self.lock:
            # Not while work is in the queues: reports of progress would wait for it.
            lost = self._closed or isinstance(self.failure, DeviceLostError)
            if not lost and (self.failed or self.engine.settled()):
                self._read_gradients()
        return {node: lately for e in self.executors for node, lately in e.largest_gradients.items()}

    def _read_gradients(self) -> None:
        for executor in self.executors:
            with contextlib.suppress(executor.cl.Error):  # a device that is lost does not answer
                executor.finish()
                executor.read_faults()

    def fetch(self) -> None:
        """Bring `params` up to date; while nothing is in flight, what is written there takes effect."""
        with self.lock:
            if isinstance(self.failure, DeviceLostError):
                raise self.failure  # the host's copy is of some time before
            if self._written or self._closed:
                return  # the host's copy is the newer one
            for unit, executor in self._at.items():
                node = self.params[self.lowered.units[unit].name]
                version, rows, _ = self.engine.parameter_state(unit)
                executor.parameters[unit].fetch(node)
                node.version, node.rows = version, rows
            self._written = bool(self.engine.settled())

    def push(self) -> None:
        if not self._written:
            return
        self._written = False
        for unit, executor in self._at.items():
            node = self.params[self.lowered.units[unit].name]
            executor.parameters[unit].push(node)
            self.engine.loaded(unit, node.version, node.rows, [])

    def close(self) -> None:
        """Let go of all memory; reports and statistics can still be asked for."""
        self._closed = True
        for executor in self.executors:
            executor.close()
        self.arena.forget()


def arena_bytes(devices: Sequence[Found], settings: Mapping[str, Any]) -> int:
    """Bytes of the arena: a share of the smallest device's memory, unless it is set."""
    most = min(d.largest_allocation for d in devices)
    wanted = picked(OpenCLOptions, settings).memory or min(most, *(d.memory // 4 for d in devices), 2 << 30)
    if wanted < LEAST:
        raise MemorySettingError(f"device.memory = {wanted}, allowed is {LEAST} bytes or more")
    if wanted > most:
        raise MemorySettingError(
            f"device.memory = {wanted}, the device allocates at most {most} bytes in one piece"
        )
    return wanted
