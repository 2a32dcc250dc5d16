"""Messages counted in plans, beside what devices count while they run the same instances."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.engine.lowering.lower import lower
from amphw.estimate.count.traffic import PLANNED, REFERENCE, Spread, count
from amphw.estimate.network.assemble import apart
from amphw.ir.errors import AmphwError
from amphw.ir.instance import Instance
from amphw.models import get_model
from tests.conformance.harness import run
from tests.estimate.chain import chain, rows
from tests.graphs.cases import CASES, Case, each_case


@each_case()
def test_messages_are_those_that_a_device_counts(case: Case) -> None:
    """Also where nodes decide: the device begins with the same parameters, and updates none."""
    graph, instances = case.build(), case.instances()
    found = count(lower(graph), instances)
    device = CpuDevice()
    ran = run(device, graph, instances, seed=0, fuse=False)
    device.close()
    assert sum(w.messages for w in found.walks) == ran.forward
    assert found.messages.mean * len(instances) == pytest.approx(ran.forward)
    decides = any(u.decisions > 1 for u in found.lowered.units)
    assert found.origin == (REFERENCE if decides else PLANNED)


@pytest.mark.parametrize("name", ["list-reduction", "tree-lstm", "ggnn"])
def test_messages_of_the_papers_models(name: str) -> None:
    model = get_model(name)
    cfg = model.config(**({} if name == "list-reduction" else {"sample": True}), hidden=8)
    model.prepare(cfg, 0)
    data = model.training(cfg, 0, 1)
    instances = [data[i] for i in range(4)]
    for number, instance in enumerate(instances):
        instance.number = number
    graph = model.graph(cfg)
    found = count(apart(graph, graph.parameterised), instances)
    device = CpuDevice()
    ran = run(device, found.lowered.graph, instances, fuse=False)
    device.close()
    assert sum(w.messages for w in found.walks) == ran.forward
    assert found.messages.least < found.messages.most  # sequences, trees and molecules differ
    assert sum(e.messages.mean for e in found.edges) == pytest.approx(found.messages.mean)


def test_a_recurrent_layer_takes_what_its_sequences_are_long() -> None:
    model = get_model("list-reduction")
    cfg = model.config(hidden=8, batch=5)
    data = model.training(cfg, 0, 1)
    instances = [data[i] for i in range(6)]
    graph = model.graph(cfg)
    found = count(apart(graph, graph.parameterised), instances)
    lengths = [i.attr("T") if "T" in i.attrs else next(iter(i.attrs.values())) for i in instances]
    cell = found.nodes["cell"]
    assert cell.rows["rows"].mean == 5 * cell.firings.mean
    assert (cell.firings.least, cell.firings.most) == (min(lengths), max(lengths))
    back = next(e for e in found.edges if e.target == "cell" and e.source != "h0" and e.bytes.mean)
    assert back.bytes.most == back.messages.most * 5 * 8 * 4  # rows, units, bytes


def test_gradients_come_back_to_whom_has_parameters_upstream() -> None:
    found = count(lower(chain([8, 2])), rows())
    assert {e.target: e.returned for e in found.edges} == {"layer0": False, "layer1": True, "loss": True}
    assert {e.target: e.bytes.mean for e in found.edges} == {"layer0": 16.0, "layer1": 32.0, "loss": 8.0}


def test_the_longest_chain_takes_its_firings_and_what_lies_between_them() -> None:
    found = count(lower(chain([8, 2])), rows())
    at = found.lowered.by_name
    spent = [0.0] * len(at)
    spent[at["layer0"]], spent[at["layer1"]] = 1.0, 2.0
    (walked,) = found.walks
    assert walked.longest(spent) == 3.0
    between = {(at["layer0"], at["layer1"]): 10.0}
    assert walked.longest(spent, lambda source, target: between.get((source, target), 0.0)) == 13.0


def test_without_instances_there_is_nothing_to_count() -> None:
    with pytest.raises(AmphwError, match="counted on instances, and there are none"):
        count(lower(CASES[0].build()), [])


def test_a_spread_has_mean_and_most() -> None:
    assert Spread.of([1, 2, 6]) == Spread(3.0, 1.0, 2.0, 5.6, 6.0)  # 5.6: nine tenths of the way from 2 to 6


def test_the_same_instances_give_the_same_counts() -> None:
    graph, instances = CASES[0].build(), CASES[0].instances()
    first, second = (count(lower(graph), instances) for _ in range(2))
    assert first.nodes == second.nodes and first.edges == second.edges
    assert isinstance(instances[0], Instance) and np.isfinite(first.messages.mean)
