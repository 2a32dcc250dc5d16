"""A run that somebody watches (`amphw watch`): where it stands, in its folder, while somebody looks.

Who watches touches a file there every few seconds; the run looks for it as often as its progress is told, and
writes where it stands only while that file is fresh. So a run that nobody watches does nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from amphw.host.progress import LiveStats
from amphw.host.records import json_safe
from amphw.host.run_folder import METRICS, SUMMARY, RunFolder, RunFolderError
from amphw.host.run_lock import locked

ASKED, LIVE = ".watched", "live.json"
FRESH = 10.0
"""Seconds for which a run goes on writing after somebody has asked."""
EVERY = 0.5
"""Seconds between two writes."""


class Watching:
    """The run's side. folder: of the run."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._wrote = folder, 0.0

    def wanted(self) -> bool:
        """Whether somebody looks, and it is time to write."""
        if time.monotonic() - self._wrote < EVERY:
            return False
        try:
            return time.time() - (self._folder / ASKED).stat().st_mtime < FRESH
        except OSError:
            return False

    def update(self, stats: LiveStats) -> None:
        """Write where the run stands; that this cannot be written is no reason to stop training."""
        self._wrote = time.monotonic()
        target = self._folder / LIVE
        beside = target.with_name(f".{LIVE}.tmp")
        with contextlib.suppress(OSError):
            # Nothing of it needs to outlive a crash, so nothing is synced.
            beside.write_text(json.dumps({**json_safe(stats), "time": time.time()}), encoding="utf-8")
            os.replace(beside, target)


def ask(folder: Path) -> None:
    """Have the run in this folder write where it stands, for some seconds from now on."""
    with contextlib.suppress(OSError):
        (folder / ASKED).touch()


def looked(folder: RunFolder) -> dict[str, Any]:
    """What is to be seen of a run. running: a process trains in its folder. live: where it stands, as
    `LiveStats` has it; None: it has not said so lately. epochs: as in `metrics.json`. summary: None before
    its end."""
    running = _running(folder.path)
    live = _read(folder, LIVE)
    fresh = running and live is not None and time.time() - live["time"] < FRESH
    return {
        "running": running,
        "live": live if fresh else None,
        "epochs": _read(folder, METRICS) or [],
        "summary": _read(folder, SUMMARY) if not running else None,
    }


def _running(folder: Path) -> bool:
    try:
        with locked(folder):
            return False
    except BlockingIOError:
        return True
    except OSError:  # a folder that can only be read: its figures are all there is
        return False


def _read(folder: RunFolder, name: str) -> Any:
    try:
        return folder.read_json(name) if folder.file(name).exists() else None
    except RunFolderError:  # it is being written just now, or damaged
        return None
