"""What is measured of the host has the form that estimates need; how long things take is nobody's promise."""

from __future__ import annotations

import pytest

from amphw.cpu_runtime import planes
from amphw.estimate.network.host_costs import host_costs
from amphw.ir.device import DeviceOptions
from amphw.ir.update import UpdateRule
from tests.graphs.cases import CASES

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")


def test_every_node_has_its_share_and_frames_their_price() -> None:
    case = next(c for c in CASES if c.name == "tree-leaves")
    graph, instances = case.build(), case.instances()
    nodes = graph.parameterised
    options = DeviceOptions(4, 1)
    found = host_costs(
        graph, {"*": UpdateRule()}, options, instances, nodes, dict.fromkeys(nodes, 1.0), seconds=0.1
    )
    assert set(nodes) <= set(found.nodes) and all(s > 0 for s in found.nodes.values())
    assert found.pumping > 0 and found.beginning >= 0 and found.handing >= 0
    assert set(found.firings) == set(nodes) and all(f >= 1 for f in found.firings.values())
    assert found.origin == "measured"
