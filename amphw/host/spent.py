"""Where a run's time goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Spent:
    """Seconds by what they went into. What begins within something else takes its time from that."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._open: list[str] = []
        self._since = clock()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Count the time within, also of what fails, as spent on this."""
        self._turn()
        self._open.append(what)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def _turn(self) -> None:
        now = self._clock()
        if self._open:
            what = self._open[-1]
            self.seconds[what] = self.seconds.get(what, 0.0) + now - self._since
        self._since = now
