"""The benchmark of the simulated CPU engine: the order of settings, and rows of accuracy.json."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from amphw.estimate.accuracy import read, write
from benchmarks import estimate_bars
from benchmarks.estimate_bars import correlation, pairs

RATES = {1: (100.0, 110.0), 4: (200.0, 190.0)}
"""Measured and simulated, by keys."""


def record(model: str, args: Any) -> dict[str, Any]:
    rows = [
        {
            "workers": 1,
            "max_active_keys": keys,
            "measured": {"median": measured, "rounds": [measured] * 5, "spread": 0.0},
            "simulation": {"instances_per_s": simulated, "cpu_error": 0.0},
        }
        for keys, (measured, simulated) in RATES.items()
    ]
    return {
        "workers": rows,
        "counted": "words",
        "explained": 0.9,
        "foreign_load": 0.0,
        "date": "2026-11-22",
        "invalid_because": ["a reason"],
        "environment": {"cpu": {"name": "a processor", "usable": 2}},
    }


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "accuracy.json"
    write(path, [])
    monkeypatch.setattr(estimate_bars, "FILE", path)
    monkeypatch.setattr(estimate_bars, "measure", record)
    return path


def bench(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks/estimate_bars.py", *arguments])
    with pytest.raises(SystemExit) as done:
        estimate_bars.main()
    assert done.value.code == 0


def test_rows_are_written_when_asked_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench(monkeypatch, "rnn")
    assert read(file) == []
    bench(monkeypatch, "--update", "rnn", "--seconds", "1.5")
    rows = read(file)
    assert [(row.model, row.setting, row.measured, row.simulated) for row in rows] == [
        ("rnn", "1 worker, 1 key", 100.0, 110.0),
        ("rnn", "1 worker, 4 keys", 200.0, 190.0),
    ]
    first = rows[0]
    assert (first.unit, first.machine, first.note) == ("words/s", "a processor, 2 cores", "a reason")
    assert first.command == "python benchmarks/estimate_bars.py --rounds 5 --seconds 1.5"


def test_a_second_measurement_replaces_the_first(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        bench(monkeypatch, "--update", "rnn", "lstm")
    assert [row.model for row in read(file)] == ["rnn", "rnn", "lstm", "lstm"]


def row(keys: int, simulated: float, *rounds: float) -> dict[str, Any]:
    return {
        "max_active_keys": keys,
        "measured": {"rounds": rounds},
        "simulation": {"instances_per_s": simulated},
    }


def test_settings_that_every_round_tells_apart_have_an_order() -> None:
    """Whatever the machine does from one round to the next."""
    machine = (50.0, 100.0, 200.0, 60.0, 70.0)
    slow, fast = row(1, 90.0, *machine), row(4, 100.0, *(1.2 * rate for rate in machine))
    (pair,) = pairs([slow, fast])
    assert pair.keys == (1, 4) and not pair.tie and not pair.swapped
    assert pair.rounds == pytest.approx([5 / 6] * 5) and pair.simulated == pytest.approx(0.9)
    assert "measured -16.7% (-16.7% to -16.7%), simulated -10.0%" in str(pair)
    (pair,) = pairs([slow | {"simulation": {"instances_per_s": 110.0}}, fast])
    assert pair.swapped and not pair.tie and "SWAPPED" in str(pair)


def test_settings_that_win_by_turns_are_a_tie() -> None:
    one, other = row(16, 110.0, *[100.0] * 5), row(64, 100.0, 90.0, 95.0, 95.0, 110.0, 90.0)
    (pair,) = pairs([one, other])
    assert pair.tie and "a tie" in str(pair)


@pytest.mark.parametrize(
    ("wins", "rounds", "tie"), [(4, 4, True), (5, 5, False), (7, 9, True), (8, 9, False)]
)
def test_how_many_rounds_must_agree(wins: int, rounds: int, tie: bool) -> None:
    other = [90.0] * wins + [110.0] * (rounds - wins)
    (pair,) = pairs([row(1, 1.0, *[100.0] * rounds), row(4, 1.0, *other)])
    assert pair.tie == tie


def test_rank_correlation_counts_pairs() -> None:
    rows = [row(1, 3.0, 1.0, 1.0), row(4, 2.0, 2.0, 2.0), row(16, 4.0, 3.0, 3.0)]
    assert correlation(pairs(rows)) == pytest.approx(1 / 3)
