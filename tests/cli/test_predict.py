"""`amphw predict`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


@pytest.fixture
def run(amphw, tiny, tmp_path) -> Path:
    done = amphw("train", "list-reduction", *tiny, "--device", "reference", "--out", "run")
    assert done.exit_code == 0, done.stderr
    return tmp_path / "run"


def predictions(done) -> list[dict]:
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["predictions"]


def test_each_input_gets_one_line(amphw, run) -> None:
    done = amphw("predict", "list-reduction", "--checkpoint", "run", "range 3 1 4 1 5", "length 2 2")
    assert done.exit_code == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("range 3 1 4 1 5 -> ") and "label 4" in first
    assert second.startswith("length 2 2 -> ") and "label 2" in second


def test_stdin_is_read_where_a_dash_stands_and_where_nothing_does(amphw, run) -> None:
    command = ["predict", "list-reduction", "--checkpoint", "run", "--json"]
    lines = "range 3 1\n\nmean 5\n"
    dashed = predictions(amphw(*command, "length 1", "-", input=lines))
    assert [each["input"] for each in dashed] == ["length 1", "range 3 1", "mean 5"]
    assert [each["input"] for each in predictions(amphw(*command, input=lines))] == ["range 3 1", "mean 5"]


def test_a_checkpoint_file_answers_as_its_folder_does(amphw, run) -> None:
    file = max(run.rglob("*.safetensors"), key=lambda path: path.stat().st_mtime)
    by_folder, by_file = (
        predictions(amphw("predict", "list-reduction", "--checkpoint", path, "mean 1 2", "--json"))
        for path in (run, file)
    )
    assert by_folder[0]["prediction"] == by_file[0]["prediction"]


def test_devices_agree(amphw, run) -> None:
    command = ["predict", "list-reduction", "--checkpoint", "run", "mean 1 2", "--json", "--device"]
    cpu, reference = (predictions(amphw(*command, device))[0] for device in ("cpu", "reference"))
    assert cpu["probability_of_label"] == pytest.approx(reference["probability_of_label"], rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--checkpoint", "nowhere", "mean 1"], "nowhere"),
        (["--checkpoint", "run", "median 1"], "'median' is no operation; expected"),
        (["--checkpoint", "broken.safetensors", "mean 1"], "broken.safetensors is not an amphw checkpoint"),
        (["--checkpoint", "run", "--device", "gpu", "mean 1"], "there is no device 'gpu'"),
    ],
)
def test_mistakes_are_one_message(amphw, run, tmp_path, arguments, message) -> None:
    (tmp_path / "broken.safetensors").write_bytes(b"this is a text and no checkpoint at all")
    done = amphw("predict", "list-reduction", *arguments)
    assert done.exit_code == 1
    assert done.stderr.startswith("amphw: ") and message in done.stderr
    assert done.stdout == ""


def test_the_checkpoint_of_another_model_is_refused(amphw, run) -> None:
    done = amphw("predict", "mnist", "--checkpoint", "run", "3")
    assert done.exit_code == 1
    assert "list-reduction" in done.stderr


def test_a_folder_without_a_checkpoint_says_so(amphw, tiny) -> None:
    amphw(
        "train", "list-reduction", *tiny, "--set", "checkpoint_every=0", "--device", "null", "--out", "bare"
    )
    done = amphw("predict", "list-reduction", "--checkpoint", "bare", "mean 1")
    # A run that ends saves itself even without regular checkpoints; where it does not, that is said.
    assert done.exit_code == 0 or "checkpoint" in done.stderr


def test_a_device_that_computes_nothing_cannot_predict(amphw, run) -> None:
    done = amphw("predict", "list-reduction", "--checkpoint", "run", "--device", "null", "mean 1 2")
    assert done.exit_code == 1
    assert (
        done.stderr == "amphw: the device null computes no outputs to predict with; choose another --device\n"
    )
