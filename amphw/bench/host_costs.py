"""What the engine on the host takes for a model's nodes, and for handing frames to other devices: measured.

Three short runs of real instances: with one worker and nothing recorded, which tells how long an instance
takes in all; with one worker and a trace, which tells how that is shared by the nodes; and with the nodes on
a device that answers at once, which tells what is left of it where they are elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from amphw.bench.ours import PumpLoop
from amphw.engine.policy import KINDS
from amphw.estimate.cost_model import HostCosts
from amphw.host.devices import make_device
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.passes import fuse
from amphw.ir.update import UpdateRule

WARM = 0.2
"""Seconds of each run that do not count."""

INTERRUPTED = 3.0
"""A gap behind a frame that is so many times as long as the frame was no delivery alone."""

Slice = tuple[float, float, str, str, int]
"""(begin, duration, node, kind, rows) of what a worker did, microseconds."""


def host_costs(
    graph: Graph,
    rules: Mapping[str, UpdateRule],
    options: DeviceOptions,
    instances: Sequence[Instance],
    nodes: Sequence[str],
    firings: Mapping[str, float],
    seconds: float = 0.6,
) -> HostCosts:
    """nodes: those that may be elsewhere. firings: of each of them in an instance, on average. seconds: of
    each of the three runs."""
    runs = fuse(graph, nodes)
    alone = {**options.settings, "workers": 1, "fuse": False}
    whole, _ = _run("cpu", runs, rules, options, alone, instances, seconds, traced=False)
    _, slices = _run("cpu", runs, rules, options, alone, instances, seconds, traced=True)
    shares = _shares(slices)
    away = {**alone, "place": dict.fromkeys(nodes, "null"), "links": ""}
    rest, handed = _run("cpu,null", runs, rules, options, away, instances, seconds, traced=True)
    frames = Counter(node for _, _, node, kind, _ in handed if node in nodes and kind in KINDS)
    first, last = min(s[0] for s in handed), max(s[0] for s in handed)
    pumped = max(1.0, (last - first) / 1e6 / rest)
    sizes = {n: max(1.0, 2 * firings[n] * pumped / frames[n]) for n in nodes if frames[n]}
    handing = rest * pumped / max(1, frames.total())
    how = f"of {seconds:g} s of training with one worker, the node's share in a trace"
    return HostCosts({n: whole * share for n, share in shares.items()}, handing, sizes, "measured", how)


def _run(
    device: str,
    graph: Graph,
    rules: Mapping[str, UpdateRule],
    options: DeviceOptions,
    settings: Mapping[str, Any],
    instances: Sequence[Instance],
    seconds: float,
    traced: bool,
) -> tuple[float, list[Slice]]:
    """Seconds an instance took, and what the workers did meanwhile."""
    slices: list[Slice] = []

    def collect(
        _worker: int, node: str, kind: str, begin: float, duration: float, rows: int, *_: object
    ) -> None:
        slices.append((begin, duration, node, kind, rows))

    made = make_device(device)
    extra = {"trace": collect} if traced else {}
    keys = options.max_active_keys
    made.load(graph, rules, DeviceOptions(keys, 1, "self", options.seed, settings={**settings, **extra}))
    try:
        loop = PumpLoop(made, instances, [1] * len(instances), range(keys), Mode.TRAIN)
        loop.run(WARM)
        made.poll(0.0)
        slices.clear()
        found = loop.run(seconds)
        return found["seconds"] / found["count"], sorted(slices)
    finally:
        made.close()


def _shares(slices: Sequence[Slice]) -> dict[str, float]:
    """Of a worker's time, by node: its frames and updates, with what follows each until the next."""
    spent = Counter[str]()
    for here, following in zip(slices, slices[1:], strict=False):
        begin, duration, node, *_ = here
        spent[node] += min(following[0] - begin, (1 + INTERRUPTED) * duration)  # type: ignore[assignment]
    total = sum(spent.values())
    return {node: each / total for node, each in spent.items()} if total else {}
