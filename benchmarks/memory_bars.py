"""Memory of the C++ data plane: flat over epochs, and proportional to the number of active keys.

    python benchmarks/memory_bars.py            # writes benchmarks/results/memory.json

Over 100 epochs of list-reduction (2,000 sequences each) the resident set is read after every epoch; it must
not grow. Then trees are kept in flight at 8 to 256 keys; the slots' memory must grow in proportion.
"""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
from record import RESULTS, save

from amphw.cpu_runtime import CpuDevice
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.update import UpdateRule
from amphw.models import get_model


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def over_epochs(epochs: int) -> dict[str, Any]:
    model = get_model("list-reduction")
    settings = [
        "trace=false",
        "target=none",
        f"epochs={epochs}",
        "train_instances=2000",
        "valid_instances=500",
    ]
    cfg = resolve(model.config, model.defaults, None, settings)
    device = CpuDevice()
    samples: list[int] = []
    trainer = Trainer(model, cfg, device, None)
    epoch = trainer._epoch

    def noted() -> None:
        epoch()
        gc.collect()
        samples.append(resident())

    trainer._epoch = noted  # type: ignore[method-assign]
    try:
        trainer.run()
    finally:
        device.close()
    settled = samples[len(samples) // 10]
    return {
        "epochs": len(samples),
        "resident_mb": [round(s / 1e6, 2) for s in samples[:: max(1, len(samples) // 20)]],
        "growth_after_10_percent": max(samples[len(samples) // 10 :]) / settled - 1.0,
    }


def by_keys() -> list[dict[str, float]]:
    model = get_model("tree-lstm")
    cfg = model.config(sample=True)
    model.prepare(cfg, 0)
    graph = model.graph(cfg)
    instances = list(model.training(cfg, 0, 1, 1000))
    rows = []
    for keys in (8, 16, 32, 64, 128, 256):
        device = CpuDevice()
        device.load(graph, {"*": UpdateRule(interval=1000)}, DeviceOptions(keys, 0, "self"))
        planned = max(device.planned_bytes(i, Mode.TRAIN) or 0 for i in instances)
        free, sent = list(range(keys)), 0
        while sent < 4 * max(keys, 64):
            while free:
                device.submit(free.pop(), 0, instances[sent % len(instances)], Mode.TRAIN)
                sent += 1
            free += [r.slot for r in device.poll(0.05)]
        device.drain()
        reserved = device.plane.engine.slot_bytes()
        device.close()
        rows.append({"keys": keys, "slots_mb": reserved / 1e6, "kb_per_key": reserved / keys / 1e3})
        print(rows[-1], f"planned at most {planned / 1e3:.0f} kB a key", flush=True)
    return rows


def main() -> None:
    result: dict[str, Any] = {"epochs": over_epochs(100), "keys": by_keys()}
    per_key = [r["kb_per_key"] for r in result["keys"]]
    result["spread_per_key"] = float(np.max(per_key) / np.min(per_key))
    save(result, RESULTS / "memory.json")
    print(json.dumps(result["epochs"]), result["spread_per_key"])


if __name__ == "__main__":
    main()
