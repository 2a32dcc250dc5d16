"""Agents for Amaranth's streams: one that sends, and one that receives and checks the rules."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from sim.bench import Pace, always


class Sender:
    """Offers payloads at an input stream, each until it is taken.

    accepted: the payloads that the component has taken since the last reset.
    """

    def __init__(self, dut: Any, name: str, pace: Pace = always) -> None:
        self.name, self.pace = name, pace
        self.payload, self.valid, self.ready = (
            dut[f"{name}_{part}"] for part in ("payload", "valid", "ready")
        )
        self.waiting: deque[int] = deque()
        self.accepted: list[int] = []
        self._offering = self._valid = False

    def send(self, payloads: Iterable[int]) -> None:
        """Put payloads, as the integers of their bits, behind those that still wait."""
        self.waiting.extend(payloads)

    def drive(self) -> None:
        # A new offer alone is told to the simulator: each value that is written costs time.
        before, self._offering = self._offering, bool(self.waiting) and (self._offering or self.pace())
        if self._offering and not before:
            self.payload.value = self.waiting[0]
        if self._offering != self._valid:
            self._valid = self._offering
            self.valid.value = self._valid

    def sample(self) -> None:
        if self._offering and int(self.ready.value):
            self.accepted.append(self.waiting.popleft())
            self._offering = False

    def restart(self) -> None:
        self.valid.value = 0
        self.waiting.clear()
        self.accepted.clear()
        self._offering = self._valid = False


class Receiver:
    """Takes payloads from an output stream, and holds it to the rules.

    An offer must stay until it is taken, unchanged, and must not depend on being taken: AssertionError
    otherwise.
    received: the payloads, as the integers of their bits, since the last reset.
    """

    def __init__(self, dut: Any, name: str, pace: Pace = always) -> None:
        self.name, self.pace = name, pace
        self.payload, self.valid, self.ready = (
            dut[f"{name}_{part}"] for part in ("payload", "valid", "ready")
        )
        self.received: list[int] = []
        self._willing = False
        self._offered: int | None = None

    def drive(self) -> None:
        before, self._willing = self._willing, self.pace()
        if self._willing != before:
            self.ready.value = self._willing

    def sample(self) -> None:
        offered = int(self.payload.value) if int(self.valid.value) else None
        if self._offered is not None and offered != self._offered:
            what = "took it back" if offered is None else f"changed it to {offered:#x}"
            raise AssertionError(
                f"stream {self.name} offered {self._offered:#x} and {what} before it was taken"
            )
        self._offered = offered
        if offered is not None and self._willing:
            self.received.append(offered)
            self._offered = None

    def restart(self) -> None:
        self.ready.value = 0
        self._willing = False
        self.received.clear()
        self._offered = None
