"""Asynchronous group synchronisation: replicas of a node tell each other what they have moved by, and go on.

AMPNet (Gaunt et al., arXiv 1705.09786, section 5) lets the replicas of a node average "asynchronously, by
message passing". A message here has what a rank has moved its parameters by since its last one. Every rank,
the sender too, adds the N-th part of each message to the parameters that all share:

    shared += (own - shared) / N        what is sent, by this rank
    shared += message / N               what is received, from any other

and goes on from there. Sums do not hang on the order of messages, so once all have arrived each rank holds
the mean that a barrier would have made, up to rounding, and until then nobody has waited.

Copies of a node inside a rank's graph belong to the group: a message has the mean of what they have moved by,
and all copies go on from what is shared. Between two messages they may meet by themselves, which leaves their
mean as it is (`ir.meeting`).

Rejected: sending parameters in place of moves, with which a message that comes late takes back what has been
learnt meanwhile; and moves of the optimisers' state, whose differences can make a second moment negative.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from amphw.ir.device import Device
from amphw.ir.graph import Graph
from amphw.ir.meeting import mean
from amphw.ir.update import NodeParameters, UpdateRule
from amphw.replicas.own_pace import BODY, OwnPace
from amphw.replicas.packed import Traffic, unpacked
from amphw.replicas.rounds import Rounds
from amphw.replicas.transport import Transport
from amphw.replicas.wire import coded_kind, decode, encode

EVERY = 50
"""Instances of a rank between two of its messages, where nobody has said."""


class Group(OwnPace):
    """See `Strategy`. When all meet, the state of the optimisers alone is averaged."""

    name = "group"
    moves_whole = "changes of parameters"

    def __init__(self) -> None:
        super().__init__()
        self._shared: dict[str, np.ndarray] = {}  # the start and N-th parts of all messages so far
        self._first: dict[str, str] = {}  # of a node that is a copy of others, the first of them

    def usual_every(self, window: int) -> int:
        return EVERY

    def begin(
        self, device: Device, transport: Transport, graph: Graph, rules: Mapping[str, UpdateRule]
    ) -> None:
        self._ranks = transport.ranks
        self._first = {node: group[0] for group in graph.replicas for node in group}
        self.moved(device)

    def moved(self, device: Device) -> None:
        self._shared = self._means(device.parameters())

    def pass_on(
        self, device: Device, transport: Transport, traffic: Traffic, rounds: Rounds, asks: bool
    ) -> None:
        device.drain()
        found = device.parameters()
        moves = {name: value - self._shared[name] for name, value in self._means(found).items()}
        coded = {name: encode(move, traffic.wire) for name, move in moves.items()}
        self._post_to_all(transport, BODY, [coded[name] for name in sorted(coded)])
        for name, sent in coded.items():
            traffic.count(name, (transport.ranks - 1) * sent.nbytes, 0)
            moves[name] = decode(sent, traffic.wire, moves[name].dtype)  # as the others have it
        self._add(moves)
        self._take_in(transport, traffic)
        if asks or self._called or not rounds.more():
            self._agree(transport, traffic, rounds)
        for node, p in found.items():
            p.values = {name: self._of(node, name).copy() for name in p.values}
        traffic.steps += 1

    def exchange(self, device: Device, transport: Transport, traffic: Traffic, planned: np.ndarray) -> None:
        device.update()  # what is accumulated belongs to this rank's parameters
        device.drain()
        found = device.parameters()
        own = {
            node: {name: value - self._of(node, name) for name, value in p.values.items()}
            for node, p in found.items()
        }
        self._arrive(transport, traffic, planned)
        for node, moves in own.items():
            found[node].values = {name: self._of(node, name) + move for name, move in moves.items()}
        super().exchange(device, transport, traffic, planned)
        self.moved(device)
        self._forget()

    def take(self, source: int, body: np.ndarray, traffic: Traffic) -> None:
        self._add(self._unpacked(body, traffic))

    def _unpacked(self, body: np.ndarray, traffic: Traffic) -> dict[str, np.ndarray]:
        names = sorted(self._shared)
        likes = [self._shared[name] for name in names]
        found = unpacked(body, [(coded_kind(like.dtype, traffic.wire), like.size) for like in likes])
        for name, coded in zip(names, found, strict=True):
            traffic.count(name, 0, coded.nbytes)
        return {
            name: decode(coded.reshape(like.shape), traffic.wire, like.dtype)
            for name, like, coded in zip(names, likes, found, strict=True)
        }

    def _of(self, node: str, name: str) -> np.ndarray:
        """What is shared of this parameter."""
        return self._shared[f"{self._first.get(node, node)}.{name}"]

    def _means(self, found: Mapping[str, NodeParameters]) -> dict[str, np.ndarray]:
        """Values by parameter, of nodes that are copies of each other once, on average."""
        copies: dict[str, list[np.ndarray]] = {}
        for node, p in found.items():
            for name, value in p.values.items():
                copies.setdefault(f"{self._first.get(node, node)}.{name}", []).append(value)
        return {name: mean(each) for name, each in copies.items()}

    def _add(self, moves: Mapping[str, np.ndarray]) -> None:
        for name, move in moves.items():
            self._shared[name] += move / move.dtype.type(self._ranks)
