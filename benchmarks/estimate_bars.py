"""Throughput of the CPU engine as its simulation has it, beside what is measured, by instances in flight.

    python benchmarks/estimate_bars.py [--workers 1] [--rounds 5] [--seconds 2] [--json FILE] [--update]
                                        [MODEL ...]

One worker is traced with 1, 2, 8 and 32 keys, in the same rounds; the costs of its frames then play 1, 4, 16
and 64 keys (`amphw.bench.many_workers`). The bars: within 15 % of what is measured, and the settings in the
same order. Rounds are interleaved; two settings have an order where so many rounds agree on it as would by
chance in one of ten cases at most, which takes five of five, or eight of nine.
--update writes the results into `amphw/estimate/accuracy.json`, which reports on estimates show.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from amphw.bench.many_workers import Setting, measure_settings
from amphw.bench.plan import Plan
from amphw.bench.workloads import WORKLOADS
from amphw.estimate.accuracy import FILE, Accuracy, read, updated, write

MODELS = ("list-reduction", "tree-lstm", "ggnn")
KEYS = (1, 4, 16, 64)
BAR = 0.15
CHANCE = 0.1
"""That settings which are alike are taken to have an order."""


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


@dataclass(frozen=True)
class Pair:
    """Two settings. rounds: the ratio of their rates in each; simulated: that ratio."""

    keys: tuple[int, int]
    rounds: tuple[float, ...]
    simulated: float

    @property
    def tie(self) -> bool:
        """Whether the engine does not tell them apart: a sign test."""
        count, wins = len(self.rounds), sum(ratio > 1.0 for ratio in self.rounds)
        agree = max(wins, count - wins)
        return 2 * sum(comb(count, k) for k in range(agree, count + 1)) / 2**count > CHANCE

    @property
    def swapped(self) -> bool:
        return (median(self.rounds) - 1.0) * (self.simulated - 1.0) < 0

    def __str__(self) -> str:
        low, middle, high = (f"{m - 1:+.1%}" for m in quantiles(self.rounds, method="inclusive"))
        order = "a tie" if self.tie else "SWAPPED" if self.swapped else "in order"
        return (
            f"{self.keys[0]} over {self.keys[1]} keys: measured {middle} ({low} to {high}), simulated "
            f"{self.simulated - 1:+.1%}: {order}"
        )


def pairs(rows: Sequence[Mapping[str, Any]]) -> list[Pair]:
    """Of the settings of a record, measured in at least two rounds."""
    found = []
    for a, b in combinations(rows, 2):
        rounds = zip(a["measured"]["rounds"], b["measured"]["rounds"], strict=True)
        simulated = a["simulation"]["instances_per_s"] / b["simulation"]["instances_per_s"]
        found.append(
            Pair((a["max_active_keys"], b["max_active_keys"]), tuple(x / y for x, y in rounds), simulated)
        )
    return found


def correlation(found: Sequence[Pair]) -> float:
    """Kendall's rank correlation of all pairs, ties of the engine's included."""
    return 1.0 - 2.0 * sum(pair.swapped for pair in found) / len(found)


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
        for row in record["workers"]:
            simulated, real = row["simulation"]["instances_per_s"], row["measured"]["median"]
            error = simulated / real - 1
            met &= abs(error) <= BAR
            print(
                f"{model:16} {row['max_active_keys']:3} keys: measured {real:12,.0f}, simulated "
                f"{simulated:12,.0f} {record['counted']}/s, {error:+.1%} (CPU time "
                f"{row['simulation']['cpu_error']:+.1%}); rounds differ by {row['measured']['spread']:.0%}",
                flush=True,
            )
        found = pairs(record["workers"])
        wrong = sum(pair.swapped and not pair.tie for pair in found)
        met &= wrong == 0
        for pair in found:
            print(f"{model:16} {pair}")
        print(
            f"{model:16} {wrong} pairs in another order, {sum(pair.tie for pair in found)} ties, rank "
            f"correlation {correlation(found):+.2f}; explained {record['explained']:.0%}; by other processes "
            f"{record['foreign_load'] or 0:.0%} of the processors",
            flush=True,
        )
    print(f"bars: {BAR:.0%} and the same order, {'met' if met else 'NOT met'}")
    if args.update:
        seconds, settings = f"{args.seconds:g}", [word for each in args.set for word in ("--set", each)]
        command = shlex.join(
            [
                "python",
                "benchmarks/estimate_bars.py",
                "--rounds",
                str(args.rounds),
                "--seconds",
                seconds,
                *settings,
            ]
        )
        new = [row for model in records for row in accuracy(model, records[model], command, args.set)]
        write(FILE, updated(read(FILE), new))
    if args.json is not None:
        args.json.write_text(json.dumps(records, indent=1) + "\n")
    sys.exit(not met)


if __name__ == "__main__":
    main()
