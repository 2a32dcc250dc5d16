"""Estimates and placements from Python: what the command says, as objects."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import amphw
from amphw.cli.main import app
from amphw.data.cache import DataError
from amphw.estimate.outcome import Outcome
from amphw.host.devices import DeviceError
from amphw.library.estimating.said import SaidError
from amphw.library.frames import RunError
from tests.library.parity import QUIET, SPEC, instances, model

NETWORK: dict[str, Any] = {"flops": "1TFLOPS", "link": "10Gb/s", "latency": "1us"}
SGD = {"update.optimizer": "sgd"}  # which the fixed-point device can do


@pytest.fixture(scope="module")
def run() -> amphw.Run:
    return amphw.train(model(), instances(100), spec=SPEC, **QUIET, **SGD)


@pytest.fixture(scope="module")
def estimate() -> amphw.Estimate:
    return amphw.estimated(model(), instances(40), spec=SPEC, events=True, **NETWORK)


def test_it_is_what_the_command_prints() -> None:
    """But for how numbers are said to be known: an option there, an argument here."""
    settings = ["--set", "hidden=8", "--instances", "4"]
    options = ["--flops", "1TFLOPS", "--link", "10Gb/s", "--latency", "1us", "--replicas", "2", "--keys", "5"]
    done = CliRunner().invoke(app, ["estimate", "list-reduction", *settings, *options, "--json"])
    assert done.exit_code == 0, done.output
    found = amphw.estimated("list-reduction", hidden=8, instances=4, replicas=2, keys=5, **NETWORK).to_json()
    printed = json.loads(done.stdout)
    origin = found.pop("origin")
    assert json.loads(json.dumps(found, default=list)) == {k: v for k, v in printed.items() if k != "origin"}
    assert origin["link"]["how"] == "link='10Gb/s'" and origin["replicas"]["how"] == "replicas=2"
    assert {name: each["origin"] for name, each in origin.items()} == {
        name: each["origin"] for name, each in printed["origin"].items()
    }


def test_an_estimate_has_its_parts(estimate: amphw.Estimate, tmp_path: Path) -> None:
    of = estimate.outcome
    assert isinstance(of, Outcome) and of.played is not None
    assert estimate.throughput == min(of.throughput, of.played.throughput)
    assert estimate.bottleneck == of.loads[0] and "an instance" in estimate.limits
    assert estimate.placement.keys() >= {"embed", "cell", "head"}
    assert len(estimate.devices) == 3 == len({number for at in estimate.placement.values() for number in at})
    assert set(estimate.links["link"]) == {each.name for each in of.crossed}
    assert (estimate.links["bits_per_s"] > 0).all()
    cell = estimate.nodes.set_index("node").loc["cell"]
    assert cell["parameters"] == 4 * (4 * 24 + 8 * 24 + 48)
    assert len(estimate.edges) == len(of.per_edge)
    assert "<title>Estimate: parity" in estimate.report(tmp_path / "page.html").read_text()


def test_a_notebook_shows_it_without_a_script(estimate: amphw.Estimate) -> None:
    shown = estimate._repr_html_()
    assert "What limits" in shown and "device 0" in shown and "<script" not in shown
    assert "parity on 3 devices" in repr(estimate)


def test_a_run_is_estimated_with_its_own_settings(run: amphw.Run) -> None:
    found = run.estimate(**NETWORK)
    assert found.outcome.keys == run.config.train.max_active_keys and found.outcome.instances == 32
    assert run.estimate(keys=1, **NETWORK).throughput < found.throughput
    other = run.estimate(instances(8, seed=3), **NETWORK)
    assert other.outcome.instances == 8


def test_without_a_rate_it_is_timed_on_this_cpu(run: amphw.Run) -> None:
    assert run.estimate(instances=4).outcome.origin["times"].how.startswith("like cpu, the default")


def test_a_run_that_was_loaded_needs_instances(run: amphw.Run, tmp_path: Path) -> None:
    loaded = amphw.load(run.save(tmp_path / "run"))
    with pytest.raises(DataError, match="give it instances"):
        loaded.estimate(**NETWORK)
    assert loaded.estimate(instances(5), **NETWORK).throughput > 0


def test_what_does_not_go_together_is_told_in_the_words_of_python(run: amphw.Run) -> None:
    for wrong, told in (
        ({"flops": "1TFLOPS", "like": "cpu"}, "a device has either flops or like; network lists several"),
        ({"clock": "90MHz"}, "clock is for lanes"),
        ({"utilisation": 0.5}, "utilisation is for flops: like has times as they are"),
        ({"network": "n.toml", "memory": "1GB"}, "memory is for devices that are alike; network lists them"),
        ({"speed": 3}, "nothing is called speed; devices and links are said by flops, "),
    ):
        with pytest.raises(SaidError, match=told):
            run.estimate(**wrong)
    with pytest.raises(amphw.AmphwError, match="^flops: 'fast' is no number of operations a second"):
        run.estimate(flops="fast")
    with pytest.raises(DataError, match="has data of its own"):
        amphw.estimated("list-reduction", instances(3), **NETWORK)


def test_where_the_nodes_of_a_run_are(run: amphw.Run) -> None:
    assert set(run.placement.values()) == {"cpu"} and {"embed", "cell", "head"} <= set(run.placement)
    both = amphw.train(model(), instances(60), spec=SPEC, device="cpu,fixed:q4.12", **QUIET, **SGD)
    placed = [line for line in both.summary.ran if "placed on fixed" in line]
    on = {node for node, label in both.placement.items() if label == "fixed"}
    assert on and all(node in placed[0] for node in on)


def test_a_placement_is_a_mapping_that_can_be_trained_with(run: amphw.Run) -> None:
    found = run.place("cpu,fixed:q4.12", instances=4)
    assert set(found) == {"embed", "cell", "head"} and set(found.values()) <= {"cpu", "fixed"}
    assert found.setting == ",".join(f"{node}={label}" for node, label in found.items())
    assert found.throughput >= found.alone * 0.999 or found.short
    nodes = found.nodes.set_index("node")
    assert list(nodes.columns) == ["device", "fixed", "cpu"] and dict(nodes["device"]) == dict(found)
    assert found.bottleneck.name in set(found.devices["name"])
    shown = found._repr_html_()
    assert "What limits" in shown and "goes to" in shown and "<script" not in shown
    again = amphw.placed(
        model(), instances(20), spec=SPEC, device="cpu,fixed:q4.12", instances=4, place="cell=fixed", **SGD
    )
    assert again["cell"] == "fixed"


def test_a_placement_is_about_several_devices(run: amphw.Run) -> None:
    with pytest.raises(DeviceError, match="cpu alone is none"):
        run.place()


def test_data_frames_need_pandas(estimate: amphw.Estimate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(RunError, match="needs pandas"):
        _ = estimate.links
