"""Cycles of the Verilated hardware beside those that the event simulation foresees.

    python benchmarks/circuit_cycles.py [--messages 1000] [--json FILE] [--update] [NAME ...]

Instances are trained on a device that has all nodes, so many in flight, until that many messages, forward and
backward, have been delivered; the simulation plays the same instances on a circuit of the same lanes, whose
cycles come from the programs alone. The bar: within 3 % for list reduction. --update writes the results into
`amphw/estimate/accuracy.json`, which reports on estimates show.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from record import save

from amphw.engine.lowering.lower import lower
from amphw.estimate.accuracy import FILE, Accuracy, read, updated, write
from amphw.estimate.count.traffic import count
from amphw.estimate.network.devices import Circuit
from amphw.estimate.network.network import Network, seconds_of
from amphw.host.config import resolve
from amphw.host.run_model import chosen_instances
from amphw.host.session import graph_of, update_rules
from amphw.ir.device import DeviceOptions, Mode
from amphw.models import get_model
from amphw.rtl.driver import device as driver
from amphw.rtl.driver.verilator import VerilatorDevice
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.timing.circuit import Circuits

BAR = 0.03
FORMATS = "q4.12"
INSTANCES = 32
CLOCK = 1e6
TURN = 200
"""Cycles between two looks of the host: until then nobody hears what came from the device."""


@dataclass(frozen=True)
class Run:
    model: str
    lanes: int
    keys: int
    settings: tuple[str, ...]
    times: int = 1  # the messages that others have

    @property
    def name(self) -> str:
        return f"{self.model}, {' '.join(self.settings)}, {self.lanes} lanes, {self.keys} keys"


def _lists(lanes: int, keys: int, *more: str) -> Run:
    return Run("list-reduction", lanes, keys, ("batch=1", "optimizer=sgd", *more))


RUNS = {
    "lists": _lists(16, 4, "hidden=32"),
    "lists-alone": _lists(16, 1, "hidden=32"),
    "lists-many": _lists(16, 16, "hidden=32"),
    "lists-small": _lists(4, 4, "hidden=8"),
    "lists-updates": _lists(16, 4, "hidden=32", "min_update_interval=40"),
    "trees": Run(
        *("tree-lstm", 4, 4),
        ("sample=true", "hidden=16", "embedding=16", "vocabulary=1000", "optimizer=momentum"),
        times=4,
    ),
    "molecules": Run("ggnn", 8, 2, ("sample=true", "hidden=8", "optimizer=momentum"), times=10),
}
BARRED = [name for name in RUNS if name.startswith("lists")]


def both(run: Run, messages: int) -> dict[str, Any]:
    """Cycles of each, for as many instances as have so many messages."""
    found = get_model(run.model)
    cfg = resolve(found.config, found.defaults, None, run.settings)
    graph = graph_of(found, cfg)
    found.prepare(cfg.model, cfg.train.seed)
    rules = update_rules(cfg, graph)
    instances = chosen_instances(found, cfg, INSTANCES)
    driver.BURST = TURN
    device = VerilatorDevice(FORMATS)
    settings = {"lanes": run.lanes, "watch": True, "counters": 1}
    device.load(graph, rules, DeviceOptions(run.keys, 1, settings=settings))
    simulation = device.link.simulation  # type: ignore[union-attr]
    device.counters()  # behind all parameters, which the link brings first
    begun, delivered, submitted, retired = simulation.cycles, 0, 0, 0
    free = list(range(run.keys))
    while delivered < run.times * messages:
        while free:
            instance = instances[submitted % len(instances)]
            instance.number = submitted
            device.submit(free.pop(), submitted % 256, instance, Mode.TRAIN)
            submitted += 1
        for report in device.poll():
            free.append(report.slot)
            retired += 1
        now = device.statistics()
        delivered += now.forward + now.backward
    cycles = simulation.cycles - begun
    device.drain()
    device.close()
    circuit = Circuit(run.lanes, CLOCK, Circuits(Formats.parse(FORMATS)))
    traffic = count(lower(graph), instances)
    network = Network(circuit=circuit, devices=1)
    foreseen = CLOCK * seconds_of(traffic, rules, network, run.keys, delivered)
    return {
        "run": run.name,
        "instances": retired,
        "messages": delivered,
        "measured": cycles,
        "simulated": foreseen,
        "error": foreseen / cycles - 1,
    }


def accuracy(run: Run, found: dict[str, Any]) -> Accuracy:
    """A row for `accuracy.json`: of rates, as others there."""
    rates = (1e6 * found["messages"] / found[of] for of in ("measured", "simulated"))
    return Accuracy(
        "the simulated circuit",
        run.model,
        f"{run.lanes} lanes, {run.keys} keys, {' '.join(run.settings)}",
        *rates,
        unit="messages in a million cycles",
        command="python benchmarks/circuit_cycles.py",
        machine=f"cycles, whatever the machine; {FORMATS}",
        date=datetime.now(UTC).date().isoformat(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(RUNS), help=", ".join(RUNS))
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--update", action="store_true", help="write the results into accuracy.json")
    given = parser.parse_args()
    records, met = {}, True
    for name in given.names:
        record = records[name] = both(RUNS[name], given.messages)
        met &= abs(record["error"]) <= BAR or name not in BARRED
        print(
            f"{record['run']}: {record['messages']:,} messages of {record['instances']} instances, measured "
            f"{record['measured']:,} cycles, simulated {record['simulated']:,.0f}, {record['error']:+.1%}",
            flush=True,
        )
    if given.update:
        write(FILE, updated(read(FILE), [accuracy(RUNS[name], of) for name, of in records.items()]))
    print(f"bar: {BAR:.0%} for list reduction, {'met' if met else 'NOT met'}")
    if given.json is not None:
        save(records, given.json)
    sys.exit(not met)


if __name__ == "__main__":
    main()
