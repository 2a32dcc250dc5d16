"""A conformance failure names the node, the direction, the state and the values where it begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import amphw.cpu_runtime.device
import amphw.engine.lowering.lower
import tests.conformance.compare
from amphw.cpu_runtime import CpuDevice
from amphw.ir.derive import Derivative, differentiate
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance, Schema
from amphw.ir.nodes import NPT, PPT, Loss, Source
from amphw.ir.program import ParamSpec, Program, trace
from amphw.ir.update import initial_parameters
from tests.conformance.compare import first_difference
from tests.conformance.harness import assert_same, reference, run
from tests.graphs import rnn
from tests.graphs.cases import Case, each_case

pytestmark = pytest.mark.usefixtures("plane")


def sequences(count: int) -> list[Instance]:
    rng = np.random.default_rng(0)
    found = [rnn.instance(rng, length=3, batch=2) for _ in range(count)]
    for number, instance in enumerate(found):
        instance.number = number
    return found


def failure(graph: Graph, instances: list[Instance], **settings: Any) -> str:
    """What the harness says of a device that computes something else."""
    expected = reference(graph, instances)
    device = CpuDevice()
    with pytest.raises(pytest.fail.Exception) as caught:
        assert_same(run(device, graph, instances, workers=2, **settings), expected)
    device.close()
    return str(caught.value)


def damage(monkeypatch: pytest.MonkeyPatch, node: str, name: str) -> None:
    """One weight of the CPU device is not what it should be; the reference's is."""

    def wrong(*arguments: Any) -> Any:
        made = initial_parameters(*arguments)
        made[node].values[name].flat[0] += 0.25
        return made

    monkeypatch.setattr(amphw.cpu_runtime.device, "initial_parameters", wrong)


def test_a_wrong_weight_is_found_where_it_is_first_used(monkeypatch: pytest.MonkeyPatch) -> None:
    damage(monkeypatch, "cell1", "W")
    text = failure(rnn.build(), sequences(4))
    assert re.match(r"instance \d: loss [\d.]+ instead of [\d.]+\n", text)
    # Step 0 is cell0's; cell1 comes in at t = 1.
    numbers = r"-?[\d.e-]+, the reference has -?[\d.e-]+"
    where = r"node 'cell1', forward, state \(t=1.*\), output 0, row \d, column 0: "
    assert re.search(rf"\ninstance \d: {where}{numbers}$", text), text


def chain() -> Graph:
    """x - scale (owns a weight) - double - loss."""
    g = Graph("chain", Schema(data={"x": 1}))
    g.add(Source("x", width=1, data="x"))
    g.add(PPT("scale", trace(lambda p, x: x @ p.W, {"x": 1}, {"W": ParamSpec("W", (1, 1), "identity")})))
    g.add(NPT("double", trace(lambda y: y * 2.0, {"y": 1})))
    g.add(Loss("loss", trace(lambda y: y * y, {"y": 1})))
    g.connect("x", "scale", "double", "loss")
    return g


def test_a_wrong_derivative_is_found_on_the_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """`double` returns three times the gradient; what went forward is right."""
    triple = differentiate(trace(lambda y: y * 3.0, {"y": 1}))

    def wrong(program: Program, wanted: Sequence[int] | None = None) -> Derivative:
        made = differentiate(program, wanted)
        doubles = [t.width for _, t in program.inputs] == [1] and [i.op for i in program.instrs] == ["scale"]
        return replace(made, backward=triple.backward) if doubles else made

    monkeypatch.setattr(amphw.engine.lowering.lower, "differentiate", wrong)
    text = failure(chain(), [Instance(data={"x": np.full((1, 1), 0.5, np.float32)}, number=7)], fuse=False)
    assert text == (
        "gradient of scale.W: off by 0.5\n"
        "instance 7: node 'double', backward, state (), gradient of operand 'y', row 0, column 0: "
        "6, the reference has 4"
    )


def test_a_firing_that_only_one_of_the_two_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two units in the other's place: what does not run is named too."""
    graph = chain()
    instance = Instance(data={"x": np.ones((1, 1), np.float32)})
    monkeypatch.setattr(tests.conformance.compare, "_of_device", lambda device, instance: {})
    text = str(first_difference(CpuDevice(), graph, instance))
    assert text == "instance 0: node 'scale', forward, state (): does not run, the reference has a firing"


@each_case()
@pytest.mark.parametrize("fuse", [True, False])
def test_nothing_differs_where_nothing_is_wrong(case: Case, fuse: bool) -> None:
    device = CpuDevice()
    for instance in case.instances(seed=2)[:4]:
        settings = {"fuse": fuse, "workers": 2}
        assert first_difference(device, case.build(), instance, seed=3, settings=settings) is None
