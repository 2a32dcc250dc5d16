"""A chain of layers and cost models of it, whose times a test chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from amphw.engine.lowering.lower import lower
from amphw.estimate.count.traffic import count
from amphw.estimate.count.work import work_of
from amphw.estimate.network.cost_model import CostModel, DeviceFacts, HostCosts, NodeSeconds
from amphw.ir.functions import linear, sum_cols
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance, Schema
from amphw.ir.nodes import PPT, Loss, Source
from amphw.ir.program import trace
from amphw.ir.update import UpdateRule

WIDTH = 4


def chain(widths: Sequence[int]) -> Graph:
    """Layers layer0, layer1, ... of these widths."""
    g = Graph("chain", Schema(data={"x": WIDTH}))
    g.add(Source("x", width=WIDTH, data="x"))
    names, inner = [], WIDTH
    for k, outer in enumerate(widths):
        names.append(f"layer{k}")
        g.add(PPT(names[-1], trace(lambda p, x: linear(x, p.W), {"x": inner}, {"W": (inner, outer)})))
        inner = outer
    g.add(Loss("loss", trace(lambda y: sum_cols(y * y), {"y": inner})))
    g.connect("x", *names, "loss")
    return g


def rows(n: int = 1) -> list[Instance]:
    return [Instance(data={"x": np.zeros((1, WIDTH), np.float32)}) for _ in range(n)]


def model(
    seconds: Mapping[tuple[str, str], float],
    devices: Sequence[DeviceFacts],
    widths: Sequence[int],
    handing: float = 0.0,
    workers: int = 1,
    keys: int = 1000,
) -> CostModel:
    """seconds: of an instance's firing by (node, label), "cpu" included; a device without them refuses."""
    graph = chain(widths)
    traffic = count(lower(graph), rows())
    units = {u.name: u for u in traffic.lowered.units}
    work = {n: work_of(graph, units[n], traffic.nodes[n], UpdateRule()) for n in graph.parameterised}
    known = {key: NodeSeconds(s, s, "stated", "by the test") for key, s in seconds.items()}
    nodes = {n: seconds[n, "cpu"] for n in work}
    host = HostCosts(nodes, 0.0, 0.0, handing, dict.fromkeys(work, 1.0), "stated", "by the test")
    facts = {d.label: d for d in devices}
    refused = {(n, d): "the test says so" for n in work for d in facts if (n, d) not in known}
    return CostModel(traffic, list(work), work, facts, known, refused, host, workers, 64, keys)
