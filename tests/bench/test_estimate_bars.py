"""The benchmark of the simulated CPU engine: with --update its figures become rows of accuracy.json."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from amphw.estimate.accuracy import read, write
from benchmarks import estimate_bars

RATES = {1: (100.0, 110.0), 4: (200.0, 190.0)}
"""Measured and simulated, by keys."""


def record(model: str, args: Any) -> dict[str, Any]:
    rows = [
        {
            "workers": 1,
            "max_active_keys": keys,
            "measured": {"median": measured},
            "simulation": {"instances_per_s": simulated},
        }
        for keys, (measured, simulated) in RATES.items()
    ]
    return {
        "workers": rows,
        "counted": "words",
        "explained": 0.9,
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
    assert first.command == "python benchmarks/estimate_bars.py rnn --seconds 1.5"


def test_a_second_measurement_replaces_the_first(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        bench(monkeypatch, "--update", "rnn", "lstm")
    assert [row.model for row in read(file)] == ["rnn", "rnn", "lstm", "lstm"]
