"""What a job knows of its members and of what they train on: all that has happened, one event after the
other.

An event is a JSON object, and a `Table` is what its events have made of it, whoever reads them: a coordinator
that starts again, or a report on the run. Nothing else changes a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from amphw.replicas.ako.message import Member
from amphw.replicas.elastic.leases import Lease, Leases

WAITING, TRAINING, LEFT, LOST = "waiting", "training", "left", "lost"
"""States of a member: it has no parameters yet that are worth anything; it trains; it has gone in good order;
or without."""


@dataclass
class Seen:
    """One incarnation of a member, as the job knows it.

    address: where it takes messages. about: what it says of itself (host, pid, device). admitted: revision of
    the table with which it came. donor: who gives it values; None: nobody has to. values: the file of them,
    "" before it is there. figures: what it has said last. why, left: it is gone, and since when
    (as events tell the time). told: others that it has told that it sends no more, before it left.
    """

    me: Member
    address: str
    about: dict[str, Any]
    admitted: int
    state: str = WAITING
    donor: Member | None = None
    values: str = ""
    round: int = 0
    figures: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    left: float = 0.0
    told: list[list[int]] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """What other members have to know."""
        return {
            "member": list(self.me),
            "address": self.address,
            "state": self.state,
            "admitted": self.admitted,
            "donor": list(self.donor) if self.donor is not None else None,
            "told": self.told,
        }


class Table:
    """revision: goes up with whoever comes or goes. seen: every incarnation there was. job: what was said of
    it at the beginning. begun: whether anything was trained. history: of epochs, as `EpochRecord` has them.
    ended: why the job is over. saved: the last checkpoint's path in the run's folder, "" before there is one,
    and its `state`."""

    def __init__(self) -> None:
        self.revision = 0
        self.seen: dict[Member, Seen] = {}
        self.job: dict[str, Any] = {}
        self.begun, self.ended = False, ""
        self.reserved = -1  # the highest number that is
        self.given_up: set[int] = set()  # numbers that come no more
        self.seconds, self.time = 0.0, 0.0  # that it has trained for, and when the last event was
        self._undone = 0.0  # of what members have done, the size that counts no more
        self.leases = Leases()
        self.history: list[dict[str, Any]] = []
        self.validated_by: Member | None = None  # the last of them
        self.saved: dict[str, Any] = {**self.state(), "path": ""}

    # --- what is there ------------------------------------------------------------------------------

    def present(self, *states: str) -> list[Seen]:
        """Those in these states (waiting or training, if none are named), by their numbers."""
        wanted = states or (WAITING, TRAINING)
        return sorted((s for s in self.seen.values() if s.state in wanted), key=lambda s: s.me)

    def latest(self, number: int) -> Seen | None:
        """The newest incarnation of a member."""
        return max((s for s in self.seen.values() if s.me.number == number), key=lambda s: s.me, default=None)

    def next_number(self) -> int:
        return 1 + max(self.reserved, *(me.number for me in self.seen), -1)

    @property
    def validated(self) -> int:
        """Epochs that have been validated."""
        return len(self.history)

    def state(self) -> dict[str, Any]:
        """Of a checkpoint with the parameters that a member has from now on. They have all that is trained on
        by now, but what is still on its way to that member; what follows counts as missing."""
        return {
            "last": max(self.leases.epochs, default=0),
            "missing": self.leases.state(),
            "epochs": len(self.history),
            "ended": self.ended,
            "size": self.size,
        }

    @property
    def starting(self) -> int:
        """How many members begin together."""
        start = self.job.get("start", 0)
        return int(start) - sum(number < start for number in self.given_up)

    @property
    def size(self) -> float:
        """What members have trained on and counts, as the model counts."""
        return sum(seen.figures.get("size", 0) for seen in self.seen.values()) - self._undone

    # --- what happens -------------------------------------------------------------------------------

    def apply(self, event: Mapping[str, Any]) -> None:
        """Raises KeyError for an event that there is none of."""
        if self.begun and event["event"] != "opened":  # before which no process was there
            self.seconds += max(0.0, event["time"] - self.time)
        self.time = event["time"]
        _EVENTS[event["event"]](self, event)

    def _opened(self, event: Mapping[str, Any]) -> None:
        self.job = dict(event["job"])

    def _started(self, event: Mapping[str, Any]) -> None:
        """The process that coordinates is a new one, with members that are new as well."""
        self.ended = self.saved["ended"] = ""
        self.given_up = set()

    def _reserved(self, event: Mapping[str, Any]) -> None:
        self.reserved = event["number"]

    def _given_up(self, event: Mapping[str, Any]) -> None:
        self.given_up.add(event["number"])

    def _joined(self, event: Mapping[str, Any]) -> None:
        self.revision += 1
        me = _member(event)
        donor = event["donor"]
        self.seen[me] = Seen(me, event["address"], dict(event["about"]), self.revision)
        self.seen[me].donor = Member(*donor) if donor is not None else None

    def _gave(self, event: Mapping[str, Any]) -> None:
        seen = self.seen[_member(event)]
        seen.values, seen.round = event["path"], event["round"]

    def _ready(self, event: Mapping[str, Any]) -> None:
        self.seen[_member(event)].state = TRAINING

    def _began(self, event: Mapping[str, Any]) -> None:
        self.begun = True

    def _gone(self, event: Mapping[str, Any]) -> None:
        self.revision += 1
        seen = self.seen[_member(event)]
        seen.state, seen.why, seen.told = event["event"], event["why"], event.get("told", [])
        seen.left = event["time"]
        if seen.me in self.leases.out:
            self.leases.close(seen.me, event["taken"])
        seen.figures |= event.get("figures", {})

    def _epoch(self, event: Mapping[str, Any]) -> None:
        self.leases.begin(event["epoch"], event["size"])

    def _leased(self, event: Mapping[str, Any]) -> None:
        self.leases.lease(_member(event), event["epoch"], event["start"], event["stop"])

    def _done(self, event: Mapping[str, Any]) -> None:
        self.leases.close(_member(event), event["taken"])
        self.seen[_member(event)].figures |= event["figures"]

    def _validated(self, event: Mapping[str, Any]) -> None:
        self.history.append(dict(event["record"]))
        self.validated_by, self.seconds = _member(event), event["record"]["seconds"]

    def _saved(self, event: Mapping[str, Any]) -> None:
        self.saved = {**event["state"], "path": event["path"]}

    def _back(self, event: Mapping[str, Any]) -> None:
        """To the last checkpoint, or to the beginning where there is none; nobody trains."""
        self.leases.go_back(self.saved["last"], self.saved["missing"])
        del self.history[self.saved["epochs"] :]
        self._undone += self.size - self.saved["size"]
        for seen in self.seen.values():
            losses = seen.figures.get("losses", {})
            undone = [epoch for epoch in losses if int(epoch) > self.saved["epochs"]]
            seen.figures["losses"] = {epoch: losses[epoch] for epoch in losses if epoch not in undone}

    def _ended(self, event: Mapping[str, Any]) -> None:
        self.ended = event["why"]

    def lease_of(self, me: Member) -> Lease | None:
        return self.leases.out.get(me)


def _member(event: Mapping[str, Any]) -> Member:
    return Member(event["member"], event["incarnation"])


_EVENTS = {
    "opened": Table._opened,
    "started": Table._started,
    "reserved": Table._reserved,
    "given_up": Table._given_up,
    "joined": Table._joined,
    "gave": Table._gave,
    "ready": Table._ready,
    "began": Table._began,
    LEFT: Table._gone,
    LOST: Table._gone,
    "epoch": Table._epoch,
    "leased": Table._leased,
    "done": Table._done,
    "validated": Table._validated,
    "saved": Table._saved,
    "back": Table._back,
    "ended": Table._ended,
}
