"""`amphw train` on a board, from what `amphw rtl` leaves; its circuit and serial line are simulated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("serial")

from amphw.rtl.timing import measure
from sim.board import SimulatedBoard

MODEL = ("--set", "hidden=2", "--set", "batch=1", "--set", "optimizer=sgd")


@pytest.mark.hardware
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("nodes", "before", "place"),
    [((), "", ()), (("--nodes", "cell"), "cpu,", ("--set", "device.place=cell=board,head=cpu"))],
    ids=["alone", "beside the cpu"],
)
def test_a_model_trains_on_the_circuit_that_was_built_for_it(
    amphw, plans, monkeypatch, tmp_path: Path, nodes: tuple, before: str, place: tuple
) -> None:
    monkeypatch.setattr(measure, "cycles_per_message", lambda *arguments: 1.0)
    built = amphw(
        "rtl", "list-reduction", *MODEL, *nodes, "--out", "hw", "--lanes", 4, "--keys", 2, "--bitstream"
    )
    assert built.exit_code == 0, built.stderr
    small = ("--set", "train_instances=30", "--set", "valid_instances=10", "--set", "epochs=1")
    few = ("--set", "max_active_keys=2", "--set", "max_infer_keys=2")
    with SimulatedBoard(plans[-1]) as board:
        device = f"{before}board:{board.port},circuit={tmp_path / 'hw'}"
        refused = amphw(
            "train", "list-reduction", "--device", device, *MODEL, *place, *small, "--out", "runs/no"
        )
        assert refused.exit_code == 1
        assert "4 slots, the run wants" in " ".join(refused.stderr.split()), refused.stderr
        arguments = ("train", "list-reduction", "--device", device, *MODEL, *place, *small, *few, "--json")
        other = amphw(*arguments, "--set", "lr=0.001", "--out", "runs/other")
        assert "rules of update: optimizer, learning rates" in " ".join(other.stderr.split()), other.stderr
        done = amphw(*arguments, "--out", "runs/board")
        assert done.exit_code == 0, done.stderr
        summary = json.loads(done.stdout)
        written = ("--config", tmp_path / "hw" / "run.toml", *small, *place)
        done = amphw("train", "list-reduction", "--device", device, *written, "--out", "runs/written")
        assert done.exit_code == 0, done.stderr
    assert (tmp_path / "runs" / "board").is_dir() and summary
