"""Another state of amphw beside this one: what each of the five workloads trains, in turns.

    python benchmarks/states.py --before ../before/.venv/bin/python
    python benchmarks/states.py --before PYTHON --workloads ggnn bilstm --json benchmarks/results/states.json

PYTHON: the interpreter of an environment in which the other state is installed. Both sides do the same work
in processes (`amphw.bench.ours`), and take turns, so that a machine whose speed drifts drifts for both. Both
are started anew several times: where memory and threads come to lie makes one start of the same code faster
than another by more than its pairs differ. Shown are the medians, the median ratio of the pairs, new to old,
and its 95 % interval by order statistics. The bar: an interval that does not lie wholly below 0.97.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from record import save

from amphw.bench.plan import Plan
from amphw.bench.subject import Subject
from amphw.bench.workloads import WORKLOADS, get_workload

BAR = 0.97
PREPARED_S = 900.0


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Of the median, at 95 % or more: the innermost order statistics that a sign test allows."""
    count, outside, k = len(ratios), 0.0, 0
    while k < count // 2 and outside + math.comb(count, k) / 2**count <= 0.025:
        outside += math.comb(count, k) / 2**count
        k += 1
    ordered = sorted(ratios)
    return ordered[max(0, k - 1)], ordered[min(count - 1, count - k)]


def commit_of(python: str) -> str:
    """Of the checkout that an environment's amphw lies in."""
    where = "import amphw, pathlib; print(pathlib.Path(amphw.__file__).parents[1])"
    found = subprocess.run([python, "-P", "-c", where], capture_output=True, text=True, check=True)
    git = ["git", "-C", found.stdout.strip(), "describe", "--always", "--dirty", "--abbrev=10"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()


def compared(name: str, before: str, starts: int, pairs: int, seconds: float) -> dict[str, Any]:
    workload = get_workload(name)
    plan = Plan(workload, (), workload.every, (), sys.executable, seconds=seconds)
    plan.model.prepare(plan.cfg.model, plan.cfg.train.seed)  # data is there before anybody looks for it
    # Without the folder that this is called in, where one of the two may lie.
    command = ["-P", "-m", "amphw.bench.ours", json.dumps(plan.our_spec(workload.every[0]))]
    rates: dict[str, list[float]] = {"before": [], "after": []}
    for start in range(starts):
        share = range(start * pairs // starts, (start + 1) * pairs // starts)
        one = started(name, {"before": before, "after": sys.executable}, command, share, seconds)
        for side, found in one.items():
            rates[side] += found
    ratios = [new / old for old, new in zip(rates["before"], rates["after"], strict=True)]
    low, high = interval(ratios)
    return {
        "before": rates["before"],
        "after": rates["after"],
        "ratio": statistics.median(ratios),
        "interval": [low, high],
        "met": high >= BAR,
    }


def started(
    name: str, pythons: Mapping[str, str], command: list[str], pairs: range, seconds: float
) -> dict[str, list[float]]:
    """Start both sides and let them take turns -> instances a second of each, a pair at a time."""
    rates: dict[str, list[float]] = {side: [] for side in pythons}
    with ExitStack() as stack:
        sides = {
            side: stack.enter_context(Subject(f"{name} {side}", [python, *command], {}))
            for side, python in pythons.items()
        }
        for side in sides.values():
            side.ready(PREPARED_S)
        for pair in pairs:
            for side in ("before", "after") if pair % 2 else ("after", "before"):
                sides[side].send("run", seconds=seconds, mode="train")
                told = sides[side].answer(seconds + 120)
                rates[side].append(told["count"] / told["seconds"])
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", required=True, metavar="PYTHON")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--starts", type=int, default=5, help="among which the pairs are divided")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = {}
    for name in args.workloads:
        found[name] = one = compared(name, args.before, args.starts, args.pairs, args.seconds)
        medians = [statistics.median(one[side]) for side in ("before", "after")]
        print(
            f"{name:15} {medians[0]:>10,.0f} -> {medians[1]:>10,.0f} a second, ratio {one['ratio']:.3f} "
            f"({one['interval'][0]:.3f} to {one['interval'][1]:.3f}), {'met' if one['met'] else 'NOT met'}",
            flush=True,
        )
    if args.json is not None:
        save(
            {
                "commit_before": commit_of(args.before),
                "starts": args.starts,
                "pairs": args.pairs,
                "workloads": found,
            },
            args.json,
        )
    sys.exit(not all(one["met"] for one in found.values()))


if __name__ == "__main__":
    main()
