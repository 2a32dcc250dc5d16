"""The convolutional network: its shapes, what it computes, and that it learns."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.passes import fuse
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from amphw.models.ako_mnist import AkoConfig, AkoMnist

MODEL = AkoMnist()
SMALL = AkoConfig(kernels=(2, 3, 4), hidden=6, batch=5, sample=True)


def convolved(images: np.ndarray, w: np.ndarray, b: np.ndarray, size: int, padding: int) -> np.ndarray:
    """ReLU of the convolution of images [n, height, width, channels], window by window."""
    images = np.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    n, height, width, _ = images.shape
    out = np.zeros((n, height - size + 1, width - size + 1, len(b)))
    for y, x in np.ndindex(*out.shape[1:3]):
        out[:, y, x] = images[:, y : y + size, x : x + size].reshape(n, -1) @ w + b
    return np.maximum(out, 0)


def pooled(images: np.ndarray) -> np.ndarray:
    n, height, width, channels = images.shape
    return images.reshape(n, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))


def test_the_graph_computes_the_network() -> None:
    instance = MODEL.validation(SMALL, 0, 5)[0]
    device = ReferenceDevice()
    device.load(MODEL.graph(SMALL), {"*": UpdateRule()}, DeviceOptions(1, 1))
    device.submit(0, 1, instance, Mode.PREDICT)
    (report,) = device.drain()
    values = {n: p.values for n, p in device.parameters().items()}
    h = instance.data["image"].reshape(-1, 28, 28, 1)
    for k, (size, padding) in enumerate(((5, 0), (5, 0), (3, 1)), 1):
        h = pooled(convolved(h, values[f"conv{k}"]["W"], values[f"conv{k}"]["b"], size, padding))
    assert h.shape == (5, 2, 2, 4)
    h = np.maximum(h.reshape(5, -1) @ values["hidden"]["W"] + values["hidden"]["b"], 0)
    logits = h @ values["head"]["W"] + values["head"]["b"]
    assert (report.outputs["loss"]["prediction"][:, 0] == logits.argmax(axis=1)).all()
    picked = logits[np.arange(5), instance.tables["label"]]
    loss = np.log(np.exp(logits).sum(axis=1)) - picked
    np.testing.assert_allclose(report.outputs["loss"]["loss"][:, 0], loss, rtol=1e-4, atol=1e-6)


def test_the_full_graph_has_the_widths_of_the_paper() -> None:
    graph = MODEL.graph(AkoConfig())
    shapes = {n: graph.nodes[n].params[0].shape for n in graph.parameterised}
    assert shapes == {
        "conv1": (25, 10),
        "conv2": (250, 20),
        "conv3": (180, 100),
        "hidden": (400, 200),
        "head": (200, 10),
    }
    assert "pool" not in fuse(graph).nodes, "a pool runs in the frame of its convolution"


def test_the_configuration_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"kernels is \[3, 4\], expected three integers of 1 or more"):
        resolve(MODEL.config, MODEL.defaults, None, ["kernels=[3, 4]"])
    assert resolve(MODEL.config, MODEL.defaults, None, ["kernels=[3, 4, 5]"]).model.kernels == (3, 4, 5)


def test_it_learns_the_generated_digits() -> None:
    size = ["kernels=[4, 6, 8]", "hidden=20", "batch=10", "sample=true", "train_instances=1500"]
    training = ["valid_instances=300", "epochs=2", "max_active_keys=2", "min_update_interval=20"]
    cfg = resolve(MODEL.config, MODEL.defaults, None, [*size, *training])
    summary = Trainer(MODEL, cfg, CpuDevice(), None).run()
    assert summary.valid["accuracy"] > 0.9
