"""Messages through simulated hardware: from the host to a Verilated device and back.

    python benchmarks/rtl_messages.py [--seconds 10] [--json FILE]

A layer of 64 x 64 on a device of 16 lanes, all else on the CPU. Every message of 64 words is sent by the host
and comes back from the device, in training also its gradient. Many instances are in flight.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from record import save

from amphw import frontend as fe
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.update import UpdateRule
from amphw.mixed.device import MixedDevice
from amphw.rtl.driver.verilator import VerilatorDevice

WIDTH, LANES, MESSAGES, KEYS = 64, 16, 16, 16
BAR = 10_000


def model() -> fe.Compiled:
    layer = fe.Linear(WIDTH, name="layer")

    def network(x: Any) -> None:
        fe.regress(layer(x.items), x.targets)

    axis = fe.Axis("items", MESSAGES, least=1)
    return fe.compile(
        network, fe.Record(items=fe.Along(axis, fe.Floats(WIDTH)), targets=fe.Along(axis, fe.Floats(WIDTH)))
    )


def measured(mode: Mode, seconds: float, lanes: str = "gates") -> dict[str, float]:
    """lanes: how the lane engine is simulated."""
    made, rng = model(), np.random.default_rng(0)
    shape = (MESSAGES, WIDTH)
    pool = []
    for number in range(64):
        instance = made.encode({"items": rng.normal(0, 0.5, shape), "targets": np.zeros(shape)})
        instance.number = number
        pool.append(instance)
    device = MixedDevice({"fpga": VerilatorDevice(f"q4.12,lanes={lanes}")})
    options = DeviceOptions(
        max_active_keys=KEYS, max_infer_keys=KEYS, settings={"place": "layer=fpga", "lanes": LANES}
    )
    device.load(made.graph, {"*": UpdateRule(interval=256, lr=0.01)}, options)
    hardware = device.parts["fpga"].device  # type: ignore[attr-defined]
    simulation = hardware.link.simulation
    free = list(range(KEYS) if mode is Mode.TRAIN else range(KEYS, 2 * KEYS))
    submitted = retired = 0
    start, cycles, used = time.perf_counter(), simulation.cycles, time.process_time()
    while time.perf_counter() < start + seconds:
        while free:
            device.submit(free.pop(), submitted, pool[submitted % len(pool)], mode)
            submitted += 1
        for report in device.poll(0.1):
            free.append(report.slot)
            retired += 1
    took, messages = time.perf_counter() - start, retired * MESSAGES
    used = time.process_time() - used
    cycles = simulation.cycles - cycles
    device.drain()
    device.close()
    return {
        "messages_per_s": messages / took,
        "messages_per_cpu_s": messages / used,
        "cycles_per_message": cycles / messages,
        "cycles_per_s": cycles / took,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = {mode.value: measured(mode, given.seconds) for mode in (Mode.INFER, Mode.TRAIN)}
    for mode, values in found.items():
        print(
            f"{mode:>8}: {values['messages_per_s']:>8,.0f} messages/s of {BAR:,}, "
            f"{values['cycles_per_message']:,.0f} cycles each, {values['cycles_per_s'] / 1e6:.2f} M cycles/s"
        )
    if given.json:
        save(found, given.json)


if __name__ == "__main__":
    main()
