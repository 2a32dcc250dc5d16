"""Processes that a supervisor must not leave behind: which there are below it, and their end.

Read from Linux's /proc. Elsewhere none are found, and what a killed launcher leaves is up to the ranks, which
watch their parents.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_DEATH_SIGNAL, _ADOPTS = 1, 36
"""PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER of prctl(2)."""
_ENDS = 10.0
"""Seconds after which a process that SIGKILL does not end, as where a network disk hangs, is left."""


@dataclass(frozen=True)
class Process:
    """ended: whether it only waits for its parent to ask how."""

    pid: int
    parent: int
    ended: bool


def processes() -> list[Process]:
    """All of the machine."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # it has ended
            pid, _, rest = entry.read_text(encoding="utf-8", errors="replace").partition(" (")
            fields = rest.rpartition(") ")[2].split()
            found.append(Process(int(pid), int(fields[1]), fields[0] == "Z"))
    return found


def adopt_orphans() -> None:
    """From now on processes below this one become its children when their parents end."""
    _prctl(_ADOPTS, 1)


def ends_with_parent() -> Callable[[], None]:
    """What a child calls before it becomes its program, to be killed when this process ends in any way."""
    parent, libc = os.getpid(), _libc()

    def call() -> None:
        if libc is not None:
            libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # which has ended already
                os._exit(1)

    return call


def end_all_below(own: int) -> None:
    """Kill whatever is left below process `own`, which is this one and has adopted orphans."""
    latest = time.monotonic() + _ENDS
    while time.monotonic() < latest:
        every = processes()
        below = {own}
        while more := {each.pid for each in every if each.parent in below} - below:
            below |= more
        left = [each for each in every if each.pid in below - {own}]
        if not left:
            return
        for each in left:
            with contextlib.suppress(OSError):
                if not each.ended:
                    os.kill(each.pid, signal.SIGKILL)
                elif each.parent == own:
                    os.waitpid(each.pid, os.WNOHANG)
        time.sleep(0.02)


def _prctl(what: int, value: int) -> None:
    libc = _libc()
    if libc is not None:
        libc.prctl(what, value, 0, 0, 0)


def _libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
