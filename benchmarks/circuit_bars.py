"""What the CPU and a simulated circuit learn in a quarter of an hour, beside the model of its arithmetic.

    python benchmarks/circuit_bars.py [--minutes 15] [--formats q4.12] [--json FILE]

`amphw train list-reduction --set hidden=32 --device cpu,verilator` for so long, compiling not counted, then
validation. Then as many instances, in the same order, on `cpu,fixed`, several times, since the order in which
several keys update differs from run to run: the bar is a point of accuracy between the circuit and the median
of these. Last the first run again from its logs, with the model of the arithmetic in the circuit's place:
every parameter must come out the same to the bit.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from record import save

from amphw.host.config import resolve
from amphw.host.pumping import PumpHooks
from amphw.host.session import Session
from amphw.ir.device import Device, DeviceOptions, Mode, Report
from amphw.ir.instance import Instance
from amphw.mixed.device import MixedDevice
from amphw.models import get_model
from amphw.rtl.driver.verilator import VerilatorDevice
from amphw.rtl.fixed.device import FixedDevice
from sim.part_replay import ReplayedDevice

BAR = 1.0
"""Points of accuracy."""

MODEL = get_model("list-reduction")
LOSS = MODEL.loss_node


class Logged(MixedDevice):
    """Keeps the order of everything."""

    def load(self, graph: Any, rules: Any, options: DeviceOptions) -> None:
        super().load(graph, rules, replace(options, log=True))


class Run:
    """One device, loaded; trains, validates."""

    def __init__(self, device: Device, settings: Sequence[str]):
        self.device = device
        self.cfg = resolve(MODEL.config, MODEL.recommended(device.capabilities()), None, settings)
        MODEL.prepare(self.cfg.model, self.cfg.train.seed)
        self.session = Session(MODEL, self.cfg, device)

    def train(self, most: int | None = None, seconds: float = float("inf")) -> int:
        """-> instances."""
        end = time.perf_counter() + seconds
        given = itertools.islice(self._epochs(), most)
        hooks = PumpHooks(lambda instance, report: None)
        trained = self.session.train_pump.run(
            given, Mode.TRAIN, hooks, stopped=lambda: time.perf_counter() > end
        )
        self.device.drain()
        return trained

    def _epochs(self) -> Iterator[Instance]:
        numbers = itertools.count()
        for epoch in itertools.count(1):
            held = MODEL.training(self.cfg.model, self.cfg.train.seed, epoch)
            yield from (_numbered(held[k], next(numbers)) for k in range(len(held)))

    def accuracy(self, sequences: int = 10_000) -> float:
        held = MODEL.validation(self.cfg.model, self.cfg.train.seed, sequences)
        right = rows = 0.0

        def count(instance: Instance, report: Report) -> None:
            nonlocal right, rows
            right, rows = right + report.sums[LOSS]["accuracy"], rows + report.rows[LOSS]

        given = (_numbered(held[k], k) for k in range(len(held)))
        self.session.infer_pump.run(given, Mode.INFER, PumpHooks(count))
        return 100 * right / rows

    def parameters(self) -> dict[str, np.ndarray]:
        found = self.device.parameters()
        return {f"{node}.{name}": v.copy() for node, p in found.items() for name, v in p.values.items()}


def _numbered(instance: Instance, number: int) -> Instance:
    instance.number = number
    return instance


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--formats", default="q4.12")
    parser.add_argument("--runs", type=int, default=5, help="of cpu,fixed")
    parser.add_argument("--set", action="append", default=[], help="further settings")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    settings = ["model.hidden=32", "train.trace=false", *args.set]

    circuit = Run(Logged({"verilator": VerilatorDevice(args.formats)}), settings)
    began = time.perf_counter()
    instances = circuit.train(seconds=60 * args.minutes)
    seconds = time.perf_counter() - began
    sequences = instances * circuit.cfg.model.batch
    assert isinstance(circuit.device, MixedDevice)
    hardware = circuit.device.parts["verilator"].device  # type: ignore[attr-defined]
    log, parameters = list(circuit.device.log), circuit.parameters()
    repeated = ReplayedDevice(args.formats, hardware)
    learnt = circuit.accuracy()
    circuit.device.close()
    print(
        f"cpu,verilator: {sequences:,} sequences in {seconds:.0f} s ({sequences / seconds:.1f}/s): "
        f"{learnt:.2f} %"
    )

    settings.append(f"batch={circuit.cfg.model.batch}")  # which the others would not choose
    beside = []
    for _ in range(args.runs):
        fixed = Run(MixedDevice({"fixed": FixedDevice(args.formats)}), settings)
        fixed.train(instances)
        beside.append(fixed.accuracy())
        fixed.device.close()
        print(f"cpu,fixed: as many: {beside[-1]:.2f} %", flush=True)

    again = Run(MixedDevice({"verilator": repeated}, replay=log), settings)
    again.train(instances)
    same = [name for name, value in again.parameters().items() if np.array_equal(value, parameters[name])]
    again.device.close()
    replayed = len(same) == len(parameters)
    print(f"replay: {len(same)} of {len(parameters)} parameters the same to the bit")

    met = replayed and abs(learnt - statistics.median(beside)) <= BAR
    print(f"bar: {BAR:g} point and equal bits, {'met' if met else 'NOT met'}")
    if args.json is not None:
        found = {
            "sequences": sequences, "seconds": seconds, "accuracy": learnt, "fixed": beside,
            "replayed": replayed, "met": met,
        }  # fmt: skip
        save(found, args.json)
    sys.exit(not met)


if __name__ == "__main__":
    main()
