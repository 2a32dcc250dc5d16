"""Nobody is further ahead of those that train than the bound, whoever pauses, joins or creeps."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from amphw.replicas.ako.message import Member
from amphw.replicas.elastic.audit import audit
from amphw.replicas.elastic.level import Level
from amphw.replicas.elastic.table import LEFT
from tests.daily import daily
from tests.replicas.elastic.jobs import Job, slowly, until

LONG = ("epochs=3", "train_instances=2000")
"""Of some 85 leases each, if a lease is of eight rounds, and a round of an instance."""


def test_the_bound_holds_from_lease_to_lease(tmp_path: Path) -> None:
    """One of three is far slower; leases of a round each, at an epoch's end, hold the others as longer do."""

    def creeps(where: str) -> None:
        time.sleep(0.02 if where == "poll" else 0.0)

    toy = ["replicas.every=1", "replicas.partitions=1", "replicas.staleness=2", "epochs=3"]
    with Job(tmp_path, 3, *toy) as job:
        for strike in (slowly, slowly, creeps):
            job.start(strike)
    rows = [seen.figures for seen in job.board.table.seen.values()]
    assert all(each["lead"] <= each["bound"] + 1 for each in rows), rows


def test_who_leaves_while_the_bound_holds_it_is_not_further_ahead(tmp_path: Path) -> None:
    """What its nodes are short of an update it still tells, in a round that it was not let begin."""
    ends = threading.Event()

    def creeps(where: str) -> None:
        # So slow that the others are held whenever they leave, on a busy machine, too.
        time.sleep(0.1 if where == "poll" and not ends.is_set() else 0.0)

    toy = ["mode=async", "replicas.every=1", "replicas.partitions=1", "replicas.staleness=1", "epochs=100000"]
    with Job(tmp_path, 7, *toy) as job:
        stops = [job.start(strike) for strike in (*[slowly] * 6, creeps)]
        for stop in stops[:6]:
            closed = len(job.board.table.leases.closed)
            until(lambda closed=closed: len(job.board.table.leases.closed) > closed + 3)  # type: ignore[misc]
            stop.set()
        until(lambda: len(job.board.table.present(LEFT)) == 6)
        ends.set()
        job.board.stop("tried")
    rows = [seen.figures for seen in job.board.table.seen.values()]
    assert max(each["lead"] for each in rows) == 3, (
        rows
    )  # the bound, one partition and one round, and one more


@pytest.mark.parametrize("joins", daily([True], [False]))
def test_nobody_stands_still_until_one_that_paused_has_caught_up(joins: bool, tmp_path: Path) -> None:
    """While the first one validates, or another one takes its values, the others close ten leases of eight
    rounds. Links hold four messages, so it knows of few of these when it goes on; were they not made up for,
    it would close as many alone."""
    began, paused, pauses = [0], threading.Event(), list[threading.Thread]()
    at = "ready" if joins else "validated"

    def leases() -> list[Member]:
        return [lease.holder for lease, taken in job.board.table.leases.closed if taken]

    def strike(where: str) -> None:
        slowly(where)
        me = threading.current_thread()
        if where == at and not pauses:
            pauses.append(me)
            before = len(leases())
            until(lambda: len(leases()) > before + 10)
        elif where == "next" and me in pauses and not paused.is_set():
            paused.set()
            began[0] = len(leases())

    toy = ["replicas.every=1", "replicas.partitions=1", "replicas.staleness=1", *LONG]
    with Job(tmp_path, 2, *toy) as job:
        for _ in range(2):
            job.start(slowly if joins else strike)
        if joins:
            until(lambda: len(leases()) > 6)
            job.start(strike)
        until(paused.is_set)
        until(lambda: len(leases()) >= began[0] + 8)
        since = leases()[began[0] + 1 : began[0] + 8]
    assert {Member(0), Member(1)} <= set(since)
    assert (audit(tmp_path).lost, audit(tmp_path).doubled) == (0, 0)


def test_a_slow_member_is_not_made_up_for() -> None:
    level = Level()
    assert level.of([]) == level.of([Member(1)]) == 0
    level.told(Member(1), 90)
    level.told(Member(2), 80)
    assert level.of([Member(1), Member(2), Member(3)]) == 80
    level.told(Member(2), 70)  # an answer that it got twice
    assert level.of([Member(2)]) == 80
