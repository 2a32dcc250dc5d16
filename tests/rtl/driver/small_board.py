"""The circuit that the tests of boards share, so that it is compiled once, and what it trains on."""

from __future__ import annotations

from functools import cache

from amphw.host.config import resolve
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule
from amphw.models import get_model
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.plan.hardware import HardwarePlan, Sizes, hardware_plan

FORMATS = "q4.12,g=q3.13"
SIZES = Sizes(lanes=4, payload=1 << 11, firings=64, places=64, table=128, slots=2)
RULE = UpdateRule(interval=10, lr=0.05, optimizer="sgd")


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
