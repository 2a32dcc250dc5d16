"""`train.clip_norm` and `train.average` with ranks, against one process with the window of all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw.host.controller import Trainer
from amphw.host.gradients import accumulated, give
from amphw.ir.averaging import MovingAverage
from amphw.ir.clipping import clip_factor, scale, squares
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import Device
from amphw.replicas.replica import Replica
from amphw.replicas.run import in_threads
from amphw.replicas.synchronous import Synchronous
from tests.daily import daily
from tests.host.training import MODEL
from tests.replicas.test_equivalence import (
    RULES,
    Kept,
    alone,
    differences,
    settings,
    share_alone,
    together,
    trained_alone,
)

NORM = 0.05
"""A bound of `train.clip_norm` that clips the toy's gradients."""


def clipped_apart(ranks: int, clip_norm: float, *others: str) -> list[Kept]:
    """Ranks that clip what is their own before it is added up, as they should not."""

    class Apart(Synchronous):
        def plan(self, device: Device, *rest: Any) -> np.ndarray:
            found = accumulated(device, {})
            scale(found, clip_factor(squares(found, {}), clip_norm))
            give(device, found)
            return super().plan(device, *rest)

    devices = [Kept() for _ in range(ranks)]
    cfg = settings(MODEL, 1, *others)

    def rank_of(transport: Any) -> Replica:
        return Replica(transport, Apart("allreduce", False, False))

    def follows(transport: Any) -> None:
        Trainer(MODEL, cfg, devices[transport.rank], None, replication=rank_of(transport)).run()
        devices[transport.rank].close()

    with in_threads(ranks, follows) as first:
        follows(first)
    return devices


@pytest.mark.parametrize("strategy", ["hybrid", "allreduce", "servers"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule[0])
@pytest.mark.parametrize(("ranks", "depth"), daily([(2, 3)], [(2, 1), (4, 1)]))
def test_the_norm_that_is_clipped_is_that_of_all_ranks_together(
    ranks: int, depth: int, rule: list[str], strategy: str
) -> None:
    clip = ["train_instances=110", f"clip_norm={NORM}"]  # 11 batches: some ranks end without one
    one, _ = alone(MODEL, ranks * depth, *rule, *clip)
    every, _ = together(MODEL, ranks, depth, *rule, *clip, f"replicas.strategy={strategy}")
    assert differences(every[0], one) < 1e-10
    assert strategy != "allreduce" or all(differences(every[0], other) == 0.0 for other in every[1:])
    loose, _ = alone(MODEL, ranks * depth, *rule, "train_instances=110")
    assert differences(one, loose) > 1e-4  # it was clipped


def test_clipping_before_gradients_are_added_up_would_be_another_thing() -> None:
    """Where the parts are longer than their mean, which gradients of several directions are."""
    one, _ = alone(MODEL, 2, *RULES[0], f"clip_norm={NORM}")
    right, _ = together(MODEL, 2, 1, *RULES[0], f"clip_norm={NORM}")
    wrong = clipped_apart(2, NORM, *RULES[0])
    assert differences(wrong[0], wrong[1]) == 0.0
    assert differences(right[0], one) < 1e-10
    assert differences(wrong[0], one) > 1e-4


@pytest.mark.parametrize("strategy", ["average", "outer"])
def test_ranks_that_update_alone_clip_their_own_gradients(strategy: str) -> None:
    """An outer step of rate one without momentum is an average."""
    rule = [*RULES[0], "epochs=1", f"clip_norm={NORM}"]
    plain = ["replicas.outer_lr=1", "replicas.outer_momentum=0"] if strategy == "outer" else []
    both, _ = together(MODEL, 2, 1, *rule, f"replicas.strategy={strategy}", *plain)
    apart = [share_alone(rank, 12, *rule) for rank in range(2)]
    for name, value in both[0].last.items():
        np.testing.assert_allclose(value, (apart[0].last[name] + apart[1].last[name]) / 2, rtol=0, atol=1e-12)


def averages_of(ranks: int, depth: int, monkeypatch: pytest.MonkeyPatch, *others: str) -> list[MovingAverage]:
    """Of every rank, or of a single process with the window of all."""
    found: list[MovingAverage] = []
    run = Trainer.run

    def noted(self: Trainer, resume: Path | None = None) -> Any:
        summary = run(self, resume)
        assert self.state.average is not None
        found.append(self.state.average)
        return summary

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "run", noted)
        if ranks == 1:
            trained_alone(MODEL, depth, *others)
        else:
            together(MODEL, ranks, depth, *others)
    return found


@pytest.mark.parametrize(("ranks", "depth"), [(2, 1), (4, 1), (3, 2)])
def test_the_average_of_ranks_in_step_is_that_of_one_process(
    ranks: int, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shares of unequal length end with exchanges in which nothing is applied, and those do not count."""
    more = ["average=0.9", f"clip_norm={NORM}", *RULES[1], "train_instances=50"]
    (one,) = averages_of(1, ranks * depth, monkeypatch, *more)
    every = averages_of(ranks, depth, monkeypatch, *more, "replicas.strategy=allreduce")
    assert len(every) == ranks
    for found in every:
        assert found.updates == one.updates == 2 * -(-5 // (ranks * depth))
        for node, own in one.values.items():
            for name, value in own.items():
                np.testing.assert_allclose(found.values[node][name], value, rtol=0, atol=1e-10)
                assert np.array_equal(found.values[node][name], every[0].values[node][name])


def test_ranks_validate_with_the_average() -> None:
    rule = ["average=0.9", *RULES[1]]
    _, expected = alone(MODEL, 2, *rule)
    _, found = together(MODEL, 2, 1, *rule, "replicas.strategy=allreduce")
    _, raw = together(MODEL, 2, 1, *RULES[1])
    assert found.valid["loss"] == pytest.approx(expected.valid["loss"], rel=1e-9)
    assert abs(found.valid["loss"] - raw.valid["loss"]) > 1e-3


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        ("average", "each rank updates on its own"),
        ("outer", "each rank updates on its own"),
        ("hybrid", "no rank has the latest"),
        ("servers", "no rank has the latest"),
    ],
)
def test_ranks_that_do_not_all_have_every_parameter_have_no_average(strategy: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"strategy={strategy} {why}.*=allreduce"):
        together(MODEL, 2, 1, "train.average=0.9", f"replicas.strategy={strategy}")


def test_live_validation_beside_ranks_in_step() -> None:
    more = [*RULES[0], f"clip_norm={NORM}", "average=0.9", "replicas.strategy=allreduce"]
    expected, _ = together(MODEL, 2, 2, *more)
    found, summary = together(MODEL, 2, 2, *more, "live_valid=3")
    assert summary.history[-1].live and differences(found[0], expected[0]) < 1e-12
