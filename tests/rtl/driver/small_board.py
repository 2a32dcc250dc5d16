"""The circuit that the tests of boards share, so that it is compiled once, what it trains on, and what has to
come of that."""

from __future__ import annotations

from functools import cache

import numpy as np

from amphw.host.config import resolve
from amphw.ir.device import DeviceOptions
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule
from amphw.models import get_model
from amphw.rtl.driver.board import BoardDevice
from amphw.rtl.fixed.device import FixedDevice
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.plan.hardware import HardwarePlan, Sizes, hardware_plan
from tests.conformance.harness import run

FORMATS = "q4.12,g=q3.13"
SIZES = Sizes(lanes=4, payload=1 << 11, firings=64, places=64, table=128, slots=2)
RULE = UpdateRule(interval=10, lr=0.05, optimizer="sgd")
KEYS = {"keys": 1, "updates": "self", "rule": RULE}
OPTIONS = DeviceOptions(1, 0, "self", 3)


@cache
def problem(hidden: int = 2) -> tuple[Graph, list[Instance]]:
    """List reduction: with one key at a time, each firing waits for the one before, whatever the pace."""
    model = get_model("list-reduction")
    cfg = resolve(model.config, model.defaults, None, [f"model.hidden={hidden}", "model.batch=1"])
    data = model.training(cfg.model, 0, 1, 12)
    instances = [data[k] for k in range(12)]
    for number, instance in enumerate(instances):
        instance.number = number
    return model.graph(cfg.model), instances


@cache
def plan() -> HardwarePlan:
    return hardware_plan(problem()[0], {"*": RULE}, Formats.parse(FORMATS), SIZES)


def assert_trains(device: BoardDevice) -> None:
    """To the bit as the model of its arithmetic."""
    graph, instances = problem()
    found = run(device, graph, instances, **KEYS)
    device.close()
    expected = run(FixedDevice(FORMATS), graph, instances, **KEYS)
    assert found.losses == expected.losses
    for key, value in expected.parameters.items():
        assert np.array_equal(found.parameters[key], value), key
        assert np.array_equal(found.gradients[key], expected.gradients[key]), key
    assert {n: p.version for n, p in device.parameters().items()} == {"cell": 7, "head": 1}
    assert found.forward == found.backward > 0
