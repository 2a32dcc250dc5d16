"""What a graph says of the traces of its worker, and one that is traced."""

from __future__ import annotations

import pytest

from amphw.bench.traced import Tracer, nodes_of, profile_of
from amphw.cpu_runtime.planes import built
from amphw.engine.lowering.lower import lower
from amphw.ir.device import DeviceOptions
from amphw.ir.update import UpdateRule
from amphw.models import get_model
from tests.cpu_runtime import graphs


def test_units_are_told_apart_by_their_log_and_by_whom_they_hear() -> None:
    model = get_model("ggnn")
    lowered = lower(model.graph(model.config()))
    nodes = nodes_of(lowered, {u.index: 100 for u in lowered.units if u.owns})
    assert {lowered.units[u].name for u in nodes.several} == {"update"}  # atoms, and messages to them
    assert {lowered.units[u].name for u in nodes.first} == {"embed"}


@pytest.mark.skipif(not built(), reason="needs the C++ data plane")
def test_runs_of_a_tracer_become_costs() -> None:
    rules = {name: UpdateRule(interval=64) for name in ("layer0", "layer1", "head")}
    tracer = Tracer(graphs.mlp(), rules, DeviceOptions(2, 0, "self", 0), graphs.rows(5), 2)
    for _ in range(2):
        tracer.run(0.05)
    profile = profile_of({2: tracer})
    assert len(profile.rules.intervals) == 3 and set(profile.rules.intervals.values()) == {64}
    assert set(profile.traced) == {2} and profile.costs(1, 2) == profile.traced[2]
    assert profile.traced[2].host > 0 and 0 < profile.explained
    for unit in profile.rules.intervals:
        for kind in range(2):
            assert profile.traced[2].frame[unit, kind].of(4) > 0
        assert profile.traced[2].update[unit] + profile.traced[2].reduce[unit] > 0
