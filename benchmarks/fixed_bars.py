"""What the hardware's arithmetic costs: accuracy beside float32, and the speed of its model in numpy.

    python benchmarks/fixed_bars.py                       # all, about an hour on two cores
    python benchmarks/fixed_bars.py accuracy --seeds 1 2 3
    python benchmarks/fixed_bars.py throughput
    python benchmarks/fixed_bars.py --report              # the tables alone, from what has been run

Accuracy: list reduction with a GRU of 32 units, trained with momentum on the `fixed` device and on the CPU
device in float32, by turns, with the same seeds, data, initial values and steps, one key in flight, so that
both are synchronous. The bar: the median over seeds of the last epoch's validation accuracy differs by a
point at most. Throughput: training on the numpy data plane, in both arithmetics, by turns. Each run is added
to benchmarks/results/fixed.json when it ends, and is not repeated if it is there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

from amphw.host.config import RunConfig, resolve
from amphw.host.controller import Trainer
from amphw.host.devices import make_device
from amphw.host.run_folder import environment
from amphw.models import get_model

RESULTS = Path(__file__).parent / "results" / "fixed.json"
MODEL = "list-reduction"
FIXED = "fixed:q7.9,w=q5.11,g=q6.10"
FLOAT = "cpu"
BAR = 1.0
"""Points of accuracy."""

SETTINGS = (
    "model.hidden=32",
    "model.cell=gru",
    "model.batch=100",
    "train.max_active_keys=1",
    "train.target=none",
    "train.trace=false",
    "train.epochs=8",
    "device.workers=1",
    "update.optimizer=momentum",
    "update.lr=0.6",
    "update.warmup=400",
    "update.schedule=cosine",
    "update.schedule_steps=8000",
    "update.min_update_interval=600",
    "update.nodes.head.min_update_interval=100",
)
SHORT = ("train.epochs=1", "train.train_instances=20000", "train.valid_instances=100")
CELLS = ("rnn", "gru")
ROUNDS = 5


def trained(device: str, settings: list[str]) -> dict[str, Any]:
    model = get_model(MODEL)
    cfg: RunConfig[Any] = resolve(model.config, model.defaults, None, settings)
    made = make_device(device)
    began = time.process_time()
    try:
        summary = Trainer(model, cfg, made, None).run()
        found = made.findings().remarks if device.startswith("fixed") else ()  # type: ignore[attr-defined]
    finally:
        made.close()
    return {
        "device": device,
        "curve": [round(record.valid["accuracy"], 5) for record in summary.history],
        "seconds": round(summary.history[-1].seconds, 2),
        "cpu_seconds": round(time.process_time() - began, 2),
        "sequences_per_s": round(summary.instances_per_s, 1),
        "remarks": list(found),
    }


def accuracy(runs: dict[str, Any], seeds: list[int], fixed: str) -> None:
    for seed in seeds:
        for device in (FLOAT, fixed):
            key = f"{device} seed={seed}"
            if key not in runs:
                print(key, flush=True)
                runs[key] = trained(device, [*SETTINGS, f"train.seed={seed}"])
                print(f"  {runs[key]['curve'][-1]:.4f} in {runs[key]['seconds']:.0f} s", flush=True)
                keep("accuracy", runs)


def throughput(runs: dict[str, Any], fixed: str) -> None:
    os.environ["AMPHW_ENGINE"] = "numpy"
    for cell in CELLS:
        for number in range(ROUNDS):
            for device in (FLOAT, fixed):
                key = f"{device} {cell} {number}"
                if key not in runs:
                    runs[key] = trained(device, [*SETTINGS, *SHORT, f"model.cell={cell}"])
                    print(f"{key}: {runs[key]['sequences_per_s']:.0f} sequences/s", flush=True)
                    keep("throughput", runs)


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return {"settings": list(SETTINGS), "accuracy": {}, "throughput": {}} | found


def keep(part: str, runs: dict[str, Any]) -> None:
    """Keep the runs of one part; the other is as it is in the file."""
    about = {k: v for k, v in environment().items() if k != "started"}
    record = recorded() | {"environment": about, "settings": list(SETTINGS), part: runs}
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")


def report() -> None:
    record = recorded()
    by_device: dict[str, list[float]] = {}
    for run in record["accuracy"].values():
        by_device.setdefault(run["device"], []).append(100 * run["curve"][-1])
    reference = statistics.median(by_device.get(FLOAT, [float("nan")]))
    print(f"accuracy, {MODEL}, bar {BAR:g} point:")
    for device, values in by_device.items():
        median = statistics.median(values)
        listed = " ".join(f"{v:.2f}" for v in values)
        print(f"  {device:24} median {median:.2f} % ({listed})  {median - reference:+.2f}")
    rates: dict[tuple[str, str], list[float]] = {}
    for key, run in record["throughput"].items():
        rates.setdefault((key.split()[1], run["device"]), []).append(run["sequences_per_s"])
    print("throughput on the numpy data plane, sequences/s:")
    for (cell, device), values in rates.items():
        share = statistics.median(values) / statistics.median(rates[cell, FLOAT])
        print(f"  {cell} {device:20} median {statistics.median(values):7.0f}  {share:.2f} of float32")


def main() -> None:
    parser = argparse.ArgumentParser(description="What the hardware's arithmetic costs.")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="accuracy, throughput; all where none is given"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--device", default=FIXED, help="the formats to measure")
    parser.add_argument("--report", action="store_true", help="run nothing")
    args = parser.parse_args()
    parts = args.parts or ["accuracy", "throughput"]
    if unknown := set(parts) - {"accuracy", "throughput"}:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; parts: accuracy, throughput")
    if not args.report:
        if "accuracy" in parts:
            accuracy(recorded()["accuracy"], args.seeds, args.device)
        if "throughput" in parts:
            throughput(recorded()["throughput"], args.device)
    report()


if __name__ == "__main__":
    main()
