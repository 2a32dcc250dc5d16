"""A thread of a rank that exchanges beside the pump, while the workers compute.

The pump says when a round is over. What nodes have updated with until the exchanger gets to it belongs to
that round; where several are over by then, the later ones have nothing left to tell.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

NAP = 5e-3
"""Seconds after which it looks for messages, where no round wakes it. To look costs the workers time, and a
round usually takes longer."""


@dataclass(frozen=True)
class Step:
    """busy: there may be more to do at once. made: a round that was over has been made. holds: as
    `Exchanger.holds`."""

    busy: bool
    made: bool
    holds: bool


class Exchanger:
    """exchange(due): take in what has come, send what can be sent and, if any of the `due` rounds may be
    made, make one.

    From `start` until `stop` it is called in the thread, and nowhere else; so is the transport.
    """

    def __init__(self, exchange: Callable[[int], Step]):
        self._exchange = exchange
        self._awake, self._stop = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._holds = False
        self._over = self._made = 0  # the pump counts one of them, the thread the other
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="amphw-exchanger", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait until it is at rest; may be called again."""
        if self._thread is not None:
            self._stop.set()
            self._awake.set()
            self._thread.join()
            self._thread = None

    def check(self) -> None:
        """Raise what the exchange raised."""
        if self._error is not None:
            raise self._error

    def over(self) -> None:
        """See `rounds.Beside`."""
        self._over += 1
        self._awake.set()

    @property
    def due(self) -> int:
        """Rounds that are over and have not been made."""
        return self._over - self._made

    @property
    def holds(self) -> bool:
        """See `rounds.Beside`."""
        return self._holds or self._error is not None

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._awake.clear()
                step = self._exchange(self.due)
                self._made += step.made
                self._holds = step.holds
                if not step.busy:
                    self._awake.wait(NAP)
        except BaseException as error:  # whatever it is, the pump must hear of it
            self._error = error
