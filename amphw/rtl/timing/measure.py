"""How many cycles a device spends on a message, measured on its simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule
from amphw.rtl.driver.verilator import VerilatorDevice
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.plan.hardware import Sizes


def cycles_per_message(
    graph: Graph,
    rules: Mapping[str, UpdateRule],
    formats: Formats,
    sizes: Sizes,
    keys: int,
    instances: Sequence[Instance],
) -> float:
    """Train on the instances, `keys` in flight -> busy cycles by messages, forward and backward.

    A cycle is busy unless nothing is left to do until the host sends more. The first time this compiles the
    simulation, for a minute or so. AmphwError if an instance does not fit the sizes.
    """
    device = VerilatorDevice(str(formats))
    settings = {**asdict(replace(sizes, counters=1)), "watch": True}
    device.load(graph, rules, DeviceOptions(keys, sizes.slots - keys, settings=settings))
    try:
        before = _busy(device)
        device.statistics()
        free, waiting = list(range(keys)), list(enumerate(instances))
        done = 0
        while done < len(instances):
            while waiting and free:
                number, instance = waiting.pop(0)
                instance.number = number
                device.submit(free.pop(), number % 256, instance, Mode.TRAIN)
            for report in device.poll():
                free.append(report.slot)
                done += 1
        stats = device.statistics()
        return (_busy(device) - before) / (stats.forward + stats.backward)
    finally:
        device.close()


def _busy(device: VerilatorDevice) -> int:
    counted = device.counters()
    return counted["sequencer_busy"] + counted["fetching"] + counted["updating"]
