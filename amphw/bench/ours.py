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
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from amphw.bench.flops import count_flops
from amphw.bench.serving import Channel, Handler, serve
from amphw.host.config import RunConfig, resolve
from amphw.host.devices import make_device
from amphw.host.pump_loop import PumpLoop
from amphw.host.run_model import chosen_instances
from amphw.host.session import update_rules
from amphw.ir.device import Device, DeviceOptions, Mode
from amphw.ir.graph import Graph
from amphw.ir.update import UpdateRule
from amphw.models import get_model

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


if __name__ == "__main__":
    main()
