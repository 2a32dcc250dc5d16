"""What a device whose worker threads serve a data plane has behind the device protocol.

Each worker calls the plane's `run` for about a millisecond at a time, and sleeps in its `wait` when there is
nothing to do. What a device loads, and on which plane, is its own business.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from amphw.ir.device import Mode, Report, Statistics
from amphw.ir.errors import ExecutionError
from amphw.ir.exchange import Names, NodeGradient, Rows
from amphw.ir.instance import Instance
from amphw.ir.service_log import LogEnded, ServiceLog
from amphw.ir.update import NodeParameters

RUN_BUDGET = 1e-3
"""Seconds that a worker stays inside the plane."""

NAP = 0.05
"""Seconds after which a worker without work looks whether the device is closing."""


class PlaneDevice:
    """A device's `load` closes it, makes a plane, and calls `start`; the other methods of `Device` are here.

    replay: the log of a run, which is then repeated in the calling thread, without workers. Parameters
    survive `close`, until the next `load`.
    """

    def __init__(self, replay: ServiceLog | None = None) -> None:
        self._logged = replay
        self._unpolled: list[Report] = []  # of a replay
        self._threads: list[threading.Thread] = []
        self._stop = threading.Event()
        self._open = False

    def start(self, plane: Any, replay: Callable[[Any, ServiceLog], Any], workers: int) -> None:
        """Serve the plane, which has the methods of `NumpyPlane`, or have `replay(plane, log)` drive it.

        The device is closed, or has never been open.
        """
        self.plane = plane
        # Frames are the parallelism; BLAS threads would fight over cores.
        threadpool_limits(limits=1)
        self.replay = replay(plane, self._logged) if self._logged is not None else None
        self._open = True
        self._stop.clear()
        if self.replay is None:
            self._threads = [
                threading.Thread(target=self._work, args=(w,), name=f"amphw-worker-{w}", daemon=True)
                for w in range(workers)
            ]
            # Whoever else forgets it: a thread that is in C++ when the interpreter goes away, and returns to
            # one that is gone, takes the process down.
            atexit.register(self.close)
        for thread in self._threads:
            thread.start()

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
            found, self._unpolled = self._unpolled + self.replay.run(), []
            if not found and self.replay.left:
                raise LogEnded(self.replay.left)
            return found
        return self.plane.poll(timeout)

    def drain(self) -> list[Report]:
        out: list[Report] = []
        if self.replay is not None:
            while found := self.poll():
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
        if self.replay is None:
            self.plane.update(nodes if nodes is not None else list(self.plane.params))
        else:  # a log holds the updates, at their place among the frames: up to here
            self._unpolled += self.replay.run()

    def parameters(self) -> dict[str, NodeParameters]:
        self.plane.fetch()
        return self.plane.params

    def gradients(self, by_rows: Names) -> dict[str, NodeGradient]:
        """See `Exchanges`."""
        found: dict[str, NodeGradient] = self.plane.gradients(by_rows)
        return found

    def give(self, gradients: Mapping[str, NodeGradient]) -> None:
        """See `Exchanges`."""
        self.plane.give(gradients)

    def keep(self, names: Names, away: Names) -> None:
        """See `Exchanges`."""
        self.plane.keep(names, away)

    def put(self, values: Mapping[str, Mapping[str, np.ndarray | Rows]]) -> None:
        """See `Exchanges`."""
        self.plane.put(values)

    def pulled(self) -> dict[str, dict[str, Rows]]:
        """See `Exchanges`."""
        found: dict[str, dict[str, Rows]] = self.plane.pulled()
        return found

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
        atexit.unregister(self.close)
