"""A path through the hardware is named after the nodes that it works for."""

from __future__ import annotations

import re

import pytest

from amphw.ir.update import UpdateRule
from amphw.models import get_model
from amphw.models.list_reduction import ListReductionConfig
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.plan.hardware import HardwarePlan, Sizes, hardware_plan
from amphw.rtl.timing.attribution import Share, shares, signals_of_nodes


@pytest.fixture(scope="module")
def plan() -> HardwarePlan:
    graph = get_model("list-reduction").graph(ListReductionConfig(hidden=4, batch=1))
    return hardware_plan(graph, {"*": UpdateRule()}, Formats.parse("q4.12"), Sizes(lanes=2))


def test_shared_parts_name_the_nodes_that_use_them(plan: HardwarePlan) -> None:
    found = shares(
        ["design.device.lanes.products$121.sum", "design.device.vector.elements.a", "design.device.keeper.x"],
        plan,
    )
    assert found == [
        Share("lanes", ("cell", "head"), own=False),
        Share("vector", ("cell", "relu", "h0"), own=False),
        Share("keeper", ("cell", "head"), own=False),
    ]


def test_parts_that_serve_everything_name_all_nodes(plan: HardwarePlan) -> None:
    nodes = tuple(u.name for u in plan.partition.units)
    assert set(nodes) == {"cell", "relu", "h0", "head"}
    assert shares(["design.device.controller.fid", "design.device.controller.pending.memory"], plan) == [
        Share("controller", nodes, own=False)
    ]
    assert shares(["design.link.queue.memory"], plan) == [Share("link", nodes, own=False)]


def test_a_nodes_own_logic_is_named_after_it(plan: HardwarePlan) -> None:
    found = shares(["design.device.controller.of_cell$12[3]", "design.device.controller.of_head"], plan)
    assert found == [Share("controller", ("cell",), own=True), Share("controller", ("head",), own=True)]


def test_the_circuit_has_the_signals_that_are_looked_for(plan: HardwarePlan) -> None:
    pytest.importorskip("amaranth")
    from amphw.rtl.gateware.device import Device
    from amphw.rtl.toolchain.verilog import verilog

    names = set(re.findall(r"\breg (?:signed )?(?:\[\d+:0\] )?\\?(of_\w+)", verilog(Device(plan))))
    assert names and names <= set(signals_of_nodes(plan.control).values())
    own = [s for n in names for s in shares([f"design.device.controller.{n}"], plan)]
    assert all(share.own for share in own) and len({share.nodes for share in own}) > 1
