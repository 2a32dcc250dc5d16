"""A device that is lost in mid-run, at every place where the driver may say so: what becomes of the run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.host.checkpoint import load_checkpoint
from amphw.host.checkpointing import CHECKPOINT
from amphw.host.controller import Trainer
from amphw.host.prediction import predict
from amphw.host.progress import Progress
from amphw.host.run_folder import RunFolder
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import DeviceLostError, ExecutionError
from amphw.ir.update import UpdateRule
from tests.conformance.harness import assert_same, reference, run
from tests.conformance.test_cpu import problem
from tests.daily import daily
from tests.graphs.cases import CASES
from tests.host.training import MODEL, bits, settings
from tests.opencl.devices import PTHREAD, PTHREADS

cl = pytest.importorskip("pyopencl")

from amphw.opencl import OpenCLDevice  # noqa: E402
from amphw.opencl.platform.platforms import OpenCLError  # noqa: E402
from amphw.opencl.run.executor import Executor  # noqa: E402
from amphw.opencl.run.memory import DeviceArena  # noqa: E402
from amphw.opencl.run.parameters import UnitParameters  # noqa: E402

PLACES = {
    "a frame": (Executor, "run"),
    "an event": (Executor, "_ended"),
    "a wait": (Executor, "wait"),
    "a sum of gradients": (UnitParameters, "reduce"),
    "an update": (UnitParameters, "update"),
    "values to the device": (UnitParameters, "push"),
    "values from the device": (UnitParameters, "fetch"),
    "the end of all": (Executor, "finish"),
}
ONE_KEY = ("max_active_keys=1", "min_update_interval=35", "epochs=3")
CASE = CASES[0]


class Broken:
    """Lets a method raise what a driver raises, from its call number `after` on, until it is `repaired`."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: type, name: str, after: int, error: Any = None):
        self.calls, self.raised, self.repaired = 0, 0, False
        real = getattr(owner, name)

        def call(its: Any, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls > after and not self.repaired:
                self.raised += 1
                raise error or cl.RuntimeError("the device does not answer")
            return real(its, *args, **kwargs)

        patch.setattr(owner, name, call)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Broken]:
    def make(place: str, after: int, error: Any = None) -> Broken:
        return Broken(monkeypatch, *PLACES[place], after, error)

    return make


def trained_on_the_cpu(*overrides: str) -> tuple[Any, CpuDevice]:
    device = CpuDevice()
    summary = Trainer(MODEL, settings(*overrides), device, None).run()
    device.close()
    return summary, device


# --- the run ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place,after",
    # Before anything has begun, a failure is one to load the graph.
    [(place, n) for place in PLACES for n in (0, 3, 25) if (place, n) != ("values to the device", 0)],
)
def test_the_run_goes_on_on_the_spare_device(
    place: str, after: int, broken: Callable[..., Broken], tmp_path: Path
) -> None:
    """Epochs that the spare device has trained again leave what a run on it alone would have left."""
    fault = broken(place, after)
    device, spare = OpenCLDevice(PTHREAD), CpuDevice()
    folder = RunFolder.create(tmp_path / "run", "m")
    trainer = Trainer(MODEL, settings(*ONE_KEY, "hidden=5"), device, folder, spare=lambda: spare)
    summary = trainer.run()
    device.close()
    assert summary.epochs == 3 and summary.messages["lost"] == 0
    assert [r.epoch for r in summary.history] == [1, 2, 3]
    assert [r.instances for r in summary.history] == [120, 240, 360]
    if fault.raised:
        assert summary.device == "opencl:1, then cpu"
    expected, cpu = trained_on_the_cpu(*ONE_KEY, "hidden=5")
    np.testing.assert_allclose(
        [r.train_loss for r in summary.history], [r.train_loss for r in expected.history], rtol=1e-4
    )
    if fault.raised and after == 0 and place != "values from the device":
        assert bits(spare.parameters()) == bits(
            cpu.parameters()
        )  # lost in the first epoch: all is the spare's
    assert load_checkpoint(folder.file(CHECKPOINT), None)[1]["counters"]["epoch"] == 3


@pytest.mark.parametrize("after,epoch", [(4, 1), (60, 2)])
def test_without_a_spare_the_run_ends_with_its_last_consistent_state(
    after: int, epoch: int, broken: Callable[..., Broken], tmp_path: Path
) -> None:
    fault = broken("a frame", after)
    overrides = (*ONE_KEY, "checkpoint_every=3")
    device = OpenCLDevice(PTHREAD)
    folder = RunFolder.create(tmp_path / "run", "m")
    with pytest.raises(DeviceLostError) as caught:
        Trainer(MODEL, settings(*overrides), device, folder).run()
    device.close()
    text = str(caught.value)
    assert f"lost in epoch {epoch}" in text and "the device does not answer" in text
    assert f"{folder.file(CHECKPOINT)}; go on from it with --resume {folder.path}" in text
    assert load_checkpoint(folder.file(CHECKPOINT), None)[1]["counters"]["epoch"] == epoch - 1
    fault.repaired = True
    cpu = CpuDevice()
    summary = Trainer(MODEL, settings(*overrides), cpu, folder).run(resume=folder.path)
    cpu.close()
    expected, _ = trained_on_the_cpu(*overrides)
    assert summary.epochs == 3 and summary.messages == expected.messages
    np.testing.assert_allclose(
        [r.train_loss for r in summary.history], [r.train_loss for r in expected.history], rtol=1e-4
    )


def test_nothing_to_go_on_from_is_said(broken: Callable[..., Broken]) -> None:
    broken("a frame", 4)
    device = OpenCLDevice(PTHREAD)
    with pytest.raises(DeviceLostError, match=r"no checkpoint of this run .*checkpoint_every is 0"):
        Trainer(MODEL, settings(*ONE_KEY), device, None).run()
    device.close()


def test_a_spare_that_is_lost_as_well_ends_the_run(broken: Callable[..., Broken], tmp_path: Path) -> None:
    broken("a frame", 60)
    device, spare = OpenCLDevice(PTHREAD), OpenCLDevice(PTHREAD)
    folder = RunFolder.create(tmp_path / "run", "m")
    with pytest.raises(DeviceLostError, match="lost in epoch 2"):
        Trainer(MODEL, settings(*ONE_KEY), device, folder, spare=lambda: spare).run()
    device.close()
    assert load_checkpoint(folder.file(CHECKPOINT), None)[1]["counters"]["epoch"] == 1


def test_a_run_that_was_asked_to_stop_stops(
    broken: Callable[..., Broken], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, spare = OpenCLDevice(PTHREAD), CpuDevice()
    folder = RunFolder.create(tmp_path / "run", "m")
    trainer = Trainer(MODEL, settings(*ONE_KEY), device, folder, spare=lambda: spare)
    fault = broken("a frame", 8)
    real = Executor.explained

    def explained(executor: Executor, error: BaseException) -> BaseException:
        trainer.stop()
        return real(executor, error)

    monkeypatch.setattr(Executor, "explained", explained)
    summary = trainer.run()
    device.close()
    assert fault.raised and summary.stopped_by == "interrupt"
    assert load_checkpoint(folder.file(CHECKPOINT), None)[1]["counters"]["epoch"] == 0


def test_a_resumed_run_goes_back_to_the_middle_of_its_epoch(
    broken: Callable[..., Broken], tmp_path: Path
) -> None:
    """Gradients that no update had taken are part of the state."""
    folder = RunFolder.create(tmp_path / "run", "m")
    first = CpuDevice()
    trainer = Trainer(MODEL, settings(*ONE_KEY), first, folder)
    submitted = first.submit
    numbers: list[int] = []

    def submit(slot: int, generation: int, instance: Any, mode: Mode) -> None:
        numbers.append(instance.number)
        if len(numbers) == 5:
            trainer.stop()
        submitted(slot, generation, instance, mode)

    first.submit = submit  # type: ignore[method-assign]
    assert trainer.run().stopped_by == "interrupt"
    first.close()
    broken("a frame", 3)
    device, spare = OpenCLDevice(PTHREAD), CpuDevice()
    summary = Trainer(MODEL, settings(*ONE_KEY), device, folder, spare=lambda: spare).run(folder.path)
    device.close()
    expected, cpu = trained_on_the_cpu(*ONE_KEY)
    assert summary.messages == expected.messages
    assert [r.instances for r in summary.history] == [120, 240, 360]
    for node, p in spare.parameters().items():
        for name, value in p.values.items():
            # An update whose sum was taken in two parts differs in the last bits.
            np.testing.assert_allclose(value, cpu.parameters()[node].values[name], rtol=1e-4, atol=1e-6)


def test_the_warning_names_both_devices_and_the_epoch(
    broken: Callable[..., Broken], capsys: pytest.CaptureFixture[str]
) -> None:
    broken("a frame", 4)
    device = OpenCLDevice(PTHREAD)
    with Progress(False, 3, "m") as progress:
        Trainer(MODEL, settings(*ONE_KEY), device, None, progress, spare=CpuDevice).run()
    device.close()
    told = capsys.readouterr().err
    assert "WARNING: the device opencl:1 was lost in epoch 1" in told
    assert "goes on on the device cpu, which trains epoch 1 again" in told


def test_predict_says_it(broken: Callable[..., Broken], tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "m")
    cpu = CpuDevice()
    Trainer(MODEL, settings(), cpu, folder).run()
    cpu.close()
    broken("a frame", 1)
    device = OpenCLDevice(PTHREAD)
    instances = list(MODEL.validation(settings().model, 9))
    with pytest.raises(DeviceLostError, match="what was in flight on it is lost"):
        predict(MODEL, settings(), device, folder.path, instances)
    device.close()


def test_the_command_line_goes_on_elsewhere_or_stops(
    broken: Callable[..., Broken], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from amphw.cli.main import app

    monkeypatch.chdir(tmp_path)
    small = "hidden=4 batch=5 train_instances=40 valid_instances=20 epochs=2 target=none trace=false"
    options = [word for setting in small.split() for word in ("--set", setting)]
    fault = broken("a frame", 10)
    train = ["train", "list-reduction", "--device", "opencl:1", *options]
    stopped = CliRunner().invoke(app, [*train, "--out", "a", "--spare", "none"])
    assert stopped.exit_code == 1 and "lost in epoch 1" in stopped.output
    assert "--resume a" in stopped.output and "Traceback" not in stopped.output
    went_on = CliRunner().invoke(app, [*train, "--out", "b"])
    assert went_on.exit_code == 0 and "goes on on the device cpu" in " ".join(went_on.output.split())
    fault.repaired = True
    resumed = CliRunner().invoke(
        app, ["train", "list-reduction", "--resume", "a", "--device", "cpu", "--set", "epochs=3"]
    )
    assert resumed.exit_code == 0, resumed.output
    unknown = CliRunner().invoke(app, [*train, "--out", "c", "--spare", "nothing"])
    assert unknown.exit_code == 1 and "there is no device 'nothing'" in unknown.output
    assert not Path("c").exists()


# --- the device -------------------------------------------------------------------------------------------


def open_and_lose(device: OpenCLDevice) -> DeviceLostError:
    graph, instances, _ = problem(CASE)
    device.load(graph, {"*": UpdateRule()}, DeviceOptions(8, 0, "self", 3))
    with pytest.raises(DeviceLostError) as caught:
        for slot in range(8):
            device.submit(slot, 0, instances[slot], Mode.TRAIN)
        while True:
            device.poll(0.05)
    return caught.value


@pytest.mark.parametrize("argument", daily([PTHREAD], [PTHREADS]))
@pytest.mark.parametrize("place,after", daily([("an event", 1)], [("a frame", 2), ("a sum of gradients", 0)]))
def test_a_lost_device_says_so_until_it_is_loaded_again(
    argument: str, place: str, after: int, broken: Callable[..., Broken]
) -> None:
    fault = broken(place, after)
    device = OpenCLDevice(argument)
    error = open_and_lose(device)
    assert any(f"(opencl:{number} " in str(error) for number in argument.split(","))  # the one that failed
    assert isinstance(error.__cause__, cl.Error)
    graph, instances, _ = problem(CASE)
    for again in (
        lambda: device.submit(7, 1, instances[0], Mode.TRAIN),
        lambda: device.poll(0.01),
        device.drain,
        device.drain,
        device.update,
        device.parameters,
    ):
        with pytest.raises(DeviceLostError) as caught:
            again()
        assert caught.value is error
    device.statistics()
    device.close()
    device.close()
    assert not [t for t in threading.enumerate() if t.name == "amphw-regions"]
    with pytest.raises(DeviceLostError):
        device.parameters()
    with pytest.raises(ExecutionError, match="closed; load a graph first"):
        device.submit(0, 2, instances[0], Mode.TRAIN)
    fault.repaired = True
    assert_same(run(device, graph, instances[:20]), reference(graph, instances[:20]))
    device.close()


def test_a_device_that_is_lost_while_it_is_closed_keeps_no_old_values(
    broken: Callable[..., Broken],
) -> None:
    device = OpenCLDevice(PTHREAD)
    graph, instances, _ = problem(CASE)
    device.load(graph, {"*": UpdateRule()}, DeviceOptions(1, 0, "self", 3))
    device.submit(0, 0, instances[0], Mode.TRAIN)
    device.drain()
    broken("values from the device", 0)
    device.close()
    with pytest.raises(DeviceLostError, match="what was in flight on it is lost"):
        device.parameters()


class NoMemory(cl.MemoryError):  # type: ignore[misc, name-defined]
    """What a driver raises: only it can make an error with a code."""

    code = cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE


def test_memory_that_runs_out_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    device = OpenCLDevice(PTHREAD)
    graph, _, _ = problem(CASE)
    full = NoMemory("the device has no memory left")
    with monkeypatch.context() as patch:
        Broken(patch, Executor, "run", 1, full)
        error = open_and_lose(device)
    arena = device.plane.arena.size  # type: ignore[union-attr]
    assert f"device.memory = {arena} bytes" in str(error) and "lower it" in str(error)
    device.close()
    Broken(monkeypatch, DeviceArena, "__init__", 0, full)
    with pytest.raises(OpenCLError, match="cannot be set up on opencl:1 .*device.memory = 2097152 bytes"):
        device.load(graph, {}, DeviceOptions(settings={"memory": 2 << 20}))
    device.close()
    with pytest.raises(ExecutionError, match="load a graph first"):
        device.poll()


def test_the_code_of_a_failed_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failed:
        command_execution_status = -9999

        def wait(self) -> None:
            return

    real = Executor.note

    def note(self: Executor, running: Any) -> Any:
        running.event = Failed()
        return real(self, running)

    monkeypatch.setattr(Executor, "note", note)
    device = OpenCLDevice(PTHREAD)
    assert "ended with the error -9999" in str(open_and_lose(device))
    device.close()
