"""How far nextpnr is, read from its log: a large circuit is placed and routed for half an hour and more.

Only what it says from time to time is looked for, and a line that is not known says nothing.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOG = "nextpnr.log"
_EVERY = 60.0
"""Seconds between two looks."""
_STEPS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"at iteration #(\d+), type ALL|iter=(\d+) steplen="), "placing, round {}"),
    (re.compile(r"at iteration #(\d+): temp"), "moving single cells, round {}"),
    (re.compile(r"^Info: +\d+ \|(?:[^|]*\|){2} +(\d+)\|"), "routing, {} connections left"),
    (re.compile(r"iter=\d+ wires=\d+ overused=(\d+)"), "routing, {} wires taken twice"),
)
"""What is in a line, and what it means: of the placers, and of the routers."""


def step(log: str) -> str:
    """What the last line that tells it says of how far it is; empty: nothing."""
    for line in reversed(log.splitlines()):
        for pattern, meaning in _STEPS:
            if found := pattern.search(line):
                return meaning.format(f"{int(found[found.lastindex or 0]):,}")
    return ""


@contextmanager
def watched(log: Path, say: Callable[[str], None] | None) -> Iterator[None]:
    """Tell about the steps in the log while the block runs, one a minute at most. say: None for nobody."""
    ended = threading.Event()

    def watch(say: Callable[[str], None]) -> None:
        before = ""
        while not ended.wait(_EVERY):
            now = step(log.read_text(errors="replace")) if log.is_file() else ""
            if now and now != before:
                say(now)
            before = now

    watcher = threading.Thread(target=watch, args=(say,), daemon=True) if say is not None else None
    if watcher is not None:
        watcher.start()
    try:
        yield
    finally:
        ended.set()
        if watcher is not None:
            watcher.join()
