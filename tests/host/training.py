"""Small runs for the tests of the host: a toy model, and devices that watch or misbehave."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amphw.host.config import RunConfig, resolve
from amphw.host.null_device import NullDevice
from amphw.ir.device import DeviceOptions, Mode, Report
from amphw.ir.expr import Attr, lift
from amphw.ir.functions import linear, relu
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance, Schema, TableType
from amphw.ir.nodes import NPT, PPT, Source
from amphw.ir.passes import replicate
from amphw.ir.program import ParamSpec, trace
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import NodeParameters, UpdateRule
from amphw.models.base import Instances, Model, limited
from amphw.models.classify import Unlabelled, classification_loss, explained

WIDTH, CLASSES = 3, 3


@dataclass(frozen=True)
class ToyConfig:
    hidden: int = 8
    batch: int = 10
    replicas: int = 1


class ToyModel(Model[ToyConfig]):
    """Which of three random numbers is the largest: x - cell - relu - head - loss. Few messages each."""

    name = "toy"
    summary = "finds the largest of three numbers"
    config = ToyConfig
    defaults = {"update": {"optimizer": "adam", "lr": 0.01}}

    def graph(self, cfg: ToyConfig) -> Graph:
        batch = Attr("batch")
        schema = Schema({"batch": cfg.batch}, {"label": TableType((batch,), lift(CLASSES))}, {"x": WIDTH})
        g = Graph("toy", schema)
        g.add(Source("x", width=WIDTH, rows=batch, data="x"))
        for name, inner, outer in (("cell", WIDTH, cfg.hidden), ("head", cfg.hidden, CLASSES)):
            shapes: dict[str, tuple[int, ...] | ParamSpec] = {
                "W": (inner, outer),
                "b": ParamSpec("b", (outer,), "zeros"),
            }
            g.add(PPT(name, trace(lambda p, x: linear(x, p.W, p.b), {"x": inner}, shapes)))
        g.add(NPT("relu", trace(relu, {"x": cfg.hidden})))
        g.add(classification_loss(CLASSES))
        g.connect("x", "cell", "relu", "head", "loss")
        return replicate(g, "cell", cfg.replicas) if cfg.replicas > 1 else g

    def training(self, cfg: ToyConfig, seed: int, epoch: int, limit: int = 0) -> Instances:
        return self._instances(cfg, [seed, epoch], limited(120, limit))

    def validation(self, cfg: ToyConfig, seed: int, limit: int = 0) -> Instances:
        return self._instances(cfg, [seed, 0], limited(60, limit))

    @staticmethod
    def _instances(cfg: ToyConfig, seed: list[int], n: int) -> Instances:
        x = np.random.default_rng(seed).normal(size=(n, WIDTH)).astype(np.float32)

        def build(i: int) -> Instance:
            rows = x[i * cfg.batch : (i + 1) * cfg.batch]
            return Instance(
                {"batch": len(rows)}, {"label": rows.argmax(axis=1).astype(np.int32)}, {"x": rows}
            )

        return Instances(-(-n // cfg.batch), build, n)

    def parse(self, cfg: ToyConfig, text: str) -> Instance:
        x = np.array([[float(word) for word in text.split()]], np.float32)
        return Unlabelled({"batch": 1}, {"label": np.zeros(1, np.int32)}, {"x": x})

    def explain(self, cfg: ToyConfig, instance: Instance, report: Report) -> dict[str, Any]:
        return explained(instance, report, self.loss_node)

    def size(self, instance: Instance) -> int:
        return instance.attrs["batch"]


MODEL = ToyModel()
TINY = ("epochs=2", "target=none")


def settings(*overrides: str) -> RunConfig[Any]:
    """The tiny configuration; of two overrides for the same field the later wins."""
    return resolve(MODEL.config, MODEL.defaults, None, [*TINY, *overrides])


class WatchedDevice(ReferenceDevice):
    """Notes what the host asks of it; `on_submit` is called with the number of submissions so far."""

    def __init__(self, on_submit: Callable[[int], None] = lambda n: None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.on_submit = on_submit
        self.submitted: list[tuple[int, int, int, Mode]] = []  # slot, generation, number, mode
        self.updates_asked, self.most_in_flight = 0, 0

    def submit(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        super().submit(slot, generation, instance, mode)
        self.submitted.append((slot, generation, instance.number, mode))
        training = sum(active.mode is Mode.TRAIN for active in self.active.values())
        self.most_in_flight = max(self.most_in_flight, training)
        self.on_submit(len(self.submitted))

    def update(self, nodes: Sequence[str] | None = None) -> None:
        self.updates_asked += 1
        super().update(nodes)

    def numbers(self, mode: Mode) -> list[int]:
        return [number for _, _, number, used in self.submitted if used is mode]


class LoadedNull(NullDevice):
    """A null device that remembers what it was loaded with."""

    def load(self, graph: Graph, rules: Mapping[str, UpdateRule], options: DeviceOptions) -> None:
        super().load(graph, rules, options)
        self.graph, self.rules, self.options = graph, rules, options


class FixedReports(NullDevice):
    """A null device whose every report holds the given sums over one row."""

    def __init__(self, **sums: float) -> None:
        self.sums = sums

    def poll(self, timeout: float = 0.0) -> list[Report]:
        reports = super().poll(timeout)
        for report in reports:
            report.sums["loss"], report.rows["loss"] = dict(self.sums), 1
        return reports


def bits(parameters: Mapping[str, NodeParameters]) -> dict[str, bytes]:
    """Values and optimiser slots of every node as bytes, with the version and the gathered rows."""
    out = {}
    for node, p in parameters.items():
        out[node] = f"{p.version} {p.rows}".encode()
        out.update({f"{node}.{name}": np.ascontiguousarray(a).tobytes() for name, a in p.tensors().items()})
        out.update({f"{node}.{name}#gradient": a.tobytes() for name, a in p.gradients.items()})
    return out
