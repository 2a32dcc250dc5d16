"""Parameters go into a checkpoint and come back; replicas become one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from amphw.host import snapshots
from amphw.host.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from amphw.host.session import Session
from amphw.ir.device import Mode
from amphw.ir.optimizers import OPTIMIZERS
from tests.host.training import MODEL, WatchedDevice, bits, settings


def trained(*overrides: str) -> tuple[WatchedDevice, Session]:
    """A device with one instance behind it and gradients that are short of an update."""
    device = WatchedDevice()
    session = Session(MODEL, settings("min_update_interval=1000", *overrides), device)
    device.submit(0, 1, MODEL.training(session.cfg.model, 0, 1)[0], Mode.TRAIN)
    device.drain()
    return device, session


def saved(path: Path, device: WatchedDevice, session: Session) -> Path:
    snapshots.save(path, device.parameters(), session.graph, "toy", "", {"epoch": 3})
    return path


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("flushed", [False, True])
def test_everything_comes_back(optimizer: str, flushed: bool, tmp_path: Path) -> None:
    device, session = trained(f"optimizer={optimizer}")
    if flushed:
        device.update()
    path = saved(tmp_path / "c.safetensors", device, session)
    fresh = WatchedDevice()
    other = Session(MODEL, settings(f"optimizer={optimizer}", "seed=9"), fresh)
    assert snapshots.load(path, fresh, other.graph)["epoch"] == 3
    assert bits(fresh.parameters()) == bits(device.parameters())
    states = [each.parameters()["cell"].state for each in (fresh, device)]
    assert states[0] == states[1]
    assert not flushed or all(value < 1.0 for value in states[0].values())
    assert fresh.parameters()["cell"].rows == (0 if flushed else 10)
    names = load_checkpoint(path, None)[0]
    assert ("cell.W#gradient" in names) is not flushed


def test_a_load_overwrites_gradients_that_the_device_had(tmp_path: Path) -> None:
    device, session = trained()
    device.update()
    path = saved(tmp_path / "c.safetensors", device, session)
    busy, other = trained()
    assert busy.parameters()["cell"].rows == 10
    snapshots.load(path, busy, other.graph)
    assert bits(busy.parameters()) == bits(device.parameters())


def test_inference_needs_values_alone(tmp_path: Path) -> None:
    device, session = trained("optimizer=sgd")
    path = saved(tmp_path / "c.safetensors", device, session)
    fresh = WatchedDevice()
    other = Session(MODEL, settings("optimizer=adam", "seed=4"), fresh)
    snapshots.load(path, fresh, other.graph, values_only=True)
    for node, p in device.parameters().items():
        for name, value in p.values.items():
            assert (fresh.parameters()[node].values[name] == value).all()
        assert fresh.parameters()[node].rows == 0


def test_a_checkpoint_without_a_gradient_that_it_counts_is_damaged(tmp_path: Path) -> None:
    device, session = trained()
    path = saved(tmp_path / "c.safetensors", device, session)
    tensors, header = load_checkpoint(path, None)
    del tensors["cell.W#gradient"]
    save_checkpoint(path, tensors, header)
    with pytest.raises(CheckpointError, match="is damaged: .* node 'cell'"):
        snapshots.load(path, device, session.graph)


def test_replicas_get_the_mean_of_values_and_state() -> None:
    device = WatchedDevice()
    session = Session(MODEL, settings("replicas=4", "optimizer=momentum"), device)
    copies = [device.parameters()[f"cell_{k}"] for k in range(4)]
    for k, p in enumerate(copies):
        p.values = {name: np.full_like(value, k) for name, value in p.values.items()}
        p.slots["W"][0][:] = 10 * k
    head = bits({"head": device.parameters()["head"]})
    snapshots.average_replicas(device, session.graph.replicas)
    for p in copies:
        assert (p.values["W"] == 1.5).all() and (p.values["b"] == 1.5).all() and (p.slots["W"][0] == 15).all()
    assert bits({"head": device.parameters()["head"]}) == head
    copies[0].slots["W"][0][:] = 1
    assert (copies[1].slots["W"][0] == 15).all(), "state is not shared"


@pytest.mark.parametrize("now", ["cell:1", "cell:3"])
def test_a_checkpoint_opens_with_another_number_of_replicas(now: str, tmp_path: Path) -> None:
    device, session = trained("device.replicate=cell:2")
    copies = [device.parameters()[f"cell_{k}"] for k in range(2)]
    for k, p in enumerate(copies):
        p.values = {name: np.full_like(value, k) for name, value in p.values.items()}
        p.slots["W"][0][:] = 10 * k
        p.version = 3 + 3 * k
    rows = sum(p.rows for p in copies)
    path = saved(tmp_path / "c.safetensors", device, session)
    fresh = WatchedDevice()
    other = Session(MODEL, settings(f"device.replicate={now}"), fresh)
    snapshots.load(path, fresh, other.graph)
    found = [p for node, p in fresh.parameters().items() if node.startswith("cell")]
    for p in found:
        assert (p.values["W"] == 0.5).all() and (p.slots["W"][0] == 5).all()
        assert p.version == 9 // len(found)
    assert [p.rows for p in found] == [rows, 0, 0][: len(found)]
    gathered = sum(p.gradients["W"] for p in copies)
    np.testing.assert_array_equal(found[0].gradients["W"], gathered)
    assert bits({"head": fresh.parameters()["head"]}) == bits({"head": device.parameters()["head"]})


def test_a_checkpoint_of_one_node_opens_in_replicas(tmp_path: Path) -> None:
    device, session = trained()
    path = saved(tmp_path / "c.safetensors", device, session)
    fresh = WatchedDevice()
    other = Session(MODEL, settings("seed=5", "device.replicate=cell:2,head:3"), fresh)
    snapshots.load(path, fresh, other.graph, values_only=True)
    for node, p in fresh.parameters().items():
        for name, value in device.parameters()[node.rpartition("_")[0]].values.items():
            assert (p.values[name] == value).all()


def test_groups_without_parameters_are_passed_over() -> None:
    device = WatchedDevice()
    Session(MODEL, settings(), device)
    before = bits(device.parameters())
    snapshots.average_replicas(device, [("relu_0", "relu_1"), ("cell", "gone")])
    assert bits(device.parameters()) == before


def test_what_is_not_finite_is_found() -> None:
    device = WatchedDevice()
    Session(MODEL, settings("optimizer=momentum"), device)
    assert snapshots.first_nonfinite_parameter(device.parameters()) is None
    device.parameters()["head"].slots["b"][0][1] = np.inf
    assert snapshots.first_nonfinite_parameter(device.parameters()) == ("head", "b#slot0")
