"""The coordinator: what it answers, more than once and after it has started again."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amphw.host.checkpointing import BEST, CHECKPOINT
from amphw.host.run_folder import WriteError
from amphw.replicas.ako.message import Layout, Member, Message
from amphw.replicas.elastic import coordinator
from amphw.replicas.elastic.audit import audit
from amphw.replicas.elastic.coordinator import SILENCE, Coordinator
from amphw.replicas.elastic.journal import Journal
from amphw.replicas.elastic.leases import Lease
from amphw.replicas.elastic.ledger import Ledger
from amphw.replicas.elastic.member import BEAT
from amphw.replicas.elastic.table import LOST, TRAINING

IDENTITY = {"model": "x"}
JOB = {
    "model": "x", "settings": "", "epochs": 2, "metric": "accuracy", "target": None, "patience": 0,
    "identity": IDENTITY,
}  # fmt: skip
RECORD = {
    "train": {}, "valid": {"accuracy": 0.5}, "staleness_p50": 0, "staleness_p99": 0, "staleness_nodes": {},
    "utilisation": [], "keys_in_flight": 1, "live": {}, "ranks": [],
}  # fmt: skip


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def opened(folder: Path, start: int = 2, minimum: int = 1, clock: Any = None) -> Coordinator:
    board = Coordinator(folder, clock or Clock())
    board.open({**JOB, "start": start, "minimum": minimum})
    return board


def joined(board: Coordinator, number: int | None = None) -> Member:
    return Member(*board.register(number, IDENTITY, "somewhere", {})["me"])


def asks(board: Coordinator, me: Member, done: Any = None, known: Any = (0, 0)) -> dict[str, Any]:
    return board.next(me, done, known, 2, {"size": 1})


def training(folder: Path, clock: Any = None) -> tuple[Coordinator, list[Member]]:
    board = opened(folder, clock=clock)
    members = [joined(board), joined(board)]
    for me in members:
        assert asks(board, me)["do"] == "begin"
        assert board.ready(me)
    assert asks(board, members[0]) == {"do": "load", "epoch": 1}
    return board, members


def trains_all_of(board: Coordinator, me: Member, epoch: int) -> dict[str, Any]:
    """It leases all of an epoch of eight instances -> what it is to do then."""
    done = None
    while (order := asks(board, me, done, (epoch, 8)))["do"] == "train":
        number, _, _, start, stop = order["lease"]
        done = number, stop - start
    return order


def test_a_question_that_is_asked_again_has_the_same_answer(tmp_path: Path) -> None:
    board, (a, b) = training(tmp_path)
    first = asks(board, a, known=(1, 40))
    assert first == asks(board, a, known=(1, 40)) and first["do"] == "train"
    number, _, epoch, start, stop = first["lease"]
    assert (epoch, start) == (1, 0)
    second = asks(board, a, (number, stop), (1, 40))
    assert second == asks(board, a, (number, stop), (1, 40))
    assert second["lease"][3] == stop
    assert asks(board, b, known=(1, 40))["lease"][3] == second["lease"][4]
    assert board.table.leases.trained(1) == stop


def test_one_that_starts_again_knows_what_the_last_one_knew(tmp_path: Path) -> None:
    board, (a, b) = training(tmp_path)
    order = asks(board, a, known=(1, 40))
    again = Coordinator(tmp_path)
    assert asks(again, a, known=(1, 40)) == order
    assert asks(again, b, known=(1, 40))["lease"][3] == order["lease"][4]
    assert again.look() == board.look() | {"revision": again.table.revision}


def test_a_line_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    board, (a, _) = training(tmp_path)
    path = tmp_path / "members" / "journal.jsonl"
    with open(path, "ab") as file:
        file.write(b'{"event":"leased","mem')
    again = Coordinator(tmp_path)
    order = asks(again, a, known=(1, 40))
    assert asks(Coordinator(tmp_path), a, known=(1, 40)) == order and board.table.revision == 2


def test_what_the_dead_had_not_written_down_is_for_others(tmp_path: Path) -> None:
    board, (a, b) = training(tmp_path)
    lease = Lease(*asks(board, a, known=(1, 40))["lease"])
    Ledger(tmp_path, a).round(1, lease, lease.start, lease.start + 2, 2, np.zeros((1, 2), np.int64))
    board.lost(a, "killed")
    assert board.table.seen[a].state == LOST and asks(board, a)["do"] == "again"
    assert asks(board, b, known=(1, 40))["lease"][3] == 2  # places 0 and 1 count
    assert [row["member"] for row in board.look()["members"]] == [[1, 0]]


def test_one_that_comes_back_is_given_values_by_one_that_trains(tmp_path: Path) -> None:
    board, (a, b) = training(tmp_path)
    back = joined(board, a.number)
    assert back == (0, 1) and board.table.seen[a].state == LOST
    assert asks(board, back) == {"do": "wait", "why": "member 1 is to give it values"}
    board.gave(back, "values", 7)
    order = asks(board, back)
    assert (order["do"], order["path"], order["round"], order["donor"]) == ("begin", "values", 7, [1, 0])
    assert order["admitted"] == board.table.revision
    board.lost(b, "killed")
    assert asks(board, back)["do"] == "begin"  # the values are there


def test_one_whose_donor_is_gone_begins_again(tmp_path: Path) -> None:
    board, (a, b) = training(tmp_path)
    back = joined(board, a.number)
    board.lost(b, "killed")
    assert asks(board, back) == {"do": "again"}
    third = joined(board, a.number)
    assert third == (0, 2)
    assert asks(board, third)["path"] == ""  # nobody lives, and nothing was saved: initial values


def test_whoever_says_nothing_for_long_is_lost(tmp_path: Path) -> None:
    clock = Clock()
    board, (a, b) = training(tmp_path, clock)
    for _ in range(round(SILENCE)):
        clock.now += BEAT
        board.look(b)
    assert board.table.seen[a].state == LOST and board.table.seen[b].state == TRAINING


def test_a_coordinator_that_was_away_blames_nobody(tmp_path: Path) -> None:
    clock = Clock()
    board, (a, b) = training(tmp_path, clock)
    clock.now += 10 * SILENCE
    board.look(b)
    assert board.table.seen[a].state == TRAINING


def test_the_first_member_validates_and_the_others_go_on(tmp_path: Path) -> None:
    board, (a, b) = training(tmp_path)
    assert trains_all_of(board, b, 1) == {"do": "load", "epoch": 2}
    assert asks(board, b, None, (2, 8))["lease"][2] == 2
    order = asks(board, a, None, (1, 8))
    assert (order["do"], order["epoch"], order["instances"]) == ("validate", 1, 8)
    told = board.validated(a, 1, RECORD)
    assert told == board.validated(a, 1, RECORD)
    assert (told["epoch"], told["best"], told["number"], len(told["history"])) == (1, True, 8, 1)
    assert told["history"][0]["instances"] == 1


def test_the_job_ends_with_its_epochs(tmp_path: Path) -> None:
    board, (a, b) = training(tmp_path)
    for epoch in (1, 2):
        assert trains_all_of(board, a, epoch)["do"] == "validate"
        board.validated(a, epoch, RECORD)
    assert asks(board, b) == {"do": "stop", "why": "epochs"}
    assert board.register(None, IDENTITY, "late", {}) == {"over": "epochs"}


@pytest.mark.parametrize(
    ("asked", "why"), [({"epochs": 2}, "epochs"), ({"target": 0.4}, "target"), ({"patience": 1}, "patience")]
)
def test_a_job_that_is_done_ends_at_once_when_it_is_opened_again(
    asked: dict[str, Any], why: str, tmp_path: Path
) -> None:
    board, (a, _) = training(tmp_path)
    for epoch in (1, 2):
        trains_all_of(board, a, epoch)
        board.validated(a, epoch, RECORD)
    again = Coordinator(tmp_path)
    again.open({**JOB, "epochs": 9, "start": 2, "minimum": 1, **asked})
    assert again.register(0, IDENTITY, "somewhere", {}) == {"over": why}
    more = Coordinator(tmp_path)
    more.open({**JOB, "epochs": 3, "start": 2, "minimum": 1})
    assert asks(more, joined(more, 0))["do"] == "begin"


def test_a_coordinator_that_died_before_it_ended_the_job_ends_it(tmp_path: Path) -> None:
    board, (a, b) = training(tmp_path)
    for epoch in (1, 2):
        trains_all_of(board, a, epoch)
        board.validated(a, epoch, RECORD)
    path = tmp_path / "members" / "journal.jsonl"
    *lines, last = path.read_text().splitlines()
    assert '"ended"' in last
    path.write_text("\n".join(lines) + "\n")
    assert asks(Coordinator(tmp_path), b)["do"] == "stop"


def saved(board: Coordinator, me: Member, path: str, state: dict[str, Any]) -> Path:
    """The member saves there -> the file."""
    (board.folder / path).parent.mkdir(exist_ok=True)
    (board.folder / path).write_text(path)
    board.saved(me, path, state)
    return board.folder / path


def test_going_back_frees_what_was_trained_on_while_the_checkpoint_was_made(tmp_path: Path) -> None:
    board, (a, b) = training(tmp_path)
    trains_all_of(board, b, 1)
    order = asks(board, a, None, (1, 8))
    trains_all_of(board, b, 2)  # another one does, of whom the checkpoint has nothing
    assert board.validated(a, 1, RECORD)["mine"]
    path = saved(board, a, "members/first", order["state"])
    assert path.exists() and (tmp_path / CHECKPOINT).read_text() == "members/first"
    Coordinator(tmp_path)
    assert sorted(each.name for each in path.parent.iterdir()) == ["first", "journal.jsonl"]
    for me in (a, b):
        board.lost(me, "killed")
    back = joined(board, 0)
    assert asks(board, back)["path"] == "members/first" and board.ready(back)
    leases = board.table.leases
    assert leases.trained(1) == 8 and list(leases.epochs) == [1] and leases.undone


def test_an_epoch_is_validated_and_saved_by_one_member(tmp_path: Path) -> None:
    board, (a, b) = training(tmp_path)
    board.lost(a, "killed")
    order = trains_all_of(board, b, 1)
    assert order["do"] == "validate"
    back = joined(board, 0)
    board.gave(back, "values", 7)
    assert asks(board, back)["do"] == "begin" and board.ready(back)
    assert asks(board, back, None, (1, 8)) == {"do": "load", "epoch": 2}  # though it is the first one now
    assert board.validated(b, 1, RECORD)["mine"] and not board.validated(back, 1, RECORD)["mine"]
    first = saved(board, b, "members/first", order["state"])
    late = saved(board, back, "members/late", {**order["state"], "epochs": 0})
    assert first.exists() and not late.exists() and board.table.saved["path"] == "members/first"
    second = saved(board, back, "members/second", order["state"])
    assert second.exists() and not first.exists()
    assert (tmp_path / CHECKPOINT).read_text() == "members/second"


def test_one_that_is_to_save_and_leaves_without_is_replaced(tmp_path: Path) -> None:
    board, (a, b) = training(tmp_path)
    board.stop("interrupt")
    assert board.saves(a) is True and board.saves(b) is None
    board.left(a, "others were silent", {})
    assert board.saves(b) is True
    saved(board, b, "members/last", board.progress()["state"])
    assert board.saves(b) is False and board.table.saved["ended"] == "interrupt"


def test_a_number_is_reserved_once(tmp_path: Path) -> None:
    board, _ = training(tmp_path)
    assert board.reserve() == 2
    again = Coordinator(tmp_path)
    assert again.reserve() == 3 and joined(again).number == 4


def test_a_stranger_that_comes_first_is_refused(tmp_path: Path) -> None:
    board = opened(tmp_path)
    told = board.register(None, {"model": "y"}, "somewhere", {})
    assert told["refused"].endswith("model is x in the job, and y here")
    assert joined(board).number == 0


def test_what_was_written_in_part_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, room, write = Journal(tmp_path / "j"), [100], os.write

    def short(file: int, text: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        part = min(3, len(text), room[0])
        room[0] -= part
        return write(file, text[:part])

    monkeypatch.setattr(os, "write", short)
    journal.append({"a": 1})
    for left in range(len('{"a":2}') + 1):  # also where nothing but the end of the line is missing
        room[0] = left
        with pytest.raises(WriteError, match="No space left"):
            journal.append({"a": 2})
        room[0] = 100
        journal.append({"a": 3})
        assert Journal(tmp_path / "j").read() == [{"a": 1}, *[{"a": 3}] * (left + 1)]


def test_values_that_nobody_reads_do_not_stay(tmp_path: Path) -> None:
    board, (a, _) = training(tmp_path)
    for late in (False, True):
        back, path = joined(board, a.number), tmp_path / "members" / "values"
        path.write_text("values")
        if late:
            board.lost(back, "killed")
        board.gave(back, "members/values", 7)
        assert path.exists() is not late
        board.lost(back, "killed")
        assert not path.exists()


def test_others_begin_without_a_first_member_that_was_given_up(tmp_path: Path) -> None:
    board = opened(tmp_path)
    a = joined(board, 0)
    assert asks(board, a) == {"do": "wait", "why": "1 of 2 members are here"}
    board.give_up(1, "it has died 5 times in a row")
    assert asks(Coordinator(tmp_path), a)["do"] == "begin"


def test_what_is_undone_and_what_a_coordinator_spent_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("amphw.replicas.elastic.coordinator.time.time", lambda: now[0])
    board, (a, b) = training(tmp_path)
    assert asks(board, a, known=(1, 8))["do"] == "train"
    now[0] += 5  # of which the next coordinator knows from the journal
    trains_all_of(board, b, 1)
    board.lost(a, "killed")
    board.lost(b, "killed")
    clock = Clock()
    again = Coordinator(tmp_path, clock)
    now[0] += 100  # as nothing happens, nobody trains
    back = joined(again, 0)  # nobody lives: to the beginning
    assert asks(again, back)["do"] == "begin" and again.ready(back)
    assert asks(again, back, None, (0, 0))["do"] == "load"
    clock.now += 2
    assert trains_all_of(again, back, 1)["do"] == "validate"
    record = again.validated(back, 1, RECORD)["history"][0]
    assert (record["instances"], record["seconds"]) == (1, 7.0)


@given(
    st.lists(st.integers(0, 60), max_size=30), st.integers(1, 40), st.sampled_from([b"", b'{"cut', b"9" * 50])
)
def test_a_journal_reads_the_same_from_its_end(sizes: list[int], block: int, end: bytes) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("amphw.replicas.elastic.journal._BLOCK", block)
        journal = Journal(Path(folder) / "j")
        for size in sizes:
            journal.append({"a": "x" * size})
        with open(journal.path, "ab") as file:
            file.write(end)
        assert [*journal.backwards()] == journal.read()[::-1] == [{"a": "x" * size} for size in sizes[::-1]]
        journal.close()


def test_a_round_that_was_written_down_too_late_is_not_sent_and_would_count_twice(tmp_path: Path) -> None:
    """The member counts as lost between two rounds of its lease; another one trains on its places then."""
    board, (late, other) = training(tmp_path)
    lease = Lease.told(asks(board, late, None, (1, 8))["lease"])
    layout, counts = Layout(0, 1, 1, 4), np.ones((1, 2), np.int64)
    mine, its = Ledger(tmp_path, late), Ledger(tmp_path, other)
    for ledger in (mine, its):
        ledger.began(None, 0)
    mine.layout(layout, [other], 2)

    def round(number: int, start: int) -> Message:
        mine.round(number, lease, start, start + 1, 2, counts)
        return Message(late, other, layout, 0, number, number, counts, None)

    first = round(1, lease.start)
    assert not mine.is_over
    board.lost(late, "somebody thinks so")
    assert mine.is_over
    second = round(2, lease.start + 1)
    its.received([first])
    done = None
    for number in range(20):
        order = asks(board, other, done, (1, 8))
        if order["do"] != "train":
            break
        its_lease = Lease.told(order["lease"])
        done = its_lease.number, its_lease.stop - its_lease.start
        its.round(number + 1, its_lease, its_lease.start, its_lease.stop, 3, counts)
    assert (audit(tmp_path).lost, audit(tmp_path).doubled) == (0, 0)
    assert audit(tmp_path).undone == 1
    its.received([second])
    found = audit(tmp_path)
    assert found.doubled > 0
    assert found.wrong == ["member 1.0 from member 0.0: rounds 2 to 2, which others have trained on again"]
    for ledger in (mine, its):
        ledger.close()


def test_going_back_leaves_no_best_checkpoint_of_an_epoch_that_is_undone(tmp_path: Path) -> None:
    board, (one, two) = training(tmp_path)
    best = tmp_path / BEST
    best.write_bytes(b"of the first epoch")
    order = trains_all_of(board, one, 1)
    assert order["do"] == "validate"
    board.validated(one, 1, RECORD)
    board.lost(one, "it has died")
    board.lost(two, "it has died")
    joined(board, 0)  # nobody has the latest parameters, and no checkpoint was saved
    assert board.table.history == [] and not best.exists()


def test_members_are_told_of_those_that_left_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, (one, two) = training(tmp_path)
    board.left(one, "left", {}, [two])

    def rows() -> list[list[int]]:
        return [row["member"] for row in board.look(two)["members"]]

    assert rows() == [list(one), list(two)]
    monkeypatch.setattr(coordinator, "LEFT_SHOWN", -1.0)
    assert rows() == [list(two)]
