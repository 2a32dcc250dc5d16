"""Ranks that go at their own pace, rehearsed in simulated time (`live`), without a model being computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from amphw.host.pumping import POLL_S
from amphw.ir.sparse import sparse_parameters
from amphw.replicas.live import Live, LiveTransport
from amphw.replicas.own_pace import OwnPace
from amphw.replicas.paced import Paced
from amphw.replicas.packed import Traffic
from amphw.replicas.rehearsal import Simulated, StandIn, Turning, Work
from amphw.replicas.replica import Replica
from amphw.replicas.simulated import Machines, Spent
from amphw.replicas.strategy import Strategy

ROUNDS = 12
"""Of each rank that count."""
WARM_UP = 4
"""Rounds before these, in which links have not filled up yet."""


@dataclass(frozen=True)
class _Stamp:
    """Of a rank that trains, at the end of a round. time: in seconds."""

    time: float
    spent: Spent
    traffic: Traffic


@dataclass(frozen=True)
class _Done:
    """What a rank has done. stamps: of all its rounds."""

    stamps: Sequence[_Stamp]
    paced: Paced | None


def play_at_own_pace(
    ranks: int,
    strategy: Callable[[], Strategy],
    work: Work,
    machines: Machines,
    every: int = 0,
    barrier: bool = True,
    wire: str = "full",
    rounds: int = ROUNDS,
) -> Simulated:
    """strategy: makes one for each rank, of those whose ranks go at their own pace. every: instances of a
    round; 0: as the strategy has it. barrier: whether nodes update after windows, as in modes with a barrier.
    wire: as in `wire.encode`. rounds: of each rank that count, after `WARM_UP` others."""
    done: dict[int, _Done] = {}
    one = strategy()
    trains = one.working(ranks)
    every = every or one.usual_every(work.window)
    # The last round does not count: a rank that is through with it waits for the others.
    instances = Turning(work.instances, every * len(trains) * (WARM_UP + rounds + 1))
    live = Live(ranks, machines, work.scale)

    def follow(carrier: LiveTransport) -> None:
        device = StandIn(work.parameters, sparse_parameters(work.graph))
        mine = Replica(carrier, strategy(), every, wire=wire)
        # Without `mine.begin`, which compares what is the same here by construction.
        mine.strategy.begin(device, carrier, work.graph, work.rules)
        stamps = _train(mine, carrier, device, replace(work, instances=instances), barrier)
        assert isinstance(mine.strategy, OwnPace)
        done[carrier.rank] = _Done(stamps, mine.strategy.paced)

    live.run(follow)
    return _figures([done[rank] for rank in trains], every, work.scale)


def _train(mine: Replica, carrier: LiveTransport, device: StandIn, work: Work, barrier: bool) -> list[_Stamp]:
    """As `host.epochs` trains on a share."""
    share = mine.share(device, work.instances, 0, work.window, 0, lambda: 0.0)
    chance, stamps, more = np.random.default_rng(mine.transport.rank), [], True
    while more:
        for instance in share:
            device.train(instance)
            _compute(mine, carrier, work.pace.of([instance], chance))
            if barrier and len(device.instances) == work.window:
                mine.update(device)
        if barrier and device.instances:
            mine.update(device)
        more = mine.goes_on(device, False, False)
        stamps.append(_Stamp(carrier.now(), copy(carrier.spent), deepcopy(mine.traffic)))
    return stamps


def _compute(mine: Replica, carrier: LiveTransport, seconds: float) -> None:
    looks = int(seconds / POLL_S)
    for part in [POLL_S] * looks + [seconds - looks * POLL_S]:
        carrier.compute(part)
        mine.look()


def _figures(trained: Sequence[_Done], every: int, scale: float) -> Simulated:
    """Each rank is looked at between two ends of its own rounds, in which others go on, too."""
    pairs = [(done.stamps[WARM_UP - 1], done.stamps[-2]) for done in trained]
    rounds, ranks = len(trained[0].stamps) - WARM_UP - 1, len(trained)
    took = [last.time - first.time for first, last in pairs]
    of_all = ranks * rounds

    def spent(what: str) -> float:
        return sum(getattr(last.spent, what) - getattr(first.spent, what) for first, last in pairs) / of_all

    def moved(way: str, name: str) -> float:
        before_after = [[getattr(stamp.traffic, way).get(name, 0) for stamp in pair] for pair in pairs]
        return sum(after - before for before, after in before_after) * scale / of_all

    names = sorted({name for _, last in pairs for name in last.traffic.sent})
    return Simulated(
        instances_per_s=sum(every * rounds / each for each in took),
        step=sum(took) / of_all,
        seconds={what: spent(what) for what in ("compute", "wait", "transfer")},
        bytes={name: {way: moved(way, name) for way in ("sent", "received")} for name in names},
        alpha={},
        computing=spent("compute"),
        own=_own(trained),
    )


def _own(trained: Sequence[_Done]) -> Mapping[str, Any]:
    """As `Paced.of_all`, of the whole rehearsal."""
    every = [done.paced for done in trained if done.paced is not None]
    rounds: dict[str, Any] = {"clocks": [len(done.stamps) for done in trained]}
    if not every:
        return rounds
    leads: dict[int, int] = {}
    for each in every:
        leads = Paced(leads=leads).after(0, each.leads).leads
    return {
        **({"partitions": every[0].partitions} if every[0].partitions else {}),
        "bound": every[0].bound,
        **rounds,
        "staleness_max": max(leads, default=0),
        "staleness_rounds": dict(sorted(leads.items())),
        "blocked": sum(each.blocked for each in every) / len(every),
    }
