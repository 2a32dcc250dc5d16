"""The benchmark of ranks over slow links: what it compares, and machines that are network namespaces."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from amphw.host.config import resolve
from amphw.host.session import graph_of
from amphw.models import get_model

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("replica_links")


def run(strategy: str, ranks: int, number: int, throughput: float, moved: float) -> dict[str, Any]:
    seconds = {"compute": 0.1, "wait": 0.0, "transfer": 0.0}
    figures = {"throughput": throughput, "sent": moved, "received": moved, "gather": 0.0, "seconds": seconds}
    return {"strategy": strategy, "ranks": ranks, "round": number, **figures}


def runs(ranks: int, moved: dict[str, float], speed: dict[str, float]) -> list[dict[str, Any]]:
    """Five rounds, of which each is twice as fast as the one before."""
    return [run(n, ranks, k, 2.0**k * speed[n], moved[n]) for k in range(5) for n in moved]


def played(ranks: int, speed: dict[str, float], rounds: int = 5) -> list[dict[str, Any]]:
    """As fast as the median of `runs`."""
    return [{name: {str(ranks): {"throughput": 4.0 * speed[name]}} for name in speed}] * rounds


def test_bars_are_about_bytes_and_about_ratios_of_the_same_round(links: ModuleType) -> None:
    even = dict.fromkeys(links.STRATEGIES, 1.0)
    fewest = {"hybrid": 10.0, "allreduce": 20.0, "servers": 10.0}
    assert links.compared(runs(4, fewest, even), played(4, even), 4)["missed"] == []
    slower = {**even, "hybrid": 0.9}
    (slow,) = links.compared(runs(4, fewest, slower), played(4, slower), 4)["missed"]
    assert "slower than servers, 0.900 to 0.900" in slow
    equal = dict.fromkeys(links.STRATEGIES, 10.0)
    assert links.compared(runs(2, equal, even), played(2, even), 2)["missed"] == []
    assert links.compared(runs(4, equal, even), played(4, even), 4)["missed"] == [
        "4 ranks: hybrid moves no fewer bytes than allreduce"
    ]
    more = {"hybrid": 20.0, "allreduce": 30.0, "servers": 10.0}
    assert links.compared(runs(2, more, even), played(2, even), 2)["missed"] == [
        "2 ranks: hybrid moves more bytes than servers"
    ]


def test_what_is_played_is_to_be_near_what_is_measured(links: ModuleType) -> None:
    even = dict.fromkeys(links.STRATEGIES, 1.0)
    off = {**even, "allreduce": 1.2, "servers": 0.95}
    fewest = {"hybrid": 10.0, "allreduce": 20.0, "servers": 10.0}
    found = links.compared(runs(2, fewest, even), played(2, off), 2)
    assert found["strategies"]["servers"]["error"] == pytest.approx(-0.05)
    assert found["missed"] == ["2 ranks, allreduce: what is played is +0.200 from what is measured"]
    few = links.compared(runs(2, fewest, even), played(2, off, rounds=2), 2)
    assert few["missed"] == []


def test_an_interval_is_around_the_ratios_and_narrow_where_they_agree(links: ModuleType) -> None:
    low, high = links.interval([0.5, 2.0, 1.0, 1.0, 1.0])
    assert 0.5 < low < 1.0 < high < 2.0
    assert links.interval([1.1] * 5) == pytest.approx((1.1, 1.1))


@pytest.mark.parametrize(("text", "found"), [("100Mb", 10**8), ("1Gb", 10**9), ("2.5Gb", 2_500_000_000)])
def test_rates_have_units(links: ModuleType, text: str, found: int) -> None:
    assert links.bits(text) == found
    with pytest.raises(ValueError, match="write one as 100Mb or 1Gb"):
        links.bits("100")


def test_without_root_it_says_what_is_needed(
    links: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit, match="root's to make; run this as root"):
        links.Machines(2, tmp_path).__enter__()


def machines(links: ModuleType, folder: Path, count: int) -> Any:
    """Entered; skips where the system does not allow for them."""
    found = links.Machines(count, folder)
    try:
        return found.__enter__()
    except SystemExit as error:
        pytest.skip(str(error))


@pytest.mark.thorough
def test_ranks_of_two_machines_train_over_their_link_and_leave_nothing(
    links: ModuleType, tmp_path: Path
) -> None:
    """The road of `--hosts`: the file, the question to each machine, `mpiexec` and its proxies."""
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("needs the extra mpi")
    two = machines(links, tmp_path, 2)
    args = Namespace(model="list-reduction", windows=4, window=2, epochs=3, set=["hidden=8", "batch=5"])
    try:
        two.hold_to("100Mb")
        summary = links.trained(two, args, 2, "servers")
        found = links.figures(summary, 2, "servers", 0)
    finally:
        two.__exit__(None, None, None)
    assert (summary["ranks"], summary["strategy"]) == (2, "servers")
    assert found["wire"] > 2 * found["windows"] * found["sent"] > 0
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert two.prefix not in listed


def test_one_rank_is_measured_and_several_are_played(
    links: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a link so slow that what it takes is nearly all of a step: 2 (N - 1) / N of all bytes, each way."""
    monkeypatch.setattr("amphw.replicas.measured.SECONDS", 0.05)
    settings = ["train_instances=40", "hidden=8", "batch=5", "mode=pipeline", "pipeline_depth=4", "workers=1"]
    args = Namespace(
        model="list-reduction", strategies=["allreduce"], ranks=[2], processors=[0, 0], set=settings
    )
    link = {"nic": 1e3, "burst": 0.0, "latency": 0.0, "carrying": [(0.0, 0.0), (1e9, 1.0)], "looking": []}
    found = importlib.import_module("links_played").played(Namespace(**vars(args), **link))["allreduce"]["2"]
    model = get_model("list-reduction")
    graph = graph_of(model, resolve(model.config, model.defaults, None, settings))
    moved = sum(4 * math.prod(p.shape) for n in graph.parameterised for p in graph.nodes[n].params)
    assert found["seconds"]["transfer"] == pytest.approx(moved / 1e3, rel=0.1)
    assert found["alone"] > found["throughput"] > 0


def test_a_run_that_went_past_the_links_gives_no_figures(links: ModuleType) -> None:
    row = {"instances": 4.0, "compute": 3.0, "wait": 0.0, "transfer": 2.0, "gather": 1.0}
    epochs = [{"ranks": [{**row, "compute": slow}] * 2} for slow in (30.0, 20.0, 3.0, 3.0)]
    summary = {
        "epochs": epochs,
        "bytes": {"w": {"sent": 100.0, "received": 100.0}},
        "exchanges": 8,
        "alpha": {},
        "wire": 1000,
    }
    with pytest.raises(links.Failed, match="1000 bytes went over the links, which is too few"):
        links.figures(summary, 2, "hybrid", 0)
    found = links.figures({**summary, "wire": 2500}, 2, "hybrid", 0)
    assert found["throughput"] == pytest.approx(2.0)
    assert found["seconds"] == pytest.approx({"compute": 1.5, "wait": 0.0, "transfer": 0.5})
    assert found["gather"] == pytest.approx(2.0)
