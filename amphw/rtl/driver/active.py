"""What a driver keeps of an instance on the device, and what it needs of the link to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from amphw.ir.device import Report
from amphw.ir.instance import Instance
from amphw.rtl.driver.layout import Layout, Placed


class Link(Protocol):
    """What carries words to a device and back."""

    def exchange(self, words: np.ndarray, cycles: int) -> tuple[int, np.ndarray, list[int]]:
        """-> words accepted, words that came (uint16), and what was watched."""
        ...

    def close(self) -> None: ...


@dataclass
class Active:
    """An instance on the device."""

    slot: int
    generation: int
    instance: Instance
    report: Report
    layout: Layout
    at: Placed
    sizes: tuple[int, int, int, int]
    unreturned: int = 0  # forward messages to the device that have not come back
    sent: int = 0
    at_losses: int = 0  # messages that wait at a loss
    ran: set[tuple[int, int, int]] = field(default_factory=set)  # (kind, unit, firing)
