"""Replicas in step give what one process gives with a window as large as all of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from amphw.host.checkpoint import load_checkpoint
from amphw.host.checkpointing import CHECKPOINT, Checkpoints
from amphw.host.config import ReplicasConfig, resolve
from amphw.host.controller import Trainer
from amphw.host.divergence import DivergedError
from amphw.host.gradients import Clipping
from amphw.host.pumping import PumpHooks
from amphw.host.replication import Alone, Share
from amphw.host.run_folder import RunFolder
from amphw.host.run_model import InstanceSet
from amphw.host.session import Session
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import Device, Mode
from amphw.ir.reference import ReferenceDevice
from amphw.models import get_model
from amphw.replicas.run import STRATEGIES, check_ranks, follow, in_threads, replica
from amphw.replicas.uses import USES
from tests.daily import daily
from tests.host.training import MODEL
from tests.replicas.training import train_in_threads

RULES = [
    ["optimizer=sgd", "lr=0.1"],
    ["optimizer=adam", "lr=0.01"],
    ["optimizer=momentum", "lr=0.05", "clip=0.02", "weight_decay=0.001"],
]


class Kept(ReferenceDevice):
    """In double precision; `last` has its parameters after it is closed."""

    def __init__(self) -> None:
        super().__init__(dtype=np.float64)
        self.last: dict[str, np.ndarray] = {}

    def close(self) -> None:
        self.last = {f"{n}.{k}": v for n, p in self.parameters().items() for k, v in p.values.items()}
        super().close()


def settings(model: Any, depth: int, *others: str) -> Any:
    """Of small tables, too, ranks in step exchange rows."""
    common = ["mode=pipeline", f"pipeline_depth={depth}", "epochs=2", "target=none"]
    found = resolve(model.config, model.defaults, None, [*common, *others])
    if found.replicas.strategy not in USES["sparse_from"].strategies or any(
        "sparse_from" in o for o in others
    ):
        return found
    return resolve(model.config, model.defaults, None, [*common, "sparse_from=0", *others])


def trained_alone(model: Any, depth: int, *others: str) -> tuple[Kept, Any]:
    device = Kept()
    summary = Trainer(model, settings(model, depth, *others), device, None).run()
    device.close()
    return device, summary


@cache
def alone(model: Any, depth: int, *others: str) -> tuple[Kept, Any]:
    """What one process has after a run, for all who compare ranks with it; nobody changes it."""
    return trained_alone(model, depth, *others)


def together(model: Any, ranks: int, depth: int, *others: str) -> tuple[list[Kept], Any]:
    devices = [Kept() for _ in range(ranks)]

    def make(rank: int) -> Device:
        return devices[rank]

    return devices, train_in_threads(ranks, model, settings(model, depth, *others), make)


def share_alone(rank: int, batches: int, *others: str) -> Kept:
    """What a rank of two has after its share of an epoch of so many batches, without the other."""

    class Dealt(Alone):
        def share(
            self, device: Device, instances: InstanceSet, start: int, window: int, first: int, updated: Any
        ) -> Share:
            half = batches // 2
            return Share(instances, range(rank * half, rank * half + half) if start == 0 else [], first)

        def validating(self, device: Device, instances: InstanceSet) -> Share:
            assert len(instances) % 2 == 0
            return Share(instances, range(len(instances) // 2))

        def total(self, values: Sequence[float]) -> list[float]:
            return [2 * value for value in values]  # as if the other had as many

    device, cfg = Kept(), settings(MODEL, 1, *others)
    Trainer(MODEL, cfg, device, None, replication=Dealt(Clipping(cfg.train.clip_norm))).run()
    device.close()
    return device


def from_there(start: dict[str, np.ndarray], places: range, *others: str) -> dict[str, np.ndarray]:
    """Parameters after one rank's updates with these batches, an update each."""
    device = Kept()
    cfg = settings(MODEL, 1, *others)
    session = Session(MODEL, cfg, device)
    for node, p in device.parameters().items():
        p.values = {name: start[f"{node}.{name}"].copy() for name in p.values}
    instances = MODEL.training(cfg.model, cfg.train.seed, 1, 0)
    session.train_pump.run(
        Share(instances, places),
        Mode.TRAIN,
        PumpHooks(lambda instance, report: None),
        window=1,
        barrier=True,
    )
    found = {f"{n}.{k}": v.copy() for n, p in device.parameters().items() for k, v in p.values.items()}
    device.close()
    return found


def differences(a: Kept, b: Kept) -> float:
    assert a.last.keys() == b.last.keys() and a.last
    return max(float(np.abs(a.last[k] - b.last[k]).max()) for k in a.last)


@pytest.mark.parametrize("strategy", ["hybrid", "allreduce", "servers"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule[0])
@pytest.mark.parametrize(("ranks", "depth"), daily([(2, 1), (3, 2)], [(4, 1)]))
def test_ranks_in_step_are_one_process_with_a_larger_window(
    ranks: int, depth: int, rule: list[str], strategy: str
) -> None:
    """12 batches: a window of 6 or 4 fits, and 5 instances leave some ranks without one."""
    for more in ([], ["train_instances=50"]):
        one, expected = alone(MODEL, ranks * depth, *rule, *more)
        every, found = together(MODEL, ranks, depth, *rule, *more, f"replicas.strategy={strategy}")
        assert differences(every[0], one) < 1e-10
        assert strategy != "allreduce" or all(differences(every[0], other) == 0.0 for other in every[1:])
        assert found.valid["loss"] == pytest.approx(expected.valid["loss"], rel=1e-9)
        assert found.history[-1].train_loss == pytest.approx(expected.history[-1].train_loss, rel=1e-9)
        assert [r.instances for r in found.history] == [r.instances for r in expected.history]


RAGGED = {
    "list-reduction": ["hidden=8", "batch=3", "train_instances=60", "valid_instances=12"],
    "tree-lstm": [
        "sample=true", "hidden=8", "embedding=8", "vocabulary=200", "train_instances=24", "valid_instances=8",
    ],
    "language-model": [
        "vocabulary=300", "embedding=6", "hidden=6", "samples=8", "train_instances=24", "valid_instances=4",
    ],
    "ggnn": ["sample=true", "hidden=8", "train_instances=8", "valid_instances=2", "epochs=1"],
}  # fmt: skip


@pytest.mark.parametrize("name", daily(["list-reduction", "language-model"], ["tree-lstm", "ggnn"]))
@pytest.mark.parametrize("ranks", daily([4], [2]))
@pytest.mark.parametrize("strategy", ["hybrid", "allreduce", "servers"])
def test_shares_of_different_sizes_weigh_by_their_rows(name: str, ranks: int, strategy: str) -> None:
    """Sequences, trees and molecules of all sizes: a node of one rank has as many rows as they have."""
    model = get_model(name)
    small = [*RAGGED[name], "optimizer=adam", "clip=0.1", "lr=0.01"]
    one, _ = alone(model, ranks, *small)
    every, _ = together(model, ranks, 1, *small, f"replicas.strategy={strategy}")
    assert differences(every[0], one) < 1e-10
    begun = Kept()
    Session(model, settings(model, 1, *small), begun)
    start = {f"{n}.{k}": v for n, p in begun.parameters().items() for k, v in p.values.items()}
    assert max(float(np.abs(every[0].last[k] - v).max()) for k, v in start.items()) > 1e-3  # it has learnt


@pytest.mark.parametrize("strategy", ["allreduce", "average"])
def test_more_ranks_than_instances_are_refused(strategy: str) -> None:
    with pytest.raises(ConfigError, match=r"there are 3 ranks, and 2 instances to train on"):
        together(MODEL, 3, 1, "train_instances=20", f"replicas.strategy={strategy}")


def test_strategies_are_those_that_can_be_set() -> None:
    assert set(STRATEGIES) == set(get_args(get_type_hints(ReplicasConfig)["strategy"]))


@pytest.mark.parametrize("every", [0, 3])
def test_averages_are_the_means_of_what_ranks_have_learnt_on_their_own(every: int) -> None:
    """Of the first exchange: each rank has trained its share alone, from the same start."""
    rule = ["optimizer=adam", "lr=0.01", "epochs=1"]
    batches = 2 * (every or 6)
    size = [f"train_instances={10 * batches}"]
    average = ["replicas.strategy=average", f"replicas.every={every}"]
    both, _ = together(MODEL, 2, 1, *rule, *size, *average)
    apart = [share_alone(rank, batches, *rule, *size) for rank in range(2)]
    for name, value in both[0].last.items():
        np.testing.assert_allclose(value, (apart[0].last[name] + apart[1].last[name]) / 2, rtol=0, atol=1e-12)
    assert differences(both[0], both[1]) == 0.0


def test_outer_steps_are_those_of_nesterov_over_what_ranks_have_moved_by() -> None:
    """Three exchanges of two ranks, against the formula over runs of each rank alone."""
    rule, outer = (
        ["optimizer=sgd", "lr=0.05", "epochs=1"],
        ["replicas.strategy=outer", "replicas.outer_lr=0.6"],
    )
    both, _ = together(MODEL, 2, 1, *rule, *outer, "replicas.outer_momentum=0.8", "replicas.every=2")
    kept = Kept()
    Session(MODEL, settings(MODEL, 1, *rule), kept)
    start = {f"{n}.{k}": v.copy() for n, p in kept.parameters().items() for k, v in p.values.items()}
    velocity = {name: np.zeros_like(value) for name, value in start.items()}
    for first in (0, 4, 8):
        ends = [from_there(start, range(first + 2 * rank, first + 2 * rank + 2), *rule) for rank in range(2)]
        for name, value in start.items():
            gradient = value - (ends[0][name] + ends[1][name]) / 2
            velocity[name] = 0.8 * velocity[name] + gradient
            start[name] = value - 0.6 * (gradient + 0.8 * velocity[name])
    for name, value in both[0].last.items():
        np.testing.assert_allclose(value, start[name], rtol=0, atol=1e-10)
    assert differences(both[0], both[1]) == 0.0


def test_an_error_of_one_rank_ends_all() -> None:
    class Fails(Kept):
        def update(self, nodes: Any = None) -> None:
            raise RuntimeError("out of order")

    def make(rank: int) -> Device:
        return Fails() if rank == 1 else Kept()

    with pytest.raises(RuntimeError, match="out of order"):
        train_in_threads(3, MODEL, settings(MODEL, 1), make)


@pytest.mark.parametrize("strategy", ["allreduce", "average"])
def test_a_network_that_diverges_ends_all_ranks(strategy: str) -> None:
    with pytest.raises(DivergedError):
        together(MODEL, 3, 1, "lr=1e300", f"replicas.strategy={strategy}", "replicas.every=0", "epochs=9")


@pytest.mark.parametrize(("strategy", "every"), [("hybrid", 0), ("servers", 0), ("average", 2)])
def test_ranks_pause_together_for_a_checkpoint_that_is_due(
    strategy: str, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is due at any time: after each window, or each round, the first rank saves, and all go on."""
    saved = []
    save = Checkpoints.save

    def noted(self: Checkpoints, names: Any, state: Any, *rest: Any) -> None:
        saved.append((state.epoch, state.position))
        save(self, names, state, *rest)

    monkeypatch.setattr(Checkpoints, "save", noted)
    rule = ["lr=0.05", f"replicas.strategy={strategy}", f"replicas.every={every}"]
    whole, _ = together(MODEL, 2, 2, *rule, "checkpoint_every=0")
    assert not saved
    devices = [Kept(), Kept()]
    cfg = settings(MODEL, 2, *rule, "checkpoint_minutes=1e-9")
    folder = RunFolder.create(tmp_path / "run", "toy")
    train_in_threads(2, MODEL, cfg, lambda rank: devices[rank], folder)
    within = [(epoch, position) for epoch, position in saved if position]
    assert (
        within[0] == (0, 8) and (1, 8) in within
    )  # of 12; asked for after the first 4, agreed on at the next
    assert differences(devices[0], whole[0]) < 1e-12


class Stops(Kept):
    """Asks its run to stop at its third update."""

    trainer: Trainer

    def update(self, nodes: Any = None) -> None:
        self.updates = getattr(self, "updates", 0) + 1
        if self.updates == 3:
            self.trainer.stop()
        super().update(nodes)


@pytest.mark.parametrize(
    ("strategy", "every", "at"),
    [("hybrid", 0, 8), ("servers", 0, 8), ("average", 2, 8)],
    ids=["hybrid", "servers", "average"],
)
def test_ranks_stop_where_they_meet_and_the_run_goes_on_from_there(
    strategy: str, every: int, at: int, tmp_path: Path
) -> None:
    """With SGD: an average starts no optimiser anew."""
    rule = ["optimizer=sgd", "lr=0.05", f"replicas.strategy={strategy}", f"replicas.every={every}"]
    cfg = settings(MODEL, 1, *rule)
    whole, _ = together(MODEL, 2, 1, *rule)
    folder = RunFolder.create(tmp_path / "run", "toy")
    first = Stops()
    devices = [first, Kept(), Kept(), Kept()]

    def prepared(trainer: Trainer) -> None:
        first.trainer = trainer

    found = train_in_threads(2, MODEL, cfg, lambda rank: devices[rank], folder, prepared)
    assert found.stopped_by == "interrupt" and found.epochs == 0
    saved = load_checkpoint(tmp_path / "run" / CHECKPOINT, None)[1]["counters"]
    assert saved["position"] == at
    check_ranks(2, cfg)
    with in_threads(2, lambda t: follow(MODEL, cfg, devices[3], t, folder.path)) as transport:
        mine = replica(transport, cfg)
        summary = Trainer(MODEL, cfg, devices[2], folder, replication=mine).run(folder.path)
        mine.synchronised(0.0)
        devices[2].close()
    assert summary.epochs == 2
    assert differences(devices[2], whole[0]) < 1e-12


def test_ranks_that_begin_with_other_parameters_are_told() -> None:
    class Other(Kept):
        def load(self, *arguments: Any) -> None:
            super().load(*arguments)
            for p in self.parameters().values():
                p.values = {name: value + 1 for name, value in p.values.items()}

    with pytest.raises(ConfigError, match=r"ranks do not train the same: .* on rank 0, and .* on rank 1"):
        train_in_threads(2, MODEL, settings(MODEL, 1), lambda rank: Other() if rank else Kept())


@pytest.mark.parametrize("strategy", ["hybrid", "allreduce", "servers"])
@pytest.mark.parametrize(("reduce", "sparse_from"), [("mean", 0), ("sum", 0), ("mean", 1 << 30)])
def test_means_of_ranks_can_be_added_up(strategy: str, reduce: str, sparse_from: int) -> None:
    """Of SGD that is a rate twice as high, of sums nothing else; tables and the rest each by their own."""
    rule = ["optimizer=sgd", "lr=0.02", f"reduce={reduce}", "epochs=1", f"replicas.strategy={strategy}"]
    rule += [f"sparse_from={sparse_from}"]
    model = get_model("tree-lstm")
    small = [*RAGGED["tree-lstm"], *rule]
    off = ["replicas.average_dense=false", "replicas.average_sparse=false"]
    steps = [*small, "train_instances=2"]  # a single update
    start = Kept()
    Session(model, settings(model, 1, *small), start)
    begun = {f"{n}.{k}": v.copy() for n, p in start.parameters().items() for k, v in p.values.items()}
    moved = []
    for other in ([], off[:1], off[1:], off):
        every, _ = together(model, 2, 1, *steps, *other)
        moved.append({name: value - begun[name] for name, value in every[0].last.items()})
    for name, usual in moved[0].items():
        factors = [1, 1, 2, 2] if name == "embed.E" else [1, 2, 1, 2]
        assert np.abs(usual).max() > 0, name
        for found, factor in zip(moved, factors, strict=True):
            expected = usual * (factor if reduce == "mean" else 1)
            np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-12, err_msg=name)
