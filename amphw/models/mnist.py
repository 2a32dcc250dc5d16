"""A four-layer perceptron on MNIST: the static network of AMPNet (arXiv 1705.09786, section 6).

    image - linear1 - relu1 - linear2 - relu2 - linear3 - relu3 - linear4 - loss

Nothing here is dynamic; the model shows what pipelining over layers alone brings, and it is the network that
a hardware build is sized with. `sample = true` trains on generated digit-like images instead, without any
download; accuracies on those say nothing about MNIST.
"""

from __future__ import annotations

from dataclasses import dataclass

from amphw.data.mnist import CLASSES, PIXELS
from amphw.ir.expr import Attr, lift
from amphw.ir.functions import linear, relu
from amphw.ir.graph import Graph
from amphw.ir.instance import Schema, TableType
from amphw.ir.nodes import NPT, PPT, Source
from amphw.ir.program import ParamSpec, trace
from amphw.models.base import at_least, knob
from amphw.models.classify import classification_loss
from amphw.models.digits import Digits

_LAYERS = 4


@dataclass(frozen=True)
class MnistConfig:
    """Section [model] of the perceptron."""

    width: int = knob(784, "units of each of the three hidden layers")
    batch: int = knob(100, "images in an instance")
    sample: bool = knob(False, "use generated digit-like images, which need no download, instead of MNIST")

    def __post_init__(self) -> None:
        at_least(1, width=self.width, batch=self.batch)


class MnistMLP(Digits[MnistConfig]):
    """The perceptron."""

    name = "mnist"
    summary = "a four-layer perceptron on images of handwritten digits"
    config = MnistConfig
    defaults = {
        "train": {"epochs": 10, "target": 0.97, "max_active_keys": 4},
        "update": {"optimizer": "sgd", "lr": 0.1, "min_update_interval": 100},
    }

    def graph(self, cfg: MnistConfig) -> Graph:
        """Attribute batch; data array image [batch, 784], normalised; table label [batch]."""
        batch = Attr("batch")
        schema = Schema(
            attrs={"batch": cfg.batch},
            tables={"label": TableType((batch,), lift(CLASSES))},
            data={"image": PIXELS},
        )
        g = Graph(self.name, schema)
        path = [g.add(Source("image", width=PIXELS, rows=batch, data="image"))]
        widths = [PIXELS, *[cfg.width] * (_LAYERS - 1), CLASSES]
        for k in range(1, _LAYERS + 1):
            inner, outer = widths[k - 1], widths[k]
            program = trace(
                lambda p, x: linear(x, p.W, p.b),
                {"x": inner},
                {"W": (inner, outer), "b": ParamSpec("b", (outer,), "zeros")},
            )
            path.append(g.add(PPT(f"linear{k}", program)))
            if k < _LAYERS:
                path.append(g.add(NPT(f"relu{k}", trace(relu, {"x": outer}))))
        path.append(g.add(classification_loss(CLASSES)))
        g.connect(*path)
        return g
