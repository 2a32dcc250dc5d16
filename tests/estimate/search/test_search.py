"""The search beside the heuristic, on random chains of layers."""

from __future__ import annotations

import itertools
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amphw.estimate.network.cost_model import CostModel, DeviceFacts
from amphw.estimate.search import placements as searching
from amphw.estimate.search.placements import search
from amphw.ir.device import LinkRate
from tests.estimate.chain import model


@st.composite
def models(draw: st.DrawFn) -> CostModel:
    """Up to six layers and three devices, some of which refuse, have little memory, or a slow link."""
    widths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=6))
    labels = ["a", "b", "c"][: draw(st.integers(1, 3))]
    times = st.floats(1e-4, 1e-2)
    seconds = {}
    for k in range(len(widths)):
        seconds[f"layer{k}", "cpu"] = draw(times)
        for label in labels:
            if draw(st.integers(0, 3)):
                seconds[f"layer{k}", label] = draw(times)
    devices = [
        DeviceFacts(
            label,
            label,
            memory=draw(st.none() | st.integers(0, 4000)),
            most_nodes=draw(st.none() | st.integers(0, 3)),
            link=draw(st.none() | st.builds(LinkRate, st.floats(1e4, 1e7), st.floats(0, 1e-3))),
        )
        for label in labels
    ]
    return model(seconds, devices, widths, draw(st.floats(0, 1e-3)), keys=4)


def turns(m: CostModel) -> dict[str, str]:
    """Nodes by turns over the devices that do not refuse them, as the heuristic does."""
    out = {}
    for turn, n in enumerate(m.nodes):
        allowed = m.allowed(n)
        out[n] = allowed[turn % len(allowed)]
    return out


@settings(max_examples=60)
@given(models(), st.booleans())
def test_the_search_is_never_worse_and_keeps_the_limits(m: CostModel, few: bool) -> None:
    start = m.estimate(turns(m))
    with patch.object(searching, "FEW", searching.FEW if few else 0):
        found = search(m, start.placement, {})
        again = search(m, start.placement, {})
    assert found.rank >= start.rank and found.rank >= m.on_host().rank
    assert not found.short  # everything on the host violates nothing
    assert all(found.placement[n] in m.allowed(n) for n in m.nodes)
    assert found == again


@settings(max_examples=30)
@given(models(), st.integers(0, 5))
def test_what_is_fixed_stays(m: CostModel, which: int) -> None:
    node = m.nodes[which % len(m.nodes)]
    for label in m.allowed(node):
        assert search(m, turns(m), {node: label}).placement[node] == label


@settings(max_examples=30)
@given(models())
def test_few_placements_are_all_tried(m: CostModel) -> None:
    nodes = list(m.nodes)[:3]
    fixed = {n: "cpu" for n in m.nodes if n not in nodes}
    each = itertools.product(*(m.allowed(n) for n in nodes))
    best = max(m.estimate({**fixed, **dict(zip(nodes, labels, strict=True))}).rank for labels in each)
    assert search(m, turns(m), fixed).rank == best


def test_the_large_layer_goes_to_the_fast_device() -> None:
    """The heuristic begins with the first device, which is the slow one."""
    times = {("layer0", "cpu"): 0.1, ("layer0", "slow"): 0.05, ("layer0", "fast"): 0.01}
    m = model(times, [DeviceFacts("slow", "slow"), DeviceFacts("fast", "fast")], [8])
    found = search(m, {"layer0": "slow"}, {})
    assert found.placement == {"layer0": "fast"}
    assert found.throughput == pytest.approx(100)
