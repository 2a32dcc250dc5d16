"""Watching over members: who has died is started again, unless it is to stop; and errors are told."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("zmq")

from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayTaskError

from amphw.host.run_folder import WriteError
from amphw.replicas.elastic import job
from amphw.replicas.elastic.job import DEATHS, Board, Cluster, JobError, Watch
from amphw.replicas.elastic.report import stopped
from amphw.replicas.elastic.table import Table

UNREACHED = ActorUnavailableError("the network is down", None)


class Remote:
    """A method of an actor: each call takes the next of what was planned."""

    def __init__(self, call: Callable[..., Any]):
        self.remote = call


class FakeRay:
    """Results are there at once; an exception is raised where it is asked for."""

    def __init__(self) -> None:
        self.killed: list[Any] = []

    def wait(self, runs: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        ended = [run for run in runs if run.result is not None]
        return ended, [run for run in runs if run not in ended]

    def get(self, run: Any, timeout: float = 0.0) -> Any:
        if isinstance(run.result, Exception):
            raise run.result
        return run.result

    def kill(self, actor: Any) -> None:
        self.killed.append(actor)


class Run:
    def __init__(self, result: Any):
        self.result = result


class Member:
    """An actor whose run ends as was planned; None: it goes on."""

    def __init__(self, result: Any):
        self.stopped = 0
        self.run = Remote(lambda number: Run(result))
        self.stop = Remote(self._stop)

    def _stop(self) -> None:
        self.stopped += 1


class Told:
    """A coordinator that keeps what it was told."""

    def __init__(self) -> None:
        self.lost: list[tuple[int, str]] = []

    def lost_number(self, number: int, why: str) -> None:
        self.lost.append((number, why))

    def give_up(self, number: int, why: str) -> None:
        self.given_up = number

    def within(self, seconds: float) -> Told:
        return self


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setattr(job, "ray", fake)
    return fake


def watching(*results: Any) -> tuple[Watch, Told, list[Member], list[str]]:
    """A watch over one member, whose actors end with these."""
    board, made, said, left = Told(), [], [], deque(results)

    def make() -> Member:
        made.append(Member(left.popleft()))
        return made[-1]

    watch = Watch(board, said.append)  # type: ignore[arg-type]
    watch.start(3, make)
    return watch, board, made, said


@pytest.mark.parametrize("error", [ActorDiedError(), UNREACHED])
def test_one_that_died_is_ended_and_started_again(error: Exception, ray: FakeRay) -> None:
    watch, board, made, _ = watching(error, None)
    assert watch.look()
    assert board.lost == [(3, "its process died")] and len(made) == 2
    assert ray.killed == made[:1]  # so that two do not train as one


def test_one_that_dies_while_it_stops_does_not_come_back(ray: FakeRay) -> None:
    watch, board, made, _ = watching(ActorDiedError())
    watch.stop()
    assert not watch.look() and len(made) == 1 and made[0].stopped == 1 and board.lost


def test_one_that_dies_again_and_again_is_given_up(ray: FakeRay) -> None:
    watch, _, made, said = watching(*[ActorDiedError()] * DEATHS)
    for _ in range(DEATHS - 1):
        assert watch.look()
    with pytest.raises(JobError, match="again and again"):
        watch.look()
    assert len(made) == DEATHS and "member 3 has died 5 times within 150 s" in said[0]


def test_members_of_a_command_that_ends_are_lost(ray: FakeRay) -> None:
    watch, board, made, _ = watching(None)

    def interrupt() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job.run(watch, interrupt, watch.stop, lambda: None)
    assert ray.killed == made and board.lost == [(3, "its command has ended (KeyboardInterrupt)")]


class Coordinator:
    """An actor that answers one question as planned, one after the other."""

    def __init__(self, *results: Any):
        left = deque(results)
        self.job = Remote(lambda: Run(left.popleft()))


def failed(cause: Exception) -> RayTaskError:
    return RayTaskError("job", "traceback", cause)


def test_what_the_coordinator_failed_with_is_told(ray: FakeRay) -> None:
    with pytest.raises(WriteError, match="free space"):
        Board(Coordinator(failed(WriteError("free space there", 28)))).job()
    with pytest.raises(JobError, match="has failed with KeyError: 'x'"):
        Board(Coordinator(failed(KeyError("x")))).job()
    with pytest.raises(JobError, match="does not answer"):
        Board(Coordinator(GetTimeoutError("late"))).job()


def test_a_coordinator_that_starts_again_is_asked_again(ray: FakeRay) -> None:
    assert Board(Coordinator(UNREACHED, {"epochs": 3})).job() == {"epochs": 3}


def test_an_error_of_writing_gets_to_another_process() -> None:
    found = pickle.loads(pickle.dumps(WriteError("no space", 28)))
    assert (str(found), found.errno) == ("no space", 28)


def test_members_are_spread_over_machines_without_waiting_for_cores(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    def node(name: str, cores: int, alive: bool = True) -> dict[str, Any]:
        return {"NodeID": name * 56, "Alive": alive, "Resources": {"CPU": cores}}

    here = object.__new__(Cluster)  # Ray itself is not started
    monkeypatch.setattr(ray, "nodes", lambda: [node("a", 1)], raising=False)
    assert here.spread(2) == ["DEFAULT"] * 2
    monkeypatch.setattr(
        ray, "nodes", lambda: [node("a", 1), node("b", 9, False), node("c", 0), node("d", 1)], raising=False
    )
    assert [where.node_id for where in here.spread(3)] == ["a" * 56, "d" * 56, "a" * 56]


def test_a_user_is_told_what_was_saved() -> None:
    table = Table()
    before = table.saved
    assert stopped(table, before, "go") == "stopped, and nothing was saved; begin again with: go"
    saved = {**table.state(), "epochs": 0}
    table.apply({"event": "saved", "time": 1.0, "path": "members/checkpoint-0", "state": saved})
    assert stopped(table, before, "go") == "stopped and saved; go on with: go"
    assert "go on from the checkpoint of epoch 0 with: go" in stopped(table, table.saved, "go")
