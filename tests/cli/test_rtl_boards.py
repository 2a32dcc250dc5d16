"""`amphw rtl --boards`: a model that is spread over several boards."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from amphw.engine.lowering.placing import asked_for
from amphw.host.config import resolve
from amphw.host.session import graph_of, update_rules
from amphw.ir.device import DeviceOptions
from amphw.models import get_model
from amphw.rtl.build.boards import board
from amphw.rtl.driver.verilator import VerilatorDevice

pytest.importorskip("amaranth")

from tests.cli.conftest import SMALL

LARGE = ("--set", "hidden=128", "--set", "max_active_keys=16")


def test_a_model_that_no_board_holds_is_spread_over_several(amphw, asked, tmp_path: Path) -> None:
    """What is said fits each board, and is what a run with these settings does."""
    planned = (
        "rtl",
        "list-reduction",
        "--board",
        "ecpix5-85f",
        "--boards",
        6,
        *LARGE,
        "--out",
        "hw",
        "--plan",
    )
    done = amphw(*planned, "--json")
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    assert asked == [] and not facts["one_is_enough"]
    assert (facts["keys"], facts["lanes"], facts["tile"]) == (16, 16, "cell:5")
    assert [each["nodes"] for each in facts["boards"]] == [*([f"cell_{k}"] for k in range(5)), ["head"]]
    there = board("ecpix5-85f").resources
    for each in facts["boards"]:
        assert all(count <= getattr(there, name) for name, count in each["estimate"].items())
    model = get_model("list-reduction")
    cfg = resolve(model.config, model.defaults, tmp_path / "hw" / "run.toml", ())
    assert cfg.train.max_active_keys == 16 and cfg.device.lanes == 16  # type: ignore[attr-defined]
    assert set(asked_for(cfg.device.place)) <= set(graph_of(model, cfg).nodes)
    for each in facts["boards"]:
        options = DeviceOptions(16, cfg.train.max_infer_keys, settings={"lanes": 16})
        simulated = VerilatorDevice(nodes=each["nodes"])
        graph = graph_of(model, cfg)
        assert asdict(simulated.make_plan(graph, update_rules(cfg, graph), options).sizes) == each["sizes"]
    shown = amphw(*planned).stdout
    assert "board5  head" in shown and "cpu: cell_copy, cell_joined, relu, h0, sources" in shown
    assert "amphw train list-reduction --config hw/run.toml --device cpu,board0=verilator,board1=" in shown


def test_a_run_goes_by_what_was_planned(amphw, asked, tiny, tmp_path: Path) -> None:
    """With the model of their arithmetic in the place of three circuits, two of which share a layer."""
    cut = ("--set", "hidden=8", "--set", "device.tile=cell:2", "--boards", 3, "--plan", "--out", "hw")
    assert amphw("rtl", "list-reduction", *cut).exit_code == 0
    devices = ",".join(["cpu", *(f"board{k}=fixed:q4.12" for k in range(3))])
    done = amphw("train", "list-reduction", "--config", "hw/run.toml", "--device", devices, *tiny, "--json")
    assert done.exit_code == 0, done.stderr
    for k, node in enumerate(("cell_0", "cell_1", "head")):
        assert f"placed on board{k}: {node}\n" in done.stderr
    assert "placed on cpu: cell_copy, cell_joined, relu, h0" in done.stderr
    summary = json.loads(done.stdout)
    assert summary["epochs"] == 1 and summary["ran"]


def test_each_board_gets_a_circuit_of_its_own(amphw, asked, tmp_path: Path) -> None:
    small = (
        "--board",
        "ecpix5-85f",
        "--link",
        "ethernet",
        *SMALL,
        "--lanes",
        4,
        "--boards",
        2,
        "--out",
        "hw",
    )
    done = amphw("rtl", "list-reduction", *small)
    assert done.exit_code == 0, done.stderr
    assert "One ecpix5-85f is enough for all of it" in done.stdout
    built = [json.loads((tmp_path / "hw" / f"board{k}" / "circuit.json").read_text()) for k in (0, 1)]
    assert [each["nodes"] for each in built] == [["cell", "relu"], ["head"]]
    boards = [(tmp_path / "hw" / f"board{k}" / "board.toml").read_text() for k in (0, 1)]
    assert 'address = "192.168.1.50"' in boards[0] and 'address = "192.168.1.51"' in boards[1]
    assert "board1=board:PORT,circuit=hw/board1" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*LARGE, "--boards", 5), "5 of ulx3s-85f are too few, 6 are enough (--boards 6). Even with model."),
        ((*LARGE, "--set", "cell=gru", "--boards", 4), "No number of ulx3s-85f is enough, up to 32. Even "),
        ((*SMALL, "--boards", 2, "--nodes", "cell"), "--boards finds out which nodes each board has"),
        ((*SMALL, "--plan"), "--plan is for several boards: say how many at most (--boards N)"),
    ],
)
def test_what_cannot_be_spread(amphw, asked, arguments, message: str) -> None:
    done = amphw("rtl", "list-reduction", "--out", "hw", *arguments)
    assert done.exit_code == 1 and message in done.stderr
    assert asked == []
