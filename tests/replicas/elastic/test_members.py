"""Members that are threads come, go, die and return, and every instance counts once."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amphw.host.checkpoint import load_checkpoint
from amphw.replicas.ako.clocks import Heard
from amphw.replicas.ako.message import Member
from amphw.replicas.elastic import coordinator, member
from amphw.replicas.elastic.audit import audit, read_table
from amphw.replicas.elastic.board import RefusedError
from amphw.replicas.elastic.coordinator import Coordinator
from amphw.replicas.elastic.journal import Journal
from amphw.replicas.elastic.ledger import ledger_of
from amphw.replicas.elastic.link import BODY, Head
from amphw.replicas.elastic.report import Follower
from amphw.replicas.elastic.table import LEFT, LOST, TRAINING
from tests.host.training import MODEL
from tests.replicas.elastic.jobs import EPOCH, TOY, Job, Killed, all_count, slowly, until
from tests.replicas.test_equivalence import Kept


@pytest.mark.parametrize("mode", ["async", "sync", "pipeline"])
@pytest.mark.parametrize("strategy", ["ako", "all-to-all"])
def test_members_share_the_instances(mode: str, strategy: str, tmp_path: Path) -> None:
    with Job(tmp_path, 3, f"mode={mode}", f"replicas.strategy={strategy}") as job:
        for _ in range(3):
            job.start(slowly)
    found = audit(tmp_path)
    all_count(found)
    assert found.undone == found.in_flight == 0 and found.instances == 2 * EPOCH
    table = job.board.table
    assert [seen.state for seen in table.seen.values()] == [LEFT] * 3 and table.ended == "epochs"
    assert sum(seen.figures["instances"] for seen in table.seen.values()) == 2 * EPOCH
    tensors, header = load_checkpoint(tmp_path / "checkpoint.safetensors", None)
    assert header["counters"]["epoch"] == 2 and tensors


@given(seed=st.integers(0, 2**32 - 1), mode=st.sampled_from(["async", "pipeline", "sync"]))
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whoever_dies_wherever_no_instance_is_lost_or_doubled(
    seed: int, mode: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng, lock = random.Random(seed), threading.Lock()
    deaths, rate = [rng.randrange(5)], rng.choice([50, 200, 1000])

    def strike(where: str) -> None:
        slowly(where)
        if where == "register":
            return  # who has no number yet is noticed by its silence alone
        with lock:
            if deaths[0] and rng.randrange(rate) == 0:
                deaths[0] -= 1
                raise Killed(where)

    folder = tmp_path_factory.mktemp("job")
    partitions = rng.choice(["auto", "1", "2", "5"])
    with Job(folder, 3, f"mode={mode}", f"replicas.partitions={partitions}") as job:
        for _ in range(3):
            job.start(strike)
        time.sleep(rng.random() / 2)
        job.start(strike)
    all_count(audit(folder))
    replayed = read_table(folder)
    assert replayed.leases.counted() == job.board.table.leases.counted()


def test_a_member_that_leaves_sends_what_it_owes(tmp_path: Path) -> None:
    with Job(tmp_path, 3, "epochs=3") as job:
        stops = [job.start(slowly) for _ in range(3)]
        until(lambda: len(job.board.table.leases.closed) > 6)
        stops[1].set()
    all_count(found := audit(tmp_path), epochs=3)
    assert found.in_flight == 0
    assert sorted(seen.why for seen in job.board.table.seen.values()) == ["job", "job", "left"]


def test_nobody_waits_for_the_end_of_one_that_left_before_it_knew_of_them(tmp_path: Path) -> None:
    leaves, came = threading.Event(), threading.Event()

    def leaver(where: str) -> None:
        slowly(where)
        if where == "left" and not leaves.is_set():  # it has seen for the last time who is there
            leaves.set()
            until(came.is_set)

    def newcomer(where: str) -> None:
        slowly(where)
        if where == "next":  # it has seen the leaver
            came.set()

    with Job(tmp_path, 3, "epochs=12") as job:
        stops = [job.start(strike) for strike in (leaver, slowly, slowly)]
        until(lambda: len(job.board.table.leases.closed) > 6)
        stops[0].set()
        until(leaves.is_set)
        job.start(newcomer)
    all_count(audit(tmp_path), epochs=12)
    left = [seen.why for seen in job.board.table.seen.values() if seen.state == LEFT]
    assert sorted(left) == ["job", "job", "job", "left"]  # and the leaver may have been a newcomer's donor


def test_one_that_counts_as_lost_trains_on_no_more_of_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "LOOK", 0.0)
    me = Member(0)
    with Job(tmp_path, 2, "replicas.every=1") as job:
        for _ in range(2):
            job.start(slowly)
        until(lambda: len(job.board.table.leases.closed) > 4 and me in job.board.table.leases.out)
        job.board.lost(me, "somebody thinks so")
    all_count(audit(tmp_path))
    assert job.board.table.seen[Member(0, 1)].state == LEFT
    rounds = [line for line in Journal(ledger_of(tmp_path, me)).read() if "lease" in line]
    last, taken = [each for each in job.board.table.leases.closed if each[0].holder == me][-1]
    more = [line for line in rounds if line["lease"] == last.number][taken:]
    assert len(more) <= 1  # the one that it was in


def test_a_network_splits_in_two_and_heals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The side with the coordinator counts the other one as lost and trains on; the other one waits for an
    answer, and begins again with values of this side when it gets one."""
    monkeypatch.setattr(member, "BEAT", 0.1)
    with Job(tmp_path, 3, "epochs=100000") as job:
        for number in range(3):
            job.start(slowly, far=number == 2)
            until(lambda number=number: Member(number) in job.board.table.seen)  # type: ignore[misc]
        until(lambda: len(job.board.table.leases.closed) > 6)
        far = Member(2)
        job.network.whole.clear()
        monkeypatch.setattr(coordinator, "SILENCE", 2.0)
        until(lambda: job.board.table.seen[far].state == LOST)
        closed = len(job.board.table.leases.closed)
        until(lambda: len(job.board.table.leases.closed) > closed + 6)
        assert max(m.incarnation for m in job.board.table.seen if m.number == 2) == 0
        job.network.whole.set()
        monkeypatch.undo()  # so that a member that gets no turn for a while is not lost as well

        def trains_again() -> bool:
            seen = list(job.board.table.seen.items())
            return any(m.number == 2 and m.incarnation and s.figures.get("instances") for m, s in seen)

        until(trains_again)
        job.board.stop("tried")
    found = audit(tmp_path)
    assert (found.lost, found.doubled) == (0, 0), found.wrong
    assert "it has said nothing for 2 s" in job.board.table.seen[far].why


def test_a_short_split_costs_nobody_anything(tmp_path: Path) -> None:
    """What could not be sent is merged and sent later; who has no answer goes on when it comes."""
    with Job(tmp_path, 3, "epochs=100000") as job:
        for number in range(3):
            job.start(slowly, far=number == 2)
        until(lambda: len(job.board.table.leases.closed) > 6)
        job.network.whole.clear()
        until(lambda: job.network.refused > 2)
        job.network.whole.set()
        closed = len(job.board.table.leases.closed)
        until(lambda: len(job.board.table.leases.closed) > closed + 6)
        job.board.stop("tried")
    found = audit(tmp_path)
    assert (found.lost, found.doubled, found.in_flight) == (0, 0, 0), found.wrong
    assert [seen.state for seen in job.board.table.seen.values()] == [LEFT] * 3


def test_where_nobody_lives_the_job_goes_back_to_its_checkpoint(tmp_path: Path) -> None:
    dead = threading.Event()

    def strike(where: str) -> None:
        slowly(where)
        if dead.is_set() and threading.current_thread() not in struck:
            struck.add(threading.current_thread())
            raise Killed

    struck: set[threading.Thread] = set()
    with Job(tmp_path, 2) as job:
        for _ in range(2):
            job.start(strike)
        leases = job.board.table.leases
        until(lambda: job.board.table.saved["epochs"] and 2 in leases.epochs and leases.trained(2) > 20)
        dead.set()
    all_count(found := audit(tmp_path))
    assert found.undone > 0
    assert [seen.state for seen in job.board.table.seen.values()].count(LOST) == 2
    assert [each["epoch"] for each in job.board.table.history] == [1, 2]


def test_a_job_that_was_stopped_goes_on_with_other_members(tmp_path: Path) -> None:
    with Job(tmp_path, 2) as job:
        for _ in range(2):
            job.start(slowly)
        until(lambda: job.board.table.leases.epochs and job.board.table.leases.trained(1) > 30)
        job.board.stop("interrupt")
    had = sum(taken for _, taken in job.board.table.leases.counted())
    with Job(tmp_path, 3) as later:
        for _ in range(3):
            later.start(slowly)
    all_count(found := audit(tmp_path))
    assert found.undone == 0 < had < 2 * EPOCH and later.board.table.ended == "epochs"


def test_the_coordinator_may_start_again(tmp_path: Path) -> None:
    """Members ask another one, which has read what the first has written."""
    with Job(tmp_path, 2) as job:
        for _ in range(2):
            job.start(slowly)
        until(lambda: len(job.board.table.leases.closed) > 5)
        with job.board._lock:
            new = Coordinator(tmp_path)
            for name in ("table", "_journal", "_heard"):
                setattr(job.board, name, getattr(new, name))
    all_count(audit(tmp_path))


def doubled(message: np.ndarray) -> list[np.ndarray]:
    return [message, message.copy()] if Head.of(message)[0].kind == BODY else [message]


def test_a_message_that_comes_twice_counts_once(tmp_path: Path) -> None:
    with Job(tmp_path, 2, spoil=doubled) as job:
        for _ in range(2):
            job.start(slowly)
    all_count(audit(tmp_path))
    assert sum(seen.figures["refused"] for seen in job.board.table.seen.values()) > 0


def test_the_ledger_shows_a_message_that_was_taken_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Heard.take
    monkeypatch.setattr(Heard, "take", lambda self, message: take(self, message) or True)
    with Job(tmp_path, 2, spoil=doubled) as job:
        for _ in range(2):
            job.start(slowly)
    found = audit(tmp_path)
    assert found.doubled > 0 and "twice, rounds" in found.wrong[0]


def test_the_ledger_shows_values_that_lacked_something_or_had_too_much(tmp_path: Path) -> None:
    path = ledger_of(tmp_path, Member(0))

    def taken() -> int:
        """Of the other one's messages, with rows, by the one that will give values."""
        lines = Journal(path).read() if path.exists() else []
        return sum(line.get("from") == [1, 0] and any(line["rows"]) for line in lines)

    with Job(tmp_path, 2, "epochs=8") as job:
        for _ in range(2):
            job.start(slowly)
        until(lambda: taken() > 4)
        job.start(slowly)
    all_count(audit(tmp_path), epochs=8)
    lines = path.read_text().splitlines(keepends=True)
    at = next(k for k, line in enumerate(lines) if '"gave"' in line)
    gave = lines.pop(at)
    path.write_text("".join([gave, *lines]))
    found = audit(tmp_path)
    assert found.lost > 0 and "member 2.0 from member 1.0, by member 0.0: not in its values" in found.wrong[0]
    path.write_text("".join([*lines, gave]))
    found = audit(tmp_path)
    assert found.doubled > 0 and "in its values and owed" in found.wrong[0]


def test_one_to_whom_a_message_was_lost_comes_back(tmp_path: Path) -> None:
    count, lost = [0], [1]

    def spoil(message: np.ndarray) -> list[np.ndarray]:
        body = Head.of(message)[0].kind == BODY
        count[0] += body
        return [] if body and count[0] >= 10 and lost and lost.pop() else [message]

    with Job(tmp_path, 3, spoil=spoil) as job:
        for _ in range(3):
            job.start(slowly)
    all_count(audit(tmp_path))
    assert any("was lost on its way" in seen.why for seen in job.board.table.seen.values())


def test_messages_may_be_lost_both_ways_at_once(tmp_path: Path) -> None:
    """So many that both members are held by the bound, and send nothing more."""
    bodies = Counter[Member]()

    def spoil(message: np.ndarray) -> list[np.ndarray]:
        head = Head.of(message)[0]
        bodies[head.source] += head.kind == BODY
        lost = head.kind == BODY and 4 < bodies[head.source] <= 12 and not head.source.incarnation
        return [] if lost else [message]

    with Job(tmp_path, 2, "epochs=10", spoil=spoil) as job:
        for _ in range(2):
            job.start(slowly)
    all_count(audit(tmp_path), epochs=10)
    assert any("was lost on its way" in seen.why for seen in job.board.table.seen.values())


@pytest.mark.parametrize(
    "spoiled",
    [
        lambda message: message[:20],  # within the head
        lambda message: message[:70],  # within the body's own head
        lambda message: message[:-3],
        lambda message: np.concatenate([message, message[-8:]]),
        lambda message: np.concatenate([np.full(8, 255, np.uint8), message[8:]]),  # of no kind
    ],
)
def test_a_malformed_message_is_refused_and_counted(spoiled: Any, tmp_path: Path) -> None:
    """What it should have been is missing then, as if it was lost on its way."""
    left = [1]

    def spoil(message: np.ndarray) -> list[np.ndarray]:
        # The last value's bytes have to be there to be cut off.
        if left[0] and Head.of(message)[0].kind == BODY and len(message) > 200:
            left[0] -= 1
            return [spoiled(message)]
        return [message]

    with Job(tmp_path, 3, spoil=spoil) as job:
        for _ in range(3):
            job.start(slowly)
    all_count(audit(tmp_path))
    assert not left[0] and any("was lost on its way" in seen.why for seen in job.board.table.seen.values())
    assert sum(seen.figures.get("refused", 0) for seen in job.board.table.seen.values()) > 0


def test_members_wait_for_the_minimum_and_say_so(tmp_path: Path) -> None:
    said: list[str] = []
    with Job(tmp_path, 1, minimum=2) as job:
        job.start(slowly, say=said.append)
        until(lambda: said)
        (told,), _ = Follower(tmp_path).news()
        assert told == "1 members are here, and 2 are the minimum: nobody trains until others join"
        assert said == ["1 of 2 members are here"] and not job.board.table.present(TRAINING)
        job.start(slowly)
    all_count(audit(tmp_path))


def test_a_member_that_is_something_else_is_refused_by_name(tmp_path: Path) -> None:
    with Job(tmp_path, 1, identity={"model": "a", "setting update.lr": "0.1"}) as job:
        job.start(slowly, identity={"model": "a", "setting update.lr": "0.2"})
        job.threads[0].join()
        (error,) = job.errors
        assert isinstance(error, RefusedError)
        assert "setting update.lr is 0.1 in the job, and 0.2 here" in str(error)
        job.errors.clear()


def test_a_device_that_cannot_take_part_makes_no_member(tmp_path: Path) -> None:
    class Silent(Kept):
        def tell(self) -> bool:
            return False

    with Job(tmp_path, 1, *TOY, "mode=async", model=MODEL, make=Silent) as job:
        job.start()
        job.threads[0].join()
        assert "take --device cpu" in str(job.errors.pop()) and not job.board.table.seen
