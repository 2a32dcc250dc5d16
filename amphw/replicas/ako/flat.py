"""All parameters of a graph as one vector, which is what is cut into partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from amphw.ir.update import NodeParameters
from amphw.replicas.packed import Traffic
from amphw.replicas.wire import coded_kind


class Piece(NamedTuple):
    """Of one parameter a contiguous part. node: its number. inside: where it is in the parameter, flattened.
    at: where it is in the vector, or the partition, that it is a piece of."""

    node: int
    name: str
    inside: slice
    at: slice


@dataclass(frozen=True)
class Flat:
    """nodes: their names, in order. kind: of all numbers. pieces: whole parameters, by their place."""

    nodes: tuple[str, ...]
    kind: np.dtype
    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, parameters: Mapping[str, NodeParameters]) -> Flat:
        nodes, pieces, end = tuple(sorted(parameters)), [], 0
        kinds = {v.dtype for p in parameters.values() for v in p.values.values()}
        assert len(kinds) == 1, kinds
        for number, node in enumerate(nodes):
            for name, value in parameters[node].values.items():
                pieces.append(Piece(number, name, slice(0, value.size), slice(end, end + value.size)))
                end += value.size
        return cls(nodes, kinds.pop(), tuple(pieces))

    @property
    def size(self) -> int:
        return self.pieces[-1].at.stop

    @property
    def spans(self) -> list[slice]:
        """Of each node, which numbers are its own."""
        of = [[p.at for p in self.pieces if p.node == number] for number in range(len(self.nodes))]
        return [slice(each[0].start, each[-1].stop) for each in of]

    def inside(self, part: slice) -> Iterator[Piece]:
        """What a partition consists of."""
        for piece in self.pieces:
            first, last = max(piece.at.start, part.start), min(piece.at.stop, part.stop)
            if first < last:
                inside = slice(first - piece.at.start, last - piece.at.start)
                yield Piece(piece.node, piece.name, inside, slice(first - part.start, last - part.start))

    def count(self, part: slice, traffic: Traffic, sent: bool) -> int:
        """A partition has gone over the wire -> its bytes."""
        size = coded_kind(self.kind, traffic.wire).itemsize
        for piece in self.inside(part):
            moved = size * (piece.inside.stop - piece.inside.start)
            traffic.count(self.name(piece), moved if sent else 0, 0 if sent else moved)
        return size * (part.stop - part.start)

    def name(self, piece: Piece) -> str:
        """NODE.NAME"""
        return f"{self.nodes[piece.node]}.{piece.name}"
