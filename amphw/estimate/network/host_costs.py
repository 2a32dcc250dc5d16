"""What the engine on the host takes for a model's nodes, and for handing frames to other devices: measured.

Short runs of real instances with one worker, in processor time, which does not depend on what else a machine
does: with all nodes on the host, once more with a trace, which tells how that is shared by the nodes; and
with all nodes, or one of them, on a device that answers at once, whose difference is frames handed over.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from amphw.engine.parts.costs import NodeTime
from amphw.engine.policy import BACKWARD, FORWARD, KINDS
from amphw.estimate.network.cost_model import HostCosts
from amphw.host.devices import make_device
from amphw.host.pump_loop import PumpLoop
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.passes import fuse
from amphw.ir.update import UpdateRule

INTERRUPTED = 3.0
"""A gap behind a frame that is so many times as long as the frame was no delivery alone."""

Slice = tuple[float, float, str, str, int]
"""(begin, duration, node, kind, rows) of what a worker did, microseconds."""


@dataclass(frozen=True)
class _Run:
    """instances: that were trained on, in `seconds` of processor time, `pumping` of which the thread took
    that submits and polls. slices: if it was traced."""

    instances: int
    seconds: float
    pumping: float
    slices: Sequence[Slice]

    @property
    def each(self) -> float:
        return self.seconds / self.instances

    def frames(self, nodes: Sequence[str]) -> Counter[str]:
        return Counter(node for _, _, node, kind, _ in self.slices if node in nodes and kind in KINDS)


def host_costs(
    graph: Graph,
    rules: Mapping[str, UpdateRule],
    options: DeviceOptions,
    instances: Sequence[Instance],
    nodes: Sequence[str],
    firings: Mapping[str, float],
    seconds: float = 0.5,
) -> HostCosts:
    """nodes: those that may be elsewhere. firings: of each of them in an instance, on average. seconds: of
    each of the four runs."""
    run = partial(_run, fuse(graph, nodes), rules, options, instances, seconds)
    whole, traced = run([], traced=False), run([], traced=True)
    shares = _shares(traced.slices)
    pumping = whole.pumping / whole.instances
    on_host = {node: (whole.each - pumping) * share for node, share in shares.items()}
    all_away = run(nodes, traced=True)
    frames = all_away.frames(nodes)
    each = {n: frames[n] / all_away.instances for n in nodes}  # in both directions
    rest = all_away.each - pumping - sum(s for n, s in on_host.items() if n not in nodes)
    beginning, handed = 0.0, sum(each.values())
    if len(nodes) > 1:
        least = min(nodes, key=lambda n: each[n])
        one = run([least], traced=True)
        few = one.frames([least])[least] / one.instances
        beside = one.each - pumping - sum(s for n, s in on_host.items() if n != least)
        if handed > few:
            beginning = min(max(0.0, (beside * handed - rest * few) / (handed - few)), max(0.0, rest))
    handing = max(0.0, rest - beginning) / max(handed, 1e-12)
    sizes = {n: max(1.0, 2 * firings[n] / each[n]) for n in nodes if each[n]}
    how = f"of {seconds:g} s of training with one worker, the node's share in a trace"
    return HostCosts(on_host, pumping, beginning, handing, sizes, "measured", how)


def region_time(
    device: str,
    graph: Graph,
    rules: Mapping[str, UpdateRule],
    options: DeviceOptions,
    instances: Sequence[Instance],
    node: str,
    firings: float,
    seconds: float = 0.2,
) -> NodeTime:
    """What a firing of a node takes on a device that keeps its messages in a memory of its own: the same run,
    with this node there, a frame at a time. firings: of it in an instance, on average."""
    found = _run(fuse(graph, [node]), rules, options, instances, seconds, [node], traced=True, beside=device)
    taken = Counter[str]()
    for _, duration, name, kind, _ in found.slices:
        if name == node:
            taken[kind] += duration * 1e-6 / (found.instances * firings)  # type: ignore[assignment]
    how = f"of {seconds:g} s of training with it there, updates included"
    forward, backward = (float(taken[KINDS[kind]]) for kind in (FORWARD, BACKWARD))
    return NodeTime(forward, backward + float(taken["update"]), 0.0, "measured", how)


def _run(
    graph: Graph,
    rules: Mapping[str, UpdateRule],
    options: DeviceOptions,
    instances: Sequence[Instance],
    seconds: float,
    away: Sequence[str],
    traced: bool,
    beside: str = "null",
) -> _Run:
    """away: nodes on the device `beside`; by default it answers at once."""
    slices: list[Slice] = []

    def collect(
        _worker: int, node: str, kind: str, begin: float, duration: float, rows: int, *_: object
    ) -> None:
        slices.append((begin, duration, node, kind, rows))

    made = make_device(f"cpu,away={beside}")
    place = {**dict.fromkeys(graph.parameterised, "cpu"), **dict.fromkeys(away, "away")}
    own: dict[str, Any] = {"workers": 1, "fuse": False, "links": "", "place": place, "depth": 1}
    settings = {**options.settings, **own, **({"trace": collect} if traced else {})}
    keys = options.max_active_keys
    made.load(graph, rules, DeviceOptions(keys, 1, "self", options.seed, settings=settings))
    try:
        loop = PumpLoop(made, instances, [1] * len(instances), range(keys), Mode.TRAIN)
        loop.run_to([len(instances)])  # each once: its plan is made, and memory is taken hold of
        made.poll(0.0)
        slices.clear()
        before = time.thread_time()
        found = loop.run(seconds)
        pumping = time.thread_time() - before
        made.poll(0.0)
        return _Run(found["count"], found["cpu"], pumping, sorted(slices))
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
