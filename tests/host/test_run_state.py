"""How far a run has come survives a checkpoint exactly."""

from __future__ import annotations

import json
import math

import pytest

from amphw.host.meters import Tally
from amphw.host.records import EpochRecord
from amphw.host.run_state import RunState


def record(epoch: int) -> EpochRecord:
    return EpochRecord(epoch, 10, 0.1, 1 / 3, {}, {"accuracy": 0.1}, 9.0, 0.0, 1.0, {}, [0.5], math.nan)


def state() -> RunState:
    out = RunState(Tally("loss", ("loss",), 3, {"loss": 0.1 + 0.2}))
    out.epoch, out.position, out.number, out.size = 4, 7, 107, 1070
    out.seconds, out.epoch_seconds, out.epoch_size = 1 / 3, 1 / 7, 70
    out.forward = out.backward = 12
    out.staleness.update({0: 5, 11: 2})
    out.best, out.best_epoch = 0.7, 2
    out.history = [record(k) for k in (1, 2, 3, 4)]
    out.live = {"accuracy": 2 / 3}
    return out


def test_it_survives_as_json() -> None:
    text = json.dumps(state().to_json())
    other = RunState(Tally("loss", ("loss",)))
    other.restore(json.loads(text))
    assert other.to_json() == state().to_json()
    assert other.staleness == {0: 5, 11: 2} and other.seconds == 1 / 3
    assert other.live == {"accuracy": 2 / 3}
    assert [r.epoch for r in other.history] == [1, 2, 3, 4]


def test_a_checkpoint_of_an_earlier_version_has_no_live_estimate() -> None:
    data = state().to_json()
    del data["live"]
    other = state()
    other.restore(data)
    assert other.live == {}


def test_the_end_of_an_epoch_empties_what_belongs_to_it() -> None:
    s = state()
    s.finish_epoch(record(5))
    assert (s.epoch, s.position, s.epoch_size, s.epoch_seconds, s.tally.rows) == (5, 0, 0, 0.0, 0)
    assert (s.tally.node, s.tally.names) == ("loss", ("loss",))
    assert s.live == {}
    assert (s.number, s.size) == (107, 1070)


@pytest.mark.parametrize(
    ("metric", "best", "value", "better"),
    [
        ("accuracy", None, 0.0, True),
        ("accuracy", None, math.nan, False),
        ("accuracy", 0.5, 0.6, True),
        ("accuracy", 0.5, 0.5, False),
        ("accuracy", 0.5, math.nan, False),
        ("mae", 0.5, 0.4, True),
        ("mae", 0.5, 0.6, False),
    ],
)
def test_what_is_better_depends_on_the_metric(
    metric: str, best: float | None, value: float, better: bool
) -> None:
    s = RunState(Tally("loss", ()))
    s.best = best
    assert s.validated(metric, {metric: value}, 1) is better


def test_of_equal_values_the_one_with_the_least_loss_is_the_best() -> None:
    s = RunState(Tally("loss", ()))
    epochs = [(0.5, 1.0), (0.9, 0.4), (0.9, 0.5), (0.9, 0.3), (0.9, math.nan), (0.8, 0.1)]
    valid = [{"accuracy": score, "loss": loss} for score, loss in epochs]
    found = [s.validated("accuracy", each, k) for k, each in enumerate(valid, 1)]
    assert found == [True, True, False, True, False, False]
    assert (s.best, s.best_epoch, s.best_loss) == (0.9, 2, 0.3), "patience counts from the value's first"
    other = RunState(Tally("loss", ()))
    other.restore(json.loads(json.dumps(s.to_json())))
    assert other.best_loss == 0.3
