"""The numpy plane computes with any arithmetic: here with whole numbers on a fine grid, see grid.py."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from tests.conformance.harness import GRADIENT_TOLERANCE, assert_same, reference, run
from tests.cpu_runtime.graphs import mlp, rows
from tests.engine.numpy_plane.grid import LIMIT, GridDevice
from tests.graphs.cases import CASES, Case

# Gradients of several routes, groups, decisions whose rows are sent one by one, and a label from a source.
CHOSEN = [c for c in CASES if c.name in ("rnn-alternate", "message-passing", "decide", "fe-weighted")]
each = pytest.mark.parametrize("case", CHOSEN, ids=lambda c: c.name)
RULE = UpdateRule(interval=7, lr=0.05)


@pytest.fixture
def device() -> Iterator[GridDevice]:
    made = GridDevice()
    yield made
    made.close()


def drawn(case: Case) -> list[Instance]:
    instances = [i for seed in range(6) for i in case.instances(seed)]
    for number, instance in enumerate(instances):
        instance.number = number
    return instances


@each
def test_losses_and_gradients_are_those_of_the_reference(case: Case, device: GridDevice) -> None:
    graph, instances = case.build(), drawn(case)
    found = run(device, graph, instances, frame_cap=5)
    assert found.forward == found.backward > 0
    assert_same(found, reference(graph, instances))


@each
def test_inference_gives_the_reference_losses(case: Case, device: GridDevice) -> None:
    graph, instances = case.build(), drawn(case)
    found = run(device, graph, instances, mode=Mode.INFER)
    expected = reference(graph, instances, mode=Mode.INFER)
    assert found.losses == pytest.approx(expected.losses, rel=1e-5, abs=1e-6)


@each
def test_an_update_after_each_instance_trains_like_the_reference(case: Case, device: GridDevice) -> None:
    graph, instances, expected = case.build(), drawn(case), ReferenceDevice("fifo", np.float64)
    for one in (device, expected):
        one.load(graph, {"*": RULE}, DeviceOptions(1, 0, "controller", 3))
        for instance in instances:
            one.submit(0, 0, instance, Mode.TRAIN)
            one.drain()
            one.update()
    found = device.parameters()
    for node, params in expected.parameters().items():
        assert found[node].version == params.version > 0
        for name, value in params.values.items():
            np.testing.assert_allclose(found[node].values[name], value, rtol=1e-4, atol=1e-5, err_msg=node)


@each
def test_a_replayed_log_gives_the_same_bits(case: Case, device: GridDevice) -> None:
    graph, instances = case.build(), drawn(case)
    first = run(device, graph, instances, updates="self", rule=RULE, log=True, frame_cap=5)
    again = GridDevice(replay=device.log)
    second = run(again, graph, instances, updates="self", rule=RULE)
    again.close()
    assert first.losses == second.losses
    for name, value in first.parameters.items():
        np.testing.assert_array_equal(value, second.parameters[name], err_msg=name)


def test_a_label_from_a_source_need_not_be_a_payload(device: GridDevice) -> None:
    case = next(c for c in CHOSEN if c.name == "fe-weighted")
    graph, instances = case.build(), drawn(case)
    for instance in instances:
        instance.data["y"] = instance.data["y"] + np.float32(10 * LIMIT)
    assert_same(run(device, graph, instances), reference(graph, instances))


# --- what the host reads and writes ---------------------------------------------------------------


def loaded(device: GridDevice, graph: Graph, updates: str = "self") -> GridDevice:
    device.load(graph, {"*": RULE}, DeviceOptions(4, 4, updates, 3))
    return device


def train(device: GridDevice, instances: list[Instance]) -> None:
    """One at a time, so that runs can be compared bit by bit."""
    for instance in instances:
        device.submit(0, 0, instance, Mode.TRAIN)
        device.drain()


def masters(device: GridDevice) -> dict[str, np.ndarray]:
    return {
        f"{held.node}.{name}": m.copy()
        for held in device.plane.held.values()
        for name, m in held.masters.items()
    }


def test_looking_at_the_parameters_changes_nothing(device: GridDevice) -> None:
    instances, other = rows(12), GridDevice()
    train(loaded(device, mlp()), instances)
    loaded(other, mlp())
    for instance in instances:
        train(other, [instance])
        other.parameters()
    other.close()
    for name, m in masters(device).items():
        np.testing.assert_array_equal(masters(other)[name], m, err_msg=name)


def test_a_checkpoint_is_taken_over_between_two_updates(device: GridDevice) -> None:
    """In the middle of an interval: a flush has summed the gradients that no update has taken yet."""
    instances, other = rows(13), GridDevice()
    train(loaded(device, mlp()), instances[:7])
    saved = device.parameters()
    assert saved["head"].rows > 0 and saved["head"].version > 0
    for node, params in loaded(other, mlp()).parameters().items():
        params.restore(saved[node].tensors(), saved[node].version)
        params.rows = saved[node].rows
        for name, g in saved[node].gradients.items():
            params.gradients[name][...] = g
    train(device, instances[7:])
    train(other, instances[7:])
    assert other.parameters()["head"].version == device.parameters()["head"].version
    other.close()
    for name, m in masters(device).items():
        np.testing.assert_array_equal(masters(other)[name], m, err_msg=name)


def test_what_the_host_writes_between_two_instances_is_used(device: GridDevice) -> None:
    graph, instances = mlp(), rows(4)
    loaded(device, graph, "off")
    train(device, instances[:1])
    params = device.parameters()["head"]
    params.values = {"W": params.values["W"] * 2}
    params.gradients["W"][...] = 0
    train(device, instances[1:2])
    once = device.parameters()["head"].gradients["W"].copy()
    np.testing.assert_array_equal(device.parameters()["head"].values["W"], params.values["W"])
    other = loaded(GridDevice(), graph, "off")
    other.parameters()["head"].values = dict(params.values)
    train(other, instances[1:2])
    other.close()
    expected = other.parameters()["head"].gradients["W"]
    assert np.linalg.norm(once - expected) <= GRADIENT_TOLERANCE * np.linalg.norm(expected)


def test_the_controller_updates_what_the_host_has_written(device: GridDevice) -> None:
    loaded(device, mlp(), "controller")
    train(device, rows(2))
    head = device.parameters()["head"]
    head.values = {"W": np.zeros_like(head.values["W"])}
    step = -0.05 * head.gradients["W"] / head.rows
    device.update(["head"])
    np.testing.assert_allclose(device.parameters()["head"].values["W"], step, rtol=1e-6, atol=1e-9)


def test_a_look_before_everything_is_summed_is_no_copy_to_go_on_from(device: GridDevice) -> None:
    loaded(device, mlp(), "off").submit(0, 0, rows(1)[0], Mode.TRAIN)
    assert len(device.poll(60.0)) == 1  # its gradients are in the logs
    assert not device.parameters()["head"].gradients["W"].any()
    device.drain()
    assert device.parameters()["head"].gradients["W"].any()
