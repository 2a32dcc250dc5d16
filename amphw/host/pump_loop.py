"""A device kept full of instances by a loop that does nothing else: what benchmarks and estimates measure."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from amphw.host.pumping import POLL_S
from amphw.ir.device import Device, Mode, Report
from amphw.ir.instance import Instance

NAP_S = 2e-4
"""Between two looks at whether a device is still busy."""


class PumpLoop:
    """Keeps all of some slots of a device full, in a cycle over instances."""

    def __init__(
        self,
        device: Device,
        instances: Sequence[Instance],
        sizes: Sequence[int],
        slots: Sequence[int],
        mode: Mode,
    ) -> None:
        self._device, self._mode = device, mode
        self._instances, self._sizes, self._slots = instances, sizes, slots
        self._generation = dict.fromkeys(slots, 0)
        self._next = 0

    def run(self, seconds: float) -> dict[str, Any]:
        """Pump for `seconds` and drain -> count (what the model counts), seconds, cpu.

        Filling and emptying are part of the time, as they are of every epoch.
        """
        cpu, began = time.process_time(), time.perf_counter()
        end = began + seconds
        count = self._pump(lambda: time.perf_counter() < end)
        return {"count": count, "seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}

    def run_to(
        self, marks: Sequence[int], tell: Callable[[dict[str, Any]], None] = lambda mark: None
    ) -> list[dict[str, Any]]:
        """Pump as many instances as the last of `marks` says -> the time and the memory at each of them."""
        found: list[dict[str, Any]] = []
        began, pumped = time.perf_counter(), 0

        def go_on() -> bool:
            nonlocal pumped
            if len(found) < len(marks) and pumped == marks[len(found)]:
                found.append({"pumped": pumped, "seconds": time.perf_counter() - began, "memory": memory()})
                tell(found[-1])
            pumped += 1
            return pumped <= marks[-1]

        self._pump(go_on)
        return found

    def run_rounds(self, seconds: float, busy: Callable[[], bool]) -> list[float]:
        """Pump for `seconds` in rounds, at least one -> the microseconds of this thread that each took.

        In a round the host takes the reports of all slots at once, and fills them again. Then it sleeps,
        which does not count, until the device is `busy` no more. So it wakes up once for as many instances
        as there are slots.
        """
        end = time.perf_counter() + seconds
        spent: list[float] = []
        since: float | None = None

        def reports() -> list[Report]:
            nonlocal since
            if since is not None:
                spent.append((time.thread_time() - since) * 1e6)
            while busy():
                time.sleep(NAP_S)
            since = time.thread_time()
            return self._device.poll(0.0)

        self._pump(lambda: not spent or time.perf_counter() < end, reports)
        return spent

    def _pump(self, go_on: Callable[[], bool], reports: Callable[[], list[Report]] | None = None) -> int:
        """Submit one instance for each time that `go_on` is true, and drain -> what they count. reports:
        polls the device; None: as soon as there is one."""
        device, instances, sizes, mode = self._device, self._instances, self._sizes, self._mode
        generation, at, count = self._generation, self._next, 0
        going = True
        free = list(self._slots)
        in_flight = 0
        while True:
            while free and going:
                going = go_on()
                if not going:
                    break
                slot = free.pop()
                generation[slot] += 1
                device.submit(slot, generation[slot], instances[at], mode)
                count += sizes[at]
                at = at + 1 if at + 1 < len(instances) else 0
                in_flight += 1
            if not going:
                break
            for report in reports() if reports is not None else device.poll(POLL_S):
                free.append(report.slot)
                in_flight -= 1
        device.drain()
        self._next = at
        return count


def memory() -> float:
    """Megabytes that the process has used at most so far."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (1024 * 1024 if sys.platform == "darwin" else 1024)
