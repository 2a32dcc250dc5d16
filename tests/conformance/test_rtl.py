"""The generated hardware, simulated, against the model of its arithmetic: every message, every bit.

The hardware's log says in which order it ran what; replayed on the model, each firing must write the same
words, each loss be the same number, and the parameters end up the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from amphw.host.config import resolve
from amphw.ir.device import DeviceOptions, Direction, Mode, Report
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule
from amphw.models import get_model
from amphw.rtl.driver.verilator import VerilatorDevice
from amphw.rtl.fixed.device import FixedDevice
from tests.graphs.cases import CASES, Case

pytest.importorskip("amaranth")

SMALL = {"lanes": 4, "payload": 1 << 14, "firings": 1 << 10, "places": 1 << 11, "table": 1 << 12}
INSTANCES = 12

Firings = dict[tuple[int, int, Direction, int], list[np.ndarray | None]]
"""By instance, unit, direction and firing: its outputs, or its operands' gradients (None: none wanted)."""

QUICK = ("tree-leaves", "message-passing", "fe-ponder")
MAPPED = (
    *QUICK,
    "tree-all", "message-passing-three", "message-passing-dense", "look-up", "fe-gru", "fe-tagger",
    "fe-letters", "fe-batch", "fe-any-tree", "fe-network", "fe-network-rows", "fe-by-number",
)  # fmt: skip
"""Graphs whose nodes the hardware has; the others are refused, see test_refused."""


def drive(device: Any, instances: Sequence[Instance], keys: int, mode: Mode) -> tuple[list[Report], Firings]:
    """Keep `keys` instances in flight -> their reports, and what the model says of every firing."""
    free, waiting = list(range(keys)), list(instances)
    reports: list[Report] = []
    seen: Firings = {}
    while len(reports) < len(instances):
        while waiting and free:
            device.submit(free.pop(), len(reports) % 256, waiting.pop(0), mode)
        for r in device.poll(0.05):
            if isinstance(device, FixedDevice):
                for unit, direction, firing, values in device.plane.observed(r.slot):
                    seen[r.number, unit, direction, firing] = values
            free.append(r.slot)
            reports.append(r)
    device.drain()
    return reports, seen


def written(device: VerilatorDevice) -> Firings:
    """What every firing of the hardware wrote into its record."""
    found: Firings = {}
    assert device._watcher.writes is not None
    for about, words in device._watcher.writes:
        active, unit, at = about["active"], about["unit"], about["firing"]
        backward = about["kind"] == 2
        code, table = device.plan.codes[unit], active.layout.plan.units[unit]
        firings = active.layout.firings[unit]
        (record,) = [
            first_record + (firings.first + at - first) * stride
            for first, n, first_record, stride, _ in firings.runs
            if first <= firings.first + at < first + n
        ]
        rows = [0] * len(code.rows)
        for space, r in code.spaces.register.items():
            counts = table.spaces[space]
            rows[r] = counts if isinstance(counts, int) else int(counts[at])
        operands = device.plan.lowered.units[unit].operands
        values: list[np.ndarray | None] = [None] * len(operands) if backward else []
        for item, offset in zip(code.record.items, code.record.offsets, strict=True):
            if item.kind != ("gradient" if backward else "output"):
                continue
            first = active.at.payload + record + offset.of(rows)
            n = code.spaces.words(item.space, item.width).of(rows)
            array = np.array([words.get(first + k, 0) for k in range(n)], np.int64).reshape(-1, item.width)
            if backward:
                values[item.index] = array
            else:
                values.append(array)
        direction = Direction.BACKWARD if backward else Direction.FORWARD
        found[active.instance.number, unit, direction, at] = values
    return found


def assert_bit_identical(
    graph: Graph,
    instances: Sequence[Instance],
    formats: str,
    rule: UpdateRule,
    *,
    keys: int = 4,
    mode: Mode = Mode.TRAIN,
    **sizes: int,
) -> int:
    """Run on the hardware, replay on the model -> messages compared."""
    for number, instance in enumerate(instances):
        instance.number = number
    hardware = VerilatorDevice(formats)
    hardware.load(
        graph, {"*": rule}, DeviceOptions(keys, 0, "self", 3, True, {"watch_writes": True, **sizes})
    )
    reports, _ = drive(hardware, instances, keys, mode)
    model = FixedDevice(formats, replay=list(hardware.log))
    model.load(graph, {"*": rule}, DeviceOptions(keys, 0, "self", 3, False, {"observe": True}))
    replayed, wanted = drive(model, instances, keys, mode)
    losses = {r.number: r.sums for r in replayed}
    assert {r.number: r.sums for r in reports} == losses
    compared = 0
    lowered = hardware.plan.lowered
    for key, values in written(hardware).items():
        unit = lowered.units[key[1]]
        for k, (got, want) in enumerate(zip(values, wanted[key], strict=True)):
            if want is None:
                continue
            flat = np.asarray(want).reshape(got.shape if got is not None else -1)
            where = f"instance {key[0]}, node '{unit.name}', firing {key[3]}, {key[2].value} {k}"
            assert got is not None and np.array_equal(got, flat), f"{where}: {got} instead of {flat}"
            compared += 1
    ours, theirs = hardware.parameters(), model.parameters()
    for name, node in theirs.items():
        assert ours[name].version == node.version, name
        for parameter, value in node.values.items():
            same = np.array_equal(ours[name].values[parameter], value)
            assert same, f"{name}.{parameter} differs after {node.version} updates"
    hardware.close()
    return compared


@cache
def problem(case: Case) -> tuple[Graph, list[Instance]]:
    instances: list[Instance] = []
    seed = 0
    while len(instances) < INSTANCES:
        instances += case.instances(seed)
        seed += 1
    return case.build(), instances[:INSTANCES]


def _case(name: str) -> Case:
    return next(c for c in CASES if c.name == name)


def _rule(name: str) -> UpdateRule:
    """Both optimisers and several intervals occur."""
    number = MAPPED.index(name)
    optimizer = ("momentum", "sgd")[number % 2]
    return UpdateRule(interval=3 + number, lr=0.05, optimizer=optimizer)


@pytest.mark.parametrize("name", QUICK)
def test_every_message_is_that_of_the_model(name: str) -> None:
    graph, instances = problem(_case(name))
    compared = assert_bit_identical(graph, instances, "q6.10,g=q4.12", _rule(name), **SMALL)
    assert compared > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in MAPPED if n not in QUICK])
def test_every_message_of_the_other_graphs(name: str) -> None:
    graph, instances = problem(_case(name))
    assert_bit_identical(graph, instances, "q6.10,g=q4.12", _rule(name), **SMALL)


def test_inference_is_that_of_the_model() -> None:
    graph, instances = problem(_case("tree-leaves"))
    assert_bit_identical(graph, instances, "q6.10,g=q4.12", _rule("tree-leaves"), mode=Mode.INFER, **SMALL)


def test_list_reduction_at_its_real_size() -> None:
    """The first 1,000 messages and more, hidden 32, with many keys in flight."""
    model = get_model("list-reduction")
    cfg = resolve(model.config, model.defaults, None, ["model.hidden=32", "model.batch=1"])
    data = model.training(cfg.model, 0, 1, 40)
    instances = [data[i] for i in range(40)]
    rule = UpdateRule(interval=50, lr=0.05, optimizer="momentum")
    compared = assert_bit_identical(
        model.graph(cfg.model), instances, "q4.12", rule, keys=8, lanes=16, payload=1 << 15
    )
    assert compared >= 1000


@pytest.mark.parametrize("name", sorted({c.name for c in CASES} - set(MAPPED)))
def test_refused(name: str) -> None:
    """What the hardware cannot run is said by name, before anything is built."""
    from amphw.ir.errors import GraphError
    from amphw.rtl.formats import Formats
    from amphw.rtl.hardware_plan import Sizes, hardware_plan

    with pytest.raises(GraphError, match=r"node '.*': the hardware"):
        hardware_plan(_case(name).build(), {"*": UpdateRule()}, Formats(), Sizes())
