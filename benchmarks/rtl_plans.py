"""Plans of models for boards, as `amphw rtl` makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from amphw.host.config import resolve
from amphw.host.session import update_rules
from amphw.models import get_model
from amphw.rtl.build.boards import board
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.plan.hardware import HardwarePlan, Sizes, hardware_plan
from amphw.rtl.plan.sizing import memory_sizes

SMALL_DEVICE = ("hidden=8", "batch=1", "optimizer=sgd")
"""Settings of the list reduction that is built as an example."""


def plan_of(
    model: str, settings: Sequence[str], formats: str, lanes: int, keys: int, on: str
) -> HardwarePlan:
    """A model's plan for a board, whether or not it fits. keys: that train, and as many that infer."""
    found = get_model(model)
    cfg = resolve(found.config, found.defaults, None, settings)
    graph = found.graph(cfg.model)
    counters = int(board(on).target.family == "ecp5")
    base = hardware_plan(
        graph, update_rules(cfg, graph), Formats.parse(formats), Sizes(lanes=lanes, counters=counters)
    )
    return replace(base, sizes=memory_sizes(base, keys, keys))
