"""The CPU device: worker threads over a data plane, behind the device protocol.

Each worker calls the plane's `run` for about a millisecond at a time; the C++ plane serves many frames in
such a call without the interpreter's lock. Where the extension is missing, or where AMPHW_ENGINE=numpy, the
numpy plane takes its place. Workers, policies and host do not know which plane it is.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from amphw.cpu_runtime import planes
from amphw.engine.lower import lower
from amphw.engine.policy import POLICIES, placement
from amphw.ir.device import Capabilities, DeviceOptions, Mode, Report, Statistics
from amphw.ir.errors import AmphwError, ExecutionError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.passes import fuse
from amphw.ir.update import NodeParameters, UpdateRule, initial_parameters

RUN_BUDGET = 1e-3
"""Seconds that a worker stays inside the plane."""

NAP = 0.05
"""Seconds after which a worker without work looks whether the device is closing."""


_opened: weakref.WeakSet[CpuDevice] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A thread inside C++ when the interpreter goes away would take the process down."""
    for device in list(_opened):
        device.close()


class CpuDevice:
    """CpuDevice(replay=log) repeats a logged run in the calling thread.

    settings: workers, placement ("shared", "pinned", or {node: worker}, nodes that it leaves out on worker
    0), fuse, and those of the plane (see NumpyPlane). Parameters survive `close`, until the next `load`.
    """

    def __init__(self, replay: Sequence[tuple[Any, ...]] | None = None) -> None:
        self._logged = replay
        self._threads: list[threading.Thread] = []
        self._stop = threading.Event()
        self._open = False
        planes.chosen()  # what cannot be had is said here, before a run has begun

    def capabilities(self) -> Capabilities:
        notes, advice = planes.described()
        workers = os.cpu_count() or 1
        return Capabilities("cpu", "cpu", workers=workers, notes=f"worker threads, {notes}", advice=advice)

    def load(self, graph: Graph, rules: Mapping[str, UpdateRule], options: DeviceOptions) -> None:
        self.close()
        settings = options.settings
        self.options = options
        for name in ("workers", "frame_cap", "frame_rows", "min_rows"):
            if int(settings.get(name, 1)) < 1:
                raise AmphwError(f"device.{name} = {settings[name]}, allowed is 1 or more")
        self.workers = int(settings.get("workers", min(2, os.cpu_count() or 1)))
        policy = settings.get("policy", "default")
        if policy not in POLICIES:
            raise AmphwError(f"device.policy = '{policy}', allowed is {', '.join(POLICIES)}")
        self.lowered = lower(fuse(graph) if settings.get("fuse", True) else graph)
        self.graph = graph
        owners = {n: graph.nodes[n].params for n in graph.parameterised}
        self.params = initial_parameters(owners, dict(rules), options.seed)
        self.log: list[Any] = []
        plane, replay = planes.chosen()
        self.plane = plane(
            self.lowered,
            self.params,
            updates=options.updates,
            workers=self.workers,
            placement=self._placement(settings.get("placement", "shared"), options.seed),
            settings=settings,
            log=self.log if options.log else None,
            keys=options.max_active_keys,
        )
        # Frames are the parallelism; BLAS threads would fight over cores.
        threadpool_limits(limits=1)
        self.replay = replay(self.plane, self._logged) if self._logged is not None else None
        self._open = True
        _opened.add(self)
        self._stop.clear()
        if self.replay is None:
            self._threads = [
                threading.Thread(target=self._work, args=(w,), name=f"amphw-worker-{w}", daemon=True)
                for w in range(self.workers)
            ]
        for thread in self._threads:
            thread.start()

    def _placement(self, kind: str | Mapping[str, int], seed: int) -> Sequence[set[int]] | None:
        if isinstance(kind, str):
            return placement(self.lowered, kind, self.workers, seed)
        out: list[set[int]] = [set() for _ in range(self.workers)]
        for name in kind:
            if name not in self.graph.nodes:
                raise AmphwError(f"placement: there is no node '{name}'")
        for u in self.lowered.units:
            worker = kind.get(u.name, 0)
            if not 0 <= worker < self.workers:
                raise AmphwError(
                    f"placement: node '{u.name}' on worker {worker}, there are 0..{self.workers - 1}"
                )
            out[worker].add(u.index)
        return out

    def _work(self, worker: int) -> None:
        plane = self.plane
        try:
            while not self._stop.is_set() and not plane.failed:
                if not plane.run(worker, RUN_BUDGET):
                    plane.wait(worker, NAP)
        except BaseException as error:  # whatever it is, the host must hear of it rather than wait forever
            plane.fail(error)

    def submit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        if not self._open:
            raise ExecutionError("the device is closed; load a graph first")
        (self.replay or self.plane).submit(slot, generation, instance, mode)

    def planned_bytes(self, instance: Instance, mode: Mode) -> int | None:
        return self.plane.planned_bytes(instance, mode)

    def poll(self, timeout: float = 0.0) -> list[Report]:
        """See Device. Also raises ExecutionError, naming nodes and firings, once nothing can move."""
        if self.replay is not None:
            return self.replay.run()
        return self.plane.poll(timeout)

    def drain(self) -> list[Report]:
        out: list[Report] = []
        if self.replay is not None:
            while found := self.replay.run():
                out += found
            return out
        while self.plane.in_flight:
            found = self.plane.poll(NAP if self._open else 0.0)
            if not found and not self._open:  # nobody is left who could finish them
                raise ExecutionError(f"closed with {self.plane.in_flight} instance(s) in flight; drain first")
            out += found
        self.plane.flush()
        return out

    def update(self, nodes: Sequence[str] | None = None) -> None:
        if self.replay is None:  # a log holds the updates, at their place among the frames
            self.plane.update(nodes if nodes is not None else list(self.params))

    def parameters(self) -> dict[str, NodeParameters]:
        self.plane.fetch()
        return self.params

    def statistics(self) -> Statistics:
        return self.plane.statistics()

    def close(self) -> None:
        """Stop the workers, after the frames that they are at; may be called at any time, and again."""
        self._open = False
        self._stop.set()
        if self._threads:
            self.plane.wake()
        for thread in self._threads:
            thread.join()
        self._threads = []
