"""What happens to a run's folder behind its back: flipped bits, two runs at once, a kill, a wrong setting."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from amphw.cli import memory
from amphw.host.checkpoint import load_checkpoint
from amphw.host.run_folder import RunFolder

OLD = Path(__file__).resolve().parents[1] / "cli" / "before_checksums"
"""A run of list-reduction as amphw left it before checkpoints had checksums."""


@pytest.fixture
def run(tmp_path) -> Path:
    """A copy of the old run, which is a run folder like any other."""
    folder = tmp_path / "run"
    folder.mkdir()
    for file in OLD.iterdir():
        shutil.copyfile(file, folder / file.name)
    return folder


@pytest.fixture
def resaved(run, amphw) -> Path:
    """The same run after one epoch more, so that its checkpoint has a checksum; the best one is gone."""
    done = amphw(*more(2))
    assert done.exit_code == 0, done.stderr
    (run / "best.safetensors").unlink(missing_ok=True)
    return run


def more(epochs: int) -> tuple[str, ...]:
    return (
        *("train", "list-reduction", "--resume", "run", "--device", "reference"),
        *("--set", f"epochs={epochs}"),
    )


PREDICT = ("predict", "list-reduction", "mean 1 2 3", "--checkpoint", "run/checkpoint.safetensors")


def rewritten(path: Path, name: str, value: float) -> None:
    """Put a value into a tensor of a checkpoint without a checksum, as a damaged disk or a person would."""
    with safe_open(path, "np") as file:
        about, tensors = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    tensors[name].flat[0] = value
    save_file(tensors, path, metadata=about)


def test_a_folder_from_before_checksums_predicts_and_goes_on_with_a_note(run, amphw) -> None:
    note = "run/checkpoint.safetensors was saved before checkpoints had checksums"
    predicted = amphw(*PREDICT)
    assert predicted.exit_code == 0 and note in predicted.stderr
    resumed = amphw(*more(2), "--json")
    assert resumed.exit_code == 0 and note in resumed.stderr
    assert json.loads(resumed.stdout)["epochs"] == 2
    again = amphw(*PREDICT)
    assert again.exit_code == 0 and again.stderr == "", "saved anew, with a checksum"


@pytest.mark.parametrize("command", [PREDICT, more(3)], ids=["predict", "resume"])
def test_a_flipped_bit_of_a_weight_is_refused(resaved, amphw, command) -> None:
    path = resaved / "checkpoint.safetensors"
    weight = load_checkpoint(path, None)[0]["head.W"].flat[0].tobytes()
    data = bytearray(path.read_bytes())
    data[data.index(weight) + 3] ^= 0x40  # the highest bit of the exponent
    path.write_bytes(data)
    done = amphw(*command)
    assert done.exit_code == 1 and done.stdout == ""
    assert done.stderr.startswith(
        "amphw: run/checkpoint.safetensors is damaged: it does not have the checksum"
    )


def test_a_run_whose_last_checkpoint_is_damaged_goes_on_from_its_best(resaved, amphw) -> None:
    path = resaved / "checkpoint.safetensors"
    shutil.copyfile(path, resaved / "best.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    done = amphw(*more(3), "--json")
    assert done.exit_code == 0, done.stderr
    assert "run/checkpoint.safetensors is " in done.stderr, "why"
    assert "; going on from run/best.safetensors, of epoch 2" in done.stderr
    assert json.loads(done.stdout)["epochs"] == 3


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("command", [PREDICT, more(2)], ids=["predict", "resume"])
def test_a_weight_that_is_not_finite_is_refused_without_a_checksum_too(run, amphw, command, value) -> None:
    rewritten(run / "checkpoint.safetensors", "head.W", value)
    done = amphw(*command)
    assert done.exit_code == 1 and done.stdout == ""
    assert "run/checkpoint.safetensors holds a NaN or an infinite value in tensor 'head.W'" in done.stderr
    assert "diverged" not in done.stderr and "last good" not in done.stderr


def test_an_output_that_is_not_finite_is_no_prediction(run, amphw) -> None:
    for name in ("cell.b", "cell.W", "head.W"):
        rewritten(run / "checkpoint.safetensors", name, 3e38)
    done = amphw(*PREDICT)
    assert done.exit_code == 1 and done.stdout == ""
    assert "no prediction for input 1: the output " in done.stderr
    assert "run/checkpoint.safetensors are too large" in done.stderr


@pytest.fixture
def begun(program, environment, tiny, tmp_path):
    """A run of its own process that has taken hold of its folder, in an epoch that takes very long."""
    long = ("--set", "train_instances=1000000", "--set", "batch=1", "--set", "trace=false")
    command = [*program, "train", "list-reduction", *tiny, *long, "--device", "reference", "--out", "run"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    lock = tmp_path / "run" / ".lock"
    while process.poll() is None and not (lock.exists() and lock.read_text()):
        time.sleep(0.01)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_running_run_is_not_gone_on_with_and_a_killed_one_is(begun, amphw) -> None:
    refused = amphw(*more(2))
    assert refused.exit_code == 1
    assert refused.stderr == (
        f"amphw: a run is under way in run (process {begun.pid}); wait for its end, or stop it with Ctrl-C, "
        "which saves it\n"
    )
    begun_again = amphw("train", "list-reduction", "--out", "run")
    assert begun_again.exit_code == 1 and begun_again.stderr == refused.stderr
    begun.kill()
    begun.wait()
    done = amphw(*more(1), "--set", "train_instances=40", "--json")
    assert done.exit_code == 0, done.stderr
    assert "the run in run was ended before its first checkpoint; it begins afresh" in done.stderr
    assert json.loads(done.stdout)["epochs"] == 1


def test_a_folder_of_several_runs_is_not_gone_on_with_but_one_of_them_is(amphw, tiny) -> None:
    several = amphw("train", "list-reduction", *tiny, "--device", "reference", "--seeds", "2", "--out", "run")
    assert several.exit_code == 0, several.stderr
    refused = amphw(*more(2))
    assert refused.exit_code == 1
    assert refused.stderr == (
        "amphw: run holds several runs: seed-0, seed-1; name one of them, such as run/seed-0\n"
    )
    command = [part if part != "run" else "run/seed-0" for part in more(2)]
    assert amphw(*command).exit_code == 0


def test_of_two_resumes_the_second_is_refused_and_changes_nothing(run, amphw) -> None:
    before = {path: path.read_bytes() for path in OLD.iterdir()}
    with RunFolder.open(run).held():
        done = amphw(*more(2))
        assert done.exit_code == 1 and "a run is under way in run (process " in done.stderr
        assert {
            OLD / path.name: path.read_bytes() for path in run.iterdir() if path.name != ".lock"
        } == before
    assert amphw(*more(2)).exit_code == 0


LEAST = ("train", "list-reduction", "--device", "null", "--out", "run")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("epochs=100000000000000000000", "expected an integer of 1 or more, and one that fits in 64 bits."),
        ("epochs=1e20", "train.epochs is 1e+20, expected an integer of 1 or more."),
        ("seed=100000000000000000000", "expected an integer of 0 or more, and one that fits in 64 bits."),
        ("hidden=1000000000000", "model.hidden is 1000000000000, usually 128: lower it\n"),
    ],
)
def test_a_number_that_is_too_large_names_its_setting(amphw, tmp_path, setting, message) -> None:
    done = amphw(*LEAST, "--set", setting, "--device", "reference")
    assert done.exit_code == 1 and message in done.stderr
    assert "max_active_keys" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_of_settings_that_are_too_large_the_largest_comes_first(amphw) -> None:
    settings = ("--set", "max_active_keys=4096", "--set", "hidden=1000000000000", "--set", "epochs=1000")
    done = amphw(*LEAST, *settings, "--device", "reference")
    assert done.exit_code == 1
    assert (
        "; model.hidden is 1000000000000, usually 128, train.max_active_keys is 4096, usually 16: "
        "lower the first of them\n"
    ) in done.stderr


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no /dev/zero here")
def test_a_configuration_without_an_end_is_refused(amphw) -> None:
    done = amphw(*LEAST, "--config", "/dev/zero")
    assert done.exit_code == 1
    assert done.stderr == (
        "amphw: /dev/zero: the configuration is longer than 1000000 bytes, so it is none; check the path.\n"
    )


@pytest.mark.parametrize("short", ["matrices", "threads"])
def test_memory_that_is_short_for_blas_ends_in_words_and_not_in_waiting(monkeypatch, short) -> None:
    """One of several threads fails; the others wait for it."""
    count = itertools.count()

    def sometimes(*arguments: object, **options: object) -> np.ndarray:
        if next(count):
            raise MemoryError("no room")
        return np.zeros((256, 256), np.float32)

    started = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if next(count):
            raise RuntimeError("can't start new thread")
        started(thread)

    monkeypatch.setattr(memory, "_room", lambda: 1 << 30)
    if short == "matrices":
        monkeypatch.setattr(np, "ones", sometimes)
    else:
        monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(MemoryError) as refused:
        memory.take_blas_buffers()
    assert "raise the limit" in refused.value.__notes__[0]


@pytest.mark.skipif(sys.platform != "linux", reason="limits on address space are those of Linux")
def test_a_memory_limit_is_told_before_a_library_gives_up() -> None:
    """BLAS ends the process itself, with a message of its own, where it gets no memory."""
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (150 << 20, 150 << 20)); "
        "from amphw.cli.main import app; sys.argv[:] = ['amphw', 'train', 'list-reduction']; app()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("amphw: not enough memory (the limit on this process, ulimit -v, leaves ")
    assert done.stderr.endswith("raise the limit: 512 MB and what the model needs have to be left\n")
