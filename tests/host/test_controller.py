"""Training runs from beginning to end: modes, stopping, records, and the files that are left."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

from amphw.host.checkpoint import load_checkpoint
from amphw.host.checkpointing import BEST, CHECKPOINT
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.host.divergence import DivergedError
from amphw.host.null_device import NullDevice
from amphw.host.progress import LiveStats, Progress
from amphw.host.records import RunSummary
from amphw.host.run_folder import RunFolder, WriteError
from amphw.host.trace import Trace
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import Mode, Report, Statistics
from amphw.ir.errors import ExecutionError, GraphError
from amphw.ir.instance import Instance
from amphw.ir.serialise import fingerprint
from tests.host.training import MODEL, FixedReports, WatchedDevice, settings


def train(*overrides: str, device: Any = None, folder: RunFolder | None = None) -> RunSummary:
    return Trainer(MODEL, settings(*overrides), device or WatchedDevice(), folder).run()


def count(device: WatchedDevice, mode: Mode = Mode.TRAIN) -> int:
    return len(device.numbers(mode))


# --- modes ----------------------------------------------------------------------------------------


def test_async_keeps_the_active_keys_filled_and_nodes_update_themselves() -> None:
    device = WatchedDevice()
    summary = train("max_active_keys=3", "min_update_interval=10", device=device)
    assert device.most_in_flight == 3
    assert device.updates_asked == 2, "once at the end of each epoch"
    assert summary.staleness["p99"] > 0
    assert {slot for slot, _, _, mode in device.submitted if mode is Mode.TRAIN} == {0, 1, 2}


def test_sync_updates_after_every_instance_and_has_no_staleness() -> None:
    device = WatchedDevice()
    summary = train("mode=sync", device=device)
    assert device.updates_asked == count(device) + 2
    assert summary.staleness == {"p50": 0.0, "p99": 0.0}
    assert max(slot for slot, _, _, mode in device.submitted if mode is Mode.TRAIN) == 0


def test_pipeline_updates_after_every_window() -> None:
    device = WatchedDevice()
    summary = train("mode=pipeline", "pipeline_depth=4", "epochs=1", device=device)
    assert device.updates_asked == math.ceil(count(device) / 4) + 1
    assert summary.staleness == {"p50": 0.0, "p99": 0.0}
    assert {slot for slot, _, _, mode in device.submitted if mode is Mode.TRAIN} == {0, 1, 2, 3}


def test_the_staleness_limit_holds_instances_back() -> None:
    greedy, limited = WatchedDevice(order="random"), WatchedDevice(order="random")
    common = ("max_active_keys=8", "min_update_interval=10", "epochs=1")
    free = train(*common, device=greedy)
    held = train(*common, "pump=staleness", "max_staleness=2", device=limited)
    assert (limited.most_in_flight, greedy.most_in_flight) == (3, 8), "ten rows an instance, ten an update"
    assert held.staleness["p99"] < free.staleness["p99"]
    assert count(limited) == count(greedy)


def test_instances_are_numbered_through_the_run_and_slots_through_their_generations() -> None:
    device = WatchedDevice()
    train("max_active_keys=2", device=device)
    numbers = device.numbers(Mode.TRAIN)
    assert numbers == list(range(len(numbers)))
    assert device.numbers(Mode.INFER)[:2] == [0, 1]
    for slot in {slot for slot, *_ in device.submitted}:
        generations = [g for s, g, _, _ in device.submitted if s == slot]
        assert generations == list(range(1, len(generations) + 1))


def test_validation_runs_on_the_infer_slots_and_on_one_set_of_parameters() -> None:
    device = WatchedDevice()
    train("max_active_keys=2", "max_infer_keys=5", "epochs=1", device=device)
    modes = [mode for *_, mode in device.submitted]
    assert modes == sorted(modes, key=[Mode.TRAIN, Mode.INFER].index), "never beside training"
    assert {slot for slot, _, _, mode in device.submitted if mode is Mode.INFER} <= {2, 3, 4, 5, 6}


def test_replicas_are_averaged_at_the_end_of_an_epoch() -> None:
    device = WatchedDevice()
    train("replicas=2", "epochs=1", "optimizer=momentum", device=device)
    one, two = (device.parameters()[f"cell_{k}"] for k in range(2))
    assert one.version > 0 and two.version > 0
    for name in one.values:
        assert (one.values[name] == two.values[name]).all()
        assert (one.slots[name][0] == two.slots[name][0]).all()
    assert one.values["W"] is not two.values["W"]


def test_it_learns() -> None:
    device = WatchedDevice()
    summary = train("epochs=6", "min_update_interval=10", device=device)
    losses = [record.train_loss for record in summary.history]
    assert losses[5] < losses[2] < losses[0]
    assert summary.valid["accuracy"] > 0.6


# --- when it stops --------------------------------------------------------------------------------


def test_it_stops_after_the_epochs() -> None:
    summary = train("target=0.99")
    assert (summary.epochs, summary.stopped_by, summary.target_reached) == (2, "epochs", False)
    assert (summary.metric, summary.target) == ("accuracy", 0.99)


def test_it_stops_at_the_target() -> None:
    summary = train("target=0", "epochs=5")
    assert (summary.epochs, summary.stopped_by, summary.target_reached) == (1, "target", True)


def test_it_stops_when_patience_ends() -> None:
    summary = train("epochs=9", "patience=2", device=FixedReports(loss=1.0, accuracy=0.5))
    assert (summary.epochs, summary.stopped_by) == (3, "patience")


def test_a_stop_before_the_run_trains_nothing(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "m")
    trainer = Trainer(MODEL, settings(), device := WatchedDevice(), folder)
    trainer.stop()
    summary = trainer.run()
    assert (summary.epochs, summary.stopped_by, device.submitted) == (0, "interrupt", [])
    assert folder.file(CHECKPOINT).exists()
    assert math.isnan(summary.instances_per_s)


def test_a_stop_finishes_what_is_in_flight_and_saves(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "m")
    device = WatchedDevice(lambda n: trainer.stop() if n == 5 else None)
    trainer = Trainer(MODEL, settings("max_active_keys=3"), device, folder)
    summary = trainer.run()
    assert summary.stopped_by == "interrupt" and summary.epochs == 0
    assert count(device) == 5 and not device.active
    assert summary.messages["lost"] == 0 and summary.messages["forward"] > 0
    _, header = load_checkpoint(folder.file(CHECKPOINT), None)
    assert header["counters"]["position"] == 5
    assert RunSummary.from_json(folder.read_json("summary.json")).stopped_by == "interrupt"


# --- records and files ----------------------------------------------------------------------------


def test_the_records_say_what_happened() -> None:
    device = WatchedDevice()
    summary = train("max_active_keys=4", device=device)
    first, second = summary.history
    assert (first.epoch, first.instances, second.instances) == (1, 120, 240), "rows, not batches"
    assert 0 < first.seconds < second.seconds
    assert first.instances_per_s == pytest.approx(120 / first.seconds)
    assert summary.instances_per_s == pytest.approx(240 / second.seconds)
    assert set(first.valid) == {"loss", "accuracy"} and set(first.train) == {"accuracy"}
    assert 0 < first.train_loss < 10
    assert set(first.staleness_nodes) == {"cell", "head"}
    assert 1 < first.keys_in_flight <= 4
    assert summary.device == "reference" and summary.model == "toy"
    assert summary.messages["forward"] == summary.messages["backward"] > 0


def test_a_run_leaves_its_folder(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "m")
    cfg = settings("seed=3")
    summary = Trainer(MODEL, cfg, WatchedDevice(), folder).run()
    assert resolve(MODEL.config, {}, folder.file("config.toml")) == cfg
    assert [record["epoch"] for record in folder.read_json("metrics.json")] == [1, 2]
    assert RunSummary.from_json(folder.read_json("summary.json")) == summary
    assert summary.run_dir == str(folder.path)
    assert folder.file("environment.json").exists()
    tensors, header = load_checkpoint(folder.file(CHECKPOINT), fingerprint(MODEL.graph(cfg.model)))
    assert {"cell.W", "cell.W#slot0", "cell.W#slot1"} <= set(tensors)
    assert not any(name.endswith("#gradient") for name in tensors), "an epoch's end leaves none"
    assert header["counters"]["epoch"] == 2 and header["counters"]["seed"] == 3
    assert header["model"] == "toy" and "[train]" in header["config"]
    best = load_checkpoint(folder.file(BEST), None)[1]["counters"]
    scores = [record.valid["accuracy"] for record in summary.history]
    assert best["best_epoch"] == scores.index(max(scores)) + 1
    ties = [record for record in summary.history if record.valid["accuracy"] == max(scores)]
    assert best["epoch"] == min(ties, key=lambda record: record.valid["loss"]).epoch


def test_checkpoints_come_as_often_as_asked_and_at_the_end(tmp_path: Path) -> None:
    seen: list[int] = []

    class Telling(Progress):
        def epoch(self, record: Any) -> None:
            path = folder.file(CHECKPOINT)
            seen.append(load_checkpoint(path, None)[1]["counters"]["epoch"] if path.exists() else 0)

    folder = RunFolder.create(tmp_path / "run", "m")
    progress = Telling(False, 5, "m", stream=io.StringIO())
    Trainer(MODEL, settings("epochs=5", "checkpoint_every=2"), WatchedDevice(), folder, progress).run()
    assert seen == [0, 0, 2, 2, 4], "as found at the end of each epoch, before that epoch's own"
    assert load_checkpoint(folder.file(CHECKPOINT), None)[1]["counters"]["epoch"] == 5

    none = RunFolder.create(tmp_path / "none", "m")
    train("checkpoint_every=0", folder=none)
    assert not list(none.path.glob("*.safetensors"))


def test_progress_and_trace_are_kept_up_to_date(tmp_path: Path) -> None:
    stream, trace = io.StringIO(), Trace()
    ticks = iter(range(0, 10**6, 60)).__next__
    with Progress(False, 2, "tiny", "rows", stream=stream, clock=ticks) as progress:
        Trainer(MODEL, settings("max_active_keys=8"), WatchedDevice(), None, progress, trace).run()
    text = stream.getvalue()
    lines = [line for line in text.splitlines() if not line.startswith("tiny: epoch")]
    upper, lower, first, *_, second = lines[1:]
    assert "rows" in upper and "accuracy" in lower
    assert first.split()[0] == "1/2" and second.split()[0] == "2/2"
    trace.write(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    keys = [event["args"]["keys"] for event in events if event["name"] == "keys in flight"]
    assert max(keys) == 8 and keys[-1] == 0


def test_a_device_that_reports_nothing_makes_a_run_without_figures() -> None:
    summary = train(device=NullDevice())
    assert summary.valid == {} and math.isnan(summary.history[0].train_loss)
    assert summary.messages["lost"] == 0 and summary.epochs == 2


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_setting_for_a_node_that_does_not_exist_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match=r"no node 'cel' with parameters\. Did you mean cell\?"):
        train("update.nodes.cel.lr=0.1")


def test_a_graph_that_the_device_refuses_is_refused_before_a_folder_is_written(tmp_path: Path) -> None:
    class Refusing(NullDevice):
        def load(self, *args: Any) -> None:
            raise GraphError("this device runs no Isu", node="enter")

    folder = RunFolder(tmp_path)
    with pytest.raises(GraphError, match="node 'enter': this device runs no Isu"):
        train(device=Refusing(), folder=folder)
    assert not list(tmp_path.iterdir())


def test_a_divergence_names_the_node_and_the_last_good_checkpoint(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "m")
    with pytest.raises(
        DivergedError, match="training diverged in epoch 1: node '.*' produced a non-fin"
    ) as e:
        train("optimizer=sgd", "lr=1e30", "min_update_interval=1", folder=folder)
    assert e.value.node in ("cell", "head", "relu", "loss")
    assert "there is no checkpoint of this run yet" in str(e.value)
    assert not folder.file(CHECKPOINT).exists()


def test_progress_counts_instances_whatever_else_the_model_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a model counts words, of which an instance has many, the rate alone is of words."""
    monkeypatch.setattr("amphw.host.pumping._TICK_S", 0.0)

    class Words(type(MODEL)):  # type: ignore[misc]
        counted = "words"

        def size(self, instance: Instance) -> int:
            return 1000

    class Watching(Progress):
        def update(self, live: LiveStats) -> None:
            seen.append((live.epoch, live.done, live.total, live.rate))

    seen: list[tuple[int, int, int, float]] = []
    model, cfg = Words(), settings("max_active_keys=1")
    ticks = iter(range(10**6)).__next__
    Trainer(model, cfg, WatchedDevice(), None, Watching(False, 2, "w", clock=ticks)).run()
    count = len(model.training(cfg.model, 0, 1))
    for epoch in (1, 2):
        done = [done for at, done, total, _ in seen if at == epoch and total == count]
        assert done == sorted(done) and 0 <= done[0] < done[-1] <= count
    assert max(rate for *_, rate in seen) > 1000 / 60


class TurnsBad(FixedReports):
    """Reports a NaN loss from instance `at` on; `poison` first spoils a parameter."""

    def __init__(self, at: int, poison: str | None = None) -> None:
        super().__init__(loss=1.0, accuracy=0.5)
        self.at, self.poison = at, poison

    def submit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        super().submit(slot, generation, instance, mode)
        if mode is Mode.TRAIN and instance.number == self.at:
            self.sums["loss"] = math.nan
            if self.poison is not None:
                self.parameters()[self.poison].values["W"][:] = math.inf


def test_a_loss_that_is_not_finite_is_traced_to_its_node(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "m")
    epoch = len(MODEL.training(settings().model, 0, 1))
    with pytest.raises(
        DivergedError, match="in epoch 2: node 'cell' produced a non-finite value in its forw"
    ) as e:
        train(device=TurnsBad(at=epoch, poison="cell"), folder=folder)
    assert e.value.node == "cell" and e.value.checkpoint == folder.file(CHECKPOINT)
    assert f"the last good checkpoint is {folder.file(CHECKPOINT)}" in str(e.value)
    assert load_checkpoint(folder.file(CHECKPOINT), None)[1]["counters"]["epoch"] == 1


def test_a_loss_that_cannot_be_repeated_is_laid_to_the_loss_node() -> None:
    with pytest.raises(DivergedError, match="node 'loss' reported a non-finite value for instance 2") as e:
        train("max_active_keys=1", device=TurnsBad(at=2))
    assert e.value.node == "loss"


def test_parameters_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    class Spoiling(FixedReports):
        def update(self, nodes: Any = None) -> None:
            self.parameters()["head"].values["b"][0] = math.nan

    folder = RunFolder.create(tmp_path / "run", "m")
    with pytest.raises(DivergedError, match="node 'head' holds non-finite values in 'b'"):
        train(device=Spoiling(loss=1.0, accuracy=0.5), folder=folder)
    assert not list(folder.path.glob("*.safetensors"))


def test_lost_messages_end_the_run() -> None:
    class Losing(NullDevice):
        def statistics(self) -> Statistics:
            got = super().statistics()
            got.backward -= bool(got.backward)
            return got

    with pytest.raises(ExecutionError, match=r"epoch 1: \d+ messages went forward and \d+ came back.*'null'"):
        train(device=Losing())


def test_a_report_of_an_earlier_occupant_ends_the_run() -> None:
    class Late(NullDevice):
        def poll(self, timeout: float = 0.0) -> list[Report]:
            for report in (reports := super().poll()):
                report.generation -= report.number == 4
            return reports

    with pytest.raises(
        ExecutionError, match=r"reports instance 4, generation \d+ of slot \d+, which holds gen"
    ):
        train("max_active_keys=1", device=Late())


def test_a_full_disk_ends_the_run_with_its_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder.create(tmp_path / "run", "m")

    def full(*args: Any) -> None:
        raise WriteError("cannot write: no space left", 28)

    monkeypatch.setattr("amphw.host.checkpoint.write_atomic", full)
    with pytest.raises(WriteError, match="no space left"):
        train(folder=folder)
    assert len(folder.read_json("metrics.json")) == 1
