"""How far nextpnr is, read from its log: a large circuit is placed and routed for minutes, or an hour.

A line that is not known says nothing.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

LOG = "nextpnr.log"
_EVERY = 60.0
"""Seconds from one word to the next."""
_STEPS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Running main analytical placer"), "placing"),
    (re.compile(r"at iteration #(\d+), type ALL|iter=(\d+) steplen="), "placing, round {}"),
    (re.compile(r"at iteration #(\d+): temp"), "moving single cells, round {}"),
    (re.compile(r"^Info: +\d+ \|(?:[^|]*\|){2} +(\d+)\|"), "routing, {} connections left"),
    (re.compile(r"iter=\d+ wires=\d+ overused=(\d+)"), "routing, {} wires taken twice"),
)
"""What is in a line, and what it means: of the placers, and of the routers."""


def step(log: str) -> str:
    """What the last whole line that tells it says of how far it is; empty: nothing."""
    for line in reversed(log.split("\n")[:-1]):
        for pattern, meaning in _STEPS:
            if found := pattern.search(line):
                number = found[found.lastindex] if found.lastindex else "0"
                return meaning.format(f"{int(number):,}")
    return ""


@contextmanager
def watched(log: Path, say: Callable[[str], None] | None) -> Iterator[None]:
    """Tell once a minute, while the block runs, what step the log has come to. say: None for nobody."""
    if say is None:
        yield
        return
    ended = threading.Event()

    def watch() -> None:
        for minutes in count(1):
            if ended.wait(_EVERY):
                return
            found = ""
            with suppress(OSError):  # not there yet
                found = step(log.read_text(errors="replace"))
            say(f"{found or 'placing and routing'} (for {minutes} min)")

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
