"""Runs a graph on any device through the protocol alone, and compares the outcome with the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.ir.device import Device, DeviceOptions, Mode, Report
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from tests.conformance.compare import first_difference

GRADIENT_TOLERANCE = 1e-5  # relative to the gradient's norm


@dataclass
class Outcome:
    """losses[number]: sum of the sinks' losses; gradients and parameters by "node.name". The last five: what
    was run, to run it again, and what it reported."""

    losses: dict[int, float]
    gradients: dict[str, np.ndarray]
    parameters: dict[str, np.ndarray]
    forward: int
    backward: int
    device: Device
    graph: Graph
    instances: Sequence[Instance]
    options: dict[str, Any]
    reports: Sequence[Report]


def run(
    device: Device,
    graph: Graph,
    instances: Sequence[Instance],
    *,
    keys: int = 8,
    updates: str = "off",
    rule: UpdateRule | None = None,
    mode: Mode = Mode.TRAIN,
    seed: int = 3,
    log: bool = False,
    **settings: Any,
) -> Outcome:
    """Keep `keys` instances in flight until all have retired."""
    rules = {"*": rule or UpdateRule()}
    device.load(graph, rules, DeviceOptions(keys, 0, updates, seed, log, settings))
    free, waiting, reports = list(range(keys)), list(instances), []
    generation = dict.fromkeys(free, 0)
    in_flight = 0
    while waiting or in_flight:
        while waiting and free:
            slot = free.pop()
            generation[slot] = (generation[slot] + 1) % 256
            device.submit(slot, generation[slot], waiting.pop(0), mode)
            in_flight += 1
        found: list[Report] = device.poll(0.05)
        for r in found:
            assert r.generation == generation[r.slot]
            free.append(r.slot)
            in_flight -= 1
        reports += found
    reports += device.drain()
    assert sorted(r.number for r in reports) == sorted(i.number for i in instances)
    stats = device.statistics()
    parameters = device.parameters()
    return Outcome(
        {r.number: sum(s["loss"] for s in r.sums.values()) for r in reports},
        {f"{n}.{k}": g.copy() for n, p in parameters.items() for k, g in p.gradients.items()},
        {f"{n}.{k}": v.copy() for n, p in parameters.items() for k, v in p.values.items()},
        stats.forward,
        stats.backward,
        device,
        graph,
        instances,
        {"seed": seed, "settings": settings},
        reports,
    )


def reference(graph: Graph, instances: Sequence[Instance], **options: Any) -> Outcome:
    """The float64 reference, which all tolerances are measured against."""
    return run(ReferenceDevice("fifo", np.float64), graph, instances, **options)


def assert_same(found: Outcome, expected: Outcome) -> None:
    """Losses and summed gradients agree; the message says which message differs first, and where."""
    wrong = [
        number
        for number, loss in expected.losses.items()
        if not np.isclose(found.losses[number], loss, rtol=1e-5, atol=1e-6)
    ]
    if wrong:
        text = f"loss {found.losses[wrong[0]]:.8g} instead of {expected.losses[wrong[0]]:.8g}"
        pytest.fail(f"instance {wrong[0]}: {text}\n{explained(found, wrong)}")
    for name, g in expected.gradients.items():
        scale = max(float(np.linalg.norm(g)), 1e-12)
        error = float(np.linalg.norm(found.gradients[name] - g)) / scale
        if not error <= GRADIENT_TOLERANCE:
            pytest.fail(f"gradient of {name}: off by {error:.2g}\n{explained(found, [])}")


def explained(found: Outcome, numbers: Sequence[int]) -> str:
    """Run instances again, those with these numbers first, until one has a message that differs."""
    if not isinstance(found.device, CpuDevice):
        return "this device does not show its messages"
    first = sorted(found.instances, key=lambda i: i.number not in numbers)
    for instance in first:
        difference = first_difference(found.device, found.graph, instance, **found.options)
        if difference is not None:
            return str(difference)
    return "no instance differs by itself: look at how gradients are summed over instances"
