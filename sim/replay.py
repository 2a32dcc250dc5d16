"""A run of the hardware against the model of its arithmetic: every message, every bit.

The hardware's log says in which order it ran what; replayed on the model, each firing must write the same
words, each loss be the same number, and the parameters end up the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from amphw.engine.numbering import FrameKind
from amphw.ir.device import DeviceOptions, Direction, Mode, Report
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule
from amphw.rtl.driver.device import HardwareDevice
from amphw.rtl.fixed.device import FixedDevice

SEED = 3
"""Of the initial parameters."""

Firings = dict[tuple[int, int, Direction, int], list[np.ndarray | None]]
"""By instance, unit, direction and firing: its outputs, or its operands' gradients (None: none wanted)."""


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


def written(device: HardwareDevice) -> Firings:
    """What every firing of the hardware wrote into its record."""
    found: Firings = {}
    assert device.watcher.writes is not None
    for about, words in device.watcher.writes:
        active, unit, at = about["active"], about["unit"], about["firing"]
        backward = about["kind"] == FrameKind.BACKWARD
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
            shape = code.spaces.words(item.space, 1).of(rows), item.width
            flat = [words.get(first + k, 0) for k in range(shape[0] * shape[1])]
            array = np.array(flat, np.int64).reshape(shape)  # a message may have no numbers
            if backward:
                values[item.index] = array
            else:
                values.append(array)
        direction = Direction.BACKWARD if backward else Direction.FORWARD
        found[active.instance.number, unit, direction, at] = values
    return found


def assert_as_model(
    hardware: HardwareDevice,
    graph: Graph,
    rules: Mapping[str, UpdateRule],
    instances: Sequence[Instance],
    reports: Sequence[Report],
    keys: int,
    mode: Mode,
) -> int:
    """Replay on the model what the hardware, loaded with SEED, has done -> messages compared."""
    model = FixedDevice(str(hardware.formats), replay=list(hardware.log))
    model.load(graph, rules, DeviceOptions(keys, 0, "self", SEED, False, {"observe": True}))
    replayed, wanted = drive(model, instances, keys, mode)
    losses = {r.number: r.sums for r in replayed}
    assert {r.number: r.sums for r in reports} == losses
    assert hardware.watcher.writes is not None
    assert len(hardware.watcher.retired) == len(hardware.watcher.writes)  # each was judged when it had run
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
    return compared
