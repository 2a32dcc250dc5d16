"""Estimates before a build: every instance has room, blocks are counted as the tools do, the limits hold."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from amphw.engine.lowering.plan import Planner
from amphw.host.config import resolve
from amphw.host.session import update_rules
from amphw.ir.device import Capabilities
from amphw.ir.errors import AmphwError, GraphError
from amphw.ir.graph import Graph
from amphw.ir.update import UpdateRule
from amphw.models import get_model
from amphw.rtl.build import fit_logic
from amphw.rtl.build.boards import Board, board
from amphw.rtl.build.fit import Estimate, FitError, estimate, fits, shortage
from amphw.rtl.build.fit_logic import logic
from amphw.rtl.build.fit_memory import Block
from amphw.rtl.driver.layout import make_layout, table_room
from amphw.rtl.fixed.parameters import UPDATES
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.plan.hardware import MOST_WORDS, Sizes, hardware_plan
from amphw.rtl.plan.sizing import memory_sizes, needs
from benchmarks.rtl_plans import plan_of
from tests.graphs.cases import CASES

ULX3S = board("ulx3s-85f")
RULE = {"*": UpdateRule(optimizer="momentum")}


def list_reduction(hidden: int) -> Graph:
    model = get_model("list-reduction")
    return model.graph(resolve(model.config, model.defaults, None, [f"hidden={hidden}", "batch=1"]).model)


@pytest.mark.parametrize("name", ["tree-all", "message-passing-dense", "fe-gru", "look-up", "fe-tagger"])
def test_every_instance_has_room(name: str) -> None:
    case = next(c for c in CASES if c.name == name)
    plan = hardware_plan(case.build(), RULE, Formats.parse("q6.10,g=q4.12"), Sizes(lanes=4))
    most = needs(plan)
    for seed in range(4):
        for instance in case.instances(seed):
            layout = make_layout(plan, Planner(plan.lowered, lambda p: p).plan(instance), instance)
            assert layout.n_firings <= most.firings
            assert layout.n_places <= most.places
            assert layout.n_payload <= most.payload
            assert table_room(plan, layout, instance) <= most.table


def test_memories_are_sized_by_keys() -> None:
    plan = hardware_plan(list_reduction(32), RULE, Formats.parse("q4.12"), Sizes())
    one, four = memory_sizes(plan, 1), memory_sizes(plan, 4, infer_keys=4)
    most = needs(plan)
    # Ten steps of a cell with 32 values that go on, and what is kept of each.
    assert most.firings == 22
    assert one.payload >= plan.reserved + most.payload and four.payload >= plan.reserved + 4 * most.payload
    assert (one.slots, four.slots) == (1, 8)
    assert four.firings & (four.firings - 1) == 0 and four.firings >= 88


# What Yosys 0.70 (synth_ecp5) makes of such memories, built one by one on 2026-11-22.
@pytest.mark.parametrize(
    ("bits", "words", "lanes", "blocks"),
    [
        (16, 256, 16, 8),
        (16, 512, 16, 8),
        (16, 513, 16, 16),
        (16, 1024, 16, 16),
        (16, 1500, 16, 24),
        (36, 256, 16, 16),
        (36, 1024, 16, 32),
        (32, 256, 16, 16),
        (16, 1024, 1, 1),
        (38, 2048, 1, 5),
        (16, 8192, 1, 8),
        (5, 4096, 1, 2),
        (36, 32, 16, 0),
        (16, 64, 16, 8),
        (17, 64, 1, 0),
        (16, 128, 1, 1),
    ],
)
def test_blocks_are_those_of_the_tools(bits: int, words: int, lanes: int, blocks: int) -> None:
    assert Block("", bits, words, lanes).blocks(ULX3S) == blocks


def test_the_most_lanes_that_fit_come_first() -> None:
    found = fits(list_reduction(32), RULE, Formats.parse("q4.12"), ULX3S, most_keys=16, infer_keys=16)
    lanes = [fit.plan.sizes.lanes for fit in found]
    assert lanes == sorted(lanes, reverse=True) and lanes[-1] == 2
    assert all(not fit.estimate.excess(ULX3S) for fit in found)


def test_a_given_number_of_lanes_and_keys_is_kept() -> None:
    (fit,) = fits(list_reduction(32), RULE, Formats.parse("q4.12"), ULX3S, 16, 16, keys=3, lanes=8)
    assert (fit.keys, fit.plan.sizes.lanes, fit.plan.sizes.slots) == (3, 8, 6)


def test_a_refusal_says_what_is_missing_and_how_much() -> None:
    with pytest.raises(FitError) as error:
        fits(list_reduction(32), RULE, Formats.parse("q4.12"), ULX3S, 16, 16, keys=500)
    text = str(error.value)
    assert (
        "with 2 lanes and 500 keys it needs" in text
        and "block memories, " in text
        and "(ulx3s-85f has 208)" in text
    )
    assert "words of payload memory, " in text and "(addresses reach 65,536)" in text and "--keys" in text


def test_an_estimate_beyond_the_chip_by_less_than_its_error_is_no_refusal() -> None:
    graph, formats = list_reduction(32), Formats.parse("q4.12")
    (fit,) = fits(graph, RULE, formats, ULX3S, 1, 1, lanes=8)
    error = fit_logic.errors()["ffs"]

    def with_ffs(ffs: float) -> Board:
        return replace(ULX3S, resources=replace(ULX3S.resources, ffs=int(ffs)))

    nearly = with_ffs(fit.estimate.ffs / (1 + 0.9 * error))
    (left,) = fits(graph, RULE, formats, nearly, 1, 1, lanes=8)
    assert list(left.estimate.excess(nearly)) == ["ffs"]
    with pytest.raises(FitError, match="about .* flip-flops, .* too many"):
        fits(graph, RULE, formats, with_ffs(fit.estimate.ffs / (1 + 1.1 * error)), 1, 1, lanes=8)


def test_parameters_out_of_reach_are_too_many_block_memories() -> None:
    """Fewer lanes than 16 cannot address them; what the chip lacks is still told by 16."""
    model = get_model("mnist")
    graph = model.graph(resolve(model.config, model.defaults, None, ["batch=1"]).model)
    formats = Formats.parse("q4.12")
    with pytest.raises(FitError, match=r"with 16 lanes and 1 key it needs .* block memories"):
        fits(graph, SGD, formats, ULX3S, 1, 1)
    with pytest.raises(GraphError, match="node 'linear3': the parameters before its own fill 153,860 words"):
        fits(graph, SGD, formats, ULX3S, 1, 1, lanes=8)


def test_no_more_lanes_than_columns_are_tried() -> None:
    """Eight columns are a beat of eight lanes; the ten of the head need sixteen."""
    found = fits(list_reduction(8), RULE, Formats.parse("q4.12"), ULX3S, 2, 2)
    widest = max(p.columns for of in found[0].plan.stack.places.values() for p in of.values())
    assert widest == 10 and [fit.plan.sizes.lanes for fit in found] == [16, 8, 4, 2]
    assert [
        fit.plan.sizes.lanes for fit in fits(list_reduction(8), RULE, Formats(), ULX3S, 2, 2, lanes=32)
    ] == [32]


SGD = {"*": UpdateRule()}
BUILDS = json.loads((Path(fit_logic.__file__).parent / "fit_builds.json").read_text())["builds"]


@pytest.mark.parametrize("build", BUILDS, ids=lambda b: f"{b['model']}-{b['lanes']}-{b['board']}")
def test_estimates_are_near_what_was_built(build: dict[str, Any]) -> None:
    plan = plan_of(*(build[k] for k in ("model", "settings", "formats", "lanes", "keys", "board")))
    assert fit_logic.features(plan) == build["features"], "run benchmarks/rtl_estimates.py --update"
    guess = estimate(plan, board(build["board"]))
    assert guess.dsps == pytest.approx(build["dsps"], abs=2)
    assert guess.brams == pytest.approx(build["brams"], rel=0.02, abs=1)


def test_the_error_of_estimates_is_that_of_builds_left_out() -> None:
    """Not the smaller one of builds that the line goes through."""
    for name, through in fit_logic.errors(left_out=False).items():
        assert through < fit_logic.errors()[name] <= 0.15


@pytest.mark.parametrize(
    ("on", "hidden", "keys", "lanes"),
    [
        ("ulx3s-85f", 8, 16, 16),
        ("ulx3s-85f", 32, 16, 32),
        ("ulx3s-85f", 128, 1, None),
    ],
)
def test_what_fits_on_a_board_as_its_page_says(on: str, hidden: int, keys: int, lanes: int | None) -> None:
    found = fits(list_reduction(hidden), SGD, Formats.parse("q4.12"), board(on), keys, keys, keys)
    assert lanes is None or found[0].plan.sizes.lanes == lanes


ON_ULX3S = {
    "list-reduction": ("", "batch=1 optimizer=sgd"),
    "mnist": ("round=stochastic", "batch=1 width=64"),
    "tree-lstm": ("", "hidden=16 embedding=16 vocabulary=500 optimizer=sgd"),
    "ggnn": ("", "form=rows hidden=8 steps=1 optimizer=sgd"),
}
SIMULATED = {
    "list-reduction": ("", "batch=1"),
    "mnist": ("", "batch=1 width=128"),
    "tree-lstm": ("", "hidden=16 embedding=16 vocabulary=1000"),
    "ggnn": ("", "hidden=8 optimizer=momentum"),
    "bilstm": (
        "",
        "hidden=4 embedding=8 spelling=4 letter=4 perceptron=4 vocabulary=1000 optimizer=momentum",
    ),
}


def planned(name: str, settings: str) -> tuple[Graph, dict[str, UpdateRule]]:
    model = get_model(name)
    cfg = resolve(
        model.config,
        model.recommended(Capabilities("rtl", "fpga", optimizers=UPDATES)),
        None,
        settings.split(),
    )
    graph = model.graph(cfg.model)
    return graph, update_rules(cfg, graph)


def row(name: str) -> list[str]:
    """Of the page's table of models: fixed, simulated, board."""
    page = (Path(__file__).parents[3] / "docs" / "rtl.md").read_text()
    (line,) = [each for each in page.splitlines() if each.startswith(f"| `{name}` | ")]
    return line.split(" | ")[1:]


@pytest.mark.parametrize("name", ON_ULX3S)
def test_models_fit_with_the_settings_that_the_page_names(name: str) -> None:
    formats, settings = ON_ULX3S[name]
    assert settings in row(name)[2] and formats in row(name)[2]
    assert fits(*planned(name, settings), Formats.parse(formats), ULX3S, 1, 1)


@pytest.mark.parametrize("name", SIMULATED)
def test_models_can_be_planned_for_simulation_with_the_settings_that_the_page_names(name: str) -> None:
    formats, settings = SIMULATED[name]
    assert settings in row(name)[1] and formats in row(name)[1]
    plan = hardware_plan(*planned(name, settings), Formats.parse(formats), Sizes())
    assert plan.reserved < MOST_WORDS


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("ako-mnist", "'patches'"),
        ("babi15", "'div'"),
        ("bilstm", "payload memory"),
        ("language-model", "'log'"),
        ("translation", "'log'"),
        ("transformer", "'attend'"),
    ],
)
def test_models_that_the_page_says_no_board_has_room_for(name: str, lacks: str) -> None:
    settings = SIMULATED[name][1] if name in SIMULATED else "optimizer=sgd"
    assert row(name)[2].startswith("no")
    with pytest.raises(AmphwError, match=lacks):
        fits(*planned(name, settings), Formats.parse("q4.12"), ULX3S, 1, 1)


@pytest.mark.parametrize("on", ["tang-nano-9k", "icebreaker"])
def test_nothing_fits_on_the_small_boards_and_everything_that_lacks_is_named(on: str) -> None:
    (build,) = [build for build in BUILDS if build["board"] == on]
    has, room = asdict(board(on).resources), asdict(board(on).placeable)
    with pytest.raises(FitError) as error:
        fits(list_reduction(8), SGD, Formats.parse("q4.12"), board(on), 1, 1)
    names = {"luts": "look-up tables", "ffs": "flip-flops", "dsps": "multipliers", "brams": "block memories"}
    for name, called in names.items():
        said = re.search(rf"([\d,]+) {called}, ([\d,]+) too many \({on} has {has[name]:,}", str(error.value))
        assert (said is not None) == (build[name] > room[name])
        if said is not None:
            wanted, missing = (int(number.replace(",", "")) for number in said.groups())
            assert wanted == pytest.approx(build[name], rel=0.03)
            assert missing == wanted - room[name]


def test_of_some_chips_not_all_look_up_tables_can_be_placed() -> None:
    on = board("tang-nano-9k")
    taken = Estimate(luts=7_777, ffs=1, dsps=1, brams=1)
    assert taken.excess(on) == {"luts": (7_777, 7_776)}
    assert shortage(taken, on) == (
        "7,777 look-up tables, 1 too many (tang-nano-9k has 8,640, of which 7,776 can be placed)"
    )


def test_the_page_states_the_error_of_estimates() -> None:
    page = " ".join((Path(__file__).parents[3] / "docs" / "rtl-boards.md").read_text().split())
    assert f"the error was at most {max(fit_logic.errors().values()):.0%}".replace("%", " %") in page


def test_clipping_takes_logic() -> None:
    model = get_model("list-reduction")
    sizes = Sizes(lanes=4)
    found = []
    for clip in (0.0, 0.3):
        cfg = resolve(
            model.config, model.defaults, None, ["batch=1", "hidden=8", f"clip={clip}", "optimizer=sgd"]
        )
        graph = model.graph(cfg.model)
        found.append(logic(hardware_plan(graph, update_rules(cfg, graph), Formats(), sizes), ULX3S))
    assert all(found[1][name] > found[0][name] for name in ("luts", "ffs", "dsps"))
