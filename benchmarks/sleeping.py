"""The sleep method beside the calculation and the CPU engine: what a model trains where its layers wait.

    python benchmarks/sleeping.py [--seconds 4] [--rounds 3] [--json FILE]

Slow devices are what limits, and are measured once, beside the calculation. Of the fastest there are some
rounds of two measurements that take turns: the CPU engine, which computes everything, and `amphw estimate
--method sleep`, on the same training instances and with the same settings. The table of docs/estimate.md
comes from here.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from record import save

from amphw.estimate.play.sleeping import loaded, throughput
from amphw.host.config import resolve
from amphw.host.run_model import chosen_instances
from amphw.ir.device import Mode
from amphw.models import get_model

SLOW, FAST = ("200MFLOPS", "2GFLOPS"), "1TFLOPS"
"""Rates of a device."""
RUNS = {
    "tree-lstm": ["sample=true"],
    "ggnn": ["sample=true"],
    "list-reduction": [],
    "list-reduction, four replicas": ["replicas=4"],
}
"""Models and their settings; generated data where a model has it."""
INSTANCES = 32
"""As the sleep method takes without --instances."""


def computed(model: str, settings: list[str], seconds: float) -> float:
    """What the CPU engine trains a second."""
    found: Any = get_model(model)
    cfg = resolve(found.config, found.defaults, None, settings)
    found.prepare(cfg.model, cfg.train.seed)
    device = loaded(found, cfg, "cpu", {})
    try:
        instances = chosen_instances(found, cfg, INSTANCES)
        return throughput(device, found, instances, range(cfg.train.max_active_keys), Mode.TRAIN, seconds)
    finally:
        device.close()


def slept(model: str, settings: list[str], flops: str, seconds: float) -> dict[str, Any]:
    """What the sleep method finds, and the calculation beside it."""
    sets = [word for setting in settings for word in ("--set", setting)]
    words = ["estimate", model, *sets, "--flops", flops, "--method", "sleep", "--json"]
    more = ["--seconds", str(seconds), "--instances", str(INSTANCES)]
    command = [sys.executable, "-m", "amphw.cli", *words, *more]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def row(name: str, flops: str, found: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": name,
        "flops": flops,
        "calculated": found["throughput"] * found["counted_per_instance"],
        "slept": found["measured"]["train_per_s"],
        "counted": found["counted"],
    }


def beside_the_engine(name: str, seconds: float, rounds: int) -> dict[str, Any]:
    """Medians of the rounds, and of the ratio in each."""
    model, settings = name.partition(",")[0], RUNS[name]
    each, found = [], {}
    for _ in range(rounds):
        on_cpu = computed(model, settings, seconds)
        found = slept(model, settings, FAST, seconds)
        each.append({"computed": on_cpu, "slept": found["measured"]["train_per_s"]})
    return row(name, FAST, found) | {
        "slept": statistics.median(one["slept"] for one in each),
        "computed": statistics.median(one["computed"] for one in each),
        "ratio": statistics.median(one["slept"] / one["computed"] for one in each),
        "rounds": each,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where the record is written")
    args = parser.parse_args()
    rows = []
    for name, settings in RUNS.items():
        model = name.partition(",")[0]
        rows += [row(name, flops, slept(model, settings, flops, args.seconds)) for flops in SLOW]
        rows.append(beside_the_engine(name, args.seconds, args.rounds))
        for one in rows[-len(SLOW) - 1 :]:
            ratio = one.get("ratio")
            more = "" if ratio is None else f", {ratio:.2f} times the CPU engine's {one['computed']:,.4g}"
            print(
                f"{name:30} {one['flops']:>10}: calculated {one['calculated']:,.4g} {one['counted']}/s, "
                f"by sleeping {one['slept']:,.4g}{more}",
                flush=True,
            )
    if args.json is not None:
        save({"seconds": args.seconds, "runs": rows}, args.json)


if __name__ == "__main__":
    main()
