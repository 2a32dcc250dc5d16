"""`amphw train`: what a run prints and leaves, and how each mistake is answered."""

from __future__ import annotations

import gzip
import json
import tomllib
from contextlib import contextmanager
from pathlib import Path

import pytest

from amphw.host.config import DeviceConfig
from amphw.ir.config_fields import options
from amphw.ir.device import Mode
from amphw.ir.reference import ReferenceDevice
from tests.daily import daily

KEYS = {
    "model",
    "device",
    "instances_per_s",
    "epochs",
    "target_reached",
    "valid",
    "staleness",
    "messages",
    "run_dir",
}


@pytest.fixture
def trained(amphw, tiny, tmp_path) -> Path:
    done = amphw("train", "list-reduction", *tiny, "--device", "reference", "--out", "run")
    assert done.exit_code == 0, done.stderr
    return tmp_path / "run"


@pytest.mark.usefixtures("drawn")
def test_a_run_leaves_everything_that_can_be_looked_at(trained) -> None:
    present = {path.name for path in trained.iterdir()}
    assert {"config.toml", "environment.json", "metrics.json", "summary.json", "report.html"} <= present
    assert {"convergence.svg", "convergence.png"} <= present
    assert "<svg" in (trained / "convergence.svg").read_text() or (trained / "convergence.svg").stat().st_size
    assert tomllib.loads((trained / "config.toml").read_text())["model"]["hidden"] == 8
    assert "data:image/svg+xml" in (trained / "report.html").read_text()


@pytest.mark.usefixtures("drawn")
def test_the_cpu_device_leaves_a_trace_and_a_gantt_chart(amphw, tiny, tmp_path) -> None:
    done = amphw("train", "list-reduction", *tiny, "--out", "run")
    assert done.exit_code == 0, done.stderr
    trace = json.loads(gzip.decompress((tmp_path / "run" / "trace.json.gz").read_bytes()))
    assert any(event["ph"] == "X" for event in trace["traceEvents"])
    assert {"gantt.svg", "gantt.png"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_tracing_can_be_turned_off(amphw, tiny, tmp_path) -> None:
    done = amphw("train", "list-reduction", *tiny, "--set", "trace=false", "--out", "run")
    assert done.exit_code == 0, done.stderr
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert "report.html" in names and not {"trace.json.gz", "gantt.svg"} & names


def test_results_on_stdout_progress_on_stderr(spawn, tiny) -> None:
    done = spawn("train", "list-reduction", *tiny, "--out", "run")
    assert done.returncode == 0, done.stderr
    assert "  1/1  " in done.stderr and "  1/1  " not in done.stdout
    for words in (
        "validation accuracy",
        "time",
        "the rest",
        "throughput",
        "staleness",
        "messages",
        "report",
        "run",
    ):
        assert words in done.stdout


def test_json_is_one_object_alone_on_stdout(spawn, tiny, tmp_path) -> None:
    done = spawn("train", "list-reduction", *tiny, "--out", "run", "--json")
    (line,) = done.stdout.splitlines()
    summary = json.loads(line)
    assert summary.keys() >= KEYS
    assert summary["epochs"] == 1 and summary["run_dir"] == "run"
    assert summary["staleness"].keys() == {"p50", "p99"}
    assert summary["messages"]["lost"] == 0 and summary["messages"]["forward"] > 0
    assert 0 <= summary["valid"]["accuracy"] <= 1
    assert (tmp_path / summary["files"]["report"]).is_file()
    assert "validation accuracy" in done.stderr


def test_the_reference_can_take_the_place_of_the_cpu_device(spawn, tiny) -> None:
    done = spawn("train", "list-reduction", *tiny, "--json", AMPHW_ENGINE="reference")
    assert done.returncode == 0
    assert "amphw: AMPHW_ENGINE=reference: the device 'reference' runs in place of 'cpu'" in done.stderr
    assert json.loads(done.stdout)["device"] == "reference"


def test_an_unknown_engine_leaves_no_run(spawn, tiny, tmp_path) -> None:
    done = spawn("train", "list-reduction", *tiny, "--out", "run", AMPHW_ENGINE="fast")
    assert done.returncode == 1 and not (tmp_path / "run").exists()
    assert "amphw: AMPHW_ENGINE=fast, allowed is native, numpy, reference" in done.stderr


def test_settings_come_from_file_and_override(amphw, tiny, tmp_path) -> None:
    (tmp_path / "run.toml").write_text("[model]\nhidden = 4\n[update]\nlr = 0.5\n")
    done = amphw("train", "list-reduction", "--config", "run.toml", *tiny, "--device", "null", "--out", "run")
    assert done.exit_code == 0, done.stderr
    written = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert (written["model"]["hidden"], written["update"]["lr"]) == (8, 0.5)


def test_several_seeds_report_median_and_spread(amphw, tiny, tmp_path) -> None:
    done = amphw(
        "train", "list-reduction", *tiny, "--device", "reference", "--seeds", 2, "--out", "run", "--json"
    )
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary.keys() >= KEYS
    accuracy = summary["seeds"]["valid accuracy"]
    assert accuracy["n"] == 2 and accuracy["min"] <= accuracy["median"] <= accuracy["max"]
    assert summary["valid"]["accuracy"] == accuracy["median"]
    assert [run["run_dir"] for run in summary["runs"]] == ["run/seed-0", "run/seed-1"]
    seeds = [
        tomllib.loads((tmp_path / run["run_dir"] / "config.toml").read_text()) for run in summary["runs"]
    ]
    assert [each["train"]["seed"] for each in seeds] == [0, 1]
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_run_goes_on_where_it_ended(amphw, trained) -> None:
    done = amphw(
        "train", "list-reduction", "--resume", "run", "--set", "epochs=2", "--device", "reference", "--json"
    )
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["epochs"] == 2
    assert len(json.loads((trained / "summary.json").read_text())["history"]) == 2


def test_ending_a_resume_with_another_graph_is_refused(amphw, trained) -> None:
    done = amphw("train", "list-reduction", "--resume", "run", "--set", "hidden=16", "--device", "reference")
    assert done.exit_code == 1
    assert "belongs to another graph" in done.stderr
    tiled = amphw("train", "list-reduction", "--resume", "run", "--set", "device.tile=head:2")
    assert tiled.exit_code == 1 and "device.tile included (tiles are nodes with names" in tiled.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "there is no model 'nosuch'"),
        (["mnist", "--set", "widht=3"], "no section has a key widht. Did you mean model.width?"),
        (["mnist", "--set", "max_active_keys=0"], "is 0, expected an integer from 1 to 4096"),
        (["mnist", "--set", "lr"], "expected key=value"),
        (["mnist", "--config", "none.toml"], "none.toml: the configuration cannot be read"),
        (["mnist", "--set", "sample=true", "--device", "gpu"], "there is no device 'gpu'"),
        (["mnist", "--resume", "nowhere"], "there is no run folder nowhere"),
        (["list-reduction", "--set", "update.nodes.sell.lr=1"], "Did you mean cell?"),
    ],
)
def test_each_mistake_is_one_message_and_leaves_no_run(amphw, tmp_path, arguments, message) -> None:
    done = amphw("train", *arguments, "--set", "epochs=1")
    assert done.exit_code == 1
    assert done.stderr.startswith("amphw: ") and message in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "runs").exists()


def test_missing_data_is_one_message(spawn) -> None:
    done = spawn("train", "mnist", "--device", "reference", "--out", "run", AMPHW_DATA="/does/not/exist")
    assert done.returncode == 1
    assert done.stderr.startswith("amphw: AMPHW_DATA is '/does/not/exist', which is not a directory.")
    assert done.stdout == ""


def test_damaged_data_is_one_message(spawn, tmp_path) -> None:
    (tmp_path / "sets" / "mnist").mkdir(parents=True)
    (tmp_path / "sets" / "mnist" / "train-images-idx3-ubyte").write_bytes(b"not it")
    done = spawn("train", "mnist", "--device", "reference", "--out", "run", AMPHW_DATA=str(tmp_path / "sets"))
    assert done.returncode == 1
    assert "train-images-idx3-ubyte" in done.stderr and "Traceback" not in done.stderr


def test_a_folder_with_a_run_is_not_overwritten(amphw, trained, tiny) -> None:
    before = (trained / "summary.json").read_bytes()
    done = amphw("train", "list-reduction", *tiny, "--out", "run")
    assert done.exit_code == 1
    assert "run already holds a run" in done.stderr and "--resume" in done.stderr
    assert (trained / "summary.json").read_bytes() == before


@pytest.mark.parametrize("other", [["--out", "b"], ["--config", "c.toml"], ["--seeds", "2"]])
def test_resume_stands_alone(amphw, other) -> None:
    done = amphw("train", "list-reduction", "--resume", "run", *other)
    assert done.exit_code == 2
    assert "--resume" in done.stderr


@pytest.mark.usefixtures("drawn")
def test_resuming_a_run_that_is_done_says_so_and_keeps_its_plots(amphw, tiny, tmp_path) -> None:
    amphw("train", "list-reduction", *tiny, "--out", "run")
    before = (tmp_path / "run" / "report.html").read_text().count("<figure>")
    done = amphw("train", "list-reduction", "--resume", "run")
    assert done.exit_code == 0, done.stderr
    assert "nothing was left to train" in done.stderr and "--set epochs=2" in done.stderr
    assert (tmp_path / "run" / "report.html").read_text().count("<figure>") == before == 4


def test_resuming_the_run_of_another_model_names_it(amphw, trained) -> None:
    done = amphw("train", "mnist", "--resume", "run")
    assert done.exit_code == 1
    assert done.stderr == (
        "amphw: the run in run is one of the model list-reduction; "
        "write amphw train list-reduction --resume run\n"
    )


def test_resuming_an_ended_run_without_a_checkpoint_says_so(amphw, trained) -> None:
    for name in ("checkpoint", "best"):
        (trained / f"{name}.safetensors").unlink()
    before = (trained / "summary.json").read_bytes()
    done = amphw("train", "list-reduction", "--resume", "run")
    assert done.exit_code == 1
    assert "the run in run has ended and saved no checkpoint to go on from" in done.stderr
    assert (trained / "summary.json").read_bytes() == before


def test_a_run_without_its_last_checkpoint_goes_on_from_its_best(amphw, trained) -> None:
    (trained / "checkpoint.safetensors").unlink()
    done = amphw(
        "train", "list-reduction", "--resume", "run", "--set", "epochs=2", "--device", "reference", "--json"
    )
    assert done.exit_code == 0, done.stderr
    assert "there is no checkpoint.safetensors; going on from run/best.safetensors, of epoch 1" in done.stderr
    assert json.loads(done.stdout)["epochs"] == 2


def test_a_run_that_has_no_checkpoint_yet_begins_afresh_with_its_settings(amphw, trained) -> None:
    for name in ("checkpoint.safetensors", "best.safetensors", "summary.json", "metrics.json"):
        (trained / name).unlink()
    other = amphw("train", "mnist", "--resume", "run")
    assert other.exit_code == 1 and "is one of the model list-reduction" in other.stderr
    done = amphw("train", "list-reduction", "--resume", "run", "--device", "reference", "--json")
    assert done.exit_code == 0, done.stderr
    assert "the run in run was ended before its first checkpoint; it begins afresh" in done.stderr
    assert "nothing was left to train" not in done.stderr
    assert json.loads(done.stdout)["epochs"] == 1
    assert tomllib.loads((trained / "config.toml").read_text())["model"]["hidden"] == 8


def test_a_refused_resume_leaves_a_run_without_a_checkpoint_as_it_is(amphw, trained) -> None:
    for name in ("checkpoint.safetensors", "best.safetensors", "summary.json", "metrics.json"):
        (trained / name).unlink()
    before = {path.name: path.read_bytes() for path in trained.iterdir() if path.name != ".lock"}
    done = amphw("train", "list-reduction", "--resume", "run", "--set", "device.place=cell=a")
    assert done.exit_code == 1
    assert {path.name: path.read_bytes() for path in trained.iterdir() if path.name != ".lock"} == before


@pytest.fixture
def interrupts(monkeypatch) -> list[int]:
    """Numbers of training instances, counted from the start of each run, at which it is interrupted."""
    at: list[int] = []
    stops = []

    @contextmanager
    def stopping(stop, note):
        stops[:] = [stop]
        yield

    def submit(self, slot, generation, instance, mode):
        if at and mode is Mode.TRAIN:
            at[0] -= 1
            if at[0] == 0:
                stops[0]()
        return submit_it(self, slot, generation, instance, mode)

    submit_it = ReferenceDevice.submit
    monkeypatch.setattr("amphw.library.running.stopping", stopping)
    monkeypatch.setattr(ReferenceDevice, "submit", submit)
    return at


def test_a_run_interrupted_in_its_first_epoch_goes_on_and_can_be_interrupted_again(
    amphw, tiny, tmp_path, interrupts
) -> None:
    interrupts[:] = [3]
    first = amphw(
        "train",
        "list-reduction",
        *tiny,
        "--set",
        "max_active_keys=1",
        "--device",
        "reference",
        "--out",
        "run",
    )
    assert first.exit_code == 130 and "stopped and saved; go on with" in first.stderr
    go_on = ("train", "list-reduction", "--device", "reference", "--resume", "run")
    interrupts[:] = [4]
    second = amphw(*go_on, "--json")
    assert second.exit_code == 130 and json.loads(second.stdout)["epochs"] == 0
    assert "stopped and saved; go on with" in second.stderr
    assert "nothing was left to train" not in second.stderr and "begins afresh" not in second.stderr
    interrupts.clear()
    last = amphw(*go_on, "--json")
    assert last.exit_code == 0 and json.loads(last.stdout)["epochs"] == 1
    assert "nothing was left to train" not in last.stderr
    (record,) = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert record["instances"] == 400, "each instance once, in three parts"


def test_a_layer_may_be_cut_into_tiles(amphw, tiny) -> None:
    placed = ["device.tile=head:2", "device.place=head_0=sleep,head_1=cpu,cell=cpu"]
    settings = [word for each in placed for word in ("--set", each)]
    done = amphw("train", "list-reduction", *tiny, "--device", "cpu,sleep:1TFLOPS", *settings, "--out", "run")
    assert done.exit_code == 0, done.stderr
    assert "placed on sleep: head_0" in done.stderr
    on_cpu = amphw(
        "predict", "list-reduction", "mean 1 2 3", "--checkpoint", "run"
    )  # the run says which nodes there are
    assert on_cpu.exit_code == 0, on_cpu.stderr


TWO = ("--device", "cpu,a=fixed:q7.9,b=fixed:q7.9", "--set", "optimizer=momentum")


@pytest.fixture
def placed(amphw, tiny) -> None:
    done = amphw(
        "train", "list-reduction", *tiny, *TWO, "--set", "device.place=cell=a,head=b", "--out", "run"
    )
    assert done.exit_code == 0, done.stderr


def more(device: str, *place: str) -> tuple[str, ...]:
    settings = [word for each in ("epochs=2", *place) for word in ("--set", each)]
    return ("train", "list-reduction", "--resume", "run", "--device", device, *settings)


@pytest.mark.usefixtures("placed")
def test_a_saved_placement_on_other_devices_says_where_it_comes_from(amphw) -> None:
    done = amphw(*more("cpu,b=fixed:q7.9"))
    assert done.exit_code == 1
    assert done.stderr == (
        "amphw: device.place = 'cell=a,head=b' comes from the saved run, and there is no device 'a' in this "
        "one: --set device.place= leaves it out, --set device.place=... says it for the devices that are "
        "there.\n"
    )


@pytest.mark.usefixtures("placed")
@pytest.mark.parametrize("place", daily(["device.place="], ["device.place=none", "device.place=cell=c"]))
def test_a_saved_placement_can_be_left_out_or_replaced(amphw, tmp_path, place) -> None:
    done = amphw(*more("cpu,c=fixed:q7.9", place))
    assert done.exit_code == 0, done.stderr
    assert "placed on c: cell" in done.stderr
    saved = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert saved["device"]["place"] == ("cell=c" if place.endswith("c") else "")


@pytest.mark.usefixtures("placed")
def test_a_run_goes_on_on_one_device_without_its_placement(amphw) -> None:
    done = amphw(*more("cpu"))
    assert done.exit_code == 0, done.stderr
    assert (
        "device.place = 'cell=a,head=b', as it was saved, is left out: there is no device 'a', 'b' here.\n"
        in done.stderr
    )


@pytest.mark.usefixtures("placed")
@pytest.mark.parametrize("device", daily(["cpu"], ["cpu,b=fixed:q7.9", "cpu,a=fixed:q7.9,b=fixed:q7.9"]))
def test_a_model_predicts_on_other_devices_than_it_was_placed_on(amphw, device) -> None:
    done = amphw("predict", "list-reduction", "mean 1 2 3", "--checkpoint", "run", "--device", device)
    assert done.exit_code == 0, done.stderr
    assert ("as it was saved, is left out" in done.stderr) == ("a=" not in device)


@pytest.mark.parametrize("device", ["cpu", "fixed:q7.9"])
def test_nodes_are_not_placed_on_one_device(amphw, tiny, device, tmp_path) -> None:
    place = ("--set", "device.place=cell=a", "--set", "optimizer=momentum")
    done = amphw("train", "list-reduction", *tiny, "--device", device, *place, "--out", "run")
    assert done.exit_code == 1
    assert "device.place: " in done.stderr and "placed in a run on several devices" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("placed")
@pytest.mark.thorough
def test_the_folder_says_which_devices_ran_what(amphw, tmp_path) -> None:
    assert amphw(*more("cpu")).exit_code == 0
    done = amphw(*more("cpu", "epochs=3"))
    assert done.exit_code == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    first, second = summary["ran"]  # a stretch that goes on where it was is no other
    assert first.startswith("from epoch 1: cpu,a,b; a: fixed:q7.9")
    assert "placed on a: cell" in first and "placed on b: head" in first and second == "from epoch 2: cpu"
    assert "Ran from epoch 1: cpu,a,b; a: fixed:q7.9" in (tmp_path / "run" / "report.html").read_text()
    last = summary["history"][2]
    assert summary["instances_per_s"] == pytest.approx(last["instances_per_s"])


def test_the_option_and_the_setting_say_the_same_of_whom_they_concern(amphw) -> None:
    setting = options(DeviceConfig)["strict"].help.partition(":")[0]
    shown = amphw("train", "--help").stdout
    assert setting.removeprefix("on ") in " ".join(shown.replace("│", " ").split())
