"""The benchmarks of Ako over slow links and beside a slow rank: what they make of made-up runs."""

from __future__ import annotations

import importlib
import json
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(params=["ako_links", "ako_partitions", "ako_slow"])
def script(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module(request.param)


def only(*names: str) -> Any:
    return pytest.mark.parametrize("script", names, indirect=True)


def epochs(*accuracies: float, each: float = 10.0) -> list[dict[str, Any]]:
    return [{"seconds": each * k, "valid": {"accuracy": a}} for k, a in enumerate(accuracies, 1)]


@only("ako_links")
def test_a_target_is_passed_between_two_ends_of_epochs(script: ModuleType) -> None:
    found = epochs(0.9, 0.98, 0.99)
    assert script.moment(found, 0.985) == pytest.approx((25.0, 2.5))
    assert script.moment(found, 0.45) == pytest.approx((5.0, 0.5))
    assert script.moment(found, 0.995) is None


def learnt(strategy: str, *seconds: float | None) -> list[dict[str, Any]]:
    return [
        {
            "strategy": strategy,
            "seed": seed,
            "seconds": each,
            "epochs": each and each / 10,
            "epoch_seconds": 10.0,
            "best": 0.98,
            "sent_per_s": 1e6,
        }
        for seed, each in enumerate(seconds)
    ]


@only("ako_links")
def test_ako_is_held_against_all_to_all_and_the_best_split_of_servers(script: ModuleType) -> None:
    ours, wide = learnt("ako", 20.0, 21.0, 22.0), learnt("all-to-all", 60.0, 61.0, 62.0)
    served = [*learnt("servers-async", 40.0, 40.0, 40.0), *learnt("servers-async:1", 30.0, 30.0, 30.0)]
    found = script.compared([*ours, *wide, *served], 0.985)
    assert found["missed"] == []
    assert found["ratios"]["all-to-all"]["median"] == pytest.approx(21 / 61)
    low, high = found["ratios"]["all-to-all"]["interval_95"]
    assert 20 / 62 - 1e-9 <= low <= 21 / 61 <= high <= 22 / 60 + 1e-9
    best = learnt("servers-async:2", 10.0, 10.0, 10.0)
    assert script.compared([*ours, *served, *best], 0.985)["missed"] == [
        "ako takes 2.10 of the time of servers-async:2"
    ]
    (slow,) = script.compared([*ours, *learnt("all-to-all", 19.0, 21.0, 23.0)], 0.985)["missed"]
    assert "of the time of all-to-all at most" in slow
    (never,) = script.compared([*ours, *learnt("all-to-all", 60.0, None, 60.0)], 0.985)["missed"]
    assert never == "all-to-all, seed 1: 0.9800 is the best, and the target 0.985"


@only("ako_partitions")
@pytest.mark.parametrize("tried", ["1", "4", "auto", "latest"])
def test_runs_go_on_for_longer_than_that(script: ModuleType, tried: str) -> None:
    """An epoch takes 8 s, and on links of a fifth of the need five times that with one partition."""
    args = Namespace(seconds=17.0)
    each = 8.0 * {"1": 5.0, "4": 1.25}.get(tried, 1.0)
    assert 17.0 * 1.4 <= each * script.epochs_for(args, tried, 0.2, 8.0) < 17.0 * 1.4 + 2 * each


def tried(
    script: ModuleType, name: str, partitions: int, *accuracies: float, over: float = 1.05
) -> list[Any]:
    """Runs of 10 rounds a second, of 1000 bytes to each of 3 ranks. over: of the model, on the wire. What
    they owe at the end of an epoch, of 2 s, is sent, too."""
    sent = over * 1000 * 3 * (10 / partitions + (1 - 1 / partitions) / 2)
    return [
        {
            "tried": name,
            "seed": seed,
            "accuracy": each,
            "rounds_per_s": 10.0,
            "sent_per_s": sent,
            "partitions": partitions,
            "epoch_seconds": 2.0,
        }
        for seed, each in enumerate(accuracies)
    ]


@only("ako_partitions")
def test_what_is_predicted_is_held_against_what_was_tried(script: ModuleType) -> None:
    fixed = [*tried(script, "1", 1, 0.5, 0.6), *tried(script, "4", 4, 0.96, 0.97)]
    auto, latest = tried(script, "auto", 5, 0.95, 0.96), tried(script, "latest", 5, 0.9, 0.91)
    at = script.judged([*fixed, *auto, *latest], 100_000, 1000, 4)
    assert at["missed"] == [] and at["p_best"] == 4 and at["p_predicted"] == 5
    # With one partition more would be sent than a link of 12,500 bytes a second carries.
    assert at["sent_off_model"] == pytest.approx({"4": 0.05, "auto": 0.05})
    worse = tried(script, "auto", 5, 0.8, 0.81, over=1.2)
    missed = script.judged([*fixed, *worse, *latest], 100_000, 1000, 4)["missed"]
    assert missed == [
        "0.8050 with what is predicted, 0.9650 with p = 4",
        "p = auto: sent +20% of the model",
        "0.9050 without accumulation, 0.8050 with it",
    ]


@only("ako_partitions")
def test_the_runs_of_a_record_are_judged_again(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [
        *tried(script, "4", 4, 0.9),
        *tried(script, "auto", 5, 0.9, over=1.3),
        *tried(script, "latest", 5, 0.8),
    ]
    at = {"share": 0.25, "bits_per_s": 100_000, "missed": ["as it was judged before"], "runs": runs}
    record = {"date": "2026-11-26", "gradient_bytes": 1000, "ranks": 4, "rates": [at]}
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record))
    with pytest.raises(SystemExit, match=r"0\.25: p = auto: sent \+30% of the model"):
        script.again(path)
    found = json.loads(path.read_text())
    assert found["date"] == "2026-11-26" and found["rates"][0]["runs"] == runs
    assert found["rates"][0]["missed"] == ["p = auto: sent +30% of the model"]


@only("ako_slow")
def test_nobody_is_further_ahead_than_the_bound_allows(script: ModuleType) -> None:
    def run(tau: int, times: float, **more: Any) -> dict[str, Any]:
        usual = {"seed": 0, "seconds": 50.0, "bound": tau + 4, "staleness_max": tau + 5, "computed": 10.0}
        return {"tau": tau, "times": times, **usual, "blocked": 20.0, **more}

    even, free = run(4, 1.0, blocked=1.0), run(script.FREE, 5.0, blocked=0.0)
    assert script.missed([even, run(0, 5.0), free]) == []
    (ahead,) = script.missed([even, run(0, 5.0, staleness_max=6)])
    assert ahead == "tau 0, 5 times slower, seed 0: 6 rounds ahead, and 5 are the most"
    (early,) = script.missed([even, run(0, 5.0, blocked=5.0)])
    assert early.endswith("the bound held others for 10% of the time alone")
    (held,) = script.missed([even, run(script.FREE, 5.0, blocked=1.0)])
    assert held.endswith("the bound held others for 2.0% of the time")
