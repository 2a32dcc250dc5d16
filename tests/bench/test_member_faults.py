"""The campaign of faults of members: what it draws, what it makes of made-up jobs, and how it goes on."""

from __future__ import annotations

import importlib
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
OPTIONS = {"seed": 0}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("member_faults")


def job(accuracy: float, *wrong: str, strategy: str = "ako") -> dict[str, Any]:
    return {"strategy": strategy, "seed": 1, "accuracy": accuracy, "wrong": list(wrong)}


def test_faults_are_in_order_and_nobody_sleeps_through_to_the_end(script: ModuleType) -> None:
    for seed in range(20):
        found = script.drawn("servers-async", 50, 100.0, random.Random(seed))
        assert [at for at, _ in found] == sorted(at for at, _ in found)
        assert {kind for _, kind in found} == {"kill", "stop"}, "the number of servers' ranks is fixed"
        assert max(at for at, kind in found if kind == "stop") + script.STOPPED_S <= 100.0


def test_disturbed_jobs_are_held_against_the_spread_of_the_others(script: ModuleType) -> None:
    usual = {"ako": [0.88, 0.9, 0.92]}
    found = script.judged(usual, [job(0.9), job(0.91)])
    assert found["missed"] == []
    assert found["strategies"]["ako"]["away"] == pytest.approx(0.005 / (0.02 / 3**0.5))
    (missed,) = script.judged(usual, [job(0.8)])["missed"]
    assert "-8.7 standard errors" in missed
    (missed,) = script.judged(usual, [job(0.9), job(0.1, "exit code 1")])["missed"]
    assert missed == "ako, seed 1: exit code 1"
    (missed,) = script.judged({"ako": [0.9]}, [job(0.9)])["missed"]
    assert "no comparison" in missed


def test_a_campaign_goes_on_after_the_last_job_that_was_written_whole(
    script: ModuleType, tmp_path: Path
) -> None:
    path, ran = tmp_path / "faults.jobs", list[str]()

    def runs(name: str) -> Any:
        return lambda: ran.append(name) or job(0.9)

    first = script.Done(path, OPTIONS)
    for name in ("a", "b"):
        first.take(name, runs(name))
    path.write_text(path.read_text()[:-10])
    again = script.Done(path, OPTIONS)
    assert [again.take(name, runs(name)) for name in ("a", "b")] == [job(0.9)] * 2
    assert ran == ["a", "b", "b"]
    assert set(script.Done(path, OPTIONS).found) == {"a", "b"}
    with pytest.raises(SystemExit, match="remove it, or give the same"):
        script.Done(path, {"seed": 1})
