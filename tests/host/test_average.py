"""`train.average`: a moving average of the parameters is validated, kept and predicted with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.host import snapshots
from amphw.host.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from amphw.host.checkpointing import BEST, CHECKPOINT
from amphw.host.controller import Trainer
from amphw.host.devices import make_device
from amphw.host.prediction import predict
from amphw.host.records import RunSummary
from amphw.host.run_folder import RunFolder
from amphw.host.session import Session
from amphw.ir.averaging import MovingAverage
from amphw.ir.device import Device, Mode
from amphw.ir.errors import DeviceLostError
from amphw.ir.reference import ReferenceDevice
from amphw.rtl.fixed.device import FixedDevice
from tests.daily import daily
from tests.host.training import MODEL, WatchedDevice, bits, settings

DECAY = 0.8
AVERAGE = ("mode=sync", f"average={DECAY}", "lr=0.05", "device.workers=1")
DEVICES: dict[str, tuple[Callable[[], Device], tuple[str, ...]]] = {
    "reference": (ReferenceDevice, ()),
    "cpu": (CpuDevice, ()),
    "fixed": (lambda: FixedDevice("q6.10"), ("optimizer=sgd",)),
    "mixed": (
        lambda: make_device("cpu,a=fixed:q6.10"),
        ("optimizer=sgd", "device.place=cell=a,head=cpu"),
    ),
    "opencl": (lambda: make_device("opencl"), ()),
}


class Noted(WatchedDevice):
    """Keeps the parameters after each update of the controller that has applied something."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.course: list[dict[str, np.ndarray]] = []

    def update(self, nodes: Any = None) -> None:
        before = {n: p.version for n, p in self.params.items()}
        super().update(nodes)
        if before != {n: p.version for n, p in self.params.items()}:
            self.course.append(
                {f"{n}.{k}": v.copy() for n, p in self.params.items() for k, v in p.values.items()}
            )


def weighted(course: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    weights = np.array([DECAY ** (len(course) - 1 - i) for i in range(len(course))])
    weights /= weights.sum()
    return {k: sum(w * each[k].astype(np.float64) for w, each in zip(weights, course, strict=True))  # type: ignore[misc]
            for k in course[0]}  # fmt: skip


def averages(path: Path) -> dict[str, np.ndarray]:
    tensors, _ = load_checkpoint(path, None)
    return {k.removesuffix("#average"): v for k, v in tensors.items() if k.endswith("#average")}


def validated_with(values: dict[str, np.ndarray]) -> float:
    """The loss of a device that has these parameters."""
    device = ReferenceDevice()
    session = Session(MODEL, settings(*AVERAGE), device)
    for node, p in device.parameters().items():
        p.values = {k: values[f"{node}.{k}"].astype(np.float32) for k in p.values}
    rows = total = 0.0
    for number, instance in enumerate(MODEL.validation(session.cfg.model, 0)):
        instance.number = number
        device.submit(15, number, instance, Mode.INFER)
        for report in device.drain():
            rows, total = rows + report.rows["loss"], total + report.sums["loss"]["loss"]
    return total / rows


@pytest.mark.parametrize("mode", ["sync", "pipeline"])
def test_it_goes_over_updates_and_is_what_is_validated_and_kept(mode: str, tmp_path: Path) -> None:
    folder, device = RunFolder.create(tmp_path / "run", "m"), Noted()
    summary = Trainer(MODEL, settings(*AVERAGE, f"mode={mode}"), device, folder).run()
    wanted, found = weighted(device.course), averages(folder.file(CHECKPOINT))
    assert len(device.course) == (24 if mode == "sync" else 6)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-15)
    assert summary.valid["loss"] == pytest.approx(validated_with(found), rel=1e-6)
    raw = validated_with(device.course[-1])
    assert abs(summary.valid["loss"] - raw) > 1e-3  # they are told apart
    tensors, _ = load_checkpoint(folder.file(CHECKPOINT), None)
    for name, value in device.course[-1].items():
        assert np.array_equal(tensors[name], value)  # the run goes on from these


@pytest.mark.parametrize("name", daily(["reference", "cpu", "fixed", "mixed"], ["opencl"]))
def test_training_is_the_same_to_the_bit(name: str) -> None:
    make, own = DEVICES[name]
    found, losses = [], []
    for average in ("average=0", "average=0.9"):
        device = make()
        cfg = settings(*AVERAGE, *own, average, "live_valid=2")
        losses.append(Trainer(MODEL, cfg, device, None).run().valid["loss"])
        found.append(bits(device.parameters()))
        device.close()
    assert found[0] == found[1]
    assert losses[0] != losses[1]


def test_predictions_are_those_of_the_average(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "m")
    Trainer(MODEL, settings(*AVERAGE), WatchedDevice(), folder).run()
    cfg, device = settings(*AVERAGE), WatchedDevice()
    predict(MODEL, cfg, device, folder.path, [MODEL.parse(cfg.model, "5 0 0")])
    best = averages(folder.file(BEST))
    raw, _ = load_checkpoint(folder.file(BEST), None)
    for node, p in device.parameters().items():
        for k, value in p.values.items():
            assert np.array_equal(value, best[f"{node}.{k}"].astype(np.float32))
            assert not np.array_equal(value, raw[f"{node}.{k}"])


def train(
    make: Callable[[], Device], folder: RunFolder | None, stop_at: int = 0, resume: bool = False
) -> tuple[RunSummary, dict[str, bytes], dict[str, bytes]]:
    """-> what came of it: parameters, and their average, in bits. stop_at: instances of training."""
    device = make()
    trainer = Trainer(MODEL, settings(*AVERAGE, "epochs=3", "replicas=2"), device, folder)
    submit, count = device.submit, 0

    def submitted(*arguments: Any) -> None:
        nonlocal count
        submit(*arguments)
        count += 1
        if count == stop_at:
            trainer.stop()

    device.submit = submitted  # type: ignore[method-assign]
    summary = trainer.run(resume=folder.path if resume and folder is not None else None)
    average = trainer.state.average
    assert average is not None
    held = {f"{n}.{k}": v.tobytes() for n, own in average.values.items() for k, v in own.items()}
    found = bits(device.parameters())
    device.close()
    return summary, found, held | {"updates": str(average.updates).encode()}


@pytest.mark.parametrize("make", [WatchedDevice, CpuDevice], ids=["reference", "cpu"])
@pytest.mark.parametrize("at", [1, 7, 12, 15, 30])
def test_going_on_gives_what_an_uninterrupted_run_gives(
    make: Callable[[], Device], at: int, tmp_path: Path
) -> None:
    """Stopped in training or in validation: the same bits, of the average as well."""
    expected, parameters, average = train(make, None)
    folder = RunFolder.create(tmp_path / "run", "m")
    first, *_ = train(make, folder, stop_at=at)
    assert first.stopped_by == "interrupt" and first.epochs < 3
    summary, found, held = train(make, folder, resume=True)
    assert found == parameters
    assert held == average
    assert [r.valid for r in summary.history] == [r.valid for r in expected.history]


def test_copies_of_a_node_have_one_average() -> None:
    _, _, average = train(WatchedDevice, None)
    assert average["cell_0.W"] == average["cell_1.W"] != average["head.W"]


def test_a_run_that_had_none_begins_one_and_one_may_be_left_out(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "m")
    Trainer(MODEL, settings(*AVERAGE, "average=0", "epochs=1"), WatchedDevice(), folder).run()
    assert not averages(folder.file(CHECKPOINT))
    device = Noted()
    Trainer(MODEL, settings(*AVERAGE, "epochs=2"), device, folder).run(resume=folder.path)
    found = averages(folder.file(CHECKPOINT))
    for name, value in weighted(device.course).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-15)
    Trainer(MODEL, settings(*AVERAGE, "average=0", "epochs=3"), WatchedDevice(), folder).run(
        resume=folder.path
    )
    assert not averages(folder.file(CHECKPOINT))


@pytest.mark.parametrize("lost", ["tensor", "count"])
def test_a_checkpoint_with_half_an_average_is_damaged(lost: str, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "m")
    Trainer(MODEL, settings(*AVERAGE), WatchedDevice(), folder).run()
    tensors, header = load_checkpoint(folder.file(CHECKPOINT), None)
    if lost == "tensor":
        del tensors["cell.W#average"]
    else:
        del header["counters"]["averaged"]
    save_checkpoint(folder.file(CHECKPOINT), tensors, header)
    with pytest.raises(CheckpointError, match="is damaged: the average of its parameters"):
        Trainer(MODEL, settings(*AVERAGE), WatchedDevice(), None).run(resume=folder.path)


def test_a_spare_device_goes_on_with_the_average_of_the_epochs_before() -> None:
    class Breaks(WatchedDevice):
        def submit(self, *arguments: Any) -> None:
            if len(self.submitted) == 25:  # in the second epoch
                raise DeviceLostError("gone")
            super().submit(*arguments)

    found = []
    for device in (WatchedDevice(), Breaks()):
        trainer = Trainer(MODEL, settings(*AVERAGE), device, None, spare=WatchedDevice)
        trainer.run()
        assert trainer.state.average is not None
        found.append(trainer.state.average)
    assert found[0].updates == found[1].updates == 24
    for node, own in found[0].values.items():
        for k, value in own.items():
            assert np.array_equal(found[1].values[node][k], value)


def test_an_average_over_no_updates_shows_the_parameters() -> None:
    device = WatchedDevice()
    Session(MODEL, settings(*AVERAGE), device)
    before = bits(device.parameters())
    with snapshots.shown(device, MovingAverage(0.9)):
        assert bits(device.parameters()) == before
