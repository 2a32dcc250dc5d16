"""Memory that workers share: what they would move through it, and what a machine can.

Caches are left out on purpose: every frame is taken to read the matrices that it multiplies with from memory,
and every message to be written and read there. That is more than a machine moves, so a simulation that this
does not slow down is not limited by memory. What one worker's frames take was measured, with all that they
read; only what several of them would move beyond the machine's bandwidth makes frames longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amphw.engine.parts.costs import FLOAT_BYTES
from amphw.estimate.count.firings import Shape
from amphw.estimate.play.simulation import Rules, Tally

CHANNELS, CHANNEL_GB_S = 8, 20.0
"""Of the memory that a machine larger than this one is taken to have at most: those of a server's processor,
each with what copying reaches of DDR4-3200's 25.6 GB/s."""

TIMES_MOVED = 3
"""How often a message is: written, read by the frame that takes it, and read once more for the gradient of
parameters."""


@dataclass(frozen=True)
class Bandwidth:
    """gb_s: gigabytes a second that copying reads and writes, by threads; all this machine's processors are
    among them, and one."""

    gb_s: Mapping[int, float]

    def of(self, workers: int) -> float:
        """Gigabytes a second that so many workers have together, each on a processor.

        Up to this machine's, what was measured with as many threads or more, and at most so many times what
        one has. Beyond, as many times this machine's as it has more processors, up to that of `CHANNELS`.
        """
        here = max(self.gb_s)
        if workers <= here:
            enough = min(threads for threads in self.gb_s if threads >= workers)
            return min(self.gb_s[enough], workers * self.gb_s[1])
        return min(self.gb_s[here] * workers / here, max(self.gb_s[here], CHANNELS * CHANNEL_GB_S))


@dataclass(frozen=True)
class Memory:
    """What a simulation assumed of memory: gb_s it has, wanted it would have moved if memory kept up, moved
    it did (gigabytes a second), as frames took `slowed` times as long as one worker's alone."""

    gb_s: float
    wanted: float
    moved: float
    slowed: float

    def to_json(self) -> dict[str, float]:
        return {
            "gb_s": self.gb_s,
            "wanted_gb_s": self.wanted,
            "share": self.moved / self.gb_s,
            "slowed": self.slowed,
        }


@dataclass(frozen=True)
class Moves:
    """What workers would move. frame: bytes of the matrices that a frame multiplies with, by unit. instance:
    bytes of an instance's messages, each as often as it is moved, on average."""

    frame: Mapping[int, int]
    instance: float

    @classmethod
    def of(cls, rules: Rules, shapes: Sequence[Shape]) -> Moves:
        """A row is multiplied with each entry of a matrix once, so as many multiplications are as many
        entries."""
        frame = {unit: FLOAT_BYTES * products for unit, (_, products, _) in rules.parts.items()}
        messages = sum(
            sum(s.first_bytes) + sum(map(sum, s.target_bytes)) + sum(map(sum, s.origin_bytes)) for s in shapes
        )
        return cls(frame, TIMES_MOVED * messages / len(shapes))

    def gb_s(self, tally: Tally) -> float:
        """Gigabytes a second."""
        frames = sum(each * tally.unit_frames.get(unit, 0) for unit, each in self.frame.items())
        return (frames + self.instance * tally.retired) / tally.us * 1e-3
