"""OpenCL devices behind the device protocol: `opencl:0`, `opencl:gpu`, `opencl:0,1`, ..."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from amphw.engine.lowering.lower import Lowered, lower
from amphw.engine.parts.launches import launches_found
from amphw.engine.parts.replay import RegionReplay
from amphw.engine.policy import check_settings
from amphw.ir.device import Capabilities, DeviceOptions, Findings, Mode, Report, Statistics
from amphw.ir.errors import AmphwError, DeviceLostError, ExecutionError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.passes import fuse
from amphw.ir.precision import only_float32
from amphw.ir.service_log import ServiceLog
from amphw.ir.update import NodeParameters, UpdateRule, initial_parameters
from amphw.opencl.platform.lost import is_driver_error, not_opened
from amphw.opencl.platform.platforms import (
    capabilities,
    check_process,
    check_usable,
    choose,
)
from amphw.opencl.run.executor import chosen_form
from amphw.opencl.run.plane import OpenCLPlane, arena_bytes
from amphw.opencl.run.region import OpenCLRegion

NAP = 0.05
"""Seconds after which the driving thread looks whether the device is closing."""


class OpenCLDevice:
    """OpenCLDevice("0,1") runs a graph on two devices; replay=log repeats a logged run in the calling thread.

    settings: placement ({node: number of the device among those chosen}; by default nodes with parameters in
    turn), fuse, and those of `OpenCLPlane`. Parameters survive `close`, until the next `load`.
    """

    def __init__(self, argument: str = "", replay: ServiceLog | None = None) -> None:
        self.found = choose(argument)
        for device in self.found:
            check_usable(device)
        self._logged = replay
        self._stop = threading.Event()
        self._open = False
        self.plane: OpenCLPlane | None = None
        self.replay: RegionReplay | None = None

    def capabilities(self) -> Capabilities:
        each = [capabilities(device) for device in self.found]
        if len(each) == 1:
            return each[0]
        return Capabilities(
            f"opencl:{','.join(str(device.number) for device in self.found)}",
            "opencl",
            workers=len(each),
            memory=sum(device.memory for device in self.found),
            notes="; ".join(f"{one.name}: {one.notes}" for one in each),
            advice=" ".join(dict.fromkeys(one.advice for one in each if one.advice)),
        )

    def part(self) -> OpenCLRegion:
        """See `OffersPart`. Raises AmphwError where this is several devices, each of which is a part."""
        if len(self.found) > 1:
            each = ",".join(f"{'abcdefgh'[k % 8]}=opencl:{d.number}" for k, d in enumerate(self.found))
            raise AmphwError(
                f"{self.capabilities().name} is several devices: in a run with others each has a name of its "
                f"own, as in cpu,{each}"
            )
        return OpenCLRegion(self.found[0])

    def load(self, graph: Graph, rules: Mapping[str, UpdateRule], options: DeviceOptions) -> None:
        self.close()
        self.plane = self.replay = None
        check_process()
        settings = options.settings
        check_settings(settings, "frame_cap", "frame_rows", "min_rows", "depth")
        only_float32(settings, self.capabilities().name)
        self.lowered = lower(fuse(graph, sinks=True) if settings.get("fuse", True) else graph)
        owners = {n: graph.nodes[n].params for n in graph.parameterised}
        self.params = initial_parameters(owners, dict(rules), options.seed)
        self.log: list[Any] = []
        try:
            self.plane = OpenCLPlane(
                self.lowered,
                self.params,
                self.found,
                [chosen_form(device, settings.get("form")) for device in self.found],
                updates=options.updates,
                placement=_placement(self.lowered, settings.get("placement"), len(self.found)),
                settings=settings,
                log=self.log if options.log else None,
                keys=options.max_active_keys,
            )
        except Exception as error:
            if not is_driver_error(error):
                raise
            size = min(arena_bytes(device, settings) for device in self.found)
            raise not_opened(error, self.found, size) from error
        plane = self.plane
        self.replay = RegionReplay(plane, self._logged, plane.regions) if self._logged is not None else None
        self._open = True
        self._stop.clear()
        if self.replay is None:
            plane.regions.start(self._stop)
            # Whoever else forgets it: a thread that is in a driver when the interpreter goes away, and comes
            # back to one that is gone, takes the process down.
            atexit.register(self.close)

    def _plane(self) -> OpenCLPlane:
        if self.plane is None:
            raise ExecutionError("the device is closed; load a graph first")
        return self.plane

    def submit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        if not self._open:
            raise ExecutionError("the device is closed; load a graph first")
        (self.replay or self._plane()).submit(slot, generation, instance, mode)

    def planned_bytes(self, instance: Instance, mode: Mode) -> int | None:
        return self._plane().planned_bytes(instance, mode)

    def poll(self, timeout: float = 0.0) -> list[Report]:
        """See Device. Also raises ExecutionError, naming nodes and firings, once nothing can move."""
        return self.replay.run() if self.replay is not None else self._plane().poll(timeout)

    def drain(self) -> list[Report]:
        plane: OpenCLPlane = self._plane()
        out: list[Report] = []
        if self.replay is not None:
            while found := self.replay.run():
                out += found
            return out
        while plane.in_flight:
            found = plane.poll(NAP if self._open else 0.0)
            if not found and not self._open:  # nobody is left who could finish them
                raise ExecutionError(f"closed with {plane.in_flight} instance(s) in flight; drain first")
            out += found
        if self._open:
            plane.flush()
        return out

    def update(self, nodes: Sequence[str] | None = None) -> None:
        if not self._open:
            raise ExecutionError("the device is closed; load a graph first")
        if self.replay is None:  # a log holds the updates, at their place among the frames
            self._plane().update(nodes if nodes is not None else list(self.params))

    def parameters(self) -> dict[str, NodeParameters]:
        """See Device. Raises DeviceLostError where the current values went with the device."""
        self._plane().fetch()
        return self.params

    def statistics(self) -> Statistics:
        return self._plane().statistics()

    def findings(self) -> Findings:
        """See `Investigates`: how many kernels were launched for a frame of each unit."""
        executors = self.plane.executors if self.plane is not None else []
        names = [f"opencl:{device.number}" for device in self.found]
        return launches_found({n: e.launches() for n, e in zip(names, executors, strict=False)})

    def close(self) -> None:
        """Stop after the frames in the queues; may be called at any time, and again."""
        if not self._open:
            return
        plane = self._plane()
        self._stop.set()
        plane.wake()
        plane.regions.join()
        self._open = False
        atexit.unregister(self.close)
        try:
            if not plane.failed:
                plane.fetch()
        except DeviceLostError:  # which is told to whoever asks for the parameters
            pass
        finally:
            plane.close()


def _placement(lowered: Lowered, wanted: Any, devices: int) -> list[set[int]]:
    """The units of each device. By default nodes with parameters take turns, the others go to the first."""
    out: list[set[int]] = [set() for _ in range(devices)]
    if isinstance(wanted, Mapping):
        for name, device in wanted.items():
            if name not in lowered.graph.nodes:
                raise AmphwError(f"placement: there is no node '{name}'")
            if not 0 <= device < devices:
                raise AmphwError(f"placement: node '{name}' on device {device}, there are 0..{devices - 1}")
    turn = 0
    for u in lowered.units:
        if isinstance(wanted, Mapping):
            at = wanted.get(u.name, 0)
        else:
            at = turn % devices if u.owns else 0
            turn += u.owns
        out[at].add(u.index)
    return out
