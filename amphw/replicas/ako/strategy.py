"""Partial gradient exchange (Ako: Watcharapichat et al., SoCC 2016): ranks update on their own at once, and
in each round send every other one a part of what they have accumulated for it.

A round is `replicas.every` instances of a rank, or `replicas.every_updates` updates; all nodes' gradients of
it, the sums of what each of their updates has applied, are cut and sent together. All-to-all exchange is the
same with one partition. Nobody waits for messages, but no rank begins a round that is further ahead of the
slowest other one than p + tau. Where all meet, everything that is owed is sent in full first.

Where nodes update by themselves and the device `Receives`, all of that goes on in a thread beside the pump
(`exchanger`), and instances are in flight meanwhile. Elsewhere they return before each round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from amphw.host.gradients import Clipping, accumulated, give, receive, tell, told
from amphw.ir.device import Device
from amphw.ir.graph import Graph
from amphw.ir.received import Receives
from amphw.ir.update import UpdateRule
from amphw.replicas.ako.clocks import Clocks
from amphw.replicas.ako.coding import coded, decoded
from amphw.replicas.ako.cost import Measured
from amphw.replicas.ako.exchanger import Exchanger, Step
from amphw.replicas.ako.flat import Flat
from amphw.replicas.ako.message import Member, Message
from amphw.replicas.ako.receiving import Joined, ranges
from amphw.replicas.ako.sender import Outbox, Sender
from amphw.replicas.collectives import all_reduce
from amphw.replicas.own_pace import BODY, OwnPace
from amphw.replicas.paced import Paced
from amphw.replicas.packed import Traffic
from amphw.replicas.round_gradient import RoundGradient
from amphw.replicas.rounds import Rounds
from amphw.replicas.transport import Transport
from amphw.replicas.wire import coded_kind

UNDER_WAY = 2
"""Messages to a rank that may be on their way at once; what is more waits, and is merged."""
_FINISHED = np.zeros(1, np.uint8)
"""In place of a message: its sender makes no more rounds until all have met."""


class Ako(OwnPace):
    """See `Strategy`. partitions, tau: p at the beginning, and `replicas.staleness`; None: as many as there
    are ranks. apply: `replicas.apply`. measured: changes p as the rate of gradients does; None: p stays.
    tells: nodes update by themselves, and the device has to say with what. accumulates: as in `Sender`."""

    moves_whole = "gradients"

    def __init__(
        self,
        name: str,
        partitions: int | None,
        tau: int | None = None,
        apply: Literal["paper", "mean"] = "paper",
        measured: Measured | None = None,
        tells: bool = False,
        accumulates: bool = True,
    ):
        super().__init__()
        self.name = name
        self._wanted, self._tau, self._apply_as, self._measured = partitions, tau, apply, measured
        self._tells, self._accumulates = tells, accumulates
        self._before, self._drift, self._bytes = Paced(), 0.0, 0  # of the shares until now
        self._exchanger: Exchanger | None = None  # of the rounds that are being pumped
        self._drains = ""  # the device that lets instances return before each round

    def usual_every(self, window: int) -> int:
        return window

    @property
    def _bound(self) -> int:
        return self._partitions + (self._ranks if self._tau is None else self._tau)

    def begin(
        self, device: Device, transport: Transport, graph: Graph, rules: Mapping[str, UpdateRule]
    ) -> None:
        self._ranks = transport.ranks
        self._partitions = transport.ranks if self._wanted is None else self._wanted
        found = device.parameters()
        self._flat, self._rules = Flat.of(found), {node: p.rule for node, p in found.items()}
        self._joined = Joined(self._flat, self._rules)
        self._own = RoundGradient(self._flat, self._rules)
        self._begin_rounds(transport)
        if self._measured is not None:
            self._measured.probe(transport)
        if self._tells:
            tell(device)
            self._drains = "" if isinstance(device, Receives) else device.capabilities().name

    def explained(self) -> list[str]:
        if not self._drains:
            return []
        return [
            f"replicas.strategy={self.name}: the device {self._drains!r} takes in nothing while instances "
            "are in flight, so they return before each exchange; --device cpu goes on computing"
        ]

    def _begin_rounds(self, transport: Transport) -> None:
        me = Member(transport.rank)
        peers = [Member(rank) for rank in range(transport.ranks) if rank != transport.rank]
        flat = self._flat
        self._sender = Sender(me, peers, flat.spans, self._partitions, flat.kind, self._accumulates)
        self._clocks = Clocks(me, peers, self._bound)
        self._boxes = {peer.number: Outbox() for peer in peers}
        self._arrived: list[Message] = []

    # --- this rank's own gradients ------------------------------------------------------------------

    def update(self, device: Device, clipping: Clipping) -> None:
        gradients = accumulated(device, {})
        changed = clipping.clip(gradients)
        self._own.note(gradients)  # these are applied now, and belong to the present round
        if self._apply_as == "mean":
            changed = self._joined.into(gradients) or changed
        if changed:
            give(device, gradients)
        device.update()

    def _take_told(self, device: Device, last: bool) -> None:
        """What nodes have updated with by themselves. last: also what they have not updated with yet."""
        if last:
            device.update()
        for node, applied in told(device).items():
            self._own.add(node, applied)

    # --- rounds -------------------------------------------------------------------------------------

    def pumping(self, device: Device, transport: Transport, traffic: Traffic, rounds: Rounds) -> None:
        if not self._tells or not isinstance(device, Receives):
            return

        def exchange(due: int) -> Step:
            began = time.perf_counter()
            came = self._take_in(transport, traffic)
            self._apply(device)
            makes = due > 0 and self._clocks.may_advance()
            if makes:
                self._make_round(device, transport, traffic, last=False)
                self._resplit(transport, traffic)
            if came or makes:
                traffic.note("exchange" if makes else "receive", began, time.perf_counter())
            called = rounds.limit is None and bool(self._called)
            return Step(came or makes, makes, called or not self._clocks.may_advance(due - makes))

        rounds.beside = self._exchanger = Exchanger(exchange)
        self._exchanger.start()

    def check(self, transport: Transport) -> None:
        if self._exchanger is None:
            transport.check()
        else:
            self._exchanger.check()

    def close(self) -> None:
        if self._exchanger is not None:
            self._exchanger.stop()
            self._exchanger = None

    def pass_on(
        self, device: Device, transport: Transport, traffic: Traffic, rounds: Rounds, asks: bool
    ) -> None:
        beside = self._exchanger
        self.close()
        device.drain()
        if beside is not None:
            beside.check()
        self._take_in(transport, traffic)
        if asks or self._called or not rounds.more():
            self._agree(transport, traffic, rounds)
        if beside is None:
            self._make_round(device, transport, traffic, last=not rounds.more())
            if rounds.more():
                self._resplit(transport, traffic)
                self._hold_or_agree(transport, traffic, rounds)
                if not rounds.more() and self._tells:
                    self._make_round(device, transport, traffic, last=True)
        else:
            for _ in range(beside.due):
                self._hold_or_agree(transport, traffic, rounds)
                self._make_round(device, transport, traffic, last=False)
                self._resplit(transport, traffic)
            self._hold_or_agree(transport, traffic, rounds)
            if not rounds.more():
                self._make_round(device, transport, traffic, last=True)
        if not rounds.more():
            self._finish(transport, traffic)
        self._apply(device)

    def _make_round(self, device: Device, transport: Transport, traffic: Traffic, last: bool) -> None:
        if self._tells:
            self._take_told(device, last)
        self._round(transport, traffic)

    def _hold_or_agree(self, transport: Transport, traffic: Traffic, rounds: Rounds) -> None:
        """Wait until the bound lets this rank go on. Where it is called meanwhile it agrees first, as those
        that are waited for may have stopped."""
        self._hold(transport, traffic, lambda: rounds.limit is None and bool(self._called))
        if rounds.limit is None and self._called:
            self._agree(transport, traffic, rounds)
            self._hold(transport, traffic, lambda: False)

    def _hold(self, transport: Transport, traffic: Traffic, unless: Callable[[], bool]) -> None:
        """Wait until the bound lets this rank go on, or `unless`."""
        before = traffic.waited
        self._wait(transport, traffic, lambda: self._clocks.may_advance() or unless())
        self._before.blocked += traffic.waited - before

    def _round(self, transport: Transport, traffic: Traffic) -> None:
        traffic.steps += 1
        self._enqueue(self._sender.advance(self._own.values, self._own.counts))
        self._clocks.advance()
        self._own.clear()
        self._send(transport, traffic)

    def _resplit(self, transport: Transport, traffic: Traffic) -> None:
        """Cut into another number of partitions where gradients have become faster or slower."""
        if self._measured is None:
            return
        size = self._flat.size * coded_kind(self._flat.kind, traffic.wire).itemsize
        waits = any(map(len, self._boxes.values()))
        held = self._before.blocked
        wanted = self._measured.round(size, transport.ranks, self._bytes, waits, held)
        if wanted is None or wanted == self._partitions:
            return
        self._partitions = wanted
        self._enqueue(self._sender.resplit(wanted, [Member(k) for k in self._boxes]))
        self._clocks.bound = self._bound
        self._send(transport, traffic)

    def _finish(self, transport: Transport, traffic: Traffic) -> None:
        """No more rounds: all that is owed goes out, and nobody waits for this rank."""
        self._enqueue(self._sender.drain())
        self._send(transport, traffic, everything=True)
        self._post_to_all(transport, BODY, [_FINISHED])
        if self._measured is not None:
            self._measured.pause()

    def _enqueue(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._boxes[message.to.number].put(message)

    def _send(self, transport: Transport, traffic: Traffic, everything: bool = False) -> None:
        """What links have room for. A rank that is slow to take its messages holds up nobody."""
        for to, box in self._boxes.items():
            while len(box) and (everything or transport.posted(to) < UNDER_WAY):
                message = box.next()
                self._post(transport, to, BODY, coded(message, traffic.wire))
                self._count(message, traffic, sent=True)

    def _take_in(self, transport: Transport, traffic: Traffic) -> bool:
        came = super()._take_in(transport, traffic)
        self._send(transport, traffic)
        return came

    # --- the others' gradients ----------------------------------------------------------------------

    def take(self, source: int, body: np.ndarray, traffic: Traffic) -> None:
        heard = self._clocks.heard[source]
        if body.size == _FINISHED.size:
            heard.finished = True
            return
        flat = self._flat
        message = decoded(body, len(flat.nodes), flat.size, traffic.wire, flat.kind)
        self._count(message, traffic, sent=False)
        if heard.take(message):
            self._arrived.append(message)

    def _apply(self, device: Device) -> None:
        arrived, self._arrived = self._arrived, []
        if self._apply_as == "mean":
            for message in arrived:
                self._joined.add(message)
        elif arrived:
            receive(device, list(ranges(self._flat, arrived)))

    def _count(self, message: Message, traffic: Traffic, sent: bool) -> None:
        if message.values is not None:
            moved = self._flat.count(message.layout.part(message.partition), traffic, sent)
            self._bytes += moved if sent else 0

    # --- where all meet -----------------------------------------------------------------------------

    def exchange(self, device: Device, transport: Transport, traffic: Traffic, planned: np.ndarray) -> None:
        self._arrive(transport, traffic, planned)
        self._apply(device)
        if self._apply_as == "mean":  # there is no next update before all meet
            gradients = accumulated(device, {})
            if self._joined.into(gradients):
                give(device, gradients)
            device.update()
            device.drain()
        before = self._values(device)
        super().exchange(device, transport, traffic, planned)
        after = self._values(device)
        length = float(np.linalg.norm(after))
        self._drift = float(np.linalg.norm(before - after)) / length if length else 0.0
        self._before = self.paced
        self._forget()
        self._begin_rounds(transport)

    def _values(self, device: Device) -> np.ndarray:
        found = device.parameters()
        return np.concatenate(
            [found[self._flat.nodes[p.node]].values[p.name].reshape(-1) for p in self._flat.pieces]
        ).astype(np.float64)

    @property
    def paced(self) -> Paced:
        found = self._before.after(self._clocks.own, self._clocks.leads)
        return replace(found, bound=self._bound, partitions=self._partitions)

    def told(self, transport: Transport) -> dict[str, Any]:
        """drift: how far ranks were from their mean where they met last, relative to its length, on average.
        sent: bytes of values that a rank has sent in rounds, on average. The rest as in `Paced.of_all`."""
        means = np.array([self._drift, self._bytes]) / transport.ranks
        all_reduce(transport, means)
        return {
            **self.paced.of_all(transport, transport.ranks),
            "drift": float(means[0]),
            "sent": float(means[1]),
        }
