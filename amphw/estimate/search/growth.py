"""How throughput grows with the number of devices, where that stops, and why.

With few devices nodes share them; with more, the model is replicated in whole pipelines, with a device for
each node with parameters, as many as there are devices for. Each pipeline keeps its own instances in flight.
One host sends all data: its one link, of the network's bandwidth, bounds what all pipelines do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from amphw.estimate.network.limit import limit_of, no_room
from amphw.estimate.network.network import Network
from amphw.estimate.outcome import Growth, GrowthStep, Limit, NodeOutcome, Outcome
from amphw.estimate.search.whatif import Estimator
from amphw.ir.errors import AmphwError
from amphw.ir.units import written

MOST = 1000
GAIN = 0.1
"""For a doubling of the devices: with less throughput is said not to grow."""


def grow(
    estimator: Estimator, network: Network, keys: int, replicas: int | None = None, most: int = MOST
) -> Growth:
    """Up to `most` devices, in doublings. keys: in flight in each pipeline. replicas: None: as many as there
    are devices for. Raises AmphwError where the model has room on none of these networks."""
    alone = estimator(replace(network.of(1), memory=None), 1, 1, False)
    heavy = sum(n.memory.value > 0 for n in alone.per_node)
    data = _source_bytes(alone)
    counts = [1 << k for k in range(most.bit_length()) if 1 << k < most] + [most]
    steps = [
        _step(estimator, network.of(n), keys, replicas or max(1, n // heavy), network.sending(data), data)
        for n in counts
    ]
    if not any(step.throughput for step in steps):
        raise AmphwError(f"no network has room for the model; with {most} devices: {steps[-1].limit.words}")
    at = _last_gain(steps)
    ceiling = _ceiling(alone, network.sending(data), data) if replicas is None else None
    return Growth(
        steps=steps,
        keys=keys,
        gain=GAIN,
        stops=steps[at].devices if at + 1 < len(steps) else None,
        why=steps[at + 1].limit if at + 1 < len(steps) else None,
        source_bytes=data,
        ceiling=ceiling[0] if ceiling else None,
        ceiling_limit=ceiling[1] if ceiling else None,
    )


def _step(
    estimator: Estimator, network: Network, keys: int, replicas: int, sending: float, data: float
) -> GrowthStep:
    devices = network.devices or 1
    try:
        found = estimator(network, keys * replicas, replicas, True)
    except AmphwError as error:
        if network.memory is None:
            raise
        return GrowthStep(devices, replicas, keys * replicas, None, None, 0.0, no_room(error))
    assert found.played is not None
    limit, throughput = limit_of(found), found.sustained
    if throughput * sending > 1:
        limit, throughput = _of_the_source(data), 1 / sending
    return GrowthStep(
        devices, replicas, keys * replicas, found.throughput, found.played.throughput, throughput, limit
    )


def _source_bytes(of: Outcome) -> float:
    """Of an instance's data."""
    nodes = {n.name for n in of.per_node}
    return sum(edge.activation_bytes.mean for edge in of.per_edge if edge.source not in nodes)


def _of_the_source(data: float) -> Limit:
    return Limit("source", "source", [], f"the host's link brings {written(data, 'B')} of data an instance")


def _last_gain(steps: Sequence[GrowthStep]) -> int:
    """The number of the step over which none behind it gains enough. (Some grow after a pause, when there are
    devices for a further pipeline.)"""
    at = 0
    for k in range(1, len(steps)):
        doublings = math.log2(steps[k].devices / steps[at].devices)
        if steps[k].throughput > steps[at].throughput * (1 + GAIN) ** doublings:
            at = k
    return at


def _ceiling(alone: Outcome, sending: float, data: float) -> tuple[float, Limit] | None:
    """What pipelines share: nodes without parameters, of which there is one, and the host's link."""
    found = [(n.busy, _of_one_copy(n)) for n in alone.per_node if not n.memory.value and n.busy]
    found += [(sending, _of_the_source(data))] if sending else []
    if not found:
        return None
    seconds, limit = max(found, key=lambda each: each[0])
    return 1 / seconds, limit


def _of_one_copy(node: NodeOutcome) -> Limit:
    words = (
        f"{node.name}, which has no parameters and so one copy, takes {written(node.busy, 's')} an instance"
    )
    return Limit("device", node.name, [node.name], words)
