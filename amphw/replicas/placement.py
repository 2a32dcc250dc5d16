"""Which server owns what: tables by rows, everything else by ranges of numbers, balanced to within a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from amphw.replicas.collectives import ranges


@dataclass(frozen=True)
class TablePlace:
    """A table's rows go round the servers: the most frequent ones stand together, and would all be one's.

    shift: the server that has row 0.
    """

    shift: int
    servers: int

    def server_of(self, numbers: np.ndarray) -> np.ndarray:
        return (numbers + self.shift) % self.servers

    def first(self, server: int) -> int:
        """Its first row; the others follow at a distance of as many rows as there are servers."""
        return (server - self.shift) % self.servers

    def owned(self, server: int) -> slice:
        return slice(self.first(server), None, self.servers)

    def local(self, numbers: np.ndarray, server: int) -> np.ndarray:
        """Where rows of this server are among those that it owns."""
        return (numbers - self.first(server)) // self.servers


def place_tables(rows: Mapping[str, int], servers: int) -> dict[str, TablePlace]:
    """rows: by table. One begins where the one before has ended."""
    out, shift = {}, 0
    for name in sorted(rows):
        out[name] = TablePlace(shift % servers, servers)
        shift += rows[name]
    return out


def place_dense(sizes: Mapping[str, int], servers: int) -> dict[str, list[slice]]:
    """sizes: numbers of each parameter -> by parameter, the range of each server."""
    parts = ranges(sum(sizes.values()), servers)
    out: dict[str, list[slice]] = {}
    at = 0
    for name in sorted(sizes):
        end = at + sizes[name]
        out[name] = [slice(*(min(max(x, at), end) - at for x in (p.start, p.stop))) for p in parts]
        at = end
    return out
