"""`amphw train --log` and `amphw replay`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import planes
from amphw.host.checkpoint import load_checkpoint, save_checkpoint
from amphw.host.checkpointing import CHECKPOINT
from tests.cli.conftest import Invoke

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")
LOG = "log.jsonl.gz"


@pytest.fixture
def logged(amphw: Invoke, tiny: list[str]) -> Path:
    """A run with its log; the working directory is the folder above it."""
    done = amphw("train", "list-reduction", *tiny, "--set", "epochs=2", "--log", "--out", "run")
    assert done.exit_code == 0, done.stderr
    return Path("run")


def lines(run: Path) -> list[Any]:
    with gzip.open(run / LOG, "rt") as file:
        return [json.loads(line) for line in file]


def rewritten(run: Path, found: list[Any]) -> None:
    with gzip.open(run / LOG, "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in found)


def repeated(amphw: Invoke, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = amphw("replay", "run", *arguments, "--json")
    assert done.exit_code == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_run_is_repeated_to_the_bit(amphw: Invoke, logged: Path) -> None:
    found = repeated(amphw)
    frames = sum(line[0] == "start" for line in lines(logged)[1:])
    assert found == {
        "equal": True, "same_bits": True, "steps": frames, "device": "cpu", "first_difference": None,
    }  # fmt: skip
    assert "the same to the bit" in amphw("replay", "run").stdout


def test_a_run_is_repeated_on_the_reference(amphw: Invoke, logged: Path) -> None:
    found = repeated(amphw, "--device", "reference")
    assert found["equal"] and found["device"] == "reference"


STEP = 3e-3  # the model's Adam takes steps of at most this


@pytest.mark.parametrize(("weights", "equal"), [(1, True), (None, False)], ids=["one", "all"])
def test_one_weight_may_go_a_step_elsewhere_by_rounding_and_a_tensor_may_not(
    amphw: Invoke, logged: Path, weights: int | None, equal: bool
) -> None:
    """One weight: as with Adam where its gradients cancel. A whole tensor: as with one update too many."""
    tensors, about = load_checkpoint(logged / CHECKPOINT, None)
    moved = tensors["cell.W"].copy()
    moved.reshape(-1)[:weights] += np.float32(STEP)
    save_checkpoint(logged / CHECKPOINT, {**tensors, "cell.W": moved}, about)
    found = repeated(amphw, "--device", "reference", code=0 if equal else 1)
    assert found["equal"] is equal
    if not equal:
        difference = found["first_difference"]
        assert (difference["kind"], difference["node"]) == ("parameters", "cell")
        assert "'W' of node 'cell' ends 0.003" in difference["what"]


def test_until_stops_there(amphw: Invoke, logged: Path) -> None:
    found = repeated(amphw, "--until", "40")
    assert found["equal"] and found["steps"] == 40


def test_a_run_that_was_killed_is_repeated_as_far_as_it_goes(amphw: Invoke, logged: Path) -> None:
    whole = (logged / LOG).read_bytes()
    (logged / LOG).write_bytes(whole[: len(whole) // 2])
    done = amphw("replay", "run", "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0 and found["equal"] and found["steps"] > 10
    assert "the log has no end, the run was killed" in done.stderr


def test_another_order_is_named_with_node_instance_and_state(amphw: Invoke, logged: Path) -> None:
    """Two frames change places, of which the second needs the first."""
    found = lines(logged)
    at = next(k for k, line in enumerate(found) if k and line[0] == "start" and line[3] == "backward")
    _, frame, node, kind, ((number, mode, state), *rest) = found[at]
    found[at] = ["start", frame, node, kind, [[number, mode, state], [number, mode, state], *rest]]
    rewritten(logged, found)
    difference = repeated(amphw, code=1)["first_difference"]
    assert (difference["node"], difference["kind"], difference["instance"]) == (node, "backward", number)
    assert difference["state"] == state and "is not ready" in difference["what"]


def test_a_loss_that_was_another_is_named(amphw: Invoke, logged: Path) -> None:
    found = lines(logged)
    report = next(line for line in found[1:] if line[0] == "report" and line[1] == 7)
    report[3]["loss"]["loss"] += 1.0
    rewritten(logged, found)
    difference = repeated(amphw, code=1)["first_difference"]
    assert (difference["kind"], difference["node"], difference["instance"]) == ("loss", "loss", 7)
    done = amphw("replay", "run")
    assert done.exit_code == 1 and "first difference: 'loss' of instance 7 is" in done.stdout


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: path.unlink(), "is not there: the run was trained without --log"),
        (lambda path: path.write_bytes(b"nonsense"), "is not a service log of amphw, or is damaged"),
        (lambda path: path.write_bytes(b""), "is empty: the run was killed before anything was logged"),
        (
            lambda path: path.write_bytes(gzip.compress(b'{"amphw service log": 99}\n')),
            "is of version 99, and this amphw reads version 1",
        ),
        (lambda path: path.write_bytes(gzip.compress(b'["start"]\n')), "its first line is not that of"),
    ],
)
def test_a_file_that_is_no_log_is_refused(amphw: Invoke, logged: Path, spoil: Any, says: str) -> None:
    spoil(logged / LOG)
    done = amphw("replay", "run")
    assert done.exit_code == 1 and says in done.stderr and "Traceback" not in done.stderr


def test_what_cannot_be_logged_or_repeated_is_refused(amphw: Invoke, logged: Path, tiny: list[str]) -> None:
    done = amphw("replay", "run", "--device", "verilator:q4.12")
    assert done.exit_code == 1 and "cannot be made to take an order" in done.stderr
    assert "--device fixed:q4.12" in done.stderr
    done = amphw("train", "list-reduction", *tiny, "--device", "null", "--log", "--out", "null")
    assert done.exit_code == 1 and "keeps no log of what it does" in done.stderr
    assert not Path("null").exists()
    assert "is for one run" in amphw("train", "list-reduction", *tiny, "--seeds", "2", "--log").stderr


@pytest.mark.thorough
def test_what_hardware_has_done_is_repeated_on_fixed(amphw: Invoke, tiny: list[str]) -> None:
    pytest.importorskip("amaranth")
    smaller = ["hidden=8", "batch=1", "optimizer=sgd", "train_instances=10", "valid_instances=4"]
    settings = [word for setting in smaller for word in ("--set", setting)]
    done = amphw(
        "train", "list-reduction", *tiny, *settings, "--device", "verilator:q4.12", "--log", "--out", "run"
    )
    assert done.exit_code == 0, done.stderr
    found = repeated(amphw, "--device", "fixed:q4.12")
    assert found["same_bits"] and found["device"] == "fixed:q4.12" and found["steps"] > 100
