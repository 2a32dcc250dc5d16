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

import time
from collections.abc import Callable, Mapping

import numpy as np

from amphw.ir.device import Device
from amphw.ir.graph import Graph
from amphw.ir.meeting import mean
from amphw.ir.update import NodeParameters, UpdateRule
from amphw.replicas.average import Average
from amphw.replicas.packed import Traffic, packed, unpacked
from amphw.replicas.transport import Transport
from amphw.replicas.wire import coded_kind, decode, encode

EVERY = 50
"""Instances of a rank between two of its messages, where nobody has said."""
NAP = 1e-3
"""Seconds between looks for messages, where a rank has nothing else to do."""
_MOVES = -1
"""Heads a message with what a rank has moved by. Another number calls all together: so many instances that
rank has taken."""


class Group(Average):
    """See `Strategy`. When all meet, before validation and what is saved, they take the mean as `Average`
    does, by which they agree to the bit; the state of the optimisers is averaged then alone."""

    name, own_pace = "group", True

    def __init__(self) -> None:
        self._shared: dict[str, np.ndarray] = {}  # the start and N-th parts of all messages so far
        self._first: dict[str, str] = {}  # of a node that is a copy of others, the first of them
        self._forget()

    def _forget(self) -> None:
        """All have met, and no message is under way."""
        self._sent = 0
        self._received: dict[int, int] = {}
        self._called: dict[int, int] = {}  # instances that ranks have taken which call all together
        self._limit: int | None = None  # instances that all have to take before they meet

    def begin(
        self, device: Device, transport: Transport, graph: Graph, rules: Mapping[str, UpdateRule]
    ) -> None:
        self._first = {node: group[0] for group in graph.replicas for node in group}
        self.moved(device)

    def moved(self, device: Device) -> None:
        self._shared = self._means(device.parameters())

    def pass_on(
        self, device: Device, transport: Transport, traffic: Traffic, done: int, total: int, asks: bool
    ) -> int | None:
        device.drain()
        found = device.parameters()
        moves = {name: value - self._shared[name] for name, value in self._means(found).items()}
        coded = {name: encode(move, traffic.wire) for name, move in moves.items()}
        self._post(transport, _MOVES, coded)
        for name, sent in coded.items():
            traffic.count(name, (transport.ranks - 1) * sent.nbytes, 0)
            moves[name] = decode(sent, traffic.wire, moves[name].dtype)  # as the others have it
        self._add(moves, transport.ranks)
        self._take_in(transport, traffic)
        if self._limit is None and (asks or self._called or done >= total):
            self._limit = self._agree(transport, traffic, done)
        for node, p in found.items():
            p.values = {name: self._of(node, name).copy() for name in p.values}
        return self._limit

    def moves(self, ranks: int, size: float, alpha: float | None) -> float | None:
        return None  # how often ranks tell each other is theirs

    def plan(self, device: Device, transport: Transport) -> np.ndarray:
        """How many messages each rank has sent to each of the others."""
        counts = np.zeros(transport.ranks, np.int64)
        counts[transport.rank] = self._sent
        return counts

    def exchange(self, device: Device, transport: Transport, traffic: Traffic, planned: np.ndarray) -> None:
        device.update()  # what is accumulated belongs to this rank's parameters
        device.drain()
        found = device.parameters()
        own = {
            node: {name: value - self._of(node, name) for name, value in p.values.items()}
            for node, p in found.items()
        }
        expected = {source: int(n) for source, n in enumerate(planned) if source != transport.rank}
        self._wait(
            transport, traffic, lambda: all(self._received.get(s, 0) == n for s, n in expected.items())
        )
        for node, moves in own.items():
            found[node].values = {name: self._of(node, name) + move for name, move in moves.items()}
        super().exchange(device, transport, traffic, planned)
        self.moved(device)
        self._forget()

    def _agree(self, transport: Transport, traffic: Traffic, done: int) -> int:
        """Call all together -> the instances of the rank that has taken the most: the others take as many."""
        self._post(transport, done, {})
        self._called[transport.rank] = done
        self._wait(transport, traffic, lambda: len(self._called) == transport.ranks)
        return max(self._called.values())

    def _post(self, transport: Transport, head: int, arrays: Mapping[str, np.ndarray]) -> None:
        message = packed([np.array([head], np.int64), *(arrays[name] for name in sorted(arrays))])
        for rank in range(transport.ranks):
            if rank != transport.rank:
                transport.post(rank, message)
        self._sent += 1

    def _wait(self, transport: Transport, traffic: Traffic, done: Callable[[], bool]) -> None:
        began = time.perf_counter()
        while not done():
            if not self._take_in(transport, traffic):
                transport.check()
                time.sleep(NAP)
        traffic.waited += time.perf_counter() - began

    def _take_in(self, transport: Transport, traffic: Traffic) -> bool:
        """All messages that have come -> whether there were any."""
        came = False
        for source in range(transport.ranks):
            while source != transport.rank and (message := transport.poll(source)) is not None:
                came = True
                self._received[source] = self._received.get(source, 0) + 1
                head = int(message[:8].view(np.int64)[0])
                if head != _MOVES:
                    self._called[source] = head
                    continue
                self._add(self._unpacked(message[8:], traffic), transport.ranks)
        return came

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

    def _add(self, moves: Mapping[str, np.ndarray], ranks: int) -> None:
        for name, move in moves.items():
            self._shared[name] += move / move.dtype.type(ranks)
