"""The CPU device: worker threads over a data plane, behind the device protocol.

The C++ plane serves many frames in one call without the interpreter's lock. Where the extension is missing,
or not wanted (AMPHW_NO_NATIVE=1, AMPHW_ENGINE=numpy), the numpy plane takes its place. Workers, policies and
host do not know which plane it is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from amphw.cpu_runtime import planes
from amphw.engine.lowering.lower import lower
from amphw.engine.plane_device import PlaneDevice
from amphw.engine.policy import check_settings, placement
from amphw.ir.device import Capabilities, DeviceOptions
from amphw.ir.errors import AmphwError
from amphw.ir.graph import Graph
from amphw.ir.passes import fuse
from amphw.ir.received import Received
from amphw.ir.service_log import ServiceLog
from amphw.ir.update import Applied, UpdateRule, initial_parameters


class CpuDevice(PlaneDevice):
    """CpuDevice(replay=log) repeats a logged run in the calling thread.

    settings: workers, placement ("shared", "pinned", or {node: worker}, nodes that it leaves out on worker
    0), fuse, and those of the plane (see NumpyPlane). Parameters survive `close`, until the next `load`.
    """

    def __init__(self, replay: ServiceLog | None = None) -> None:
        super().__init__(replay)
        planes.chosen()  # what cannot be had is said here, before a run has begun

    def capabilities(self) -> Capabilities:
        notes, advice = planes.described()
        workers = os.cpu_count() or 1
        return Capabilities("cpu", "cpu", workers=workers, notes=f"worker threads, {notes}", advice=advice)

    def load(self, graph: Graph, rules: Mapping[str, UpdateRule], options: DeviceOptions) -> None:
        self.close()
        settings = options.settings
        self.options = options
        check_settings(settings, "workers", "frame_cap", "frame_rows", "min_rows")
        self.workers = int(settings.get("workers", min(2, os.cpu_count() or 1)))
        self.lowered = lower(fuse(graph, sinks=True) if settings.get("fuse", True) else graph)
        self.graph = graph
        owners = {n: graph.nodes[n].params for n in graph.parameterised}
        self.params = initial_parameters(owners, dict(rules), options.seed)
        self.log: list[Any] = []
        kind, replay = planes.chosen()
        plane = kind(
            self.lowered,
            self.params,
            updates=options.updates,
            workers=self.workers,
            placement=self._placement(settings.get("placement", "shared"), options.seed),
            settings=settings,
            log=self.log if options.log else None,
            keys=options.max_active_keys,
        )
        self.start(plane, replay, self.workers)

    def tell(self) -> bool:
        """See `Tells`."""
        self.plane.tell()
        return True

    def told(self) -> dict[str, Applied]:
        """See `Tells`."""
        found: dict[str, Applied] = self.plane.told()
        return found

    def receive(self, ranges: Sequence[Received]) -> None:
        """See `Receives`."""
        self.plane.receive(ranges)

    def latest(self, nodes: Sequence[str]) -> dict[str, dict[str, np.ndarray]]:
        """See `Moves`."""
        found: dict[str, dict[str, np.ndarray]] = self.plane.latest(nodes)
        return found

    def move(self, moves: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """See `Moves`."""
        self.plane.move(moves)

    def parameter_bytes(self) -> int:
        """See `Weighs`."""
        return sum(p.bytes() for p in self.params.values()) + int(self.plane.parameter_bytes())

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
