"""Which instances of a run are in flight: those for which every device has room. The others wait."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from amphw.engine.parts.driver import PartDriver
from amphw.ir.device import Mode
from amphw.ir.instance import Instance
from amphw.ir.instance_check import check_instance

Offer = tuple[int, int, Instance, Mode]
"""(slot, generation, instance, mode)."""


class Admission:
    """drivers: those that are asked for room. pump: gives an offer to the engine of `plane` -> whether there
    was room in the memory that it shares with devices."""

    def __init__(self, plane: Any, drivers: Sequence[PartDriver], pump: Callable[[Offer], bool]) -> None:
        self._plane, self._drivers, self._pump = plane, drivers, pump
        self.waiting: deque[Offer] = deque()
        self._full: PartDriver | None = None  # who had no room
        self._moved = time.perf_counter()  # when something was in flight, or nothing waited

    def held(self, slot: int) -> Instance | None:
        """The instance that has a slot."""
        found: Instance | None = self._plane.instance(slot)
        return found or next((offer[2] for offer in self.waiting if offer[0] == slot), None)

    def offer(self, offer: Offer) -> None:
        """Pump an instance, or let it wait."""
        if self.waiting or not self._begin(offer):
            check_instance(self._plane.schema, offer[2])  # what is wrong with it is told now
            self.waiting.append(offer)

    def go_on(self) -> None:
        """Pump those that wait and have room; none overtakes an older one."""
        while self.waiting:
            offer = self.waiting.popleft()  # one that is refused is not in flight
            if not self._begin(offer):
                self.waiting.appendleft(offer)
                break
        self._check_room()

    def _begin(self, offer: Offer) -> bool:
        """Pump it, if there is room everywhere -> whether there was."""
        slot, _, instance, _ = offer
        begun: list[PartDriver] = []
        room = False
        try:
            for driver in self._drivers:
                if not driver.begin(*offer):
                    self._full = driver
                    return False
                begun.append(driver)
            room = self._pump(offer)
        except Exception:
            # This takes long, so it is done now alone: it names what a part may have stumbled over.
            check_instance(self._plane.schema, instance)
            raise
        finally:
            for driver in begun if not room else ():
                driver.end(slot)
        return room

    def _check_room(self) -> None:
        """A part that has none while it has nothing will never have any."""
        now = time.perf_counter()
        if self._plane.in_flight or not self.waiting or self._full is None:
            self._moved = now
        elif now - self._moved > self._full.patience:
            self._full.lose(
                f"has had no room for an instance for {now - self._moved:.1f} s, though none is in flight"
            )
