"""`train.clip_norm`: the controller bounds the norm of all gradients of an update, on every device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.host.controller import Trainer
from amphw.host.devices import make_device
from amphw.host.gradients import accumulated
from amphw.host.session import Session
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import Device, Mode
from amphw.ir.exchange import NodeGradient
from amphw.ir.reference import ReferenceDevice
from amphw.rtl.fixed.device import FixedDevice
from tests.daily import daily
from tests.host.training import MODEL, WatchedDevice, bits, settings

Values = dict[str, dict[str, np.ndarray]]
SGD = ("mode=sync", "optimizer=sgd", "lr=0.5", "epochs=1")
DEVICES: dict[str, tuple[Callable[[], Device], tuple[str, ...]]] = {
    "reference": (ReferenceDevice, ()),
    "cpu": (CpuDevice, ()),
    "fixed": (lambda: FixedDevice("q3.13"), ()),
    "mixed": (lambda: make_device("cpu,a=fixed:q3.13"), ("device.place=cell=a,head=cpu",)),
    "opencl": (lambda: make_device("opencl"), ()),
}
ON_EACH = pytest.mark.parametrize("name", daily(["reference", "cpu", "fixed", "mixed"], ["opencl"]))


def values(device: Device) -> Values:
    return {n: {k: v.copy() for k, v in p.values.items()} for n, p in device.parameters().items()}


def first_gradients() -> tuple[Values, dict[str, NodeGradient]]:
    """Initial parameters, and what the first instance gives."""
    device, cfg = ReferenceDevice(), settings(*SGD)
    Session(MODEL, cfg, device)
    device.submit(0, 1, MODEL.training(cfg.model, 0, 1)[0], Mode.TRAIN)
    device.drain()
    return values(device), accumulated(device, {})


def one_update(name: str, *overrides: str) -> Values:
    """Parameters after an epoch of a single instance, trained as a run trains."""
    make, own = DEVICES[name]
    device = make()
    Trainer(MODEL, settings(*SGD, "train_instances=10", *own, *overrides), device, None).run()
    found = values(device)
    device.close()
    return found


@ON_EACH
def test_one_factor_for_all_nodes_before_their_own_clip_and_decay(name: str) -> None:
    """Against the formulas, from the gradients of the reference: fixed point rounds."""
    start, gradients = first_gradients()
    mean = {n: {k: a / g.rows for k, a in g.arrays.items()} for n, g in gradients.items()}
    norm = np.sqrt(sum(float(np.sum(a**2)) for own in mean.values() for a in own.values()))
    factor, decay = 0.5, 0.0 if name in ("fixed", "mixed") else 0.01
    clip, close = (0.3 * norm, 1e-6) if decay else (0.0, 1e-3)
    found = one_update(name, f"clip_norm={factor * norm}", f"clip={clip}", f"weight_decay={decay}")
    clipped = 0
    for node, own in start.items():
        for k, w in own.items():
            g = factor * mean[node][k]
            length = float(np.linalg.norm(g))
            if 0 < clip < length:
                g, clipped = g * (clip / length), clipped + 1
            np.testing.assert_allclose(found[node][k], w - 0.5 * (g + decay * w), rtol=0, atol=close)
    assert 0 < clipped < 4 or not clip  # so that the order of both matters


@ON_EACH
def test_a_norm_that_is_never_reached_changes_nothing(name: str) -> None:
    for_all = ("mode=pipeline", "pipeline_depth=3", "train_instances=120", "device.workers=1")
    expected, found = (one_update(name, *for_all, more) for more in ("clip_norm=0", "clip_norm=1e6"))
    for node, own in expected.items():
        for k, value in own.items():
            np.testing.assert_allclose(found[node][k], value, rtol=1e-6, atol=1e-7)


def test_gradients_that_are_summed_count_as_sums() -> None:
    """Ten rows: as a sum they are ten times their mean, and a bound of ten times as much is the same one."""
    _, gradients = first_gradients()
    total = sum(float(np.sum(np.square(a))) for g in gradients.values() for a in g.arrays.values())
    norm = float(np.sqrt(total))
    mean = one_update("reference", f"clip_norm={norm / 20}")
    added = one_update("reference", f"clip_norm={norm / 2}", "reduce=sum", "lr=0.05")
    for node, own in mean.items():
        for k, value in own.items():
            np.testing.assert_allclose(added[node][k], value, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("mode", ["sync", "pipeline"])
def test_live_validation_beside_it_changes_nothing(mode: str) -> None:
    found = []
    for keys in (0, 3):
        device = WatchedDevice()
        cfg = settings(f"mode={mode}", "clip_norm=0.05", f"live_valid={keys}")
        summary = Trainer(MODEL, cfg, device, None).run()
        assert bool(summary.history[-1].live) is bool(keys)
        found.append(bits(device.parameters()))
    assert found[0] == found[1]


def test_a_log_would_not_have_it() -> None:
    class Nobody:
        def take(self, log: list[Any]) -> None: ...

        def reported(self, report: Any) -> None: ...

    with pytest.raises(ConfigError, match="train without --log, or with update.clip"):
        Trainer(MODEL, settings("mode=sync", "clip_norm=1"), CpuDevice(), None, log=Nobody()).run()
