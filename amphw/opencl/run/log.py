"""What a part of a run logs of gradients, until there are rows enough for their sum (`abi.LOG_ROWS`).

The queue runs in order. So a log is written anew as soon as its sum is in the queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from amphw.engine.numbering import WORTH_REDUCING
from amphw.engine.tiles.code import TiledUnit
from amphw.ir.update import NodeParameters
from amphw.opencl import abi
from amphw.opencl.run.rows import APART


@dataclass
class LogRows:
    """A piece of the gradient log. Places of its buffers and of its columns of integers; rows by space."""

    buffers: list[int]
    ints: list[int]
    rows: list[int]

    def header(self) -> np.ndarray:
        """See `abi.LOG_ROWS`."""
        head = np.zeros(abi.LOG_BUFFERS, np.int32)
        head[abi.LOG_ROWS : abi.LOG_ROWS + len(self.rows)] = self.rows
        return np.array([*head, *self.buffers, *self.ints], np.int32)


@dataclass
class GradientLog:
    """One node's gradient log. logged: gradient rows in it; reduced: of the interval, in the gradients."""

    node: NodeParameters
    rows: LogRows
    capacity: int
    logged: int = 0
    reduced: int = 0
    version: int = 0

    @classmethod
    def at(cls, place: int, share: int, tiled: TiledUnit, node: NodeParameters) -> tuple[GradientLog, int]:
        """One of `share` words at most, from a place on -> it, and where it ends."""
        strides = [abi.row_stride(width) for width, _ in tiled.log_buffers] + [2] * len(tiled.log_ints)
        capacity = min(2 * WORTH_REDUCING, share // (sum(strides) + len(strides)))
        places = []
        for stride in strides:
            places.append(abi.rounded(place, APART))
            place = places[-1] + capacity * stride
        n = len(tiled.log_buffers)
        return cls(node, LogRows(places[:n], places[n:], [0] * len(tiled.spaces)), capacity), place

    def fits(self, rows: Sequence[int]) -> bool:
        return all(u + r <= self.capacity for u, r in zip(self.rows.rows, rows, strict=True))
