"""What the benchmark of placements keeps of its runs, and what it complains of."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import placing_bars


def run(name: str, **search: float) -> dict[str, Any]:
    numbers = {
        "estimated": 2.0,
        "measured": 2.0,
        "rounds": [2.0],
        "bottleneck": "a",
        "placement": {"cell": "a"},
    }
    placements = {"heuristic": numbers, "search": {**numbers, **search}, "cpu": numbers}
    return {"model": name, "device": placing_bars.DEVICES, "placements": placements}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "placing.json"
    monkeypatch.setattr(placing_bars, "RESULTS", path)
    return path


def bench(monkeypatch: pytest.MonkeyPatch, *models: str, **search: float) -> None:
    monkeypatch.setattr(sys, "argv", ["placing_bars.py", *models])
    monkeypatch.setattr(placing_bars, "pin_blas", lambda: None)
    monkeypatch.setattr(placing_bars, "measured", lambda name, rounds: run(name, **search))
    placing_bars.main()


def test_a_run_for_one_model_leaves_the_others(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench(monkeypatch)
    bench(monkeypatch, "ggnn", measured=3.0)
    runs = json.loads(results.read_text())["runs"]
    found = {r["model"]: r["placements"]["search"]["measured"] for r in runs}
    assert found == {**dict.fromkeys(placing_bars.SETTINGS, 2.0), "ggnn": 3.0}
    assert all({"date", "environment", "load"} <= r.keys() for r in runs)  # of the run itself


@pytest.mark.parametrize("how", ["estimated", "measured"])
def test_a_slower_search_is_complained_of(how: str, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=rf"slower than the heuristic's: ggnn \({how}\)$"):
        bench(monkeypatch, "ggnn", **{how: 1.0})
    assert results.exists()
