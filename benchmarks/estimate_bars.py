"""Throughput of the CPU engine as its simulation has it, beside what is measured, by instances in flight.

    python benchmarks/estimate_bars.py [--workers 1] [--rounds 5] [--seconds 2] [--json FILE] [--update]
                                        [MODEL ...]

One worker is traced with the keys that the workload has; the costs of its frames then play 1, 4, 16 and 64
keys (`amphw.estimate.simulation`). The bars: within 15 % of what is measured, and the settings in the same
order. Measured on a machine that does nothing else, in interleaved rounds. --update writes the results into
`amphw/estimate/accuracy.json`, which reports on estimates show.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

from amphw.bench.many_workers import Setting, measure_settings
from amphw.bench.plan import Plan
from amphw.bench.workloads import WORKLOADS
from amphw.estimate.accuracy import FILE, Accuracy, read, updated, write

MODELS = ("list-reduction", "tree-lstm", "ggnn")
KEYS = (1, 4, 16, 64)
BAR = 0.15
SAME = 0.05
"""Measured rates that are as near as this have no order."""


def measure(model: str, args: argparse.Namespace) -> dict[str, Any]:
    workload = WORKLOADS[model]
    plan = Plan(
        workload, args.set, workload.every, [], sys.executable, seconds=args.seconds, rounds=args.rounds
    )
    wanted = [Setting(args.workers, keys) for keys in KEYS]
    return measure_settings(plan, wanted, lambda line: print(line, file=sys.stderr, flush=True))


def accuracy(model: str, record: dict[str, Any], command: str, more: list[str]) -> list[Accuracy]:
    """Rows for `accuracy.json`. more: further settings."""
    cpu = record["environment"]["cpu"]
    return [
        Accuracy(
            against="the CPU engine",
            model=model,
            setting=", ".join(
                [_counted(row["workers"], "worker"), _counted(row["max_active_keys"], "key"), *more]
            ),
            measured=row["measured"]["median"],
            simulated=row["simulation"]["instances_per_s"],
            unit=f"{record['counted']}/s",
            command=command,
            machine=f"{cpu['name']}, {cpu['usable']} cores",
            date=record["date"],
            note="; ".join(record["invalid_because"]),
        )
        for row in record["workers"]
    ]


def _counted(number: int, of: str) -> str:
    return f"{number} {of}{'s' * (number > 1)}"


def swapped(rates: list[tuple[float, float]]) -> int:
    """Pairs of settings that the simulation has in another order; (measured, simulated) of each."""
    return sum(
        (a[0] - b[0]) * (a[1] - b[1]) < 0
        for a, b in combinations(rates, 2)
        if abs(a[0] - b[0]) > SAME * max(a[0], b[0])
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", default=list(MODELS))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--set", action="append", default=[], help="further settings")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--update", action="store_true", help=f"write the results into {FILE.name}, too")
    args = parser.parse_args()
    records, met = {}, True
    for model in args.models:
        record = records[model] = measure(model, args)
        rates = []
        for row in record["workers"]:
            simulated, real = row["simulation"]["instances_per_s"], row["measured"]["median"]
            rates.append((real, simulated))
            error = simulated / real - 1
            met &= abs(error) <= BAR
            print(
                f"{model:16} {row['max_active_keys']:3} keys: measured {real:12,.0f}, simulated "
                f"{simulated:12,.0f} {record['counted']}/s, {error:+.1%}",
                flush=True,
            )
        met &= swapped(rates) == 0
        print(f"{model:16} {swapped(rates)} pairs in another order; explained {record['explained']:.0%}")
    print(f"bars: {BAR:.0%} and the same order, {'met' if met else 'NOT met'}")
    if args.update:
        command = shlex.join(["python", *(word for word in sys.argv if word != "--update")])
        new = [row for model in records for row in accuracy(model, records[model], command, args.set)]
        write(FILE, updated(read(FILE), new))
    if args.json is not None:
        args.json.write_text(json.dumps(records, indent=1) + "\n")
    sys.exit(not met)


if __name__ == "__main__":
    main()
