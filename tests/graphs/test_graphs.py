"""The conformance graphs on the reference executor: types, gradients, order independence, conservation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from amphw.ir.check import infer
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import InstanceError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from tests.graphs import decide, message_passing, rnn, tree
from tests.graphs.cases import CASES, Case, each_case

ORDERS = ("fifo", "lifo", "random")
STEP = 1e-5  # of the central differences; their error is about STEP**2
TOLERANCE = 1e-5  # relative
ENTRIES = 4  # of every parameter that are compared with differences

each = each_case()


def open_device(graph: Graph, order: str = "fifo") -> ReferenceDevice:
    device = ReferenceDevice(order, np.float64)
    device.load(graph, {"*": UpdateRule()}, DeviceOptions(updates="off", seed=3))
    return device


def run(device: ReferenceDevice, instances: Sequence[Instance], mode: Mode = Mode.TRAIN) -> dict[int, float]:
    """All instances in flight at once -> the loss of each, by number."""
    for slot, instance in enumerate(instances):
        device.submit(slot, 0, instance, mode)
    reports = device.drain()
    return {r.number: sum(sums["loss"] for sums in r.sums.values()) for r in reports}


def gradients(device: ReferenceDevice) -> dict[str, np.ndarray]:
    return {f"{n}.{k}": g for n, p in device.parameters().items() for k, g in p.gradients.items()}


def by_differences(
    device: ReferenceDevice, instances: Sequence[Instance], at: tuple[str, str, tuple[int, ...]]
) -> float:
    """Central difference of the total loss with respect to one entry of a parameter."""
    node, name, entry = at
    parameters = device.parameters()[node]
    kept = parameters.values[name]
    total = []
    for step in (STEP, -STEP):
        moved = kept.copy()
        moved[entry] += step
        parameters.values[name] = moved
        total.append(sum(run(device, instances).values()))
    parameters.values[name] = kept
    return (total[0] - total[1]) / (2 * STEP)


@each
def test_every_edge_has_a_type(case: Case) -> None:
    graph = case.build()
    typed = infer(graph)
    assert set(typed.edges) == set(graph.edges)
    assert "?" not in [line.split()[-1] for line in str(typed).splitlines()]


@each
def test_gradients_agree_with_central_differences(case: Case) -> None:
    instances = case.instances()
    device = open_device(case.build())
    run(device, instances)
    analytic = {k: g.copy() for k, g in gradients(device).items()}
    rng = np.random.default_rng(1)
    for key, g in analytic.items():
        node, name = key.split(".")
        assert np.abs(g).max() > 0, f"{key} gets no gradient, so the comparison would say nothing"
        largest = np.argsort(-np.abs(g), axis=None)[:2]
        some = {int(i) for i in (*largest, *rng.integers(0, g.size, ENTRIES - 2))}
        for flat in sorted(some):
            entry = tuple(int(i) for i in np.unravel_index(flat, g.shape))
            expected = by_differences(device, instances, (node, name, entry))
            assert g[entry] == pytest.approx(expected, rel=TOLERANCE, abs=1e-9), f"{key}[{entry}]"


@each
def test_every_order_gives_the_same_losses_and_gradients(case: Case) -> None:
    instances = case.instances()
    expected: tuple[dict[int, float], dict[str, np.ndarray]] | None = None
    for order in ORDERS:
        device = open_device(case.build(), order)
        losses = run(device, instances)
        assert sorted(losses) == list(range(len(instances)))
        if expected is None:
            expected = losses, gradients(device)
        assert losses == pytest.approx(expected[0], rel=1e-12)
        for key, g in gradients(device).items():
            np.testing.assert_allclose(g, expected[1][key], rtol=1e-9, atol=1e-12, err_msg=f"{order}: {key}")


@each
@pytest.mark.parametrize("order", ORDERS)
def test_every_message_comes_back_through_its_port(case: Case, order: str) -> None:
    device = open_device(case.build(), order)
    run(device, case.instances(seed=2))
    counts = device.statistics()
    assert counts.forward == counts.backward > 0
    assert device.sent == device.returned
    assert set(device.sent) == set(infer(device.graph).edges), "an edge that no message ever took"
    assert not device.pending and not device.fired and not device.emitted and not device.active


@each
def test_inference_sends_nothing_back_and_keeps_nothing(case: Case) -> None:
    device = open_device(case.build(), "random")
    losses = run(device, case.instances(), Mode.INFER)
    assert len(losses) == len(case.instances())
    assert device.statistics().backward == 0
    assert not device.fired and not device.emitted
    assert all(not g.any() for g in gradients(device).values())


@each
def test_an_instance_alone_gives_what_it_gives_in_company(case: Case) -> None:
    instances = case.instances()
    device = open_device(case.build(), "random")
    together = run(device, instances)
    summed = {k: g.copy() for k, g in gradients(device).items()}
    alone = open_device(case.build())
    for instance in instances:
        assert run(alone, [instance]) == pytest.approx(
            {instance.number: together[instance.number]}, rel=1e-12
        )
    for key, g in gradients(alone).items():
        np.testing.assert_allclose(g, summed[key], rtol=1e-9, atol=1e-12, err_msg=key)


# --- what is particular to one graph ------------------------------------------------------------


def test_both_ways_of_message_passing_give_the_same_gradients() -> None:
    rng = np.random.default_rng(5)
    case = next(c for c in CASES if c.name == "message-passing")
    instances = [*case.instances(), *(message_passing.instance(rng, n) for n in (4, 8, 12))]
    for number, instance in enumerate(instances):
        instance.number = number
    sparse, dense = open_device(message_passing.build()), open_device(message_passing.build_dense())
    assert run(sparse, instances) == pytest.approx(run(dense, instances), rel=1e-12)
    expected = gradients(dense)
    assert set(gradients(sparse)) == set(expected)
    for key, g in gradients(sparse).items():
        np.testing.assert_allclose(g, expected[key], rtol=1e-9, atol=1e-12, err_msg=key)


def test_rows_of_a_batch_are_independent_sequences() -> None:
    rng = np.random.default_rng(6)
    batch = rnn.instance(rng, length=4, batch=3)
    device = open_device(rnn.build(rate=0.0))
    total = run(device, [batch])[0]
    apart = 0.0
    for row in range(3):
        tables = {n: t[..., row : row + 1] for n, t in batch.tables.items()}
        apart += run(device, [Instance({"length": 4, "batch": 1}, tables)])[0]
    assert total == pytest.approx(apart, rel=1e-12)


def test_both_replicas_are_used() -> None:
    device = open_device(rnn.build(replicas="alternate"))
    run(device, [rnn.instance(np.random.default_rng(0), length=5)])
    assert device.sent[("replicate", "out0")] == 3
    assert device.sent[("replicate", "out1")] == 2


def test_a_tree_sends_one_loss_for_every_node() -> None:
    device = open_device(tree.build())
    instance = tree.instance(np.random.default_rng(0), leaves=7)
    device.submit(0, 0, instance, Mode.TRAIN)
    (report,) = device.drain()
    assert report.rows == {"loss": 13}


def test_a_caterpillar_is_as_deep_as_it_has_leaves() -> None:
    instance = tree.instance(np.random.default_rng(0), leaves=10, shape="caterpillar")
    depth = []
    for leaf in np.flatnonzero(instance.tables["is_leaf"]):
        node, steps = int(leaf), 0
        while node != instance.attrs["root"]:
            node, steps = int(instance.tables["parent"][node]), steps + 1
        depth.append(steps)
    assert sorted(depth) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 9]


def test_a_tree_that_breaks_its_axiom_is_refused() -> None:
    instance = tree.instance(np.random.default_rng(0), leaves=4)
    below = int(instance.tables["child"][instance.attrs["root"], 0])
    instance.tables["side"][below] = 1 - instance.tables["side"][below]
    with pytest.raises(InstanceError, match="axiom 'child inverse_of parent, side' fails"):
        open_device(tree.build()).submit(0, 0, instance, Mode.TRAIN)


def test_the_gate_sends_rows_to_both_experts() -> None:
    device = open_device(decide.build())
    run(device, [decide.instance(np.random.default_rng(0), batch=8)])
    first, second = (device.sent.get(("expert?", p), 0) for p in ("first", "second"))
    assert first + second == 8 and first and second
