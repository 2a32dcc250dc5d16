"""One member's exchange with whoever is there: partial gradients (Ako) among members that come and go.

What is owed, merged, refused and applied is Ako's; here is who the others are. The table of members has a
revision, and a member that hears of a new one begins to owe those that have come, forgets those that are
lost, and tells all of it (BEGAN). Links keep the order of messages, so who has heard that from a member has
all that it sent by earlier revisions.

That is how a newcomer gets values without anybody waiting. Its donor, one of those that train, goes on, but
puts aside what others have sent by the newcomer's revision or a later one, for the newcomer gets that as
well, from them. Once all others have told that they have begun to owe the newcomer, the donor has applied all
that they do not owe it, and nothing else; it hands over its values then, begins to owe the newcomer too, and
takes up what it has put aside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from amphw.ir.device import Device
from amphw.ir.graph import Graph
from amphw.ir.update import UpdateRule
from amphw.replicas.ako.clocks import Clocks, Heard
from amphw.replicas.ako.coding import coded, decoded
from amphw.replicas.ako.message import Member, Message
from amphw.replicas.ako.sender import Sender
from amphw.replicas.ako.strategy import Ako
from amphw.replicas.elastic.leases import Lease
from amphw.replicas.elastic.ledger import Ledger
from amphw.replicas.elastic.link import BEGAN, BODY, BUSY, END, IDLE, Head, Link, MalformedError
from amphw.replicas.elastic.queue import Queue
from amphw.replicas.elastic.table import LEFT, TRAINING, WAITING
from amphw.replicas.packed import Traffic, packed
from amphw.replicas.threads import ThreadGroup

Rows = Sequence[Mapping[str, Any]]
"""Members as `Coordinator.look` has them."""
LATE = 30.0
"""Seconds for which what a member has sent before it left may still be under way; it goes on sending for as
long."""


class Exchange(Ako):
    """me, link, ledger: this member's. give: writes this member's values for a newcomer, which is named, in
    this round and with this revision."""

    def __init__(
        self,
        name: str,
        partitions: int | None,
        tau: int | None,
        tells: bool,
        wire: str,
        me: Member,
        link: Link,
        ledger: Ledger,
        give: Callable[[Member, int], None],
    ):
        super().__init__(name, partitions, tau, "paper", None, tells)
        self._me, self._link, self._ledger, self._give = me, link, ledger, give
        self.traffic = Traffic(wire=wire)
        self.revision, self.refused = 0, 0
        self.broken: Member | None = None  # from whom a message was lost on its way
        self.last_refusal = ""  # what was wrong with the last message that could not be read
        self._by = 0  # the revision that the present layout is by
        self._left: dict[Member, float] = {}  # whose END is still to come, until when
        self._began: dict[Member, int] = {}  # the newest revision that a peer has begun to owe by
        self._over: set[Member] = set()  # peers that send no more
        self._came: list[tuple[int, Message]] = []  # with revisions, in order; not applied yet
        self._early: list[tuple[Head, np.ndarray]] = []  # from members that this one does not know yet
        self._joining: dict[Member, int] = {}  # newcomers that this member gives values, by their revision
        self._rows: Rows = ()
        self._idle, self._finished = True, False
        self._round_begun = False
        self.fenced = False  # it counts as lost, and its rounds are for others to train on

    def begin_on(
        self, device: Device, graph: Graph, rules: Mapping[str, UpdateRule], view: Mapping[str, Any]
    ) -> None:
        """Know the device's parameters, and who is there; nothing is owed to anybody before `start`."""
        (alone,) = ThreadGroup(1).transports()
        self._alone = alone
        self._queues: dict[Member, Queue] = {}
        self.begin(device, alone, graph, rules)
        self._started = False
        self.members(view)

    def _begin_rounds(self, transport: Any) -> None:
        self._sender = Sender(self._me, [], self._flat.spans, self._partitions, self._flat.kind)
        self._clocks = Clocks(self._me, [], self._bound)

    def start(self, donor: Member | None, round: int, admitted: int) -> None:
        """This member has its values, of a round of its donor. admitted: the revision with which it came; by
        earlier ones nobody owes it anything."""
        self._started = True
        self._sender.round = self._clocks.own = round
        self._came = [(revision, message) for revision, message in self._came if revision >= admitted]
        self._ledger.began(donor, round)
        self._owe()

    # --- who there is -------------------------------------------------------------------------------

    def members(self, view: Mapping[str, Any]) -> None:
        """The table may have a new revision."""
        if view["revision"] <= self.revision:
            self._rows = view["members"]  # whoever was waiting may train now
            return
        self.revision, self._rows = view["revision"], view["members"]
        rows = {Member(*row["member"]): row for row in self._rows}
        present = {peer for peer, row in rows.items() if row["state"] in (WAITING, TRAINING)} - {self._me}
        new = sorted(present - set(self._queues))
        for peer in new:
            self._queues[peer] = Queue()
            self._clocks.heard[peer.number] = Heard(self._me, peer)
            self._clocks.heard[peer.number].finished = True  # until it says that it trains
            self._left = {other: end for other, end in self._left.items() if other.number != peer.number}
            self._link.connect(peer, rows[peer]["address"])
        for peer in sorted(set(self._queues) - present):
            del self._queues[peer]
            self._link.disconnect(peer)
            # Of one that has not told this member anything nothing is under way.
            left = peer in rows and rows[peer]["state"] == LEFT and list(self._me) in rows[peer]["told"]
            if left and peer not in self._over:
                self._left[peer] = time.monotonic() + LATE  # what it has sent counts until then
                self._clocks.heard[peer.number].finished = True
        self._let_go(present)
        self._joining = {
            peer: row["admitted"]
            for peer, row in rows.items()
            if row["state"] == WAITING and row["donor"] == list(self._me) and not self._finished
            and (peer not in self._owed or peer in self._joining)
        }  # fmt: skip
        self._ranks = len(present) + 1
        if self._wanted is None:
            self._partitions = self._ranks
        self._clocks.bound = self._bound
        if self._started:
            self._owe()
        if self._finished:
            self._say(END, new)

    def _let_go(self, present: set[Member]) -> None:
        """Of everything that is known of others than these, and those that may still have sent something."""
        here = {peer.number: peer for peer in [*self._left, *present]}
        for number in set(self._clocks.heard) - set(here):
            del self._clocks.heard[number]
        for peer in [*self._began]:
            if peer not in here.values():
                del self._began[peer]

    @property
    def _owed(self) -> list[Member]:
        return self._sender.peers

    def _owe(self) -> None:
        """Begin a layout for those that there are, unless they are the same, and tell all which revision that
        is by."""
        peers = sorted(set(self._queues) - set(self._joining))
        if peers != self._owed or self._partitions != self._sender.layout.partitions:
            self._resplit_for(peers)
        self._by = self.revision
        self._say(BEGAN)
        if not self._idle:
            self._say(BUSY)
        self.send()

    def _resplit_for(self, peers: Sequence[Member]) -> None:
        self._put(self._sender.resplit(self._partitions, peers))
        self._ledger.layout(self._sender.layout, peers, self.revision)

    # --- what is sent -------------------------------------------------------------------------------

    def _head(self, kind: int, to: Member) -> Head:
        return Head(kind, self._me, to, self._sender.round, self._by)

    def _say(self, kind: int, to: Iterable[Member] | None = None) -> None:
        for peer in self._queues if to is None else to:
            self._queues[peer].say(self._head(kind, peer))

    def _put(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._queues[message.to].put(self._head(BODY, message.to), message)

    def send(self) -> bool:
        """What links have room for -> whether nothing is left."""

        def code(message: Message) -> np.ndarray:
            self._count(message, self.traffic, sent=True)
            return packed(coded(message, self.traffic.wire))

        for peer, queue in self._queues.items():
            while len(queue) and queue.send(partial(self._link.post, peer), code):
                pass
        return not any(len(queue) for queue in self._queues.values())

    # --- rounds -------------------------------------------------------------------------------------

    @property
    def round(self) -> int:
        return self._sender.round

    @property
    def is_idle(self) -> bool:
        """Whether this member makes no rounds for now."""
        return self._idle

    def pause(self) -> None:
        """This member makes no rounds for now, so that nobody waits for them."""
        if not self._idle:
            self._idle = True
            self._say(IDLE)
            self.send()

    def go_on(self, level: int) -> None:
        """The pause is over. This member makes up for rounds of the others with empty ones, up to what it
        has heard of and to `level`, so many as all of them have made."""
        self._idle = False
        own = self._own
        nothing = np.zeros_like(own.values), np.zeros_like(own.counts)
        for _ in range(self._clocks.own, max(level, self._clocks.slowest or 0)):
            self._put(self._sender.advance(*nothing))
            self._clocks.own += 1
        self._say(BUSY)
        self.send()

    def busy(self) -> None:
        """Tell all once more which round this is. Where the last rounds of two members were lost on their way
        to each other, both are held by the bound, and would send nothing by which they learn of it."""
        self._say(BUSY)
        self.send()

    def make_round(self, device: Device, lease: Lease, start: int, stop: int, last: bool) -> None:
        """These places of a lease have retired, and nothing is in flight. last: of the lease."""
        if self._tells:
            self._take_told(device, last)
        number = self._sender.round + 1
        self._ledger.round(number, lease, start, stop, self.revision, self._own.counts)
        if self._ledger.is_over:
            self.fenced = True  # others may have leased these places by now, so nothing of them is sent
            return
        self._put(self._sender.advance(self._own.values, self._own.counts))
        self._clocks.advance(self._round_begun)
        self._round_begun = False
        self._own.clear()
        self.send()

    @property
    def partitions(self) -> int:
        return self._partitions

    @property
    def bound(self) -> int:
        """Rounds that this member may be ahead of the slowest other one when it begins another."""
        return self._bound

    @property
    def tells(self) -> bool:
        """Whether nodes update by themselves, so that something may be short of an update."""
        return self._tells

    @property
    def leads_seen(self) -> dict[int, int]:
        """How many rounds ended how far ahead of the slowest other member."""
        return self._clocks.leads

    def begin_round(self) -> bool:
        """Whether the others are far enough for another round, which begins then."""
        self._round_begun = self._clocks.may_advance()
        return self._round_begun

    # --- what comes ---------------------------------------------------------------------------------

    def receive(self) -> bool:
        """All that has come -> whether anything had."""
        early, self._early = self._early, []
        for head, body in early:
            self._take_up(head, body)
        came = self._link.poll()
        for message in came:
            try:
                head, body = Head.of(message)
            except MalformedError as error:
                self.refused += 1
                self.last_refusal = str(error)
            else:
                self._take_up(head, body)
        now = time.monotonic()
        self._left = {peer: end for peer, end in self._left.items() if now < end}
        self.send()
        return bool(came)

    def _take_up(self, head: Head, body: np.ndarray) -> None:
        known = {peer.number: peer for peer in [*self._left, *self._queues]}
        if head.revision > self.revision and known.get(head.source.number) != head.source:
            self._early.append((head, body))  # from one of whom this member is about to hear
            return
        if head.to != self._me or known.get(head.source.number) != head.source:
            self.refused += 1  # late, from one whose incarnation is over, or to one
            return
        heard = self._clocks.heard[head.source.number]
        if head.kind == BODY:
            flat = self._flat
            try:
                message = decoded(body, len(flat.nodes), flat.size, self.traffic.wire, flat.kind)
            except ValueError as error:
                self.refused += 1  # the next one of its sender shows that one is missing
                self.last_refusal = str(error)
                return
            if not heard.take(message):
                self.refused += 1
                return
            if heard.broken:
                self.broken = head.source
            self._count(message, self.traffic, sent=False)
            self._came.append((head.revision, message))
            return
        if heard.owes and heard.clock < head.round:
            self.broken = head.source  # what it sent before this has not come
        heard.begins = max(heard.begins, head.round)
        if head.kind == BEGAN:
            self._began[head.source] = head.revision
        elif head.kind == END:
            self._over.add(head.source)
            self._left.pop(head.source, None)
            heard.finished = True
        else:
            heard.finished = head.kind == IDLE

    def settle(self, device: Device) -> None:
        """Apply what has come, but for what newcomers get as well, and give them values where that is due;
        nothing is in flight on the device, and a round is complete.

        What was sent by a later revision than this member knows of waits, too: who knows whose donor it is.
        """
        while self._joining and self._all_began(min(self._joining.values())):
            joiner = min(self._joining, key=lambda peer: (self._joining[peer], peer))
            self._apply_before(device, self._joining.pop(joiner))
            self._ledger.gave(joiner, self._sender.round)
            self._give(joiner, self._sender.round)
            self._owe()
        self._apply_before(device, min([*self._joining.values(), self.revision + 1]))

    def _all_began(self, revision: int) -> bool:
        """Whether all that came before this revision owe by it, so that nothing else is under way."""
        others = [
            Member(*row["member"])
            for row in self._rows
            if row["state"] in (WAITING, TRAINING) and row["admitted"] < revision
        ]
        return all(
            peer == self._me or peer in self._joining or self._began.get(peer, 0) >= revision
            for peer in others
        ) and not any(self._began.get(peer, 0) < revision for peer in self._left)

    @property
    def behind(self) -> bool:
        """Whether others know of a later revision."""
        return bool(self._early) or any(revision > self.revision for revision, _ in self._came)

    def _apply_before(self, device: Device, revision: int) -> None:
        now = [m for r, m in self._came if r < revision]
        self._came = [(r, m) for r, m in self._came if r >= revision]
        self._ledger.received(now)
        self._arrived = now
        self._apply(device)

    # --- the end ------------------------------------------------------------------------------------

    def finish(self) -> None:
        """No more rounds: all that is owed goes out, and then nothing."""
        self._idle = self._finished = True
        self._joining = {}
        if self._started:
            self._resplit_for(self._owed)
        self._say(END)
        self.send()

    @property
    def informed(self) -> list[Member]:
        """Those to whom everything is on its way, and that this was all."""
        return [peer for peer, queue in self._queues.items() if self._finished and not len(queue)]

    def all_over(self) -> bool:
        """Whether nothing more comes from those that are there, or have left."""
        return not self._left and all(peer in self._over for peer in self._queues)
