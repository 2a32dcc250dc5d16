"""`amphw demo`, in its quick version."""

from __future__ import annotations

import json
import math

import pytest

from amphw.cli import demo
from amphw.cli.seeds import spread
from amphw.host.records import EpochRecord, RunSummary
from tests.daily import daily


@pytest.mark.parametrize("how", daily(["in this process"], ["as it is called"]))
def test_three_runs_and_one_report(amphw, spawn, tmp_path, how: str) -> None:
    done = (spawn if how == "as it is called" else amphw)("demo", "--quick", "--out", "d")
    assert not (done.returncode if how == "as it is called" else done.exit_code), done.stderr
    for keys in demo.KEYS:
        assert f"max_active_keys {keys} " in done.stdout
        assert (tmp_path / "d" / f"keys-{keys}" / "summary.json").is_file()
    assert "times the throughput of max_active_keys 1" in done.stdout
    assert (
        "throughput and seconds: one run; varies by a factor of two and more on a busy machine" in done.stdout
    )
    assert f"{tmp_path.name}" not in done.stdout and "d/report.html" in done.stdout
    report = (tmp_path / "d" / "report.html").read_text()
    assert report.count("<img ") == 5  # convergence, comparison, three Gantt charts


@pytest.mark.thorough
def test_json(amphw) -> None:
    done = amphw("demo", "--quick", "--json", "--device", "reference")
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [run["max_active_keys"] for run in answer["runs"]] == [1, 4, 16]
    assert all(run["messages"]["lost"] == 0 for run in answer["runs"])


def summary(rate: float, seconds: float, epochs: int) -> RunSummary:
    history = [
        EpochRecord(
            epoch=epoch,
            instances=100 * epoch,
            seconds=seconds * epoch / epochs,
            train_loss=0.1,
            train={},
            valid={"accuracy": 0.98 if epoch == epochs else 0.5},
            instances_per_s=rate,
            staleness_p50=0,
            staleness_p99=1,
            staleness_nodes={},
            utilisation=[0.5, 1.0],
            keys_in_flight=1,
        )
        for epoch in range(1, epochs + 1)
    ]
    return RunSummary(
        model="m",
        device="d",
        epochs=epochs,
        instances_per_s=rate,
        target_reached=True,
        valid={"accuracy": 0.98},
        staleness={"p50": 0, "p99": 1},
        messages={"forward": 1, "backward": 1, "lost": 0},
        run_dir="r",
        history=history,
        metric="accuracy",
        target=demo.TARGET,
    )


def test_what_asynchrony_bought_is_a_ratio_to_the_first_run() -> None:
    (line,) = demo._bought({"one": summary(100, 60, 3), "many": summary(250, 30, 4)})
    assert line == (
        "many: 2.50 times the throughput of one, 2.00 times as fast to 97% (4 epochs instead of 3)."
    )


def test_without_a_rate_there_is_no_ratio() -> None:
    assert not list(demo._bought({"one": summary(math.nan, 60, 3), "many": summary(250, 30, 4)}))


def test_utilisation_is_the_mean_over_workers_and_epochs() -> None:
    assert demo.utilisation(summary(1, 1, 2)) == pytest.approx(0.75)
    assert demo.utilisation(summary(1, 1, 0)) is None


def test_spread_leaves_out_what_is_not_known() -> None:
    assert spread([3.0, math.nan, 1.0, 2.0]) == {"median": 2.0, "min": 1.0, "max": 3.0, "n": 3}
    assert spread([math.nan])["n"] == 0
