"""What replicas of list reduction's cell do to its throughput: 1, 2 and 4 of them, in turn.

    python benchmarks/replicate_bars.py                              # 10 rounds of all three
    python benchmarks/replicate_bars.py --rounds 3 --interval divided
    python benchmarks/replicate_bars.py --set hidden=64              # further settings of each run

In each round every number of replicas trains once, and its rate is compared with that of one in the same
round; what is told are medians over the rounds, with an interval that holds 95 % of medians of resampled
rounds. The first epoch of a run is left out, and told apart: routes are planned in it. `cpu` are seconds of
processor time for an epoch, which depend less on what else the machine does. Prints a table and writes
benchmarks/results/replicate.json.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from record import RESULTS, save

from amphw.cpu_runtime import CpuDevice
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.models import get_model

COUNTS = (1, 2, 4)


def measured(n: int, args: argparse.Namespace) -> dict[str, float]:
    """A run with n replicas: of its epochs but the first, sequences/s and cpu seconds; updates an epoch."""
    model = get_model("list-reduction")
    given = [f"device.replicate=cell:{n}", f"device.replicate_interval={args.interval}"]
    given += [f"device.replicate_rule={args.rule}", f"epochs={args.epochs}", "target=none", "trace=false"]
    cfg = resolve(model.config, model.defaults, None, [*given, "valid_instances=100", *args.set])
    device = CpuDevice()
    cpu: list[float] = []

    try:
        trainer = Trainer(model, cfg, device, None)
        train = trainer._epoch  # what an epoch costs is known to nobody else

        def timed() -> None:
            began = time.process_time()
            train()
            cpu.append(time.process_time() - began)

        trainer._epoch = timed  # type: ignore[method-assign]
        history = trainer.run().history
        updates = sum(p.version for node, p in device.parameters().items() if node.startswith("cell"))
    finally:
        device.close()
    first, last = history[0], history[-1]
    return {
        "rate": (last.instances - first.instances) / (last.seconds - first.seconds),
        "first_rate": first.instances / first.seconds,
        "cpu": statistics.median(cpu[1:]),
        "first_cpu": cpu[0],
        "updates": updates / args.epochs,
    }


def with_interval(values: list[float], draws: int = 2000) -> dict[str, float]:
    """The median, and the 2.5th and 97.5th percentile of medians of resampled values."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(values, (draws, len(values))), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return {"median": statistics.median(values), "low": float(low), "high": float(high)}


def summary(rounds: list[dict[int, dict[str, float]]]) -> list[dict[str, Any]]:
    """A row for each number of replicas."""
    rows = []
    for n in COUNTS:
        each = [r[n] for r in rounds]
        rows.append(
            {
                "replicas": n,
                **{key: with_interval([run[key] for run in each]) for key in each[0]},
                "ratio": with_interval([r[n]["rate"] / r[1]["rate"] for r in rounds]),
                "cpu_ratio": with_interval([r[1]["cpu"] / r[n]["cpu"] for r in rounds]),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=5, help="of each run; the first is told apart")
    parser.add_argument("--interval", choices=["whole", "divided"], default="whole")
    parser.add_argument("--rule", default="least-loaded")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, default=RESULTS / "replicate.json")
    args = parser.parse_args()
    if args.epochs < 2 or args.rounds < 1:
        parser.error("at least 2 epochs and 1 round, as the first epoch is left out")
    rounds = []
    for k in range(args.rounds):
        # Another one begins in each round, so that none is always the first.
        order = [COUNTS[(k + j) % len(COUNTS)] for j in range(len(COUNTS))]
        rounds.append({n: measured(n, args) for n in order})
        rates = ", ".join(f"{n}: {rounds[-1][n]['rate']:,.0f}/s" for n in COUNTS)
        print(f"round {k + 1}: {rates}", flush=True)
    rows = summary(rounds)
    for row in rows:
        told = {
            key: f"{row[key]['median']:.3g} ({row[key]['low']:.3g}-{row[key]['high']:.3g})"
            for key in row
            if key != "replicas"
        }
        print(row["replicas"], told)
    save({"interval": args.interval, "rule": args.rule, "rows": rows, "rounds": rounds}, args.out)


if __name__ == "__main__":
    main()
