"""The convolutional network on MNIST of Ako (SoCC 2016): convolutions with 10, 20 and 100 kernels.

    image - conv1 - pool - conv2 - pool - conv3 - pool - hidden - relu - head - loss

Each convolution has a ReLU and is followed by max-pooling over 2 x 2 pixels; then come a layer of 200 neurons
and the softmax. The sizes of the windows are ours: 5, 5 and 3 pixels, the last with a border, so that
28 x 28 pixels become 12 x 12, 4 x 4 and 2 x 2. The data are those of `mnist`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amphw import frontend as fe
from amphw.data.mnist import CLASSES, PIXELS
from amphw.ir.graph import Graph
from amphw.models.base import at_least, knob
from amphw.models.digits import Digits

_SIDE = 28
_WINDOWS = ((5, 0), (5, 0), (3, 1))  # size and padding


@dataclass(frozen=True)
class AkoConfig:
    """Section [model] of the convolutional network."""

    kernels: tuple[int, ...] = knob((10, 20, 100), "kernels of each of the three convolutions")
    hidden: int = knob(200, "units of the fully connected layer")
    batch: int = knob(20, "images in an instance")
    sample: bool = knob(False, "use generated digit-like images, which need no download, instead of MNIST")

    def __post_init__(self) -> None:
        at_least(1, hidden=self.hidden, batch=self.batch)
        if len(self.kernels) != len(_WINDOWS) or min(self.kernels) < 1:
            raise ValueError(f"kernels is {list(self.kernels)}, expected three integers of 1 or more.")


class Network:
    """The network in the model language; its attributes name the nodes."""

    def __init__(self, cfg: AkoConfig):
        image = (_SIDE, _SIDE, 1)
        self.conv: list[fe.Conv2d] = []
        self.pool: list[fe.MaxPool] = []
        for number, (kernels, (size, padding)) in enumerate(zip(cfg.kernels, _WINDOWS, strict=True), 1):
            conv = fe.Conv2d(image, kernels, size, padding=padding, activation=fe.relu, name=f"conv{number}")
            self.conv.append(conv)
            self.pool.append(fe.MaxPool(conv.out, 2))
            image = self.pool[-1].out
        self.hidden, self.head = fe.Linear(cfg.hidden), fe.Linear(CLASSES)

    def __call__(self, x: Any) -> None:
        h = x.image.item
        for conv, pool in zip(self.conv, self.pool, strict=True):
            h = pool(conv(h))
        fe.classify(self.head(fe.relu(self.hidden(h))), x.label.item)


class AkoMnist(Digits[AkoConfig]):
    """The convolutional network."""

    name = "ako-mnist"
    summary = "a convolutional network on images of handwritten digits"
    config = AkoConfig
    defaults = {
        "train": {"epochs": 5, "target": 0.98, "max_active_keys": 8},
        # Without the clip, steps of this length diverge with some seeds. With momentum or Adam, ranks
        # that exchange gradients learn less of each other: what comes is one step, of however many rounds.
        "update": {"optimizer": "sgd", "lr": 0.1, "clip": 1.0, "min_update_interval": 20},
    }

    def graph(self, cfg: AkoConfig) -> Graph:
        """Instances as in `Digits`."""
        rows = fe.Axis("batch", cfg.batch)
        spec = fe.Record(image=fe.Along(rows, fe.Floats(PIXELS)), label=fe.Along(rows, fe.Int(CLASSES)))
        return fe.compile(Network(cfg), spec, self.name).graph
