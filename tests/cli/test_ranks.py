"""`amphw train --ranks`, with ranks that are threads."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import planes
from amphw.host.checkpoint import load_checkpoint
from amphw.host.checkpointing import CHECKPOINT
from tests.cli.conftest import Invoke
from tests.daily import daily

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


WORDS = [
    "vocabulary=300", "embedding=6", "hidden=6", "samples=8", "train_instances=48", "valid_instances=4",
    "epochs=1", "target=none", "pipeline_depth=1",
]  # fmt: skip
TABLES = ("embed.E", "output.W", "output.b")


@pytest.mark.parametrize("strategy", ["hybrid", "allreduce", "servers"])
def test_strategies_move_the_bytes_that_they_should(amphw: Invoke, strategy: str) -> None:
    """By a ring or by servers 2 (N - 1) / N of each dense parameter and way, on average over ranks; 4 bytes
    a number. Of a table N - 1 times the touched rows by AllGatherv; of what servers own a third is local."""
    small = [word for setting in [*WORDS, f"strategy={strategy}"] for word in ("--set", setting)]

    def moved(*more: str) -> dict[str, Any]:
        ranks = ["--ranks", "3", *PIPELINE, *more, "--json"]
        done = amphw("train", "language-model", *small, *ranks)
        assert done.exit_code == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    found = moved("--out", "run", "--set", "replicas.sparse_from=0")
    sizes = {name: value.size for name, value in parameters("run").items() if "#" not in name}
    assert found["bytes"].keys() == sizes.keys() and found["alpha"].keys() == set(TABLES)
    for name in TABLES:
        table = found["bytes"].pop(name)
        touched = 4 * sizes[name] * found["alpha"][name] * 2
        if strategy == "allreduce":
            assert table["sent"] == table["received"] == pytest.approx(touched)
        else:
            assert table["sent"] == table["received"] == pytest.approx(touched * 2 / 3, rel=0.1)
    for name, each in found["bytes"].items():
        assert each["sent"] == each["received"] == pytest.approx(4 * sizes[name] * 2 * 2 / 3)
    assert found["seconds"].keys() == {"compute", "wait", "transfer", "gather"}
    assert moved("--out", "whole")["alpha"] == {}  # so small tables are not worth it


@pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")
@pytest.mark.parametrize("strategy", daily(["hybrid"], ["servers"]))
def test_tables_that_servers_own_take_room_for_what_a_window_reads(amphw: Invoke, strategy: str) -> None:
    """Each of three ranks has a third of values and Adagrad's sums; on devices ten times as many words make
    no difference but for other rows in a window. The checkpoint has everything."""
    found, tables = {}, {}
    for words in (2_000, 20_000):
        own = [f"strategy={strategy}", f"vocabulary={words}", "sparse_from=0"]
        small = [word for setting in [*WORDS, *own] for word in ("--set", setting)]
        out = f"run{words}"
        done = amphw("train", "language-model", *small, "--ranks", "3", *PIPELINE, "--json", "--out", out)
        assert done.exit_code == 0, done.stderr
        found[words] = json.loads(done.stdout)["parameter_bytes"]
        assert "as a server" in amphw("train", "language-model", *small, "--ranks", "3", *PIPELINE).stdout
        saved = {name: value for name, value in parameters(out).items() if name.partition("#")[0] in TABLES}
        assert set(saved) == {f"{name}{slot}" for name in TABLES for slot in ("", "#slot0")}
        tables[words] = sum(value.nbytes for value in saved.values())
    assert found[20_000]["device"] < 1.2 * found[2_000]["device"] < tables[20_000] / 3
    for words, each in found.items():
        others = each["servers"] - tables[words] / 3
        assert others == pytest.approx(0.0, abs=1.0) if strategy == "hybrid" else 0 < others < 10_000


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
        (["--set", "replicas.every=5"], "hybrid: it exchanges with each update"),
        (
            ["--set", "replicas.wire=bfloat16", "--set", "replicas.strategy=average"],
            "average: it exchanges par",
        ),
        (["--set", "replicas.servers=2"], "at least one rank has to train"),
        (
            ["--set", "replicas.servers=1", "--set", "replicas.strategy=allreduce"],
            "allreduce: it has no servers",
        ),
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


@pytest.mark.parametrize("strategy", ["hybrid", "allreduce", "servers", "average"])
def test_a_run_tells_what_each_rank_did(amphw: Invoke, tiny: list[str], strategy: str) -> None:
    """In the summary, for each epoch in the run folder, in the trace, and in the report."""
    found = trained(amphw, tiny, "--ranks", "2", "--out", "run", "--set", f"replicas.strategy={strategy}")
    each = found["per_rank"]
    assert [rank["rank"] for rank in each] == [0, 1]
    assert sum(rank["instances"] for rank in each) == 400
    assert all(rank["instances_per_s"] > 0 for rank in each)
    moved = sum(rank["sent"] for rank in each)
    assert moved == sum(rank["received"] for rank in each) > 0
    assert moved == pytest.approx(
        2 * found["exchanges"] * sum(one["sent"] for one in found["bytes"].values())
    )
    history = json.loads((Path("run") / "metrics.json").read_text())
    assert history[0]["ranks"] == [
        {name: value for name, value in rank.items() if name != "instances_per_s"} for rank in each
    ]
    with gzip.open("run/trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    for category in ("forward", "synchronisation", "message"):
        assert {e["pid"] for e in events if e["ph"] == "X" and e.get("cat") == category} == {1, 2}
    assert any(e.get("cat") == "rank message" for e in events)
    report = (Path("run") / "report.html").read_text()
    assert "Where a step&#x27;s time goes" in report or "Where a step's time goes" in report
    assert "Bytes of an exchange" in report


@pytest.mark.parametrize(("strategy", "servers"), [("hybrid", 0), ("servers", 1), ("allreduce", 0)])
def test_bytes_are_those_of_the_formula(amphw: Invoke, tiny: list[str], strategy: str, servers: int) -> None:
    settings = ["--set", f"replicas.strategy={strategy}", "--set", f"replicas.servers={servers}"]
    found = trained(amphw, tiny, "--ranks", "3", "--out", "run", *settings)
    assert found["formula"].keys() == found["bytes"].keys()
    for name, value in found["formula"].items():
        if name not in found["alpha"]:  # rows are not equally many on all servers
            assert found["bytes"][name]["sent"] == pytest.approx(value), name
    table = found["bytes"]["cell.E"]
    assert table["sent"] == pytest.approx(found["formula"]["cell.E"], rel=0.25)


def test_tables_that_are_exchanged_whole_are_named(amphw: Invoke, tiny: list[str]) -> None:
    found = trained(amphw, tiny, "--ranks", "2", "--out", "run", "--set", "replicas.strategy=average")
    assert found["dense_tables"] == {"cell.E": "average exchanges whole parameters"}
    assert "cell.E is a table and dense: average exchanges" in (Path("run") / "report.html").read_text()


def test_without_a_trace_there_is_none_of_ranks(amphw: Invoke, tiny: list[str]) -> None:
    found = trained(amphw, tiny, "--ranks", "2", "--out", "run", "--set", "trace=false")
    assert "trace" not in found["files"] and len(found["per_rank"]) == 2
