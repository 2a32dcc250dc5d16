"""The CPU device against the reference: every graph, scheduler, worker count and frame cap."""

from __future__ import annotations

import os
from functools import cache

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.ir.device import Mode
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule
from tests.conformance.harness import Outcome, assert_same, reference, run
from tests.daily import daily
from tests.graphs.cases import Case, each_case

INSTANCES = int(os.environ.get("AMPHW_TEST_INSTANCES", "200"))
"""Instances of every graph; fewer where everything is slow, as under a sanitizer."""

each = each_case()
pytestmark = pytest.mark.usefixtures("plane")

# Every scheduler, every worker count and the caps' extremes, each at least once with every graph.
CONFIGURATIONS = [
    {"policy": "default", "workers": 1, "frame_cap": 1},
    {"policy": "default", "workers": 4, "frame_cap": 64},
    {"policy": "fifo", "workers": 2, "frame_cap": 16},
    {"policy": "backward-first", "workers": 3, "frame_cap": 7},
    {"policy": "largest-queue", "workers": 4, "frame_cap": 1},
    {"policy": "default", "workers": 3, "frame_cap": 16, "placement": "pinned"},
    {"policy": "default", "workers": 2, "frame_cap": 64, "min_rows": 32},
    {"policy": "fifo", "workers": 2, "frame_cap": 4, "fuse": False},
]
# The numpy plane, which is slower, runs every scheduler once.
RUNS = [("native", c) for c in CONFIGURATIONS] + [("numpy", CONFIGURATIONS[k]) for k in (1, 3, 4, 7)]
DAILY = (0, 3, 8)
"""The runs of every day: two of the C++ plane, with one worker and with three, and one of the numpy plane."""


@cache
def problem(case: Case) -> tuple[Graph, list[Instance], Outcome]:
    graph = case.build()
    instances: list[Instance] = []
    seed = 0
    while len(instances) < INSTANCES:
        instances += case.instances(seed)
        seed += 1
    instances = instances[:INSTANCES]
    for number, instance in enumerate(instances):
        instance.number = number
    return graph, instances, reference(graph, instances)


def _name(value: object) -> str:
    return "-".join(map(str, value.values())) if isinstance(value, dict) else str(value)


@each
@pytest.mark.parametrize(
    "plane,settings",
    daily([RUNS[k] for k in DAILY], [r for k, r in enumerate(RUNS) if k not in DAILY]),
    indirect=["plane"],
    ids=_name,
)
def test_gradients_summed_over_200_instances(case: Case, settings: dict[str, object]) -> None:
    graph, instances, expected = problem(case)
    device = CpuDevice()
    try:
        found = run(device, graph, instances, keys=16, **settings)
    finally:
        device.close()
    assert found.forward == found.backward > 0
    assert_same(found, expected)


@each
def test_one_key_at_a_time_gives_the_same_sums(case: Case) -> None:
    graph, instances, expected = problem(case)
    device = CpuDevice()
    try:
        assert_same(run(device, graph, instances, keys=1, workers=2), expected)
    finally:
        device.close()


@each
def test_inference_gives_the_reference_losses_and_returns_nothing(case: Case) -> None:
    graph, instances, _ = problem(case)
    expected = reference(graph, instances[:40], mode=Mode.INFER)
    device = CpuDevice()
    try:
        found = run(device, graph, instances[:40], mode=Mode.INFER, workers=2)
    finally:
        device.close()
    assert found.forward == found.backward == 0
    assert found.losses == pytest.approx(expected.losses, rel=1e-5, abs=1e-6)
    assert all(not g.any() for g in found.gradients.values())


@each
@pytest.mark.parametrize("keys,workers", [(1, 1), (8, 2), (16, 4)])
def test_a_replayed_log_gives_the_same_bits(case: Case, keys: int, workers: int) -> None:
    graph, instances, _ = problem(case)
    options = {
        "keys": keys,
        "updates": "self",
        "rule": UpdateRule(interval=7, optimizer="adam", lr=0.01),
        "frame_cap": 5,
    }
    device = CpuDevice()
    try:
        first = run(device, graph, instances[:60], log=True, workers=workers, **options)
    finally:
        device.close()
    again = CpuDevice(replay=device.log)
    second = run(again, graph, instances[:60], **options)
    again.close()
    assert first.losses == second.losses
    for name, value in first.parameters.items():
        np.testing.assert_array_equal(value, second.parameters[name], err_msg=name)
