"""`amphw train --ranks`, with ranks that are threads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw.host.checkpoint import load_checkpoint
from amphw.host.checkpointing import CHECKPOINT
from tests.cli.conftest import Invoke

PIPELINE = ["--set", "mode=pipeline", "--set", "workers=1"]


def parameters(run: str) -> dict[str, np.ndarray]:
    return load_checkpoint(Path(run) / CHECKPOINT, None)[0]


def trained(amphw: Invoke, tiny: list[str], *arguments: str) -> dict[str, Any]:
    done = amphw("train", "list-reduction", *tiny, *PIPELINE, *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_two_ranks_are_one_with_twice_the_window(amphw: Invoke, tiny: list[str]) -> None:
    """26 batches, of which 8 are in flight at a time."""
    one = trained(amphw, tiny, "--set", "pipeline_depth=8", "--out", "one")
    two = trained(amphw, tiny, "--set", "pipeline_depth=4", "--ranks", "2", "--out", "two")
    assert "ranks" not in one
    assert (two["ranks"], two["strategy"], two["exchanges"]) == (2, "hybrid", 4)
    assert two["valid"] == pytest.approx(one["valid"], rel=1e-4)
    assert two["messages"] == one["messages"]
    for name, value in parameters("one").items():
        assert parameters("two")[name] == pytest.approx(value, abs=1e-5), name


@pytest.mark.parametrize("strategy", ["hybrid", "allreduce", "servers"])
def test_strategies_move_the_bytes_that_they_should(amphw: Invoke, tiny: list[str], strategy: str) -> None:
    """By a ring or by servers 2 (N - 1) / N of each dense parameter and way, on average over ranks; 4 bytes
    a number. Of a table N - 1 times the touched rows by AllGatherv; of what servers own a third is local."""
    found = trained(amphw, tiny, "--ranks", "3", "--out", "run", "--set", f"replicas.strategy={strategy}")
    sizes = {name: value.size for name, value in parameters("run").items() if "#" not in name}
    assert found["bytes"].keys() == sizes.keys() and found["alpha"].keys() == {"cell.E"}
    table = found["bytes"].pop("cell.E")
    moved = 4 * sizes["cell.E"] * found["alpha"]["cell.E"] * 2
    if strategy == "allreduce":
        assert table["sent"] == table["received"] == pytest.approx(moved)
    else:
        assert table["sent"] == table["received"] == pytest.approx(moved * 2 / 3, rel=0.1)
    for name, each in found["bytes"].items():
        assert each["sent"] == each["received"] == pytest.approx(4 * sizes[name] * 2 * 2 / 3)
    assert found["seconds"].keys() == {"compute", "wait", "transfer"}


def test_a_run_goes_on_with_another_number_of_ranks(amphw: Invoke, tiny: list[str]) -> None:
    whole = trained(amphw, tiny, "--set", "epochs=3", "--out", "whole", "--ranks", "2")
    trained(amphw, tiny, "--out", "parts", "--ranks", "2")
    for epochs, ranks, depth in ((2, 1, 8), (3, 4, 2)):  # windows of 8 together, as two of four were
        arguments = ["--set", f"epochs={epochs}", "--set", f"pipeline_depth={depth}", "--ranks", str(ranks)]
        done = amphw("train", "list-reduction", "--resume", "parts", *arguments, "--json")
        assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["valid"] == pytest.approx(whole["valid"], rel=1e-3)
    for name, value in parameters("whole").items():
        assert parameters("parts")[name] == pytest.approx(value, abs=1e-4), name


def test_averaging_works_where_nodes_update_on_their_own(amphw: Invoke, tiny: list[str]) -> None:
    average = ["--set", "replicas.strategy=average", "--set", "mode=async", "--ranks", "2"]
    found = trained(amphw, tiny, *average, "--set", "replicas.every=3", "--out", "run")
    assert (found["strategy"], found["exchanges"]) == ("average", 5)  # of 26 batches 3 on each of two
    assert found["messages"]["lost"] == 0
    history = json.loads((Path("run") / "metrics.json").read_text())
    history = history if isinstance(history, list) else history["history"]
    assert history[-1]["instances"] == 400


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--set", "mode=async"],
            "write --set train.mode=pipeline (or sync), or --set replicas.str",
        ),
        (["--set", "replicas.every=5"], "hybrid does with each update"),
        (["--set", "replicas.wire=bfloat16"], "write --set replicas.strategy=allreduce (or group)"),
        (["--set", "replicas.servers=2"], "at least one rank has to train"),
        (["--set", "replicas.servers=1", "--set", "replicas.strategy=allreduce"], "allreduce has no servers"),
        (["--set", "live_valid=2"], "write --set train.live_valid=0"),
        (["--seeds", "2"], "leave --seeds out"),
        (["--log"], "leave --ranks out"),
    ],
)
def test_what_ranks_cannot_do_is_refused_before_there_is_a_folder(
    amphw: Invoke, tiny: list[str], arguments: list[str], says: str
) -> None:
    ranks = ["--ranks", "2", "--out", "run"]
    done = amphw("train", "list-reduction", *tiny, *PIPELINE, *ranks, *arguments)
    assert done.exit_code != 0
    assert says in done.stderr or (done.exception is not None and says in str(done.exception))
    assert not Path("run").exists()
