"""The perceptron: four layers on rows of pixels, on generated digits so that nothing is downloaded."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.data.mnist import sample_mnist
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.ir.device import DeviceOptions, Mode, Report
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from amphw.models import ModelError
from amphw.models.mnist import MnistConfig, MnistMLP

MODEL = MnistMLP()
SMALL = MnistConfig(width=12, batch=50, sample=True)


def run(instance: Instance, device: ReferenceDevice | None = None) -> tuple[ReferenceDevice, Report]:
    device = device or ReferenceDevice()
    device.load(MODEL.graph(SMALL), {"*": UpdateRule()}, DeviceOptions(1, 1))
    device.submit(1, 1, instance, Mode.PREDICT)
    (report,) = device.drain()
    return device, report


def test_the_graph_is_four_linear_layers_with_relu_between() -> None:
    instance = MODEL.validation(SMALL, 0, 20)[0]
    device, report = run(instance)
    h = instance.data["image"]
    for k in range(1, 5):
        values = device.parameters()[f"linear{k}"].values
        h = h @ values["W"] + values["b"]
        if k < 4:
            h = np.maximum(h, 0)
    assert h.shape == (20, 10)
    assert (report.outputs["loss"]["prediction"][:, 0] == h.argmax(axis=1)).all()
    assert report.sums["loss"]["accuracy"] == (h.argmax(axis=1) == instance.tables["label"]).sum()


def test_the_full_graph_has_the_widths_of_the_paper() -> None:
    graph = MODEL.graph(MnistConfig())
    shapes = [graph.nodes[n].params[0].shape for n in graph.parameterised]
    assert shapes == [(784, 784), (784, 784), (784, 784), (784, 10)]


def test_an_epoch_is_shuffled_and_keeps_its_last_short_batch() -> None:
    instances = MODEL.training(SMALL, seed=2, epoch=1, limit=120)
    assert [MODEL.size(i) for i in instances] == [50, 50, 20]
    assert instances.size == 120
    again = MODEL.training(SMALL, 2, 1, 120)[0]
    other = MODEL.training(SMALL, 2, 2, 120)[0]
    assert (instances[0].data["image"] == again.data["image"]).all()
    assert (instances[0].tables["label"] != other.tables["label"]).any()


def test_a_text_is_the_number_of_an_image_or_its_pixels() -> None:
    seventeenth = MODEL.parse(SMALL, "17")
    assert seventeenth.tables["label"] == MODEL.validation(SMALL, 0)[0].tables["label"][17]
    _, report = run(seventeenth)
    told = MODEL.explain(SMALL, seventeenth, report)
    assert told["label"] == int(seventeenth.tables["label"][0])

    images, _ = sample_mnist(1000, 1)  # what the model validates on, before it is normalised
    pixels = ", ".join(f"{v:.6f}" for v in images[17])
    same = MODEL.parse(SMALL, pixels)
    _, report = run(same)
    assert MODEL.explain(SMALL, same, report) == {"prediction": told["prediction"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seven", "'seven' holds more than numbers"),
        ("1000", "there is no validation image 1000"),
        ("1.5", "there is no validation image 1.5"),
        ("", "the line has 0 numbers"),
        ("1 2 3", "the line has 3 numbers; expected the number of a validation image, or 784 pixels"),
        ("2 " * 784, "a pixel lies outside 0..1"),
        ("nan " * 784, "a pixel lies outside 0..1"),
    ],
)
def test_another_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        MODEL.parse(SMALL, text)
    assert message in str(caught.value)


def test_it_learns_the_generated_digits() -> None:
    size = ["width=32", "batch=20", "sample=true", "train_instances=3000", "valid_instances=500"]
    training = ["epochs=3", "max_active_keys=2", "min_update_interval=20", "lr=0.03"]
    cfg = resolve(MODEL.config, MODEL.defaults, None, [*size, *training])
    summary = Trainer(MODEL, cfg, ReferenceDevice(), None).run()
    assert summary.valid["accuracy"] > 0.9
