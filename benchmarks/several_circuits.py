"""Cycles of several circuits in one run, each and together, beside what `amphw estimate` foresees.

    python benchmarks/several_circuits.py [--json FILE] [NAME ...]

A model is spread over boards as `amphw rtl --boards` does it, and trained on their circuits in lockstep: all
of them are simulated for TURN cycles at a time, and in between the host, which takes none, joins, routes,
computes what has no parameters, and passes messages on. The estimate plays the same instances on the network
that `amphw rtl --boards` writes. Compared are cycles from the first instance until so many have ended, and
for an instance those in which each circuit's engines run firings, or none may because parameters change. The
bar: within 5 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a script

from amphw.engine.lowering.lower import lower
from amphw.engine.parts.driver import PartDriver
from amphw.estimate.count.traffic import Traffic, count
from amphw.estimate.network.devices import Circuit
from amphw.estimate.network.file import read_network
from amphw.estimate.network.network import tally_of
from amphw.host.run_model import chosen_instances
from amphw.host.session import update_rules
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule, rule_of
from amphw.library.hardware_settings import Wanted
from amphw.library.several_boards import Spread, spread
from amphw.mixed.device import MixedDevice
from amphw.models import get_model
from amphw.rtl.build.boards import board
from amphw.rtl.driver import device as hardware
from amphw.rtl.driver.part import HardwarePart
from amphw.rtl.driver.verilator import SimulatedLink, VerilatorDevice
from amphw.rtl.timing.circuit import CircuitModel, Circuits
from benchmarks.record import RESULTS, save

RECORD = RESULTS / "several-circuits.json"
BAR = 0.05
BOARD = "ulx3s-85f"
INSTANCES, ROUNDS = 32, 7
CLOCK = 1e6
TURN = 4
"""Cycles between two looks of the host: until then nobody hears what came from a circuit."""

PATIENCE = 1e6
"""Seconds, and turns, after which a circuit counts as silent: here they wait for each other."""


@dataclass(frozen=True)
class Run:
    """boards: at most."""

    model: str
    boards: int
    settings: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.model}, {' '.join(self.settings)}"


TREE = "sample=true", "hidden=4", "embedding=4", "vocabulary=500", "max_active_keys=2"

RUNS = {
    "lists-128": Run("list-reduction", 6, ("hidden=128", "max_active_keys=16")),
    "lists-32": Run("list-reduction", 2, ("hidden=32", "max_active_keys=4", "min_update_interval=40")),
    "trees": Run("tree-lstm", 2, TREE),
    "trees-on-three": Run("tree-lstm", 3, TREE),
}


class Stepped:
    """A run on several circuits in one thread. cycles: of each circuit, since all were ready."""

    def __init__(self, made: Spread) -> None:
        self.cycles = 0
        hardware.SILENCE, hardware.BURST = int(PATIENCE), TURN
        formats = f"{made.found.formats},lanes=model"
        self.device = MixedDevice({label: VerilatorDevice(formats) for label in made.labels})
        cfg = made.cfg
        settings = {
            "place": cfg.device.place,
            "lanes": made.boards[0].plan.sizes.lanes,
            "silence": PATIENCE,
            "frame_cap": 1,  # the host hands on what it has, firing by firing
        }
        train = cfg.train
        options = DeviceOptions(train.max_active_keys, train.max_infer_keys, settings=settings)
        self.device.load(made.graph, update_rules(cfg, made.graph), options)
        self._alone()
        self.parts = {driver.label: _hardware(driver) for driver in self.device._drivers}
        for part in self.parts.values():
            part.device.counters()  # behind all parameters, which the link brings first
            part.device.link = _Lockstep(part.device.link)

    def _alone(self) -> None:
        """Stop all threads: what they do is done here, in turns."""
        device = self.device
        device._stop.set()
        device.plane.wake()
        for driver in device._drivers:
            driver.stop()
        for thread in [*device._threads, *(driver._thread for driver in device._drivers)]:
            thread.join()

    def train(self, instances: list[Instance], keys: int, rounds: int, enough: int) -> int:
        """Train on all of them so many times, with so many in flight -> the cycle when enough had ended."""
        free, submitted, retired, at = list(range(keys)), 0, 0, 0
        while retired < rounds * len(instances):
            while free and submitted < rounds * len(instances):
                instance = instances[submitted % len(instances)]
                instance.number = submitted
                self.device.submit(free.pop(), submitted % 256, instance, Mode.TRAIN)
                submitted += 1
            self._host()
            for part in self.parts.values():
                part._turn()
            self.cycles += TURN
            self._host()
            for report in self.device.poll():
                free.append(report.slot)
                retired += 1
            at = at or (self.cycles if retired >= enough else 0)
        return at

    def _host(self) -> None:
        """Everything that can be done without a circuit."""
        moved = True
        while moved:
            moved = False
            while self.device.plane.run(0, 1.0):
                moved = True
            for driver in self.device._drivers:
                while len(driver._begun) < driver.part.depth and (frame := driver.hand_out()) is not None:
                    driver.give(frame)
                    moved = True
                part = _hardware(driver)
                done, part._done = part._done, []
                for result in done:
                    driver.bring_back(result)
                    moved = True


def _hardware(driver: PartDriver) -> HardwarePart:
    assert isinstance(driver.part, HardwarePart)
    return driver.part


class _Lockstep:
    """A link that takes just as many cycles as it is given."""

    def __init__(self, link: Any) -> None:
        assert isinstance(link, SimulatedLink)
        self.link, self.simulation = link, link.simulation

    def exchange(self, words: np.ndarray, cycles: int) -> tuple[int, np.ndarray, list[int]]:
        accepted, came, _ = self.simulation.exchange(words, cycles)
        return accepted, came, []

    def close(self) -> None:
        self.link.close()


def both(run: Run, rounds: int) -> dict[str, Any]:
    """Cycles of the circuits and of the estimate, on the instances so many times."""
    model = get_model(run.model)
    made = spread(model, board(BOARD), run.boards, Wanted(settings=run.settings))
    cfg, keys = made.cfg, made.cfg.train.max_active_keys
    model.prepare(cfg.model, cfg.train.seed)
    instances = chosen_instances(model, cfg, INSTANCES)
    enough = rounds * len(instances) - 2 * keys  # until then as many are in flight as may be
    stepped = Stepped(made)
    before = {label: part.device.counters() for label, part in stepped.parts.items()}
    at = stepped.train(instances, keys, rounds, enough)
    after = {label: part.device.counters() for label, part in stepped.parts.items()}
    stepped.device.close()

    with tempfile.TemporaryDirectory() as folder:
        listed = made.write(Path(folder))["network"]
        circuits = Circuits(made.found.formats)
        network = read_network(listed, lambda lanes, clock: Circuit(lanes, CLOCK, circuits))
    traffic, rules = count(lower(made.graph), instances), update_rules(cfg, made.graph)
    tally = tally_of(traffic, rules, network, keys, retired=enough)
    trained = rounds * len(instances)
    spent = {label: (_engines(after[label]) - _engines(before[label])) / trained for label in made.labels}
    nodes = [[u.name for u in fit.plan.partition.units] for fit in made.boards]
    lanes = made.boards[0].plan.sizes.lanes
    told = [_foreseen(traffic, circuits.cycles(made.graph, rules, lanes, each), rules) for each in nodes]
    return {
        "run": run.name,
        "lanes": lanes,
        "keys": keys,
        "instances": enough,
        "measured": at,
        "foreseen": tally.us,
        "error": tally.us / at - 1,
        "circuits": [
            {
                "nodes": names,
                "measured": spent[label],
                "foreseen": cycles,
                "error": cycles / spent[label] - 1,
            }
            for label, names, cycles in zip(made.labels, nodes, told, strict=True)
        ],
    }


def _foreseen(traffic: Traffic, circuit: CircuitModel, rules: Mapping[str, UpdateRule]) -> float:
    """Cycles that a circuit's engines take for an instance on average: firings and its share of updates."""
    total = 0.0
    for name, unit in circuit.units.items():
        own = traffic.lowered.units[traffic.lowered.by_name[name]]
        for firing, number in traffic.alike.get(own.index, {}).items():
            ways = (circuit.engines(name, back, dict(firing.rows)) for back in (False, True))
            total += number * sum(ways) / len(traffic.walks)
        if unit.owns:
            rows = traffic.nodes[name].rows["rows"].mean
            total += rows / rule_of(rules, name).interval * circuit.update(name)
    return total


def _engines(counted: Mapping[str, int]) -> int:
    """Cycles in which the engines ran firings, or could not because parameters changed."""
    return counted["sequencer_busy"] + counted["updating"]


def table(records: Mapping[str, Any]) -> str:
    """For the page of several devices: of each run all circuits, and then one by one."""
    lines = [
        "|  | circuit | cycles | foreseen | error |",
        "| -- | -- | -- | -- | -- |",
    ]
    for name, run in RUNS.items():
        found = records[name]
        what = f"{run.model}, {found['lanes']} lanes, {found['keys']} keys: {found['instances']} instances"
        rows = [(what, f"all {len(found['circuits'])}", found)]
        rows += [("", ", ".join(each["nodes"]), each) for each in found["circuits"]]
        for first, circuit, of in rows:
            error = f"{100 * of['error']:+.1f} %"
            lines.append(f"| {first} | {circuit} | {of['measured']:,.0f} | {of['foreseen']:,.0f} | {error} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(RUNS), help=", ".join(RUNS))
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each instance is trained")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", action="store_true", help="what the record says")
    given = parser.parse_args()
    if given.table:
        print(table(json.loads(RECORD.read_text(encoding="utf-8"))))
        return
    records, met = {}, True
    for name in given.names:
        found = records[name] = both(RUNS[name], given.rounds)
        print(
            f"{found['run']}, {found['lanes']} lanes, {found['keys']} keys: {found['instances']} instances "
            f"in {found['measured']:,} cycles, foreseen {found['foreseen']:,.0f}, {found['error']:+.1%}",
            flush=True,
        )
        for each in found["circuits"]:
            print(
                f"  {', '.join(each['nodes'])}: {each['measured']:,.0f} cycles of its engines for an "
                f"instance, foreseen {each['foreseen']:,.0f}, {each['error']:+.1%}",
                flush=True,
            )
        near = all(abs(each["error"]) <= BAR for each in (found, *found["circuits"]))
        met &= near
    print(f"bar: {BAR:.0%}, {'met' if met else 'NOT met'}")
    if given.json is not None:
        save(records, given.json)
    sys.exit(not met)


if __name__ == "__main__":
    main()
