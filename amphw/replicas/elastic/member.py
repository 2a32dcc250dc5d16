"""One member's life: it asks what to do, trains on what it has leased, and exchanges after every round."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from amphw.host import snapshots
from amphw.host.config import RunConfig
from amphw.host.epochs import PhaseFigures, Phases
from amphw.host.gradients import Clipping, tell
from amphw.host.live_validation import LiveValidation
from amphw.host.meters import Tally
from amphw.host.run_model import InstanceSet, RunModel
from amphw.host.run_state import RunState
from amphw.host.session import Session
from amphw.ir.device import Device
from amphw.ir.errors import AmphwError
from amphw.replicas.ako.message import Member
from amphw.replicas.ako.settings import partitions
from amphw.replicas.elastic.board import Coordinating, OverError, RefusedError
from amphw.replicas.elastic.coordinator import NUMBERS
from amphw.replicas.elastic.exchange import LATE, Exchange
from amphw.replicas.elastic.leased import Leased, Part
from amphw.replicas.elastic.leases import Lease
from amphw.replicas.elastic.ledger import JOB, Ledger
from amphw.replicas.elastic.link import Link
from amphw.replicas.elastic.saving import ASK, Saving
from amphw.replicas.elastic.table import TRAINING, WAITING
from amphw.replicas.run import instances_between
from amphw.replicas.transport import NAP

LOOK = 0.2
"""Seconds between looks at the table while training."""
BEAT = 2.0
"""Seconds between signs of life of a member that is deep in a round."""
PATIENCE = 60.0
"""Seconds for which a member that ends waits for the last messages of others that are there."""


@dataclass
class Setting:
    """What a member trains, and where. folder: of the run, which all members see. identity: as
    `agree.identity`. about: what it tells of itself. stop: set where it is to leave in good order. say: tells
    its user one line."""

    model: RunModel
    cfg: RunConfig[Any]
    folder: Path
    identity: Mapping[str, str]
    about: Mapping[str, Any] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    say: Callable[[str], None] = lambda line: None


class Incarnation:
    """A member from when it registers until it ends or is lost. number: of one that comes back."""

    def __init__(
        self,
        setting: Setting,
        device: Device,
        board: Coordinating,
        link: Link,
        number: int | None = None,
    ):
        self._setting, self._device, self._board, self._link = setting, device, board, link
        model, cfg = setting.model, setting.cfg
        self._seed = cfg.train.seed
        model.prepare(cfg.model, self._seed)
        self._session = Session(model, cfg, device, None, model.initial(cfg.model))
        self._state = RunState(self._tally())
        if cfg.train.mode == "async":
            tell(device)  # one that cannot take part does not become a member
        about = {**setting.about, NUMBERS: kinds_of(device)}
        told = board.register(number, setting.identity, link.address, about)
        if "refused" in told:
            raise RefusedError(told["refused"])
        if "over" in told:
            raise OverError(f"the job is over: it was ended by {told['over']}")
        self.me = Member(*told["me"])
        self._ledger = Ledger(setting.folder, self.me)
        graph = self._session.graph
        self._saving = Saving(setting.folder, cfg, model.name, self.me, board, graph)
        given = cfg.replicas
        self._exchange = Exchange(
            given.strategy, partitions(cfg, given.strategy), given.staleness, cfg.train.mode == "async",
            given.wire, self.me, link, self._ledger, self._give,
        )  # fmt: skip
        view = board.look(self.me)
        self._exchange.begin_on(device, graph, self._session.rules, view)
        self._make_phases()
        self._sets: dict[int, InstanceSet] = {}
        self._known = 0, 0
        self._lease: Lease | None = None
        self._looked = 0.0
        self._over, self._trains, self._gone = view["ended"], False, False
        self._figures: dict[str, Any] = {"size": 0, "instances": 0, "losses": {}, "blocked": 0.0}
        self._said = ""
        self._last: PhaseFigures | None = None
        self._validation: InstanceSet | None = None

    def _tally(self) -> Tally:
        return Tally.of(self._setting.model)

    def _make_phases(self) -> None:
        cfg = self._setting.cfg
        every = instances_between(cfg) or 0
        clipping = Clipping(cfg.train.clip_norm, self._session.rules)
        self._leased = Leased(
            every,
            cfg.replicas.every_updates if not every else 0,
            lambda device: self._exchange.update(device, clipping),
            self._between,
        )
        self._unit = every or self._session.mode.window
        none: Any = ()
        live = LiveValidation(
            self._session.infer_pump, none, 0, self._state.tally.node, self._state.tally.names
        )
        self._phases = Phases(
            self._session, self._state, live, lambda: False, lambda: None, None, None,
            replication=self._leased,
        )  # fmt: skip

    # --- what to do ---------------------------------------------------------------------------------

    def run(self) -> bool:
        """Until the job has ended, or this member is to leave -> whether it has to begin again, as a new
        incarnation. Raises what ends it without anybody's help, such as DivergedError."""
        done: tuple[int, int] | None = None
        beating = threading.Event()
        beat = threading.Thread(target=self._beat, args=(beating,), name=f"beat {self.me}", daemon=True)
        beat.start()
        try:
            while True:
                order = self._board.next(self.me, done, self._known, self._unit, self.figures())
                what = order["do"]
                if (source := self._exchange.broken) is not None:
                    # Its own rounds may be under way to others, who lack nothing of them.
                    why = f"a message of member {source.number} to it was lost on its way"
                    if self._exchange.last_refusal:
                        why += f", or could not be read: {self._exchange.last_refusal}"
                    self._board.lost(self.me, why)
                    return True
                if what == "again":
                    return True
                if what == "stop" or self._setting.stop.is_set():
                    self._end(JOB if what == "stop" else "left")
                    return False
                if what == "train":
                    self._say("")
                    lease = Lease.told(order["lease"])
                    done = lease.number, self._train(lease, order["first"], order["level"])
                elif what == "load":
                    self._known = order["epoch"], len(self._instances(order["epoch"]))
                elif what == "begin":
                    if not self._begin(order):
                        return True
                elif what == "validate":
                    self._validate(order["epoch"], order["state"])
                else:
                    self._say(order["why"])
                    self._wait()
        finally:
            beating.set()
            beat.join()
            self._ledger.close()

    def _say(self, why: str) -> None:
        if why != self._said:
            self._said = why
            self._setting.say(why)

    def _beat(self, over: threading.Event) -> None:
        while not over.wait(BEAT):
            with suppress(AmphwError):  # the next one may get an answer; who trains hears of it by itself
                self._board.look(self.me)

    def _wait(self) -> None:
        if self._trains:
            self._exchange.pause()
        self._attend(force=True)
        time.sleep(ASK)

    def _attend(self, force: bool = False) -> None:
        """See what has come, and who; nothing is in flight."""
        now = time.monotonic()
        if force or self._exchange.behind or now - self._looked > LOOK:
            self._looked = now
            self._exchange.members(self._look())
        self._exchange.receive()
        if self._trains:
            self._exchange.settle(self._device)

    def _look(self) -> dict[str, Any]:
        """The table, and whether this incarnation counts as lost by it."""
        view = self._board.look(self.me)
        here = [row["member"] for row in view["members"] if row["state"] in (WAITING, TRAINING)]
        self._over, self._gone = view["ended"], list(self.me) not in here
        return view

    # --- values -------------------------------------------------------------------------------------

    def _begin(self, order: Mapping[str, Any]) -> bool:
        """Take the values that there are, and train from now on -> whether the job still wants that."""
        if order["path"]:
            path = self._setting.folder / order["path"]
            snapshots.load(path, self._device, self._session.graph)
            if order["donor"] is not None:
                # What the donor's nodes have short of an update it tells all itself, this member too.
                snapshots.forget_gradients(self._device)
                path.unlink(missing_ok=True)
        donor = Member(*order["donor"]) if order["donor"] is not None else None
        self._exchange.members(order["view"])
        if not self._board.ready(self.me):
            return False
        self._exchange.start(donor, order["round"], order["admitted"])
        self._trains = True
        return True

    def _give(self, joiner: Member, round: int) -> None:
        self._saving.give(self._device, joiner, round)

    # --- training -----------------------------------------------------------------------------------

    def _instances(self, epoch: int) -> InstanceSet:
        if epoch not in self._sets:
            cfg = self._setting.cfg
            for other in sorted(self._sets)[:-1]:
                del self._sets[other]
            found = self._setting.model.training(cfg.model, self._seed, epoch, cfg.train.train_instances)
            self._sets[epoch] = found
        return self._sets[epoch]

    def _train(self, lease: Lease, first: int, level: int) -> int:
        """level: rounds that all others have made. -> how many of its instances were trained on."""
        if self._exchange.is_idle:
            self._attend(force=True)  # it goes on from what the others have done meanwhile
            self._exchange.go_on(level)
        if self._held():
            return 0
        state, self._lease = self._state, lease
        state.epoch, state.position, state.number = lease.epoch - 1, 0, first + lease.start
        size = state.size
        self._last = self._phases.train(Part(self._instances(lease.epoch), lease.start, lease.stop))
        taken = state.position
        figures, tally = self._figures, state.tally
        figures["size"] += state.size - size
        figures["instances"] += taken
        losses = figures["losses"].setdefault(str(lease.epoch), [0, 0.0])
        losses[0], losses[1] = losses[0] + tally.rows, losses[1] + tally.sums.get("loss", 0.0)
        for old in [epoch for epoch in figures["losses"] if int(epoch) < lease.epoch - 2]:
            del figures["losses"][old]
        state.tally = self._tally()
        return taken

    def _between(self, start: int, stop: int, last: bool) -> bool:
        """A round of the lease has returned -> whether its next one follows."""
        lease = self._lease
        assert lease is not None
        self._device.drain()
        if time.monotonic() - self._looked > BEAT:
            self._look()  # after a pause it may have been given up, and then its rounds are for others
            if self._gone:
                return False
        at = lease.start
        self._exchange.make_round(self._device, lease, at + start, at + stop, last)
        if self._exchange.fenced:
            self._gone = True
            return False
        self._attend()
        # Behind a lease's last round the next lease waits, if there is one.
        leaves = self._leaves() if last else self._held()
        if not last and leaves and not self._gone and self._exchange.tells:
            # What nodes have short of an update belongs to what was trained on.
            self._exchange.make_round(self._device, lease, at + stop, at + stop, True)
        return not leaves

    def _held(self) -> bool:
        """Begin another round as soon as the others are far enough -> whether this member leaves instead."""
        began = told = time.monotonic()
        leaves = self._leaves()
        while not leaves and not self._exchange.begin_round():
            if time.monotonic() - told > BEAT:
                told = time.monotonic()
                self._exchange.busy()
            time.sleep(NAP)
            self._attend()
            leaves = self._leaves()
        self._figures["blocked"] += time.monotonic() - began
        return leaves

    def _leaves(self) -> bool:
        """Asked once in a round, as the answer may change at any time."""
        self._gone = self._gone or self._exchange.fenced
        asked = self._setting.stop.is_set() or self._gone or self._exchange.broken is not None
        return asked or bool(self._over)

    # --- an epoch's end -----------------------------------------------------------------------------

    def _validate(self, epoch: int, before: Mapping[str, Any]) -> None:
        """With the parameters that this member has; the others go on, and do not wait for it. before: the
        state of what was trained on when this was to be done."""
        cfg, model = self._setting.cfg, self._setting.model
        self._exchange.pause()
        self._attend(force=True)
        if self._validation is None:
            self._validation = model.validation(cfg.model, self._seed, cfg.train.valid_instances)
        valid = self._phases.validate(self._validation) or {}
        figures = self._last
        record = {
            "train": {},
            "valid": valid,
            "staleness_p50": figures.staleness_p50 if figures else None,
            "staleness_p99": figures.staleness_p99 if figures else None,
            "staleness_nodes": figures.staleness_nodes if figures else {},
            "utilisation": figures.utilisation if figures else [],
            "keys_in_flight": figures.keys_in_flight if figures else None,
            "live": {},
            "ranks": [],
        }
        told = self._board.validated(self.me, epoch, record)
        self._saving.epoch(self._device, RunState(self._tally()), told, before)

    # --- the end ------------------------------------------------------------------------------------

    def _end(self, why: str) -> None:
        """Send all that is owed and, where the job ends, take all that still comes, of which one saves."""
        exchange = self._exchange
        exchange.finish()
        give_up, revision = time.monotonic() + PATIENCE, exchange.revision
        while True:
            self._attend(force=True)  # before the last test: who has come until then is told
            if self._gone:
                return
            if exchange.send() and (why != JOB or exchange.all_over()):
                break
            if exchange.revision != revision:
                give_up, revision = time.monotonic() + PATIENCE, exchange.revision
            if time.monotonic() > give_up:
                why = "others were silent"
                break
            time.sleep(NAP)
        if self._trains:
            self._ledger.ended(exchange.round, why)
            if why == JOB:
                self._saving.last(self._device, RunState(self._tally()))
        self._board.left(self.me, why, self.figures(), exchange.informed)

    def figures(self) -> dict[str, Any]:
        """What this incarnation has done so far. size: as the model counts; sent, received: bytes of
        values; refused: messages from or to an incarnation that was over, that had come before, that were
        malformed, or from strangers; blocked: seconds in which the bound held it; lead: the most rounds
        that it was ahead of the slowest other one; leads: how many rounds ended how far ahead; partitions,
        bound: at the moment; staleness: gradient rows by versions behind."""
        state, exchange = self._state, self._exchange
        return {
            **self._figures,
            "losses": dict(self._figures["losses"]),
            "rounds": exchange.round,
            "forward": state.forward,
            "backward": state.backward,
            "sent": sum(exchange.traffic.sent.values()),
            "received": sum(exchange.traffic.received.values()),
            "refused": exchange.refused + self._link.refused,
            "lead": max(exchange.leads_seen, default=0),
            "leads": {str(lead): rounds for lead, rounds in sorted(exchange.leads_seen.items())},
            "partitions": exchange.partitions,
            "bound": exchange.bound,
            "staleness": {str(behind): rows for behind, rows in sorted(state.staleness.items())},
        }


def kinds_of(device: Device) -> str:
    """The kinds of numbers that its parameters are, which have to be the same for all that exchange them."""
    found = {str(v.dtype) for p in device.parameters().values() for v in p.values.values()}
    return " and ".join(sorted(found))


def live(
    setting: Setting,
    make_device: Callable[[], Device],
    board: Coordinating,
    make_link: Callable[[], Link],
    number: int | None = None,
) -> int:
    """Be a member, in as many incarnations as it takes -> its number. number: of one that comes back, after
    its process has died; None: a new one. Raises RefusedError, and what no new incarnation helps against."""
    while True:
        device, link = make_device(), make_link()
        try:
            with np.errstate(all="ignore"):
                mine = Incarnation(setting, device, board, link, number)
                number = mine.me.number
                if not mine.run():
                    return number
        except OverError:
            if number is None:
                raise
            return number
        finally:
            link.close(linger=LATE)
            device.close()
