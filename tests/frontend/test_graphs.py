"""Sending along edges: what updates a node may be any function, whatever else it is used for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.cpu_runtime import CpuDevice
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule

SPEC = fe.Graph({"kind": fe.Int(5)}, most_nodes=5, most_edges=8)
GRAPH = {"edges": [(0, 1), (1, 2), (2, 1), (3, 3)], "kind": [1, 2, 3, 4]}
Update = Callable[..., Any]


def passed(write: Callable[[Any, Any], Any]) -> fe.Compiled:
    """The model `write(graph, h)` of nodes that start as embeddings; its nodes are added up."""
    embed = fe.Embedding(5, 2, init="normal:0.7", name="embed")

    def model(x: Any) -> None:
        h = fe.reduce(write(x, embed(x.kind)), over=x.nodes)
        fe.loss(fe.sum_columns(h * h), h=h)

    return fe.compile(model, SPEC)


def step(x: Any, h: Any, update: Update, **more: Any) -> Any:
    return fe.message_passing(h, x, fe.Linear(2, name="message"), update, steps=2, **more)


def trained(compiled: fe.Compiled) -> tuple[float, dict[str, np.ndarray]]:
    """The loss of an instance, and the gradient of every parameter."""
    device = ReferenceDevice(dtype=np.float64)
    device.load(compiled.graph, {"*": UpdateRule()}, DeviceOptions(updates="off", seed=1))
    device.submit(0, 0, compiled.encode(GRAPH), Mode.TRAIN)
    (report,) = device.drain()
    gradients = {f"{n}.{k}": g for n, p in device.parameters().items() for k, g in p.gradients.items()}
    return report.sums["loss"]["loss"], gradients


def same(one: fe.Compiled, other: fe.Compiled) -> None:
    (loss, gradients), (expected, wanted) = trained(one), trained(other)
    assert loss == pytest.approx(expected)
    assert gradients.keys() == wanted.keys()
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, wanted[name], rtol=1e-9, atol=1e-12, err_msg=name)


def twice(x: Any, h: Any, update: Update, other: Update) -> Any:
    h = fe.message_passing(h, x, fe.Linear(2, name="first"), update, steps=2)
    return fe.message_passing(h, x, fe.Linear(2, name="second"), other, steps=1, how="mean")


def elsewhere(x: Any, h: Any, cell: Update, update: Update) -> Any:
    return step(x, cell(h, fe.constant(2, 0.5)), update) + cell(h, h)


USES = {"two passings": twice, "a passing and elsewhere": elsewhere}


@pytest.mark.parametrize("use", USES)
def test_a_layer_updates_nodes_wherever_else_it_is_used(use: str) -> None:
    def written(wrap: Callable[[fe.GRU], Update]) -> fe.Compiled:
        cell = fe.GRU(2, name="cell")
        first = cell if use == "a passing and elsewhere" else wrap(cell)
        return passed(lambda x, h: USES[use](x, h, first, wrap(cell)))

    compiled = written(lambda cell: cell)
    assert {place.file for place in compiled.places.values()} == {__file__}
    assert compiled.places.keys() >= compiled.graph.nodes.keys()
    same(compiled, written(lambda cell: lambda h, m: cell(h, m)))
    device = CpuDevice()
    try:
        device.load(
            compiled.graph,
            {"*": UpdateRule()},
            DeviceOptions(updates="off", seed=1, settings={"workers": 1}),
        )
        device.submit(0, 0, compiled.encode(GRAPH), Mode.TRAIN)
        (report,) = device.drain()
    finally:
        device.close()
    assert report.sums["loss"]["loss"] == pytest.approx(trained(compiled)[0], rel=1e-5)


def test_a_layer_that_only_updates_nodes_is_one_node_with_what_gathers() -> None:
    cell = fe.GRU(2, name="cell")
    graph = passed(lambda x, h: step(x, h, cell)).graph
    assert graph.nodes["cell"].family == "Group"
    assert not [name for name in graph.nodes if "receive" in name]


class Halved(fe.Layer):
    """A layer with a way of its own to be called."""

    def __call__(self, *operands: Any) -> Any:
        return super().__call__(*operands) * 0.5


def halved() -> fe.Layer:
    return Halved(lambda p, h, m: fe.tanh((h + m) @ p.W), lambda h, m: {"W": (h, 2)}, name="cell")


def pair() -> fe.Layer:
    return fe.Layer(lambda p, h, m: [(h + m) @ p.W, h], lambda h, m: {"W": (h, 2)}, name="cell")


@pytest.mark.parametrize("make", (halved, lambda: fe.LSTM(1, name="cell")))
@pytest.mark.parametrize("form", ("messages", "rows"))
def test_a_layer_with_a_call_of_its_own_updates_nodes(make: Callable[[], fe.Layer], form: str) -> None:
    def written(wrap: Callable[[Any], Update]) -> fe.Compiled:
        cell = make()
        return passed(lambda x, h: step(x, h, wrap(cell), form=form))

    same(written(lambda cell: cell), written(lambda cell: lambda h, m: cell(h, m)))


def test_an_update_of_several_values_is_refused() -> None:
    with pytest.raises(fe.FrontendError, match=r"a loop begins with widths 2, and its body returns \(2, 2\)"):
        passed(lambda x, h: step(x, h, pair()))


def test_dropout_in_a_layer_that_updates_nodes() -> None:
    """Each node has a mask of its own, in every step, and every device the same."""
    drop = fe.Layer(
        lambda p, h, m: fe.dropout(h + 0.0 * m, 0.5) @ p.W,
        lambda h, m: {"W": fe.parameter((2, 2), np.eye(2))},
        name="drop",
    )
    edgeless = {"edges": [], "kind": [0] * 5}
    start = fe.Embedding(5, 2, init=np.ones((5, 2)), name="start")

    def model(x: Any) -> None:
        h = fe.message_passing(start(x.kind), x, lambda h: h, drop, steps=2)
        fe.loss(fe.sum_columns(h), per_node=h)

    compiled = fe.compile(model, SPEC)
    losses = []
    for device in (ReferenceDevice(), CpuDevice()):
        settings = {"workers": 1} if isinstance(device, CpuDevice) else {}
        device.load(
            compiled.graph, {"*": UpdateRule()}, DeviceOptions(updates="off", seed=1, settings=settings)
        )
        for number in range(20):
            device.submit(0, 0, compiled.encode(edgeless, number), Mode.TRAIN)
            (report,) = device.drain()
            losses.append(report.sums["loss"]["loss"])
        if isinstance(device, CpuDevice):
            device.close()
    reference, cpu = losses[:20], losses[20:]
    assert reference == pytest.approx(cpu)
    # Of 10 numbers a node keeps each with probability 1/4, and then it is 4.
    assert len(set(reference)) > 3 and all(loss % 4 == 0 for loss in reference)
    assert 5 < np.mean(reference) < 15


@pytest.mark.parametrize("form", ("messages", "rows"))
def test_a_module_of_pytorch_updates_nodes(form: str) -> None:
    nn = pytest.importorskip("torch.nn")

    def written(wrap: Callable[[Any], Update]) -> fe.Compiled:
        cell = fe.from_torch(module, name="cell")
        return passed(lambda x, h: step(x, h, wrap(cell), form=form))

    module = nn.GRUCell(2, 2)
    same(written(lambda cell: cell), written(lambda cell: lambda h, m: cell(h, m)))
