"""Attempts to make a device wait for itself: deep trees, every key at once, memory for hardly one of them."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.instance import Instance
from amphw.rtl.driver.verilator import VerilatorDevice
from tests.conformance.test_rtl import SMALL, _case, _rule, drive
from tests.graphs import tree


def caterpillars(n: int) -> list[Instance]:
    """A leaf at every inner node: the longest chains; each join waits for the one below."""
    rng = np.random.default_rng(5)
    found = [tree.instance(rng, leaves=tree.MAX_LEAVES, shape="caterpillar") for _ in range(n)]
    for number, instance in enumerate(found):
        instance.number = number
    return found


@pytest.mark.parametrize("keys", [1, 2, 4])
@pytest.mark.parametrize("room", ["plenty", "one", "two"])
def test_every_instance_ends(keys: int, room: str) -> None:
    device = VerilatorDevice("q6.10,g=q4.12")
    options = DeviceOptions(4, 0, "self", 3, True, {"watch_writes": True, **SMALL})
    device.load(_case("tree-leaves").build(), {"*": _rule("tree-leaves")}, options)
    instances = caterpillars(8)
    if room != "plenty":
        # No more memory than so many of them take: the others wait outside.
        layout = device._layout(instances[0])
        needs = (layout.n_firings, layout.n_places, layout.n_payload)
        for arena, need in zip(device._arenas, needs, strict=False):
            arena.take(arena.room - need * {"one": 1, "two": 2}[room])
    reports, _ = drive(device, instances, keys, Mode.TRAIN)
    assert sorted(r.number for r in reports) == list(range(8))
    stats = device.statistics()
    assert stats.forward == stats.backward > 0
    device.close()
