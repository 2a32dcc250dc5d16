"""Who takes part in a job, and who trains on what: the answers to members that ask, and nothing else.

All that it knows is in its journal, so that one that starts again goes on where the last one was. Members
need it for leases and to learn who else there is; between two leases they train and exchange without it.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from amphw.host.checkpointing import BEST, CHECKPOINT
from amphw.replicas.agree import difference
from amphw.replicas.ako.message import Member
from amphw.replicas.elastic.journal import Journal
from amphw.replicas.elastic.ledger import fence, recorded
from amphw.replicas.elastic.level import Level
from amphw.replicas.elastic.standing import progress, reached, together
from amphw.replicas.elastic.table import LEFT, LOST, TRAINING, WAITING, Seen, Table

JOURNAL = "members/journal.jsonl"
"""In a run's folder."""
CHECKPOINTS = "members/checkpoint-*.safetensors"
"""In a run's folder: what members save, each under a name of its own, until it is recorded."""
SILENCE = 30.0
"""Seconds after which a member that says nothing counts as lost, if nobody has seen it die."""
LEFT_SHOWN = 300.0
"""Seconds for which members are told of one that has left in good order, which may have slept meanwhile."""
NUMBERS = "numbers"
"""What members say of themselves that has to be the same, too: of which kind their parameters are."""
_OWN_SILENCE = 5.0
"""Seconds without any call, after which this process has been away itself, and others are not to blame; more
than those between the signs of life of a single member."""

Order = dict[str, Any]


class Coordinator:
    """Methods may be called from any thread, and more than once with the same arguments: a caller whose
    answer got lost asks again. folder: of the run. clock: in seconds.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic):
        self.folder, self._clock = folder, clock
        self._journal = Journal(folder / JOURNAL)
        self._lock = threading.RLock()
        self.table = Table()
        for event in self._journal.read():
            self.table.apply(event)
        self._end_if_done()
        self._publish()
        self._heard: dict[Member, float] = {}
        self._level = Level()
        self._saver: Member | None = None
        self._validator: Member | None = None
        self._called, self._began = clock(), clock()
        self._seconds = self.table.seconds

    def _do(self, **event: Any) -> None:
        event["time"] = time.time()
        self._journal.append(event)
        self.table.apply(event)

    def _of(self, name: str, me: Member, **event: Any) -> None:
        self._do(event=name, member=me.number, incarnation=me.incarnation, **event)

    # --- the job ------------------------------------------------------------------------------------

    def open(self, job: Mapping[str, Any]) -> None:
        """The process that starts members is a new one. job: model, settings (TOML), epochs, metric, target,
        patience, minimum (members below which nobody trains), start (members that begin together), identity
        (as `agree.identity`, which every member has to have)."""
        with self._lock:
            present = self.table.present()
            self._do(event="opened", job=dict(job))  # until then nobody trained, so that no time has passed
            for seen in present:
                self._lose(seen, "the job was ended")
            self._do(event="started")
            self._saver = self._validator = None
            self._end_if_done()
            for path in self.folder.glob(CHECKPOINTS):
                if path != self.folder / self.table.saved["path"]:
                    path.unlink()  # of one that died before it was recorded

    def stop(self, why: str) -> None:
        """All end in good order."""
        with self._lock:
            if not self.table.ended:
                self._do(event="ended", why=why)

    def _end_if_done(self) -> None:
        if not self.table.ended and (why := reached(self.table)):
            self.stop(why)

    def job(self) -> dict[str, Any]:
        with self._lock:
            return dict(self.table.job)

    # --- who is there -------------------------------------------------------------------------------

    def register(
        self, number: int | None, identity: Mapping[str, str], address: str, about: Mapping[str, Any]
    ) -> Order:
        """A member is here, or here again -> {"me"}, {"over"}: why the job has ended, or {"refused"}: why
        not. number: None: a new one."""
        with self._lock:
            self._look_around()
            if self.table.ended:
                return {"over": self.table.ended}
            if wrong := self._refusal(identity, about):
                return {"refused": wrong}
            if number is None:
                number = self.table.next_number()
            before = self.table.latest(number)
            if before is not None and before.state in (WAITING, TRAINING):
                self._lose(before, "it has come back")
            me = Member(number, 0 if before is None else before.me.incarnation + 1)
            others = self.table.present(TRAINING) or self.table.present()
            donor = None
            if self.table.begun:
                if others:
                    donor = others[0].me
                else:
                    self._back()
            self._of("joined", me, address=address, about=dict(about), donor=list(donor) if donor else None)
            if self.table.begun and donor is None:
                self._of("gave", me, path=self.table.saved["path"], round=0)
            self._heard[me] = self._clock()
            return {"me": list(me)}

    def _back(self) -> None:
        """Nobody has the latest parameters: to the last checkpoint. The best ones may be of an epoch that is
        undone."""
        best = self.progress()["best_epoch"]
        self._do(event="back")
        if self.progress()["best_epoch"] != best:
            (self.folder / BEST).unlink(missing_ok=True)

    def _refusal(self, identity: Mapping[str, str], about: Mapping[str, Any]) -> str:
        """Why a member of this identity cannot take part."""
        found = difference(self.table.job["identity"], identity)
        there = next((seen.about for seen in self.table.present() if NUMBERS in seen.about), None)
        if found is None and there is not None:
            # Gradients are sent as the device has them.
            found = difference({NUMBERS: there[NUMBERS]}, {NUMBERS: about.get(NUMBERS, there[NUMBERS])})
        if found is None:
            return ""
        what, first, other = found
        return (
            f"this member does not train the same as the job: {what} is {first} in the job, and {other} here"
        )

    def lost(self, member: Member, why: str) -> None:
        """Somebody has seen it die. What it had not recorded as trained on is for others now."""
        with self._lock:
            seen = self.table.seen.get(Member(*member))
            if seen is not None and seen.state in (WAITING, TRAINING):
                self._lose(seen, why)

    def lost_number(self, number: int, why: str) -> None:
        """The same of a member in whatever incarnation it is now."""
        with self._lock:
            seen = self.table.latest(number)
            if seen is not None:
                self.lost(seen.me, why)

    def give_up(self, number: int, why: str) -> None:
        """The same of one that does not come back: those that are to begin together do without it."""
        with self._lock:
            self.lost_number(number, why)
            if number not in self.table.given_up:
                self._do(event="given_up", number=number)

    def reserve(self) -> int:
        """A number for a new member, beyond those that begin together."""
        with self._lock:
            number = max(self.table.job["start"], self.table.next_number())
            self._do(event="reserved", number=number)
            return number

    def _lose(self, seen: Seen, why: str) -> None:
        lease = self.table.lease_of(seen.me)
        fence(self.folder, seen.me)
        taken = recorded(self.folder, seen.me, lease) if lease is not None else 0
        self._of(LOST, seen.me, why=why, taken=taken)
        self._unread(seen)

    def _unread(self, seen: Seen) -> None:
        """It is gone: of values that it was given and has not read, nobody has any use."""
        if seen.donor is not None and seen.values:
            (self.folder / seen.values).unlink(missing_ok=True)

    def left(self, member: Member, why: str, figures: Mapping[str, Any], told: Sequence[Member] = ()) -> None:
        """It has gone in good order, and has sent all that it owed. told: those that it has sent its END."""
        with self._lock:
            me = Member(*member)
            seen = self.table.seen.get(me)
            if seen is None or seen.state not in (WAITING, TRAINING):
                return
            lease = self.table.lease_of(me)
            taken = recorded(self.folder, me, lease) if lease is not None else 0
            ends = [list(peer) for peer in told]
            self._of(LEFT, me, why=why, taken=taken, figures=dict(figures), told=ends)
            self._unread(seen)

    def _look_around(self) -> None:
        """Members that have been silent for too long are lost."""
        now = self._clock()
        if now - self._called > _OWN_SILENCE:
            self._heard = dict.fromkeys(self._heard, now)
        self._called = now
        for seen in self.table.present():
            since = self._heard.setdefault(seen.me, now)
            if now - since > SILENCE:
                self._lose(seen, f"it has said nothing for {SILENCE:g} s")

    def look(self, member: Member | None = None) -> Order:
        """The table as members see it: its revision, whether the job is over, and all that are there or have
        left in good order. member: who asks, and is alive."""
        with self._lock:
            self._look_around()
            if member is not None:
                self._heard[Member(*member)] = self._clock()
            gone = self.table.time - LEFT_SHOWN
            rows = [
                seen.row()
                for seen in self.table.present(WAITING, TRAINING, LEFT)
                if seen.state != LEFT or seen.left > gone
            ]
            return {"revision": self.table.revision, "ended": self.table.ended, "members": rows}

    # --- what to do ---------------------------------------------------------------------------------

    def next(
        self,
        member: Member,
        done: tuple[int, int] | None,
        known: tuple[int, int],
        unit: int,
        figures: Mapping[str, Any],
    ) -> Order:
        """What the member is to do next; "do" says which: again (its incarnation is over), begin, wait, stop,
        load (an epoch's instances), validate, or train.

        done: the number of its last lease, and how many of its instances it has trained on. known: the epoch
        whose instances it has loaded, and how many there are. unit: instances of a round. figures: what it
        has done so far.
        """
        with self._lock:
            self._look_around()
            me = Member(*member)
            seen = self.table.seen.get(me)
            if seen is None or seen.state not in (WAITING, TRAINING):
                return {"do": "again"}
            self._heard[me] = self._clock()
            self._level.told(me, figures.get("rounds", 0))
            lease = self.table.lease_of(me)
            if lease is not None and done is not None and done[0] == lease.number:
                self._of("done", me, taken=done[1], figures=dict(figures))
            if self.table.ended:
                return {"do": "stop", "why": self.table.ended}
            if seen.state == WAITING:
                return self._begin(seen)
            return self._work(me, known, unit)

    def saves(self, member: Member) -> bool | None:
        """Whether it is for this member, which has all that there is at the end, to save that; None: another
        one is about to, so ask again."""
        with self._lock:
            if self.table.saved["ended"] or self.table.seen[Member(*member)].state != TRAINING:
                return False
            if self._saver is None or self.table.seen[self._saver].state != TRAINING:
                self._saver = Member(*member)
            return True if self._saver == Member(*member) else None

    def _begin(self, seen: Seen) -> Order:
        """For one that has no values yet."""
        table = self.table
        if seen.donor is not None:
            donor = table.seen[seen.donor]
            if seen.values:
                return self._values(seen)
            if donor.state not in (WAITING, TRAINING):
                self._lose(seen, f"member {donor.me.number}, which was to give it values, is gone")
                return {"do": "again"}
            return {"do": "wait", "why": f"member {donor.me.number} is to give it values"}
        if not table.begun:
            wanted, here = max(table.starting, table.job["minimum"]), len(table.present())
            if here < wanted:
                return {"do": "wait", "why": f"{here} of {wanted} members are here"}
            self._do(event="began")
            self._began = self._clock()
        return self._values(seen)

    def _values(self, seen: Seen) -> Order:
        """What it begins with, and who is there then."""
        return {
            "do": "begin",
            "path": seen.values,
            "round": seen.round,
            "donor": list(seen.donor) if seen.donor is not None else None,
            "admitted": seen.admitted,
            "view": self.look(),
        }

    def ready(self, member: Member) -> bool:
        """It has its values, and trains from now on -> whether it may."""
        with self._lock:
            seen = self.table.seen.get(Member(*member))
            if seen is not None and seen.state == WAITING:
                self._of("ready", seen.me)
            return seen is not None and seen.state == TRAINING

    def gave(self, joiner: Member, path: str, round: int) -> None:
        """The donor of `joiner` has written its values there, in a round of its own."""
        with self._lock:
            seen = self.table.seen.get(Member(*joiner))
            if seen is not None and seen.state == WAITING:
                if not seen.values:
                    self._of("gave", seen.me, path=path, round=round)
            else:
                (self.folder / path).unlink(missing_ok=True)  # nobody reads them

    def _work(self, me: Member, known: tuple[int, int], unit: int) -> Order:
        table = self.table
        if table.lease_of(me) is not None:
            return self._train(me)
        training = table.present(TRAINING)
        if table.leases.complete(table.validated + 1) and self._validates(me):
            epoch = table.validated + 1
            trained = table.leases.trained(epoch)
            state = {**table.state(), "epochs": epoch}
            return {"do": "validate", "epoch": epoch, "instances": trained, "state": state}
        if len(training) < table.job["minimum"]:
            wanted = table.job["minimum"]
            return {"do": "wait", "why": f"{len(training)} members are there, and {wanted} are the minimum"}
        found = table.leases.next_range(unit, len(training))
        if found is None:
            epoch = 1 + max(table.leases.epochs, default=0)
            # One epoch beyond what was validated: whether there is another one may hang on that.
            if epoch > min(table.job["epochs"], table.validated + 2):
                return {"do": "wait", "why": "others finish the epoch"}
            if known[0] != epoch:
                return {"do": "load", "epoch": epoch}
            self._do(event="epoch", epoch=epoch, size=known[1])
            found = table.leases.next_range(unit, len(training))
            assert found is not None
        epoch, (start, stop) = found
        self._of("leased", me, epoch=epoch, start=start, stop=stop)
        return self._train(me)

    def _validates(self, me: Member) -> bool:
        """One that is at it stays the one, also where one of a lower number comes meanwhile."""
        if self._validator is None or self.table.seen[self._validator].state != TRAINING:
            self._validator = self.table.present(TRAINING)[0].me
        return self._validator == me

    def _train(self, me: Member) -> Order:
        lease = self.table.lease_of(me)
        assert lease is not None
        level = self._level.of(other for other in self.table.leases.out if other != me)
        self._level.told(me, level)
        first = self.table.leases.epochs[lease.epoch].first
        return {"do": "train", "lease": list(lease), "first": first, "level": level}

    # --- what became of it --------------------------------------------------------------------------

    def validated(self, member: Member, epoch: int, record: Mapping[str, Any]) -> Order:
        """The member has validated after this epoch -> `progress`, and "mine": whether it is its record that
        counts, and it that saves. record: as of `EpochRecord`; what all have done together is added here."""
        with self._lock:
            me, table = Member(*member), self.table
            if epoch == table.validated + 1 and table.seen[me].state == TRAINING:
                self._of("validated", me, record={**record, **together(self.table, self._spent())})
                self._validator = None
                self._end_if_done()
            return {**self.progress(), "mine": epoch == table.validated and table.validated_by == me}

    def _spent(self) -> float:
        return self._seconds + self._clock() - self._began

    def progress(self) -> Order:
        """How far the job is, as a checkpoint has it: epoch, number (of the next epoch's first instance),
        history, the best of its epochs, and the state of what was trained on."""
        with self._lock:
            return progress(self.table)

    def saved(self, member: Member, path: str, state: Mapping[str, Any]) -> None:
        """The member has saved a checkpoint there. state: with which it was asked to, or `progress` had."""
        with self._lock:
            me, before = Member(*member), self.table.saved
            if self.table.seen[me].state != TRAINING or state["epochs"] < before["epochs"]:
                (self.folder / path).unlink(missing_ok=True)
                return
            if path != before["path"]:
                self._of("saved", me, path=path, state=dict(state))
            self._publish()
            if before["path"] and before["path"] != path:
                (self.folder / before["path"]).unlink(missing_ok=True)

    def _publish(self) -> None:
        """The last checkpoint that was recorded is the run's: what a job goes back to is never any other."""
        path, published = self.folder / self.table.saved["path"], self.folder / CHECKPOINT
        if not self.table.saved["path"] or not path.exists():
            return
        if published.exists() and published.samefile(path):
            return  # two links to one file do not replace each other
        linked = path.with_suffix(".link")
        linked.unlink(missing_ok=True)
        try:
            os.link(path, linked)
        except OSError:  # a file system without links
            shutil.copyfile(path, linked)
        os.replace(linked, published)
