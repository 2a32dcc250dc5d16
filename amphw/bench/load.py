"""Who used the processors while something was measured, from /proc (Linux)."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_BUSY = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq and what other machines stole
_TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True)
class Usage:
    """Processor seconds over `seconds`: of everybody (None where /proc does not say), of those who measured
    or were measured, and how many the processors have."""

    seconds: float
    busy: float | None
    own: float
    processors: int

    @property
    def foreign(self) -> float | None:
        """Share 0..1 of all processors that went to somebody else."""
        if self.busy is None or self.seconds <= 0:
            return None
        return max(0.0, self.busy - self.own) / (self.seconds * self.processors)


def total(usages: Iterable[Usage]) -> Usage:
    """Several measurements as one."""
    all_ = list(usages)
    busy = [u.busy for u in all_ if u.busy is not None]
    return Usage(
        sum(u.seconds for u in all_),
        sum(busy) if len(busy) == len(all_) and busy else None,
        sum(u.own for u in all_),
        max((u.processors for u in all_), default=1),
    )


class UsageMeter:
    """Measures from its making until `read`, for the processes `own` and this one."""

    def __init__(self, own: Iterable[int], root: Path = _PROC) -> None:
        self._root, self._own = root, [os.getpid(), *own]
        self._busy, self._processors = self._everybody()
        self._used = {pid: self._process(pid) for pid in self._own}
        self._began = time.perf_counter()

    def read(self) -> Usage:
        seconds = time.perf_counter() - self._began
        busy, _ = self._everybody()
        # A process that has ended takes its count with it; that falls to the foreign side.
        own = sum(max(0.0, self._process(pid) - before) for pid, before in self._used.items())
        known = busy is not None and self._busy is not None
        return Usage(seconds, busy - self._busy if known else None, own, self._processors)  # type: ignore[operator]

    def _everybody(self) -> tuple[float | None, int]:
        try:
            lines = (self._root / "stat").read_text(encoding="ascii").splitlines()
        except OSError:
            return None, os.cpu_count() or 1
        values = [int(word) for word in lines[0].split()[1:]]
        processors = sum(1 for line in lines if line.startswith("cpu")) - 1
        return sum(values[i] for i in _BUSY if i < len(values)) / _TICK, max(1, processors)

    def _process(self, pid: int) -> float:
        with contextlib.suppress(OSError, IndexError, ValueError):
            text = (self._root / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
            fields = text.rpartition(")")[2].split()  # the name before it may hold anything
            return (int(fields[11]) + int(fields[12])) / _TICK
        return 0.0
