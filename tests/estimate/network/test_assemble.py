"""What parts say, refuse, and are timed at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from amphw.engine.lowering.lower import Unit, lower
from amphw.engine.lowering.placing import place
from amphw.engine.parts.part import Part
from amphw.engine.parts.sleeper import Sleeper
from amphw.engine.parts.stand_in import NullPart
from amphw.estimate.count.refused import tilings
from amphw.estimate.count.traffic import count
from amphw.estimate.network.assemble import apart, cost_model, facts, placeable
from amphw.estimate.network.cost_model import CostModel, HostCosts
from amphw.ir.device import Capabilities, DeviceOptions, LinkRate
from amphw.ir.errors import AmphwError
from amphw.ir.graph import Graph
from amphw.ir.update import UpdateRule
from amphw.rtl.fixed.device import FixedDevice
from tests.estimate.chain import chain, rows
from tests.graphs.cases import CASES, Case, each_case

HOST = HostCosts({}, 0.0, 0.0, 0.0, {}, "stated", "by the test")
RULES = {"*": UpdateRule(interval=4)}


class Narrow(NullPart):
    """Refuses layers of more than four columns."""

    def refused(self, graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule]) -> str:
        columns = graph.nodes[unit.name].params[0].shape[1]
        return f"it has {columns} columns" if columns > 4 else ""


class Alone(NullPart):
    """Takes one node."""

    def refused_together(self, graph: Graph, units: Any, rules: Mapping[str, UpdateRule]) -> str:
        return "it has room for one" if len(units) > 1 else ""


def built(graph: Graph, parts: Mapping[str, Part], instances: Any) -> CostModel:
    nodes = placeable(graph)
    traffic = count(apart(graph, nodes), instances)
    options = DeviceOptions(4, 1, settings={})
    return cost_model(
        graph, RULES, parts, facts(parts, {}, {}), nodes, traffic, instances, HOST, options, 1, 2
    )


def about(memory: int | None = None, link: LinkRate | None = None) -> Capabilities:
    return Capabilities("part", "test", memory=memory, link=link)


def test_a_sleep_device_states_what_it_will_wait() -> None:
    """2 k din dout forward, twice that backward, din dout for an update every four rows."""
    m = built(chain([8]), {"a": Sleeper(about(), 1e6)}, rows())
    found = m.seconds["layer0", "a"]
    assert found.busy == pytest.approx((3 * 2 * 4 * 8 + 4 * 8 / 4) / 1e6)
    assert (found.origin, found.firing) == ("stated", pytest.approx(3 * 2 * 4 * 8 / 1e6))


def test_what_is_refused_is_listed_with_its_reason_and_has_no_time() -> None:
    m = built(chain([8, 2]), {"a": Narrow(about())}, rows())
    assert m.refused == {("layer0", "a"): "it has 8 columns"}
    assert m.allowed("layer0") == ["cpu"] and m.allowed("layer1") == ["a", "cpu"]


def test_a_node_larger_than_a_devices_memory_is_refused() -> None:
    m = built(chain([8, 2]), {"a": NullPart(about(memory=200))}, rows())
    assert "layer0 take 256 B of its 200 B" in m.refused["layer0", "a"]
    assert ("layer1", "a") not in m.refused


def test_nodes_that_do_not_go_together_violate_a_limit() -> None:
    m = built(chain([8, 2]), {"a": Alone(about())}, rows())
    assert not m.refused
    assert m.estimate({"layer0": "a", "layer1": "cpu"}).short == []
    assert m.estimate({"layer0": "a", "layer1": "a"}).short == [
        "a cannot have layer0, layer1 together: it has room for one"
    ]


def test_the_heuristic_keeps_memories_and_what_goes_together() -> None:
    graph = chain([8, 8, 2])
    parts = {"a": Alone(about()), "b": NullPart(about(memory=600))}
    found = place(graph, lower(graph), parts, RULES, {}, host=False)
    assert found.of["layer1"] == "a"  # the largest
    assert found.of["layer0"] == "b" and found.of["layer2"] == "b"
    assert "layer2" not in found.on("a")
    with pytest.raises(AmphwError, match="'layer1' cannot be placed on b: parameters, .* of its 600 B"):
        place(graph, lower(graph), parts, RULES, {"layer0": "b", "layer1": "b"})


def test_links_and_limits_are_of_devices_that_there_are() -> None:
    parts = {"a": NullPart(about(link=LinkRate(1e6)))}
    assert facts(parts, {}, {})["a"].link == LinkRate(1e6)
    assert facts(parts, {"a": LinkRate(2e6)}, {"a": 3})["a"].link == LinkRate(2e6)
    assert "b" not in facts(parts, {"b": LinkRate(1e6)}, {}, absent=["b"])
    for given in (({"z": LinkRate(1e6)}, {}), ({}, {"z": 1})):
        with pytest.raises(AmphwError, match="no device 'z' beside the cpu in this run; there are a"):
            facts(parts, *given)


@each_case([c for c in CASES if not c.name.startswith("written")])
def test_a_device_that_cannot_say_is_timed(case: Case) -> None:
    """Whatever a graph's nodes take: groups, rows of several spaces, integers."""
    graph, instances = case.build(), case.instances()
    m = built(graph, {"a": FixedDevice("q6.10").part()}, instances)
    assert set(m.seconds) | set(m.refused) >= {(n, "a") for n in m.nodes}
    for (node, label), found in m.seconds.items():
        if label == "a" and m.traffic.nodes[node].firings.mean:
            assert found.origin == "measured" and 0 < found.firing < 10


def test_a_node_that_never_fires_costs_nothing_and_says_so() -> None:
    case = next(c for c in CASES if c.name == "tree-leaves")
    m = built(case.build(), {"a": FixedDevice("q6.10").part()}, case.instances()[:1])
    never = [n for n in m.nodes if not m.traffic.nodes[n].firings.mean]
    assert never  # a tree of one leaf has no inner node
    for n in never:
        assert (m.seconds[n, "a"].busy, m.seconds[n, "a"].origin) == (0.0, "assumed")


def test_a_layer_that_all_refuse_is_told_its_tiles() -> None:
    graph = chain([16, 2])
    parts = {"a": Narrow(about()), "b": Narrow(about())}
    m = built(graph, parts, rows())
    (found,) = tilings(graph, RULES, parts, m.refused, m.nodes)
    assert (found.node, found.tiles, found.label) == ("layer0", 4, "a")


def test_where_tiles_do_not_help_the_reason_is_told() -> None:
    class Never(NullPart):
        def refused(self, graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule]) -> str:
            return "it is not for layers"

    parts = {"a": Never(about())}
    m = built(chain([16]), parts, rows())
    (found,) = tilings(chain([16]), RULES, parts, m.refused, m.nodes)
    assert (found.tiles, found.why) == (0, "a tile is refused, too")


def test_a_layer_that_cannot_be_cut_by_columns_is_told_why() -> None:
    case = next(c for c in CASES if c.name == "tree-all")
    graph = case.build()

    class Never(NullPart):
        def refused(self, graph: Graph, unit: Unit, rules: Mapping[str, UpdateRule]) -> str:
            return "never"

    parts = {"a": Never(about())}
    m = built(graph, parts, case.instances())
    found = {each.node: each for each in tilings(graph, RULES, parts, m.refused, m.nodes)}
    assert any("cannot be tiled" in each.why for each in found.values())
