"""Parameter servers without a barrier, as Ako is compared with (Watcharapichat et al., SoCC 2016): a worker
pushes what it has accumulated in a round to those who own the parameters, and pulls what has become of them.

A server updates with each push by itself, in the order in which they come, so nobody waits for other workers
but where the bound on staleness holds a worker: a server answers a push once its sender may go on. Servers
are ranks of their own, or every rank is a worker and a server of its share; such a rank serves while its
device is at work, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from amphw.host.gradients import Clipping, accumulated, keep, put, tell, told
from amphw.ir.device import Device
from amphw.ir.graph import Graph
from amphw.ir.update import UpdateRule
from amphw.replicas.ako.flat import Flat
from amphw.replicas.async_servers.message import ANSWER, FINISHED, PUSH, Message, coded, decoded
from amphw.replicas.async_servers.server import Server, needs_values
from amphw.replicas.collectives import all_reduce, ranges
from amphw.replicas.own_pace import BODY, OwnPace
from amphw.replicas.paced import Paced
from amphw.replicas.packed import Traffic, all_reduce_packed
from amphw.replicas.round_gradient import RoundGradient
from amphw.replicas.rounds import Rounds
from amphw.replicas.transport import Transport


class AsyncServers(OwnPace):
    """See `Strategy`. servers: the last so many ranks serve and do not train; 0: all do both. tau: the bound,
    `replicas.staleness`; None: as many as there are workers. tells: nodes of the device decide by themselves
    when they update, and it has to say with what."""

    name = "servers-async"
    serves = True

    def __init__(self, servers: int = 0, tau: int | None = None, tells: bool = False):
        super().__init__()
        self.servers_only, self._tau, self._tells = servers, tau, tells
        self._server: Server | None = None
        self._before = Paced()  # of the shares until now

    def usual_every(self, window: int) -> int:
        return window

    def begin(
        self, device: Device, transport: Transport, graph: Graph, rules: Mapping[str, UpdateRule]
    ) -> None:
        n, me = transport.ranks, transport.rank
        self._workers, self._serving = list(self.working(n)), self.serving(n)
        self._me = me
        self._bound = len(self._workers) if self._tau is None else self._tau
        found = device.parameters()
        self._flat = Flat.of(found)
        self._parts = dict(zip(self._serving, ranges(self._flat.size, len(self._serving)), strict=True))
        self._own = RoundGradient(self._flat, {node: p.rule for node, p in found.items()})
        self._shapes = {(node, name): v.shape for node, p in found.items() for name, v in p.values.items()}
        self._pulled = np.zeros(self._flat.size, self._flat.kind)
        if me in self._serving:
            self._server = Server(self._flat, self._parts[me], found, self._workers, self._bound)
        self._begin_rounds()
        self._pushed: list[tuple[int, Message]] = []  # of others, to be applied here
        keep(device, {node: list(p.values) for node, p in found.items()})
        if self._tells:
            tell(device)

    def _begin_rounds(self) -> None:
        self._round = 0
        self._finished: set[int] = set()  # workers that make no more rounds until all have met
        self._answered = dict.fromkeys(self._serving, 0)  # rounds, by server
        self._heard = {server: np.zeros(len(self._workers), np.int64) for server in self._serving}
        self._held = 0.0
        self._leads: dict[int, int] = {}
        if self._server is not None:
            self._server.begin()

    @property
    def owned_bytes(self) -> int:  # type: ignore[override]
        return self._server.bytes if self._server is not None else 0

    def moved(self, device: Device) -> None:
        if self._server is not None:
            self._server.own(device.parameters())

    # --- rounds -------------------------------------------------------------------------------------

    def update(self, device: Device, clipping: Clipping) -> None:
        """The gradients of a window belong to the present round. The device keeps its values."""
        gradients = accumulated(device, {})
        clipping.clip(gradients)
        self._own.note(gradients)
        device.update()

    def look(self, transport: Transport, traffic: Traffic) -> bool:
        return self._take_in(transport, traffic)

    def pass_on(
        self, device: Device, transport: Transport, traffic: Traffic, rounds: Rounds, asks: bool
    ) -> None:
        device.drain()
        self._take_in(transport, traffic)
        if self._me in self._workers:
            self._work(device, transport, traffic, rounds, asks)
        else:
            self._wait(transport, traffic, lambda: bool(self._called))
            self._agree(transport, traffic, rounds)
        if not rounds.more():
            self._wait(transport, traffic, lambda: len(self._finished) == len(self._workers))
        traffic.steps += 1

    def _work(
        self, device: Device, transport: Transport, traffic: Traffic, rounds: Rounds, asks: bool
    ) -> None:
        """Push the round that is over, and go on with what comes back."""
        if self._tells:
            device.update()  # with what nodes still hold
            for node, applied in told(device).items():
                self._own.add(node, applied)
        self._push(transport, traffic)

        def called() -> bool:
            return rounds.limit is None and bool(self._called)

        if asks or called() or not rounds.more():
            self._agree(transport, traffic, rounds)
        if rounds.more():
            self._wait(transport, traffic, lambda: self._all_answered() or called())
            if called():  # those that the bound lets this rank wait for may have stopped
                self._agree(transport, traffic, rounds)
        if not rounds.more():
            self._finish(transport, traffic)
        self._wait(transport, traffic, self._all_answered)
        self._before.blocked += self._held
        self._held = 0.0
        self._put(device)

    def _push(self, transport: Transport, traffic: Traffic) -> None:
        self._round += 1
        rows = self._own.counts[:, 0].copy()
        for server, part in self._parts.items():
            full = needs_values(self._flat.inside(part), rows)
            push = Message(PUSH, self._round, 0.0, rows, self._own.values[part] if full else None)
            if server == self._me:
                self._pushed.append((self._me, push))
            else:
                self._tell(server, push, transport, traffic)
        self._serve(transport, traffic)
        self._own.clear()
        self._count_lead()

    def _count_lead(self) -> None:
        others = [k for k, w in enumerate(self._workers) if w != self._me and w not in self._finished]
        if others:
            slowest = min(int(clocks[others].min()) for clocks in self._heard.values())
            lead = max(0, self._round - slowest)
            self._leads[lead] = self._leads.get(lead, 0) + 1

    def _finish(self, transport: Transport, traffic: Traffic) -> None:
        """No more rounds of this worker: nobody waits for it."""
        for to in range(transport.ranks):
            if to != self._me:
                self._post(transport, to, BODY, coded(Message(FINISHED), traffic.wire))
        self._note_finished(self._me)
        self._serve(transport, traffic)

    def _note_finished(self, worker: int) -> None:
        self._finished.add(worker)
        if self._server is not None:
            self._server.finish(worker)

    def _all_answered(self) -> bool:
        return all(round == self._round for round in self._answered.values())

    def _put(self, device: Device) -> None:
        values: dict[str, dict[str, np.ndarray]] = {}
        for piece in self._flat.pieces:
            node = self._flat.nodes[piece.node]
            new = self._pulled[piece.at].reshape(self._shapes[node, piece.name])
            values.setdefault(node, {})[piece.name] = new.copy()
        put(device, values)

    # --- messages -----------------------------------------------------------------------------------

    def _take_in(self, transport: Transport, traffic: Traffic) -> bool:
        came = super()._take_in(transport, traffic)
        self._serve(transport, traffic)
        return came

    def take(self, source: int, body: np.ndarray, traffic: Traffic) -> None:
        nodes, workers = len(self._flat.nodes), len(self._workers)
        message = decoded(body, nodes, workers, traffic.wire, self._flat.kind)
        if message.kind == FINISHED:
            self._note_finished(source)
            return
        part = self._parts[self._me if message.kind == PUSH else source]
        if message.values is not None:
            self._flat.count(part, traffic, sent=False)
        if message.kind == ANSWER:
            self._take_answer(source, message)
            return
        self._pushed.append((source, message))

    def _take_answer(self, server: int, message: Message) -> None:
        assert message.counts is not None
        if message.values is not None:  # a server may own nothing
            self._pulled[self._parts[server]] = message.values
        self._heard[server], self._answered[server] = message.counts, message.round
        self._held = max(self._held, message.held)

    def _serve(self, transport: Transport, traffic: Traffic) -> None:
        """Apply what has come, and tell whoever may go on what has become of this server's part by now."""
        server, now = self._server, transport.now()
        if server is None:
            return
        for worker, push in self._pushed:
            assert push.counts is not None
            server.push(worker, push.round, push.counts, push.values, now)
        self._pushed.clear()
        for worker, number, held in server.answers(now):
            message = Message(ANSWER, number, held, server.clocks, server.values)
            if worker == self._me:
                self._take_answer(self._me, message)
            else:
                self._tell(worker, message, transport, traffic)

    def _tell(self, to: int, message: Message, transport: Transport, traffic: Traffic) -> None:
        self._post(transport, to, BODY, coded(message, traffic.wire))
        if message.values is not None:
            self._flat.count(self._parts[to if message.kind == PUSH else self._me], traffic, sent=True)

    # --- where all meet -----------------------------------------------------------------------------

    def exchange(self, device: Device, transport: Transport, traffic: Traffic, planned: np.ndarray) -> None:
        """All pushes have been applied and answered: every rank gets what servers have."""
        self._arrive(transport, traffic, planned)
        device.drain()
        found = device.parameters()
        arrays = {
            f"{node}.{name}": np.zeros_like(a) for node, p in found.items() for name, a in p.tensors().items()
        }
        if self._server is not None:
            self._server.into(arrays)
        all_reduce_packed(transport, arrays, traffic)
        nodes = self._flat.nodes
        counts = np.zeros(sum(1 + len(found[node].state) for node in nodes))
        if self._server is not None and self._me == self._serving[0]:  # of which all servers have the same
            clocks = [self._server.updates[node] for node in nodes]
            counts[:] = [x for clock in clocks for x in (clock.version, *clock.state.values())]
        all_reduce(transport, counts)
        numbers = iter(counts.tolist())
        for node in nodes:
            p, version = found[node], round(next(numbers))
            p.restore({name: arrays[f"{node}.{name}"] for name in p.tensors()}, version)
            p.state = {name: next(numbers) for name in p.state}
        self._before = self.paced
        self._forget()
        self._begin_rounds()

    @property
    def paced(self) -> Paced:
        before = self._before.after(self._round, self._leads)
        return replace(before, bound=self._bound, partitions=len(self._serving))

    def told(self, transport: Transport) -> dict[str, Any]:
        """As in `Paced.of_all`."""
        return self.paced.of_all(transport, len(self._workers))
