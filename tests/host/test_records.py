"""Records survive JSON, stay strict JSON, and know when a target was met."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amphw.host.records import (
    EpochRecord,
    RankFigures,
    RunSummary,
    Slice,
    first_reaching,
    higher_is_better,
    json_safe,
)


def record(epoch: int, **changes: Any) -> EpochRecord:
    values: dict[str, Any] = {
        "epoch": epoch,
        "instances": 1000 * epoch,
        "seconds": 2.5 * epoch,
        "train_loss": 1.0 / epoch,
        "train": {"accuracy": 0.5},
        "valid": {"accuracy": 0.2 * epoch, "loss": 1.0 / epoch},
        "instances_per_s": 400.0,
        "staleness_p50": 3.0,
        "staleness_p99": 17.0,
        "staleness_nodes": {"lstm": (3.0, 17.0)},
        "utilisation": [0.9, 0.8],
        "keys_in_flight": 15.5,
    }
    return EpochRecord(**(values | changes))


def summary(**changes: Any) -> RunSummary:
    values: dict[str, Any] = {
        "model": "rnn",
        "device": "cpu",
        "epochs": 4,
        "instances_per_s": 400.0,
        "target_reached": True,
        "valid": {"accuracy": 0.8},
        "staleness": {"p50": 3.0, "p99": 17.0},
        "messages": {"forward": 10, "backward": 10, "lost": 0},
        "run_dir": "runs/rnn",
        "history": [record(epoch) for epoch in range(1, 5)],
        "stopped_by": "target",
    }
    return RunSummary(**(values | changes))


def test_summary_json_has_the_promised_keys() -> None:
    document = summary().to_json()
    promised = {"model", "device", "instances_per_s", "epochs", "target_reached"}
    promised |= {"valid", "staleness", "messages", "run_dir"}
    assert promised <= set(document)


def test_summary_round_trips_through_json_text() -> None:
    original = summary(metric="accuracy", target=0.6)
    assert RunSummary.from_json(json.loads(json.dumps(original.to_json()))) == original


@given(st.floats(), st.floats(), st.lists(st.floats(), max_size=3))
def test_records_are_strict_json_whatever_the_numbers(loss: float, p99: float, busy: list[float]) -> None:
    original = record(1, train_loss=loss, staleness_p99=p99, utilisation=busy)
    text = json.dumps(original.to_json(), allow_nan=False)
    back = EpochRecord.from_json(json.loads(text))
    for was, now in zip(
        [loss, p99, *busy], [back.train_loss, back.staleness_p99, *back.utilisation], strict=True
    ):
        assert now == was if math.isfinite(was) else math.isnan(now)


def test_json_of_a_later_version_is_read_and_of_something_else_refused() -> None:
    document = summary().to_json()
    assert RunSummary.from_json(document | {"new_field": 1}) == summary()
    with pytest.raises(ValueError, match="RunSummary lacks model, run_dir; was this file written by amphw"):
        RunSummary.from_json({name: document[name] for name in document if name not in ("model", "run_dir")})


def test_the_live_estimate_survives_and_is_absent_from_older_files() -> None:
    original = record(1, live={"accuracy": 0.25})
    document = json.loads(json.dumps(original.to_json(), allow_nan=False))
    assert EpochRecord.from_json(document) == original
    del document["live"]
    assert EpochRecord.from_json(document) == record(1)
    unknown = EpochRecord.from_json(record(1, live={"loss": math.inf}).to_json())
    assert math.isnan(unknown.live["loss"])


def test_json_safe_converts_numpy_paths_and_tuples() -> None:
    value = {
        "a": np.float32(0.5),
        "b": np.array([1.0, np.nan]),
        3: (np.int64(2), Path("x/y")),
        "c": np.bool_(True),
    }
    assert json_safe(value) == {"a": 0.5, "b": [1.0, None], "3": [2, "x/y"], "c": True}


def test_json_safe_names_the_type_it_cannot_write() -> None:
    with pytest.raises(TypeError, match="cannot write a complex as JSON"):
        json_safe({"z": 1j})


@pytest.mark.parametrize(
    ("metric", "up"),
    [
        ("accuracy", True),
        ("F1", True),
        ("loss", False),
        ("MAE", False),
        ("error_ratio", False),
        ("rmse", False),
    ],
)
def test_direction_of_a_metric_follows_from_its_name(metric: str, up: bool) -> None:
    assert higher_is_better(metric) is up


def test_target_is_first_met_upwards_and_downwards() -> None:
    history = [record(epoch) for epoch in range(1, 5)]
    assert first_reaching(history, "accuracy", 0.4) is history[1]
    assert first_reaching(history, "loss", 0.4) is history[2]
    assert first_reaching(history, "accuracy", 0.99) is None
    assert first_reaching(history, "no such metric", 0.0) is None


def test_a_run_knows_when_it_met_its_target() -> None:
    at = summary(metric="accuracy", target=0.4).reached_at()
    assert at is not None
    assert (at.epoch, at.seconds) == (2, 5.0)
    last = summary().reached_at()  # nothing recorded: it stopped where it met the target
    assert last is not None
    assert last.epoch == 4
    assert summary(target_reached=False).reached_at() is None


def test_slice_end() -> None:
    assert Slice(0, "linear", "forward", 10.0, 2.5, rows=4).end_us == 12.5


def test_what_ranks_did_survives_and_adds_up() -> None:
    early = RankFigures(1, 100.0, 1.5, 0.25, 0.25, 40.0, 50.0, 1.0, 2.0)
    assert early.instances_per_s == 50.0
    back = EpochRecord.from_json(json.loads(json.dumps(record(1, ranks=[early]).to_json())))
    assert back.ranks == [early]
    both = RankFigures(1, 60.0, 0.5, 0.5, 1.0, 4.0, 5.0, 3.0, 4.0).after(early)
    assert both == RankFigures(1, 160.0, 2.0, 0.75, 1.25, 44.0, 55.0, 3.0, 4.0)


def test_a_rank_that_trains_nothing_has_no_staleness() -> None:
    serves = RankFigures(1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, math.nan, math.nan)
    (back,) = EpochRecord.from_json(json.loads(json.dumps(record(1, ranks=[serves]).to_json()))).ranks
    assert math.isnan(back.staleness_p50) and math.isnan(back.instances_per_s)
