"""Copies of a node that meet within an epoch: on a drained device, and in flight where the device moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime.device import CpuDevice
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.host.copies import Copies
from amphw.host.pumping import PumpHooks
from amphw.host.replication import Share
from amphw.host.run_folder import RunFolder
from amphw.host.session import Session
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import Device, Mode, Moves, Report
from amphw.models import get_model
from tests.host.training import MODEL, WatchedDevice, settings
from tests.replicas.test_equivalence import alone, differences, together

COPIES = ("cell_0", "cell_1", "cell_2")
THREE = "device.replicate=cell:3"
PLANES = ["native", "numpy"]
Values = dict[str, dict[str, np.ndarray]]


def values(device: Device, nodes: Sequence[str] = COPIES) -> Values:
    found = device.parameters()
    return {node: {n: v.copy() for n, v in found[node].values.items()} for node in nodes}


def means(found: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    names = next(iter(found.values()))
    return {name: np.mean([each[name] for each in found.values()], axis=0) for name in names}


def apart(device: Device) -> None:
    """Every copy is somewhere else."""
    rng = np.random.default_rng(3)
    for node in COPIES:
        p = device.parameters()[node]
        p.values = {n: v + rng.normal(size=v.shape).astype(np.float32) for n, v in p.values.items()}


def chosen(plane: str, monkeypatch: pytest.MonkeyPatch) -> CpuDevice:
    monkeypatch.setenv("AMPHW_ENGINE", plane)
    return CpuDevice()


def test_values_meet_and_all_else_stays_a_copys_own() -> None:
    device = WatchedDevice()
    Session(MODEL, settings(THREE, "optimizer=momentum"), device)
    apart(device)
    for k, node in enumerate(COPIES):
        p = device.parameters()[node]
        p.version = k
        p.slots["W"][0][:] = k
    before, head = means(values(device)), values(device, ["head"])
    Copies(device, [COPIES], 1, barrier=False).meet()
    for k, node in enumerate(COPIES):
        p = device.parameters()[node]
        assert p.version == k and (p.slots["W"][0] == k).all()
        for name, value in p.values.items():
            np.testing.assert_allclose(value, before[name], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(values(device, ["head"])["head"]["W"], head["head"]["W"])


@pytest.mark.parametrize("every", [1, 5])
def test_in_an_epoch_they_meet_on_a_drained_device(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 12 batches an epoch; what is left over counts in the next."""
    at, meet = [], Copies.meet

    def noted(self: Copies) -> None:
        assert not device.active, "instances are in flight"
        at.append(sum(mode is Mode.TRAIN for *_, mode in device.submitted))
        before = means(values(device))
        meet(self)
        for name, value in means(values(device)).items():
            np.testing.assert_allclose(value, before[name], rtol=0, atol=1e-6)

    monkeypatch.setattr(Copies, "meet", noted)
    device = WatchedDevice()
    assert not isinstance(device, Moves)
    Trainer(MODEL, settings(THREE, f"device.replicate_every={every}", "live_valid=2"), device, None).run()
    assert at == list(range(every, 25, every))


def test_with_a_barrier_they_meet_after_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    at, meet = [], Copies.meet

    def noted(self: Copies) -> None:
        assert not device.active
        at.append(device.updates_asked)
        meet(self)

    monkeypatch.setattr(Copies, "meet", noted)
    device = WatchedDevice()
    cfg = settings(THREE, "device.replicate_every=5", "mode=pipeline", "pipeline_depth=2", "epochs=1")
    Trainer(MODEL, cfg, device, None).run()
    assert at == [3, 6]


def test_ranks_in_step_bring_them_together_after_the_same_updates() -> None:
    """One process takes twice as many instances to an update as each of two ranks does."""
    rule = ["lr=0.05", "replicas=3"]
    one, _ = alone(MODEL, 4, *rule, "device.replicate_every=8")
    two, _ = together(MODEL, 2, 2, *rule, "device.replicate_every=4")
    assert differences(two[0], one) < 1e-10 and differences(two[0], two[1]) == 0.0
    never, _ = alone(MODEL, 4, *rule)
    assert differences(one, never) > 1e-6


@pytest.mark.parametrize("plane", PLANES)
def test_workers_go_on_while_copies_meet_and_no_move_is_lost(
    plane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates are made all the time, and too small to be seen: what is left are the moves."""
    device = chosen(plane, monkeypatch)
    cfg = settings(THREE, "optimizer=sgd", "lr=1e-30", "min_update_interval=1", "device.workers=2")
    session = Session(MODEL, cfg, device)
    assert isinstance(device, Moves)
    apart(device)
    before = means(values(device))
    instances = MODEL.training(cfg.model, 0, 1)
    copies = Copies(device, [COPIES], 1, barrier=False)
    most = 0

    def report(instance: Any, report: Any) -> None:
        nonlocal most
        most = max(most, session.train_pump.in_flight)
        copies.retired()

    session.train_pump.run(Share(instances, range(len(instances))), Mode.TRAIN, PumpHooks(report))
    device.drain()
    assert most > 0, "nothing was in flight"
    after = values(device)
    for name, value in before.items():
        for node in COPIES:
            np.testing.assert_allclose(after[node][name], value, rtol=0, atol=1e-5)
    assert all(device.parameters()[node].version > 0 for node in COPIES), "nobody has updated"
    device.close()


class Disturbed(CpuDevice):
    """Moves all parameters by nothing while frames run."""

    def poll(self, timeout: float = 0.0) -> list[Report]:
        for _ in range(3):
            found = self.latest(list(self.params))
            self.move({node: {n: np.zeros_like(v) for n, v in each.items()} for node, each in found.items()})
        return super().poll(timeout)


@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("name", ["toy", "list-reduction"])
@pytest.mark.parametrize("mode", ["async", "pipeline"])
def test_no_gradient_is_lost_to_a_move(
    mode: str, name: str, plane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that can be repeated makes the same updates; list reduction has tables, some of them folded.

    With `async` a move may hold up an update, and frames meanwhile read the version before it. With a barrier
    frames read what they would, and sums of gradients are taken in other parts, where tables are folded.
    """
    monkeypatch.setenv("AMPHW_ENGINE", plane)
    model = MODEL if name == "toy" else get_model(name)
    small = ["hidden=8", "train_instances=60", "valid_instances=20", "epochs=1", "batch=10", "target=none"]
    one = ["max_active_keys=1", "pipeline_depth=3", "device.workers=1", "min_update_interval=7", "lr=0.1"]
    cfg = resolve(model.config, model.defaults, None, [THREE, *small, *one, "optimizer=sgd", f"mode={mode}"])
    found, versions = [], []
    for device in (CpuDevice(), Disturbed()):
        Trainer(model, cfg, device, None).run()
        versions.append({node: p.version for node, p in device.parameters().items()})
        found.append(values(device, list(versions[-1])))
        device.close()
    assert versions[0] == versions[1] and all(versions[0].values())
    for node, each in found[0].items():
        for parameter, value in each.items():
            if mode == "pipeline":
                np.testing.assert_allclose(found[1][node][parameter], value, rtol=0, atol=1e-6)


@pytest.mark.parametrize("plane", PLANES)
def test_a_run_on_the_cpu_learns_with_copies_that_meet(plane: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = chosen(plane, monkeypatch)
    cfg = settings(THREE, "device.replicate_every=2", "lr=0.05", "epochs=4", "min_update_interval=10")
    summary = Trainer(MODEL, cfg, device, None).run()
    device.close()
    losses = [epoch.train_loss for epoch in summary.history]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("given", "log", "message"),
    [
        (["device.replicate_every=3"], False, "no node has copies that could meet; give device.replicate"),
        ([THREE, "device.replicate_every=3"], True, "train without --log"),
    ],
)
def test_what_cannot_meet_is_refused(given: list[str], log: bool, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Session(MODEL, settings(*given), WatchedDevice(), log=log)


def test_a_run_that_stops_between_meetings_leaves_no_instance_out(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "toy")
    cfg = settings(THREE, "device.replicate_every=3", "mode=async", "max_active_keys=2", "epochs=1")
    first = WatchedDevice(lambda n: trainer.stop() if n == 7 else None)
    trainer = Trainer(MODEL, cfg, first, folder)
    assert trainer.run().stopped_by == "interrupt"
    second = WatchedDevice()
    Trainer(MODEL, cfg, second, folder).run(folder.path)
    submitted = [*first.submitted, *second.submitted]
    numbers = sorted(number for _, _, number, mode in submitted if mode is Mode.TRAIN)
    assert numbers == list(range(numbers[0], numbers[0] + 12))
