"""What the models learn beside PyTorch: the same architecture, data, initial values, optimiser and epochs.

    python benchmarks/accuracy_bars.py                       # all, about an hour on two cores
    python benchmarks/accuracy_bars.py ggnn --seeds 1 2 3    # one
    python benchmarks/accuracy_bars.py --report              # the tables alone, from what has been run

For every seed PyTorch trains (in one form of `amphw bench`, with a batch of `every` instances), then amphw
with one key, which is as synchronous, then with the keys of the benchmark. Each run is added to
benchmarks/results/accuracy-<case>.json when it ends, and is not repeated if it is there. What counts is the
median over seeds of the last epoch's metric. Needs AMPHW_DATA, and AMPHW_PEER_PYTHON where PyTorch is not
in this interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from record import RESULTS, save

from amphw.bench.plan import Plan, write_inputs
from amphw.bench.sides import Setup, Side, our_side, peer_side
from amphw.bench.workloads import get_workload

EPOCH_S = 3600.0


@dataclass(frozen=True)
class Case:
    """form: of PyTorch. bar: the largest difference allowed, in points of accuracy, or relative for an error.
    decay: whether the learning rate goes to 0 along a cosine, so that the last epoch is not as noisy."""

    workload: str
    form: str
    epochs: int
    bar: float
    relative: bool = False
    decay: bool = False
    settings: tuple[str, ...] = ()


CASES = {
    "tree-lstm": Case("tree-lstm", "split", 10, 0.5),
    "bilstm": Case("bilstm", "packed", 5, 0.5),
    "bilstm-held-out": Case("bilstm", "packed", 5, 0.5, settings=("model.validation=wikiner",)),
    "ggnn": Case("ggnn", "bundles", 20, 5.0, relative=True, decay=True),
}


def plan_of(case: Case, seed: int, keys: int) -> Plan:
    workload = get_workload(case.workload)
    settings = [*case.settings, f"train.seed={seed}", f"train.epochs={case.epochs}"]
    if case.decay:
        plan = plan_of(replace(case, decay=False), seed, keys)
        count = len(plan.model.training(plan.cfg.model, seed, 1))
        updates = case.epochs * -(-count // workload.every[0])
        settings += ["update.schedule=cosine", f"update.schedule_steps={updates}"]
    python = os.environ.get("AMPHW_PEER_PYTHON", sys.executable)
    return Plan(workload, settings, workload.every, ("torch",), python, (case.form,), keys=keys)


def train(side: Side, plan: Plan, form: str, label: str) -> dict[str, Any]:
    cfg = plan.cfg
    (subject,) = side.subjects
    subject.send(
        "train",
        form=form,
        batch=plan.every[0],
        target=None,
        epochs=cfg.train.epochs,
        seed=cfg.train.seed,
        higher=True,
    )
    told = subject.answer(
        EPOCH_S, lambda e: print(f"  {label}: epoch {e['epoch']}, {e['seconds']:.1f} s, {e['metric']:.4f}")
    )
    history = told["history"]
    return {"curve": [round(e["metric"], 5) for e in history], "seconds": history[-1]["seconds"]}


def run(case: Case, seed: int, keys: int) -> dict[str, Any]:
    """One run. keys: 0 is PyTorch, -1 the keys of the benchmark."""
    plan = plan_of(case, seed, max(0, keys))
    label = "torch" if keys == 0 else f"amphw, {plan.cfg.train.max_active_keys} keys"
    if keys:
        with our_side(plan.our_spec(plan.every[0]), plan.cfg.device.workers) as side:
            found = train(side, plan, "", label)
    else:
        with tempfile.TemporaryDirectory() as name:
            spec = write_inputs(plan, Path(name), whole=True)
            with peer_side(plan.peer_python, Setup("torch", 1), spec, Path(name)) as side:
                found = train(side, plan, case.form, label)
    settings = {"every": plan.every[0], "epochs": case.epochs, "settings": plan.settings}
    return {"label": label, "seed": seed, **found, **settings}


def measure(name: str, seeds: list[int]) -> None:
    case, path = CASES[name], RESULTS / f"accuracy-{name}.json"
    runs: dict[str, Any] = json.loads(path.read_text())["runs"] if path.exists() else {}
    for seed in seeds:
        for keys in (0, 1, -1):
            key = f"seed={seed} " + {0: "torch", 1: "one key", -1: "the benchmark's keys"}[keys]
            if key not in runs:
                print(f"{name}: {key}", flush=True)
                runs[key] = run(case, seed, keys)
                save({"runs": runs}, path)


def report(name: str) -> None:
    case, path = CASES[name], RESULTS / f"accuracy-{name}.json"
    if not path.exists():
        return
    runs = json.loads(path.read_text())["runs"]
    last: dict[str, list[float]] = {}
    for key, each in runs.items():
        last.setdefault(key.partition(" ")[2], []).append(each["curve"][-1])
    medians = {side: statistics.median(values) for side, values in last.items()}
    print(f"\n{name}, {case.epochs} epochs, bar {case.bar} {'%' if case.relative else 'points'}:")
    for side, values in last.items():
        theirs = medians["torch"]
        off = 100 * (medians[side] - theirs) / (theirs if case.relative else 1)
        seconds = statistics.median(e["seconds"] for k, e in runs.items() if k.endswith(side))
        listed = " ".join(f"{v:.4f}" for v in values)
        print(f"  {side:22} median {medians[side]:.4f} ({listed})  {off:+.2f}  {seconds:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description="What the models learn beside PyTorch.")
    parser.add_argument(
        "cases", nargs="*", default=list(CASES), metavar="CASE", help=f"of {', '.join(CASES)}"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--report", action="store_true", help="run nothing")
    args = parser.parse_args()
    if unknown := set(args.cases) - set(CASES):
        parser.error(f"there is no case {', '.join(sorted(unknown))}; cases: {', '.join(CASES)}")
    for name in args.cases:
        if not args.report:
            measure(name, args.seeds)
        report(name)


if __name__ == "__main__":
    main()
