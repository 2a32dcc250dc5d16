"""Our side of a benchmark: a model on a device, pumped by a loop that does nothing else.

    python -m amphw.bench.ours '{"model": ..., ...}'

Fields: model, overrides (of the configuration), instances (how many of the training set to cycle through),
device, settings (for the device alone), every (counted instances between two updates; 0: the configured
intervals), warm (seconds that each mode runs beforehand).

Intervals are gradient rows at each node. How many rows an instance brings to a node is counted beforehand, so
that `every` = 100 means the same as a peer's batch of 100.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from amphw.bench.export import chosen_instances
from amphw.bench.flops import count_flops
from amphw.bench.peers.serving import Channel, Handler, serve
from amphw.host.config import RunConfig, resolve
from amphw.host.devices import make_device
from amphw.host.session import update_rules
from amphw.ir.device import Device, DeviceOptions, Mode
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule
from amphw.models import get_model

_POLL_S = 0.05
MODES = {"train": Mode.TRAIN, "infer": Mode.INFER}


def main() -> None:
    spec = json.loads(sys.argv[1])
    serve(lambda channel: OurSide(spec, channel).begin())


class OurSide:
    """The model, the instances and, once `begin` has run, the device."""

    def __init__(self, spec: Mapping[str, Any], channel: Channel) -> None:
        self.spec, self.channel = spec, channel
        self.model: Any = get_model(spec["model"])
        self.cfg: RunConfig[Any] = resolve(self.model.config, self.model.defaults, None, spec["overrides"])
        self.graph: Graph = self.model.graph(self.cfg.model)
        self.instances = chosen_instances(self.model, self.cfg, int(spec["instances"]))
        self.sizes = [int(self.model.size(i)) for i in self.instances]

    def begin(self) -> tuple[Mapping[str, Any], dict[str, Handler]]:
        rules = update_rules(self.cfg, self.graph)
        counts = self._rows(rules)
        flops = count_flops(self.graph, self.instances, counts).per(sum(self.sizes))
        self.rows = {node: rows / sum(self.sizes) for node, rows in counts.items()}
        if every := int(self.spec["every"]):
            rules = {n: replace(rule, interval=self._interval(n, every)) for n, rule in rules.items()}
        self.rules = rules
        self.device = device = self._loaded(rules, "self")
        keys, infer_keys = self.cfg.train.max_active_keys, self.cfg.train.max_infer_keys
        self.loops = {
            "train": PumpLoop(device, self.instances, self.sizes, range(keys), Mode.TRAIN),
            "infer": PumpLoop(device, self.instances, self.sizes, range(keys, keys + infer_keys), Mode.INFER),
        }
        for loop in self.loops.values():
            loop.run(float(self.spec["warm"]))
        first = {
            "max_active_keys": keys,
            "max_infer_keys": infer_keys,
            "workers": self.cfg.device.workers,
            "intervals": {n: rule.interval for n, rule in rules.items()},
            "rows_per_instance": self.rows,
            "flops": asdict(flops),
            "instances": len(self.instances),
            "counted_per_instance": sum(self.sizes) / len(self.sizes),
            "counted": self.model.counted,
            "settings": asdict(self.cfg.device) | dict(self.spec["settings"]),
            "device": device.capabilities().notes,
        }
        return first, {"run": self.run, "pump": self.pump, "train": self.train}

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        return self.loops[request["mode"]].run(float(request["seconds"]))

    def pump(self, request: dict[str, Any]) -> dict[str, Any]:
        """Pump instances without a pause; tells time and memory whenever one of `marks` is reached."""
        return {"marks": self.loops["train"].run_to([int(mark) for mark in request["marks"]], self._told)}

    def train(self, request: dict[str, Any]) -> dict[str, Any]:
        """Train from the start until the validation metric reaches the target; as `peers.server` answers."""
        from amphw.bench.training import train

        self.device.close()  # the trainer has one of its own
        overrides = [
            *self.spec["overrides"],
            *(f"update.nodes.{n}.min_update_interval={rule.interval}" for n, rule in self.rules.items()),
        ]
        return train(self.model, overrides, self.spec["settings"], self.spec["device"], request, self.channel)

    def _told(self, mark: dict[str, Any]) -> None:
        self.channel.progress(**mark)

    def _interval(self, node: str, every: int) -> int:
        return max(1, round(every * self.rows[node]))

    def _loaded(self, rules: Mapping[str, UpdateRule], updates: str) -> Device:
        device = make_device(self.spec["device"])
        options = DeviceOptions(
            self.cfg.train.max_active_keys,
            self.cfg.train.max_infer_keys,
            updates=updates,
            seed=self.cfg.train.seed,
            settings=asdict(self.cfg.device) | dict(self.spec["settings"]),
        )
        device.load(self.graph, rules, options)
        return device

    def _rows(self, rules: Mapping[str, UpdateRule]) -> dict[str, int]:
        """Gradient rows of each node over all instances, without an update."""
        device = self._loaded(rules, "off")
        keys = self.cfg.train.max_active_keys
        loop = PumpLoop(device, self.instances, self.sizes, range(keys), Mode.TRAIN)
        loop.run_to([len(self.instances)])
        behind = device.statistics().staleness
        device.close()
        return {node: sum(behind.get(node, {}).values()) for node in self.graph.parameterised}


class PumpLoop:
    """Keeps all of some slots of a device full, in a cycle over instances."""

    def __init__(
        self,
        device: Device,
        instances: Sequence[Instance],
        sizes: Sequence[int],
        slots: Sequence[int],
        mode: Mode,
    ) -> None:
        self._device, self._mode = device, mode
        self._instances, self._sizes, self._slots = instances, sizes, slots
        self._generation = dict.fromkeys(slots, 0)
        self._next = 0

    def run(self, seconds: float) -> dict[str, Any]:
        """Pump for `seconds` and drain -> count (what the model counts), seconds, cpu.

        Filling and emptying are part of the time, as they are of every epoch.
        """
        cpu, began = time.process_time(), time.perf_counter()
        end = began + seconds
        count = self._pump(lambda: time.perf_counter() < end)
        return {"count": count, "seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}

    def run_to(
        self, marks: Sequence[int], tell: Callable[[dict[str, Any]], None] = lambda mark: None
    ) -> list[dict[str, Any]]:
        """Pump as many instances as the last of `marks` says -> the time and the memory at each of them."""
        found: list[dict[str, Any]] = []
        began, pumped = time.perf_counter(), 0

        def go_on() -> bool:
            nonlocal pumped
            if len(found) < len(marks) and pumped == marks[len(found)]:
                found.append({"pumped": pumped, "seconds": time.perf_counter() - began, "memory": memory()})
                tell(found[-1])
            pumped += 1
            return pumped <= marks[-1]

        self._pump(go_on)
        return found

    def _pump(self, go_on: Callable[[], bool]) -> int:
        """Submit one instance for each time that `go_on` is true, and drain -> what they count."""
        device, instances, sizes, mode = self._device, self._instances, self._sizes, self._mode
        generation, at, count = self._generation, self._next, 0
        going = True
        free = list(self._slots)
        in_flight = 0
        while True:
            while free and going:
                going = go_on()
                if not going:
                    break
                slot = free.pop()
                generation[slot] += 1
                device.submit(slot, generation[slot], instances[at], mode)
                count += sizes[at]
                at = at + 1 if at + 1 < len(instances) else 0
                in_flight += 1
            if not going:
                break
            for report in device.poll(_POLL_S):
                free.append(report.slot)
                in_flight -= 1
        device.drain()
        self._next = at
        return count


def memory() -> float:
    """Megabytes that the process has used at most so far."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (1024 * 1024 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main()
