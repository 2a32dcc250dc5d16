"""The engine on OpenCL devices alone: it forms frames, and their queues run them.

Everything runs in memory that the engine shares with the devices (`amphw.engine.parts.arena`), and one thread
puts frames into the queues (`amphw.engine.parts.region`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from amphw.engine import faults
from amphw.engine.lowering.lower import Lowered
from amphw.engine.parts.arena import LEAST, Arena, MemorySettingError
from amphw.engine.parts.region import Regions
from amphw.engine.plane import EnginePlane
from amphw.ir.config_fields import picked
from amphw.ir.device import Mode, Report
from amphw.ir.instance import Instance
from amphw.ir.update import NodeParameters
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.variants import Tune
from amphw.opencl.options import OpenCLOptions
from amphw.opencl.platform.platforms import Found
from amphw.opencl.run.executor import Executor

Submission = tuple[int, int, Instance, Mode]


class OpenCLPlane(EnginePlane):
    """Same methods as the other planes, but for workers: `regions.work` is in their place.

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
        self.arena = Arena(min(arena_bytes(device, settings) for device in devices))
        super().__init__(
            lowered,
            params,
            settings=settings,
            workers=len(devices),
            placement=placement,
            shared=(self.arena.address, self.arena.size),
            regions={u: worker for worker, units in enumerate(placement) for u in units},
            **options,
        )
        executors = []
        for worker, (device, (form, tune)) in enumerate(zip(devices, forms, strict=True)):
            units = [
                (u, t)
                for u, t in zip(lowered.units, self.tiled, strict=True)
                if t is not None and u.index in placement[worker]
            ]
            executors.append(Executor(worker, "", device, self.arena, form, tune, settings, units, params))
        self.executors = executors
        self.regions = Regions(self, executors, params)
        self._waiting: list[Submission] = []  # for room
        self._closed = False

    # --- instances --------------------------------------------------------------------------------

    def submit(self, index: int, generation: int, instance: Instance, mode: Mode) -> None:
        """As `EnginePlane.submit`; an instance for which there is no room waits for others to retire."""
        self.check()
        for waiting in self._waiting:
            if waiting[0] == index:
                raise faults.occupied(index, waiting[2])
        if self._waiting or not self._pumped(index, generation, instance, mode):
            self._waiting.append((index, generation, instance, mode))

    def _pumped(self, index: int, generation: int, instance: Instance, mode: Mode) -> bool:
        def submit() -> None:
            super(OpenCLPlane, self).submit(index, generation, instance, mode)

        return self.regions.pump(submit, index, instance, mode)

    @property
    def in_flight(self) -> int:
        return super().in_flight + len(self._waiting)

    def poll(self, timeout: float) -> list[Report]:
        reports = super().poll(timeout)
        try:
            self.regions.check_predicted(reports)
        except BaseException:
            self._unpolled = reports
            raise
        try:
            while self._waiting and not self._closed and self._pumped(*self._waiting[0]):
                self._waiting.pop(0)
        except BaseException:
            del self._waiting[0]  # it is refused, not in flight
            self._unpolled = reports
            raise
        return reports

    # --- parameters -------------------------------------------------------------------------------

    def push(self) -> None:
        self.regions.push()

    def fetch(self) -> None:
        """Bring `params` up to date; while nothing is in flight, what is written there takes effect."""
        self.regions.fetch()

    def update(self, nodes: Iterable[str]) -> None:
        """Reduce and publish on behalf of the controller."""
        self.regions.update(nodes)

    def flush(self) -> None:
        """Reduce what is logged without publishing, so that the accumulated gradients are complete."""
        self.regions.flush()

    def largest_gradients(self) -> dict[str, list[float]]:
        return self.regions.largest_gradients()

    def close(self) -> None:
        """Let go of all memory; reports and statistics can still be asked for."""
        self._closed = True
        self.regions.close()
        self.arena.forget()


def arena_bytes(device: Found, settings: Mapping[str, Any]) -> int:
    """Bytes of the arena: a share of the device's memory, unless it is set."""
    most = device.largest_allocation
    wanted = picked(OpenCLOptions, settings).memory or min(most, device.memory // 4, 2 << 30)
    if wanted < LEAST:
        raise MemorySettingError(f"device.memory = {wanted}, allowed is {LEAST} bytes or more")
    if wanted > most:
        raise MemorySettingError(
            f"device.memory = {wanted}, the device allocates at most {most} bytes in one piece"
        )
    return wanted
