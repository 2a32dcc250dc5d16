"""Going on from a checkpoint gives, bit for bit, what an uninterrupted run gives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.host.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from amphw.host.checkpointing import CHECKPOINT
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.host.records import EpochRecord, RunSummary
from amphw.host.run_folder import RunFolder
from amphw.ir.device import Mode
from amphw.ir.instance import Instance
from amphw.models import get_model
from tests.daily import daily
from tests.host.training import MODEL, WatchedDevice, bits, settings

EXACT = {
    "sync": ("mode=sync",),
    "one key": ("max_active_keys=1", "min_update_interval=35"),
    "sync, copies meet": ("mode=sync", "replicas=2", "device.replicate_every=7"),
    "one key, copies meet": (
        *("max_active_keys=1", "min_update_interval=35", "replicas=2"),
        *("optimizer=momentum", "device.replicate_every=5"),
    ),
    "one key, replicas": ("max_active_keys=1", "min_update_interval=35", "replicas=2", "optimizer=momentum"),
}
EPOCHS = "epochs=3"


@cache
def whole(*overrides: str) -> tuple[RunSummary, WatchedDevice]:
    device = WatchedDevice()
    return Trainer(MODEL, settings(EPOCHS, *overrides), device, None).run(), device


def results(summary: RunSummary) -> list[tuple[Any, ...]]:
    return [(r.epoch, r.instances, r.train_loss, r.train, r.valid) for r in summary.history]


def interrupted(folder: RunFolder, at: int, *overrides: str, resume: Path | None = None) -> RunSummary:
    """A run that is asked to stop when the instance number `at` of all, validation's too, is submitted."""
    device = WatchedDevice(lambda n: trainer.stop() if n == at else None)
    trainer = Trainer(MODEL, settings(EPOCHS, *overrides), device, folder)
    return trainer.run(resume=resume)


def resumed(folder: RunFolder, *overrides: str) -> tuple[RunSummary, WatchedDevice]:
    device = WatchedDevice()
    trainer = Trainer(MODEL, settings(EPOCHS, *overrides), device, folder)
    return trainer.run(resume=folder.path), device


@pytest.mark.parametrize("overrides", EXACT.values(), ids=EXACT)
def test_after_the_end_of_an_epoch(overrides: tuple[str, ...], tmp_path: Path) -> None:
    expected, expected_device = whole(*overrides)
    folder = RunFolder.create(tmp_path / "run", "m")
    Trainer(MODEL, settings(*overrides, "epochs=1"), WatchedDevice(), folder).run()
    summary, device = resumed(folder, *overrides)
    assert bits(device.parameters()) == bits(expected_device.parameters())
    assert results(summary) == results(expected)
    assert summary.messages == expected.messages
    assert summary.staleness == expected.staleness


@pytest.mark.parametrize("overrides", EXACT.values(), ids=EXACT)
@pytest.mark.parametrize("at", daily([4, 30], [1, 12]), ids=lambda at: f"at {at}")
def test_after_a_stop_anywhere(overrides: tuple[str, ...], at: int, tmp_path: Path) -> None:
    expected, expected_device = whole(*overrides)
    folder = RunFolder.create(tmp_path / "run", "m")
    first = interrupted(folder, at, *overrides)
    assert first.stopped_by == "interrupt" and first.epochs < 3
    summary, device = resumed(folder, *overrides)
    assert bits(device.parameters()) == bits(expected_device.parameters())
    assert results(summary) == results(expected)
    assert summary.stopped_by == "epochs"
    assert device.numbers(Mode.TRAIN)[-1] == expected_device.numbers(Mode.TRAIN)[-1]


def test_after_a_stop_during_validation(tmp_path: Path) -> None:
    overrides = ("mode=sync", "max_infer_keys=1")
    expected, expected_device = whole(*overrides)
    folder = RunFolder.create(tmp_path / "run", "m")
    batches = len(MODEL.training(settings().model, 0, 1))
    first = interrupted(folder, batches + 2, *overrides)
    assert (first.epochs, first.stopped_by) == (0, "interrupt")
    summary, device = resumed(folder, *overrides)
    assert bits(device.parameters()) == bits(expected_device.parameters())
    assert results(summary) == results(expected)


def test_several_times_over(tmp_path: Path) -> None:
    overrides = ("max_active_keys=1", "min_update_interval=35")
    expected, expected_device = whole(*overrides)
    folder = RunFolder.create(tmp_path / "run", "m")
    parts = 1
    summary = interrupted(folder, 2, *overrides)
    while summary.stopped_by == "interrupt" and parts < 20:
        summary = interrupted(folder, 11, *overrides, resume=folder.file(CHECKPOINT))
        parts += 1
    _, device = resumed(folder, *overrides)
    assert parts > 3
    assert bits(device.parameters()) == bits(expected_device.parameters())
    assert results(summary) == results(expected)


def test_a_finished_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "m")
    first = Trainer(MODEL, settings(), WatchedDevice(), folder).run()
    summary = Trainer(MODEL, settings(), device := WatchedDevice(), folder).run(resume=folder.path)
    assert summary == first and not device.submitted
    more = Trainer(MODEL, settings("epochs=3"), WatchedDevice(), folder).run(resume=folder.path)
    assert [record.epoch for record in more.history] == [1, 2, 3]
    assert isinstance(more.history[0], EpochRecord)


def test_into_another_folder(tmp_path: Path) -> None:
    folder, other = (RunFolder.create(tmp_path / name, "m") for name in ("one", "other"))
    Trainer(MODEL, settings(), WatchedDevice(), folder).run()
    Trainer(MODEL, settings("epochs=3"), WatchedDevice(), other).run(resume=folder.file(CHECKPOINT))
    assert len(other.read_json("metrics.json")) == 3 and len(folder.read_json("metrics.json")) == 2


def failing(folder: RunFolder, *overrides: str) -> str:
    with pytest.raises(CheckpointError) as caught:
        Trainer(MODEL, settings(*overrides), WatchedDevice(), None).run(resume=folder.path)
    return str(caught.value)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "m")
    assert "cannot read checkpoint" in failing(folder)
    Trainer(MODEL, settings("epochs=1"), WatchedDevice(), folder).run()
    assert "belongs to another graph" in failing(folder, "hidden=5")
    assert "comes from a run with train.seed = 0, this one has 4" in failing(folder, "seed=4")
    # Adam's first state array has the shape of Adagrad's only one.
    message = failing(folder, "optimizer=adagrad")
    assert "does not fit node 'cell': it was trained with adam, not adagrad; train on with the opt" in message


@pytest.mark.parametrize("lost", ["nodes", "history", "staleness", "epoch"])
def test_a_header_without_its_counters_is_damage(lost: str, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "m")
    Trainer(MODEL, settings("epochs=1"), WatchedDevice(), folder).run()
    tensors, header = load_checkpoint(folder.file(CHECKPOINT), None)
    del header["counters"][lost]
    save_checkpoint(folder.file(CHECKPOINT), tensors, header)
    assert "is damaged" in failing(folder)


def test_another_model_is_another_graph(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "m")
    Trainer(MODEL, settings("epochs=1"), WatchedDevice(), folder).run()
    other = get_model("mnist")
    cfg = resolve(other.config, other.defaults, None, ["width=4", "sample=true"])
    with pytest.raises(CheckpointError, match=r"saved from \w+ \(model toy\), this model is"):
        Trainer(other, cfg, WatchedDevice(), None).run(resume=folder.path)


# --- on worker threads ----------------------------------------------------------------------------

ON_A_WORKER = {
    "sync": ("mode=sync",),
    "one key": ("max_active_keys=1", "min_update_interval=10"),
    "sync, copies meet": ("mode=sync", "replicas=2", "device.replicate_every=7"),
    "one key, copies meet": (
        *("max_active_keys=1", "min_update_interval=35", "replicas=2"),
        *("optimizer=momentum", "device.replicate_every=5"),
    ),
    "one key, replicas": ("max_active_keys=1", "min_update_interval=10", "replicas=2", "optimizer=momentum"),
}
"""Every instance has ten rows, so a stop between instances leaves no gradients that wait for an update."""


class WatchedCpu(CpuDevice):
    """`on_submit` is called with the number of submissions so far."""

    def __init__(self, on_submit: Callable[[int], None] = lambda n: None) -> None:
        super().__init__()
        self.on_submit, self.submissions = on_submit, 0

    def submit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        super().submit(slot, generation, instance, mode)
        self.submissions += 1
        self.on_submit(self.submissions)


def on_cpu(
    *overrides: str, folder: RunFolder | None = None, resume: bool = False, stop_at: int = 0
) -> tuple[RunSummary, dict[str, bytes]]:
    """A run on one worker -> its summary and the bits of its parameters; stop_at: as in `interrupted`."""
    device = WatchedCpu(lambda n: trainer.stop() if n == stop_at else None)
    trainer = Trainer(MODEL, settings(EPOCHS, "workers=1", *overrides), device, folder)
    try:
        return trainer.run(resume=folder.path if folder is not None and resume else None), bits(
            device.parameters()
        )
    finally:
        device.close()


@pytest.mark.parametrize(
    "overrides", [*ON_A_WORKER.values(), EXACT["one key"]], ids=[*ON_A_WORKER, "one key, long interval"]
)
def test_on_one_worker_after_the_end_of_an_epoch(overrides: tuple[str, ...], tmp_path: Path) -> None:
    expected, expected_bits = whole_on_cpu(*overrides)
    folder = RunFolder.create(tmp_path / "run", "m")
    on_cpu(*overrides, "epochs=1", folder=folder)
    summary, found = on_cpu(*overrides, folder=folder, resume=True)
    assert found == expected_bits
    assert results(summary) == results(expected)
    assert summary.messages == expected.messages


@cache
def whole_on_cpu(*overrides: str) -> tuple[RunSummary, dict[str, bytes]]:
    return on_cpu(*overrides)


def stopped_and_resumed(folder: RunFolder, at: int, overrides: tuple[str, ...]) -> None:
    expected, expected_bits = whole_on_cpu(*overrides)
    first, _ = on_cpu(*overrides, folder=folder, stop_at=at)
    assert first.stopped_by == "interrupt" and first.epochs < 3
    summary, found = on_cpu(*overrides, folder=folder, resume=True)
    assert found == expected_bits
    assert results(summary) == results(expected)


@pytest.mark.parametrize("overrides", ON_A_WORKER.values(), ids=ON_A_WORKER)
@pytest.mark.parametrize("at", daily([4, 30], [1, 12]), ids=lambda at: f"at {at}")
def test_on_one_worker_after_a_stop_anywhere(overrides: tuple[str, ...], at: int, tmp_path: Path) -> None:
    stopped_and_resumed(RunFolder.create(tmp_path / "run", "m"), at, overrides)


def test_on_one_worker_after_a_stop_within_an_interval(tmp_path: Path) -> None:
    """Gradients that wait for an update are summed in two parts then: the same but for rounding."""
    folder, overrides = RunFolder.create(tmp_path / "run", "m"), EXACT["one key"]
    expected, expected_bits = on_cpu(*overrides)
    on_cpu(*overrides, folder=folder, stop_at=1)
    summary, found = on_cpu(*overrides, folder=folder, resume=True)
    assert summary.messages == expected.messages
    for name, value in expected_bits.items():
        if "." not in name:
            assert found[name] == value, "versions and gathered rows"
            continue
        a, b = (np.frombuffer(x, np.float32) for x in (found[name], value))
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=name)


class Minutes:
    """A clock that is a minute later each time it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 60
        return self.now


def timed(
    folder: RunFolder | None, monkeypatch: pytest.MonkeyPatch, *overrides: str
) -> tuple[RunSummary, WatchedDevice, list[bytes]]:
    """A run with a clock that races -> and its checkpoints within epochs."""
    kept: list[bytes] = []
    save = Trainer._save

    def saved(self: Trainer, **how: bool) -> None:
        save(self, **how)
        if (
            self.state.position
            and self.folder is not None
            and (path := self.folder.file(CHECKPOINT)).exists()
        ):
            kept.append(path.read_bytes())

    monkeypatch.setattr(Trainer, "_save", saved)
    device = WatchedDevice()
    summary = Trainer(MODEL, settings(EPOCHS, *overrides), device, folder, clock=Minutes()).run()
    return summary, device, kept


@pytest.mark.parametrize(
    "overrides",
    [*EXACT.values(), ("mode=pipeline", "pipeline_depth=5")],
    ids=[*EXACT, "pipeline"],
)
def test_checkpoints_within_epochs_change_nothing(
    overrides: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, expected_device = whole(*overrides)
    folder = RunFolder.create(tmp_path / "run", "m")
    summary, device, kept = timed(folder, monkeypatch, *overrides, "checkpoint_minutes=4")
    assert len(set(kept)) >= 3
    assert bits(device.parameters()) == bits(expected_device.parameters())
    assert results(summary) == results(expected)
    assert (summary.messages, summary.staleness) == (expected.messages, expected.staleness)


def test_a_run_killed_within_an_epoch_goes_on_from_its_last_timed_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, expected_device = whole("mode=sync")
    folder = RunFolder.create(tmp_path / "run", "m")
    kept = timed(folder, monkeypatch, "mode=sync", "checkpoint_minutes=4")[2]
    assert len(kept) > 3
    for number, data in enumerate(kept[::2]):
        other = RunFolder.create(tmp_path / f"killed-{number}", "m")
        other.file(CHECKPOINT).write_bytes(data)
        counters = load_checkpoint(other.file(CHECKPOINT), None)[1]["counters"]
        assert counters["position"] > 0
        assert counters["size"] > 0 < counters["forward"] == counters["backward"]
        summary, device = resumed(other, "mode=sync")
        assert bits(device.parameters()) == bits(expected_device.parameters())
        assert results(summary) == results(expected)
        assert (summary.messages, summary.staleness) == (expected.messages, expected.staleness)


@pytest.mark.parametrize("none", ["checkpoint_minutes=0", "checkpoint_every=0", "checkpoint_minutes=100000"])
def test_none_within_epochs_where_none_is_due(
    none: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path / "run", "m")
    assert not timed(folder, monkeypatch, none)[2]


def test_a_checkpoint_that_is_always_due_lets_training_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path / "run", "m")
    summary, _, kept = timed(folder, monkeypatch, "checkpoint_minutes=0.001", "checkpoint_every=100")
    assert summary.epochs == 3 and len(kept) > 3
