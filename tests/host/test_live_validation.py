"""Validation beside training: the estimate, and that training takes no notice of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.host.controller import Trainer
from amphw.host.live_validation import WINDOW_ROWS, LiveValidation
from amphw.host.null_device import NullDevice
from amphw.host.progress import LiveStats, Progress
from amphw.host.pumping import Pump
from amphw.host.records import RunSummary
from amphw.host.run_folder import RunFolder
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import Mode, Report
from amphw.models.base import Instances
from tests.host.training import MODEL, ToyConfig, WatchedDevice, bits, settings

ONE_KEY = ("max_active_keys=1", "min_update_interval=35")
FIGURES = ("loss", "accuracy")


def train(*overrides: str, device: Any = None, progress: Progress | None = None) -> RunSummary:
    return Trainer(MODEL, settings(*overrides), device or WatchedDevice(), None, progress).run()


# --- the estimate ---------------------------------------------------------------------------------


def make(instances: int = 6, keys: int = 2) -> LiveValidation:
    validation = MODEL.validation(ToyConfig(), 0, 10 * instances)
    return LiveValidation(Pump(NullDevice(), 4, 2), validation, keys, "loss", FIGURES)


def tell(live: LiveValidation, rows: int, **means: float) -> None:
    """Let an instance retire with these means."""
    aside = live.aside()
    assert aside is not None
    sums = {name: rows * value for name, value in means.items()}
    instance = next(aside.instances)
    aside.report(instance, Report(4, 1, instance.number, Mode.INFER, {"loss": sums}, {"loss": rows}))


def test_the_estimate_is_over_rows() -> None:
    live = make()
    assert live.means() == {}
    tell(live, 10, loss=1.0, accuracy=0.5)
    tell(live, 30, loss=3.0, accuracy=0.1)
    assert live.means() == pytest.approx({"loss": 2.5, "accuracy": 0.2})


def test_the_estimate_is_over_the_last_pass_of_a_small_set() -> None:
    live = make(instances=3)
    for value in (9.0, 9.0, 1.0, 2.0, 3.0):
        tell(live, 10, loss=value, accuracy=0.0)
    assert live.means()["loss"] == pytest.approx(2.0)


def test_the_estimate_is_over_the_last_rows_of_a_large_set() -> None:
    live = make(instances=50)
    for value in (9.0, 9.0, *[1.0] * 10):
        tell(live, WINDOW_ROWS // 10, loss=value, accuracy=0.0)
    assert live.means()["loss"] == pytest.approx(1.0)
    tell(live, 5 * WINDOW_ROWS, loss=4.0, accuracy=0.0)
    assert live.means()["loss"] == pytest.approx(4.0), "one large instance is enough"


def test_a_figure_that_is_not_finite_is_unknown_until_it_is_left_behind() -> None:
    live = make(instances=3)
    tell(live, 10, loss=math.inf, accuracy=0.5)
    tell(live, 10, loss=-math.inf, accuracy=0.5)
    assert math.isnan(live.means()["loss"]) and live.means()["accuracy"] == 0.5
    for _ in range(3):
        tell(live, 10, loss=1.0, accuracy=0.5)
    assert live.means() == {"loss": 1.0, "accuracy": 0.5}


def test_instances_go_round_with_the_numbers_of_their_places() -> None:
    live = make(instances=3)
    aside, again = live.aside(), live.aside()
    assert aside is not None and again is not None
    assert [next(aside.instances).number for _ in range(4)] == [0, 1, 2, 0]
    assert next(again.instances).number == 1, "the next epoch goes on where this one ended"


def test_without_keys_or_without_instances_nothing_runs_beside() -> None:
    assert make(keys=0).aside() is None
    nothing = Instances(0, lambda i: MODEL.validation(ToyConfig(), 0)[i], 0)
    assert LiveValidation(Pump(NullDevice(), 4, 2), nothing, 2, "loss", FIGURES).aside() is None


# --- beside training ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "overrides",
    [ONE_KEY, ("mode=sync",), ("mode=pipeline", "pipeline_depth=3")],
    ids=["one key", "sync", "pipeline"],
)
def test_training_is_the_same_to_the_bit(overrides: tuple[str, ...]) -> None:
    alone, watched = WatchedDevice(), WatchedDevice()
    expected = train(*overrides, device=alone)
    summary = train(*overrides, "live_valid=3", device=watched)
    assert bits(watched.parameters()) == bits(alone.parameters())
    assert [(r.train_loss, r.train, r.valid) for r in summary.history] == [
        (r.train_loss, r.train, r.valid) for r in expected.history
    ]
    assert (summary.messages, summary.staleness) == (expected.messages, expected.staleness)
    assert watched.numbers(Mode.TRAIN) == alone.numbers(Mode.TRAIN)
    assert all(set(record.live) == set(FIGURES) for record in summary.history)
    assert [record.live for record in expected.history] == [{}, {}]


def test_the_keys_are_kept_in_flight_on_infer_slots() -> None:
    device = WatchedDevice()
    train("max_active_keys=2", "max_infer_keys=5", "live_valid=3", "epochs=1", device=device)
    modes = [mode for *_, mode in device.submitted]
    training = [i for i, mode in enumerate(modes) if mode is Mode.TRAIN]
    beside = [entry for entry in device.submitted[: training[-1]] if entry[3] is Mode.INFER]
    assert {slot for slot, *_ in beside} == {2, 3, 4}, "three of the five"
    assert [number for _, _, number, _ in beside] == [i % 6 for i in range(len(beside))]
    assert len(beside) >= 6 and device.most_in_flight == 2
    epochs_own = modes[training[-1] + 1 :]
    assert epochs_own == [Mode.INFER] * 6, "the epoch's own validation is whole, and on its own"


@pytest.mark.parametrize("order", ["fifo", "lifo", "random"])
def test_whatever_the_order(order: str) -> None:
    device = WatchedDevice(order=order)
    summary = train("max_active_keys=4", "live_valid=16", device=device)
    assert [r.instances for r in summary.history] == [120, 240] and summary.messages["lost"] == 0
    assert summary.history[0].live and not device.active


def test_on_frozen_parameters_the_estimate_is_the_validation() -> None:
    """60 rows are less than the window, so the estimate is over one pass."""
    summary = train(*ONE_KEY, "optimizer=sgd", "lr=1e-30", "live_valid=2", "epochs=1")
    (record,) = summary.history
    assert record.live == pytest.approx(record.valid)


@pytest.mark.parametrize("mode", ["async", "sync", "pipeline"])
def test_on_worker_threads(mode: str) -> None:
    device = CpuDevice()
    try:
        summary = train(
            f"mode={mode}", "max_active_keys=4", "live_valid=4", "workers=2", "epochs=3", device=device
        )
    finally:
        device.close()
    assert [r.instances for r in summary.history] == [120, 240, 360]
    assert summary.messages["lost"] == 0 < summary.messages["forward"]
    for record in summary.history:
        assert set(record.live) == set(FIGURES) and 0 <= record.live["accuracy"] <= 1
        assert math.isfinite(record.valid["loss"])


def test_on_one_worker_at_one_key_training_is_the_same_to_the_bit() -> None:
    found = []
    for live in (0, 3):
        device = CpuDevice()
        try:
            train(*ONE_KEY, f"live_valid={live}", "workers=1", device=device)
            found.append(bits(device.parameters()))
        finally:
            device.close()
    assert found[0] == found[1]


def test_a_device_that_reports_nothing_gives_no_estimate() -> None:
    summary = train("live_valid=4", device=NullDevice())
    assert summary.epochs == 2 and summary.history[0].live == {}


def test_a_validation_loss_that_is_not_finite_ends_no_run_while_training_goes_on() -> None:
    class Watcher(WatchedDevice):
        """Spoils what is reported of validation beside training, but for the epoch's own."""

        def poll(self, timeout: float = 0.0) -> list[Report]:
            reports = super().poll(timeout)
            for report in reports:
                if report.mode is Mode.INFER and len(self.numbers(Mode.TRAIN)) < 12:
                    report.sums["loss"]["loss"] = math.nan
            return reports

    summary = train(*ONE_KEY, "live_valid=2", "epochs=1", device=Watcher())
    (record,) = summary.history
    assert math.isnan(record.live["loss"]) and math.isfinite(record.live["accuracy"])
    assert math.isfinite(record.valid["loss"])


def test_more_keys_than_infer_slots_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"train\.live_valid is 8, but train\.max_infer_keys.* is 4; lower"):
        train("live_valid=8", "max_infer_keys=4")


# --- stopping and showing -------------------------------------------------------------------------


@pytest.mark.parametrize("at", [2, 9, 17, 60])
def test_a_stop_and_a_resumption(at: int, tmp_path: Path) -> None:
    expected = WatchedDevice()
    summary = train(*ONE_KEY, "live_valid=2", device=expected)
    folder = RunFolder.create(tmp_path / "run", "m")
    stopped = WatchedDevice(lambda n: first.stop() if n == at else None)
    first = Trainer(MODEL, settings(*ONE_KEY, "live_valid=2"), stopped, folder)
    assert first.run().stopped_by == "interrupt" and not stopped.active
    device = WatchedDevice()
    again = Trainer(MODEL, settings(*ONE_KEY, "live_valid=2"), device, folder).run(resume=folder.path)
    assert bits(device.parameters()) == bits(expected.parameters())
    assert [r.valid for r in again.history] == [r.valid for r in summary.history]
    assert [set(r.live) for r in again.history] == [set(FIGURES)] * 2


def test_an_estimate_outlives_a_stop_during_the_epochs_own_validation(tmp_path: Path) -> None:
    overrides = (*ONE_KEY, "live_valid=1", "max_infer_keys=1", "epochs=1")
    folder = RunFolder.create(tmp_path / "run", "m")
    whole = WatchedDevice()
    expected = train(*overrides, device=whole)
    device = WatchedDevice(lambda n: first.stop() if n == len(whole.submitted) - 3 else None)
    first = Trainer(MODEL, settings(*overrides), device, folder)
    assert first.run().epochs == 0
    summary = Trainer(MODEL, settings(*overrides), WatchedDevice(), folder).run(resume=folder.path)
    assert summary.history[0].live == expected.history[0].live
    assert summary.history[0].valid == expected.history[0].valid


def test_the_table_shows_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amphw.host.pumping._TICK_S", 0.0)
    shown: list[LiveStats] = []

    class Seen(Progress):
        def update(self, live: LiveStats) -> None:
            shown.append(live)

    summary = train(*ONE_KEY, "live_valid=2", "epochs=1", progress=Seen(False, 1, "m"))
    assert shown[0].valid == {} or set(shown[0].valid) == set(FIGURES)
    assert shown[-1].valid == pytest.approx(summary.history[0].live)
    shown.clear()
    summary = train(*ONE_KEY, progress=Seen(False, 1, "m"))
    assert shown[0].valid == {} and shown[-1].valid == summary.history[0].valid
