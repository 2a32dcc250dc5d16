"""What models learn with products of bfloat16 beside float32: the same data, initial values and epochs.

    python benchmarks/bf16_accuracy.py                          # all, on a processor with AVX512-BF16
    python benchmarks/bf16_accuracy.py list-reduction --seeds 1 2 3
    AMPHW_BF16=portable python benchmarks/bf16_accuracy.py      # on any, slowly
    python benchmarks/bf16_accuracy.py --report                 # the table alone, from what has been run

Each run has one instance in flight, so that what differs is the rounding and not the order. It is added to
benchmarks/results/bf16-accuracy.json when it ends, with the kernels that it ran on, and is not repeated if it
is there. What counts is the median over seeds of the last epoch's metric; the bar is 0.3 points of accuracy,
or 1 % of an error. Needs AMPHW_DATA.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from accuracy_bars import CASES as BESIDE_PYTORCH
from accuracy_bars import Case, plan_of, train
from amphw.engine._native import kernels
from record import RESULTS, save

from amphw.bench.sides import our_side
from amphw.ir.precision import PRECISIONS

RECORD = RESULTS / "bf16-accuracy.json"
CASES = {
    # As its rate is made for: it falls to 0 over 16 epochs.
    "list-reduction": Case("list-reduction", "rnn", 16, 0.3),
    "tree-lstm": replace(BESIDE_PYTORCH["tree-lstm"], bar=0.3),
    "ggnn": replace(BESIDE_PYTORCH["ggnn"], bar=1.0),
}


def run(case: Case, seed: int, precision: str) -> dict[str, Any]:
    """One run -> the metric by epoch, and what it ran on."""
    own = (f"device.precision={precision}", "device.gemm=own")
    plan = plan_of(replace(case, settings=(*case.settings, *own)), seed, 1)
    with our_side(plan.our_spec(plan.every[0]), plan.cfg.device.workers) as side:
        found = train(side, plan, "", f"{case.workload}, {precision}")
    which = kernels.bf16() if precision == "bf16" else kernels.chosen()
    return {**found, "kernels": which, "epochs": case.epochs, "settings": plan.settings}


def measure(names: list[str], seeds: list[int], epochs: int | None, path: Path) -> None:
    """Run what is not in the record at `path` yet, and add it there."""
    runs: dict[str, Any] = json.loads(path.read_text())["runs"] if path.exists() else {}
    for name in names:
        case = CASES[name] if epochs is None else replace(CASES[name], epochs=epochs)
        for seed in seeds:
            for precision in PRECISIONS:
                key = f"{name} seed={seed} {precision}"
                if key not in runs:
                    print(key, flush=True)
                    runs[key] = run(case, seed, precision)
                    save({"runs": runs}, path)


def report(path: Path) -> None:
    """Print how far the medians are apart."""
    runs = json.loads(path.read_text())["runs"]
    for name, case in CASES.items():
        last = {
            p: [r["curve"][-1] for key, r in runs.items() if key.split() == [name, key.split()[1], p]]
            for p in PRECISIONS
        }
        if not all(last.values()):
            continue
        plain, rounded = (statistics.median(last[p]) for p in PRECISIONS)
        off = 100 * (rounded - plain) / (plain if case.relative else 1)
        unit = "%" if case.relative else "points"
        listed = ", ".join(f"{p} {statistics.median(v):.4f} (of {len(v)} seeds)" for p, v in last.items())
        print(f"{name}: {listed}; apart {off:+.2f} {unit}, bar {case.bar} {unit}")


def main() -> None:
    parser = argparse.ArgumentParser(description="What models learn with products of bfloat16.")
    parser.add_argument(
        "cases", nargs="*", default=list(CASES), metavar="CASE", help=f"of {', '.join(CASES)}"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, help="fewer, for a first look; needs --out")
    parser.add_argument("--out", type=Path, default=RECORD, help="another record")
    parser.add_argument("--report", action="store_true", help="run nothing")
    args = parser.parse_args()
    if unknown := set(args.cases) - set(CASES):
        parser.error(f"there is no case {', '.join(sorted(unknown))}; cases: {', '.join(CASES)}")
    if args.epochs and args.out == RECORD:
        parser.error("--epochs is for a first look: name another record with --out")
    if not args.report:
        measure(args.cases, args.seeds, args.epochs, args.out)
    report(args.out)


if __name__ == "__main__":
    main()
