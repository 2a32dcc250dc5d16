"""Operations and bytes of nodes whose numbers are known."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.cpu_runtime import planes
from amphw.engine.lowering.lower import lower
from amphw.estimate.count.traffic import count
from amphw.estimate.count.work import NodeWork, work_of
from amphw.host.devices import make_device
from amphw.ir.flops import backward_operations, operations, products
from amphw.ir.functions import linear, sum_cols, tanh
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance, Schema
from amphw.ir.nodes import PPT, Loss, Source
from amphw.ir.program import ParamSpec, trace
from amphw.ir.update import UpdateRule
from amphw.mixed.device import MixedDevice
from tests.conformance.harness import run
from tests.conformance.test_mixed import computing
from tests.graphs.cases import CASES


def two_layers() -> Graph:
    """5 -> 7 -> 3, three rows an instance."""
    g = Graph("two", Schema(data={"x": 5}))
    g.add(Source("x", width=5, data="x"))
    for name, inner, outer in (("first", 5, 7), ("second", 7, 3)):
        params = {"W": (inner, outer), "b": ParamSpec("b", (outer,), "zeros")}
        g.add(PPT(name, trace(lambda p, x: tanh(linear(x, p.W, p.b)), {"x": inner}, params)))
    g.add(Loss("loss", trace(lambda y: sum_cols(y * y), {"y": 3})))
    g.connect("x", "first", "second", "loss")
    return g


def work(node: str, rule: UpdateRule) -> NodeWork:
    graph = two_layers()
    lowered = lower(graph)
    traffic = count(lowered, [Instance(data={"x": np.zeros((1, 5), np.float32)})])
    return work_of(graph, lowered.units[lowered.by_name[node]], traffic.nodes[node], rule)


def test_all_operations_count_and_moves_do_not() -> None:
    program = trace(lambda p, x: tanh(linear(x, p.W, p.b)), {"x": 5}, {"W": (5, 7), "b": (7,)})
    assert products(program) == {"rows": 2 * 5 * 7}
    assert operations(program) == {"rows": 2 * 5 * 7 + 7 + 7}  # the bias, and tanh


def test_backward_is_two_products_but_where_nobody_wants_the_gradient_of_the_input() -> None:
    lowered = lower(two_layers())
    first, second = (lowered.units[lowered.by_name[n]].derivative for n in ("first", "second"))
    assert first is not None and second is not None
    # dy (1 - y y) takes four a column, the bias's gradient one.
    assert backward_operations(first)["rows"] == 2 * 5 * 7 + 7 * 5
    assert backward_operations(second)["rows"] == 2 * 2 * 7 * 3 + 3 * 5


def test_parameters_with_gradients_and_the_optimisers_arrays() -> None:
    numbers = 5 * 7 + 7
    assert work("first", UpdateRule()).parameters == 4 * numbers
    for optimizer, arrays in (("sgd", 2), ("momentum", 3), ("adagrad", 3), ("adam", 4)):
        assert work("first", UpdateRule(optimizer=optimizer)).held == 4 * numbers * arrays


def test_updates_come_once_in_an_interval_of_rows() -> None:
    often, seldom = (work("first", UpdateRule(interval=n)) for n in (1, 10))
    assert (often.updates, seldom.updates) == (1.0, 0.1)
    assert often.update == pytest.approx(10 * seldom.update) and seldom.update > 0


def test_pairs_of_rows_are_counted_firing_by_firing() -> None:
    """Of 2 and 5 positions that look at one another in one message, and each in its own at 3 others."""
    head = fe.Linear(1)

    def model(x: Any) -> None:
        own = fe.attention(x.xs.item, x.xs.item, x.xs.item, over=x.xs)
        others = fe.attention(own, x.ys.item, x.ys.item, over=x.ys)
        fe.regress(head(fe.reduce(others, over=x.xs)), x.target)

    three = fe.Floats(3)
    spec = fe.Record(xs=fe.Sequence(three, most=5), ys=fe.Sequence(three, most=3), target=fe.Floats(1))
    compiled = fe.compile(model, spec)
    plain = [
        {
            "xs": np.ones((n, 3), np.float32),
            "ys": np.ones((3, 3), np.float32),
            "target": np.ones(1, np.float32),
        }
        for n in (2, 5)
    ]
    lowered = lower(compiled.graph)
    traffic = count(lowered, [compiled.encode(each) for each in plain])
    found = {}
    for name, rate in traffic.nodes.items():
        unit = lowered.units[lowered.by_name[name]]
        if rate.pairs:
            (pairs, *_) = rate.pairs
            ahead = work_of(compiled.graph, unit, rate, UpdateRule()).row_flops[pairs][0]
            found[pairs] = rate.pairs[pairs].mean, ahead
    assert found["rows*rows"] == ((2 * 2 + 5 * 5) / 2, 2 * (3 + 3))
    assert found["one*rows"] == ((2 + 5) / 2 * 3, 2 * (3 + 3))


def test_what_crosses_to_a_device_and_back() -> None:
    """Forward an input and its result, backward a gradient of each that is wanted; and which firing it is."""
    which = 2 * 8
    assert work("first", UpdateRule()).to_device == 4 * (5 + 7) + which
    assert work("first", UpdateRule()).from_device == 4 * 7 + which  # nobody wants the gradient of the data
    assert work("second", UpdateRule()).from_device == 4 * (3 + 7) + which


@pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")
@pytest.mark.parametrize(
    "name", ["tree-leaves", "message-passing", "look-up", "decide", "fe-batch", "fe-film"]
)
def test_a_run_sends_the_bytes_that_are_estimated(name: str) -> None:
    """Of nodes with integer operands, decided fields and several firings, too."""
    case = next(c for c in CASES if c.name == name)
    graph, instances = case.build(), case.instances()
    device = make_device("cpu,one=sleep:1PFLOPS")
    assert isinstance(device, MixedDevice)
    run(device, graph, instances, place=dict.fromkeys(computing(graph), "one"), links="one=1Tb/s")
    on, lowered = device.placing.on("one"), device.lowered
    device.close()
    (use,) = json.loads(device.findings().files["links.json"]).values()
    traffic = count(lowered, instances)
    found = [
        work_of(graph, lowered.units[lowered.by_name[n]], traffic.nodes[n], UpdateRule()) for n in sorted(on)
    ]
    assert use["bytes_to"] == pytest.approx(len(instances) * sum(w.to_device for w in found))
    assert use["bytes_back"] == pytest.approx(len(instances) * sum(w.from_device for w in found))
