"""What decides whether one more instance may enter."""

from __future__ import annotations

import pytest

from amphw.host.config import TrainConfig
from amphw.host.modes import Greedy, StalenessLimited, TrainingMode, pump_policy, training_mode


class Known:
    """A meter that has seen so many gradient rows an instance at each node; None before the first is back."""

    def __init__(self, rows: dict[str, float] | None) -> None:
        self.rows = rows

    def rows_per_instance(self) -> dict[str, float] | None:
        return self.rows


def test_modes() -> None:
    assert training_mode(TrainConfig(max_active_keys=7)) == TrainingMode(7, False, "self")
    assert training_mode(TrainConfig(mode="sync")) == TrainingMode(1, True, "controller")
    assert training_mode(TrainConfig(mode="pipeline", pipeline_depth=3)) == TrainingMode(
        3, True, "controller"
    )


def test_greedy_always_admits() -> None:
    assert Greedy().admits(0) and Greedy().admits(10**6)


def test_staleness_is_predicted_at_the_worst_node() -> None:
    meter = Known({"cell": 60.0, "head": 10.0})
    policy = StalenessLimited(meter, {"cell": 100, "head": 10, "unused": 1}, limit=2.5)  # type: ignore[arg-type]
    assert policy.predicted(1) == pytest.approx(1.0), "head: 10 rows an instance, 10 an update"
    assert [policy.admits(n) for n in range(5)] == [True, True, True, False, False]


def test_one_at_a_time_until_something_is_known() -> None:
    policy = StalenessLimited(Known(None), {"cell": 1}, limit=100.0)  # type: ignore[arg-type]
    assert policy.admits(0) and not policy.admits(1)


def test_a_limit_of_nothing_still_lets_one_pass() -> None:
    policy = StalenessLimited(Known({"cell": 50.0}), {"cell": 1}, limit=0.0)  # type: ignore[arg-type]
    assert policy.admits(0) and not policy.admits(1)


def test_a_model_without_parameters_is_never_held_back() -> None:
    assert StalenessLimited(Known({}), {}, limit=0.0).admits(9)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("train", "kind"),
    [
        (TrainConfig(), Greedy),
        (TrainConfig(pump="staleness"), StalenessLimited),
        (TrainConfig(pump="staleness", mode="sync"), Greedy),
        (TrainConfig(pump="staleness", mode="pipeline"), Greedy),
    ],
)
def test_only_asynchronous_training_has_staleness_to_limit(train: TrainConfig, kind: type) -> None:
    assert isinstance(pump_policy(train, Known(None), {}), kind)  # type: ignore[arg-type]
