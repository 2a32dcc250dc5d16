"""What a node takes on a circuit, as the part tells before anything is built."""

from __future__ import annotations

from functools import partial

import pytest

from amphw.engine.lowering.lower import lower
from amphw.engine.lowering.placing import place
from amphw.engine.parts.costs import NodeTime, TellsTime
from amphw.ir.errors import AmphwError, DeviceAbsentError
from amphw.ir.update import UpdateRule
from amphw.models import get_model
from amphw.rtl.driver.part import HardwarePart
from amphw.rtl.driver.verilator import VerilatorDevice

RULES = {"*": UpdateRule()}


@pytest.fixture
def part() -> HardwarePart:
    try:
        return HardwarePart(partial(VerilatorDevice, "q4.12"))
    except DeviceAbsentError as error:
        pytest.skip(str(error))


def time(part: HardwarePart, hidden: int, rows: int) -> NodeTime:
    model = get_model("list-reduction")
    graph = model.graph(model.config(hidden=hidden, batch=rows))
    lowered = lower(graph)
    unit = lowered.units[lowered.by_name["cell"]]
    found = part.node_time(graph, unit, RULES, {"rows": float(rows)})
    assert found is not None
    return found


def test_wide_layers_and_many_rows_take_longer(part: HardwarePart) -> None:
    assert isinstance(part, TellsTime)
    narrow, wide, many = time(part, 16, 1), time(part, 64, 1), time(part, 16, 8)
    assert narrow.forward < wide.forward and narrow.backward < wide.backward
    assert narrow.forward < many.forward and narrow.update == many.update < wide.update
    # 80 x 64 products on 16 lanes, at 50 MHz, are the most of it.
    assert 80 * 64 / 16 / 50e6 < wide.forward < 3 * 80 * 64 / 16 / 50e6


def test_it_says_that_the_clock_is_assumed(part: HardwarePart) -> None:
    found = time(part, 16, 1)
    assert found.origin == "modelled" and "at 50 MHz (assumed" in found.how


def test_nodes_whose_parameters_do_not_fit_together_go_apart(part: HardwarePart) -> None:
    """A vocabulary of 8,000 words leaves no room for a layer that has room alone."""
    model = get_model("tree-lstm")
    graph = model.graph(model.config(sample=True, vocabulary=8000))
    lowered = lower(graph)
    units = [u for u in lowered.units if u.owns]
    assert not any(part.refused(graph, u, RULES) for u in units)
    assert "fill 152,000 words of the lanes' memory" in part.refused_together(graph, units, RULES)
    found = place(graph, lowered, {"a": part}, RULES, {}, host=False)
    assert found.of["embed"] == "a" and found.of["leaf"] == "cpu"
    assert "words of the lanes' memory" in found.refused["leaf", "a"]
    with pytest.raises(AmphwError, match="cannot be placed on a"):
        place(graph, lowered, {"a": part}, RULES, {"embed": "a", "leaf": "a"})
