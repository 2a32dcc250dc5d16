"""What the core promises, measured: convergence under asynchrony, replicas, MNIST, and the pipeline formula.

    python benchmarks/core_bars.py list-reduction --seeds 10     # accuracy at 1, 4, 16 keys; 2 and 4 replicas
    python benchmarks/core_bars.py merge A.json B.json           # runs over different seeds as one
    python benchmarks/core_bars.py mnist                          # epochs to 97 % at 1, 4, 8 keys
    python benchmarks/core_bars.py data                           # seconds to generate and to batch the lists
    python benchmarks/core_bars.py pipeline                       # speed-up over synchronous against 3m/(m+2)

Each prints a table and writes benchmarks/results/core-<name>.json with machine, date and versions. Accuracy
does not depend on the machine; throughput does, so read it on a quiet one.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from record import RESULTS, save

from amphw.cpu_runtime import CpuDevice
from amphw.data.list_reduction import batches, generate
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.host.records import RunSummary, first_reaching
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.functions import linear, squared_error
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance, Schema
from amphw.ir.nodes import PPT, Loss, Source
from amphw.ir.program import trace
from amphw.ir.update import UpdateRule
from amphw.models import get_model

# One-sided 95 % quantiles of Student's t, by degrees of freedom.
T95 = {
    1: 6.314,
    2: 2.920,
    3: 2.353,
    4: 2.132,
    5: 2.015,
    6: 1.943,
    7: 1.895,
    8: 1.860,
    9: 1.833,
    14: 1.761,
    19: 1.729,
}


def train(model_name: str, *overrides: str) -> RunSummary:
    model = get_model(model_name)
    cfg = resolve(model.config, model.defaults, None, ["trace=false", *overrides])
    device = CpuDevice()
    try:
        return Trainer(model, cfg, device, None).run()
    finally:
        device.close()


def describe(label: str, s: RunSummary) -> dict[str, Any]:
    reached = first_reaching(s.history, "accuracy", 0.97)
    row = {
        "configuration": label,
        "accuracy": s.valid["accuracy"],
        "best": max(r.valid["accuracy"] for r in s.history),
        "epochs_to_target": reached.epoch if reached else None,
        "seconds_to_target": reached.seconds if reached else None,
        "instances_per_s": s.instances_per_s,
        "staleness": s.staleness,
        "lost": s.messages["lost"],
        "curve": [round(r.valid["accuracy"], 4) for r in s.history],
    }
    print({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    return row


def list_reduction(args: argparse.Namespace) -> dict[str, Any]:
    """Same instances for every number of keys; paired by seed."""
    common = [f"epochs={args.epochs}"]
    keys: dict[str, list[dict[str, Any]]] = {"1": [], "4": [], "16": []}
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for k, rows in keys.items():
            overrides = [*common, f"max_active_keys={k}", f"seed={seed}", "target=none"]
            rows.append(describe(f"keys={k} seed={seed}", train("list-reduction", *overrides)))
    replicas = []
    for n in args.replicas:
        # A replica sees one n-th of the rows; it updates as often as the single cell does.
        shares = [f"replicas={n}", "device.replicate_interval=divided"]
        longer = ["epochs=24", "schedule_steps=12000"]
        summary = train("list-reduction", *shares, *longer)
        replicas.append(describe(f"replicas={n}", summary))
    return {"keys": keys, "accuracy_lost": accuracy_lost(keys), "replicas": replicas}


def accuracy_lost(keys: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Points of accuracy lost against one key after the same instances: mean over seeds, and upper bound."""
    losses: dict[str, Any] = {}
    for k in ("4", "16") if keys["1"] else ():
        worse = [100 * (a["accuracy"] - b["accuracy"]) for a, b in zip(keys["1"], keys[k], strict=True)]
        mean, spread = statistics.mean(worse), statistics.stdev(worse) if len(worse) > 1 else math.nan
        bound = mean + T95[len(worse) - 1] * spread / math.sqrt(len(worse)) if len(worse) > 1 else math.nan
        losses[k] = {"mean_points": mean, "upper_95": bound, "bar": 1.0, "met": bound <= 1.0}
        print(f"accuracy lost at {k} keys: {mean:.2f} points, one-sided 95 % bound {bound:.2f} (bar: 1)")
    return losses


def merge(args: argparse.Namespace) -> dict[str, Any]:
    """Results of runs over different seeds as one."""
    parts = [json.loads(Path(name).read_text()) for name in args.files]
    keys = {k: [row for part in parts for row in part["keys"][k]] for k in parts[0]["keys"]}
    replicas = [row for part in parts for row in part["replicas"]]
    return {"keys": keys, "accuracy_lost": accuracy_lost(keys), "replicas": replicas}


def mnist(args: argparse.Namespace) -> dict[str, Any]:
    rows = []
    for k in (1, 4, 8):
        rows.append(describe(f"keys={k} greedy", train("mnist", "epochs=4", f"max_active_keys={k}")))
    limited = ["epochs=4", "max_active_keys=8", "pump=staleness"]
    rows.append(describe("keys=8 staleness-limited", train("mnist", *limited)))
    return {"rows": rows}


def sleeping_chain(width: int = 1) -> tuple[Graph, Callable[[int], Instance]]:
    """Three linear nodes in a row, whose arithmetic is nothing and whose time is a sleep."""
    g = Graph("three-sleepers", Schema(data={"x": width}))
    path = [g.add(Source("x", width=width, data="x"))]
    for name in ("first", "second", "third"):
        path.append(g.add(PPT(name, trace(lambda p, x: linear(x, p.W), {"x": width}, {"W": (width, width)}))))
    path.append(g.add(Loss("loss", trace(lambda y: squared_error(y, y * 0.0), {"y": width}))))
    g.connect(*path)
    return g, lambda n: Instance(data={"x": np.ones((1, width), np.float32)}, number=n)


def pipeline(args: argparse.Namespace) -> dict[str, Any]:
    """Three equal nodes on three workers: m in flight, drain, update; against one instance at a time."""

    def seconds(m: int, rounds: int) -> float:
        g, instance = sleeping_chain()
        nodes = ("first", "second", "third")
        device = CpuDevice()
        settings = {
            "workers": 3,
            "placement": {n: w for w, n in enumerate(nodes)} | {"loss": 2, "x": 0},
            "frame_cap": 1,
            "sleep": dict.fromkeys(nodes, args.sleep),
        }
        device.load(g, {"*": UpdateRule(lr=1e-6)}, DeviceOptions(m, 0, "controller", settings=settings))
        try:
            began = time.perf_counter()
            for r in range(rounds):
                for slot in range(m):
                    device.submit(slot, r % 256, instance(r * m + slot), Mode.TRAIN)
                device.drain()
                device.update()
            return (time.perf_counter() - began) / (rounds * m)
        finally:
            device.close()

    one = statistics.median(seconds(1, 20) for _ in range(3))
    rows = []
    for m in (1, 2, 4, 8, 16):
        speedup = one / statistics.median(seconds(m, max(2, 24 // m)) for _ in range(3))
        wanted = 3 * m / (m + 2)
        rows.append(
            {"m": m, "speedup": speedup, "formula": wanted, "off_percent": 100 * (speedup / wanted - 1)}
        )
        print(
            f"m = {m:2}: speed-up {speedup:.3f}, 3m/(m+2) = {wanted:.3f}, "
            f"off by {rows[-1]['off_percent']:+.1f} %"
        )
    return {"sleep_s": args.sleep, "rows": rows}


def data(args: argparse.Namespace) -> dict[str, Any]:
    """Seconds to generate the 100,000 training lists (1 at most), and to make each a batch (2 at most)."""
    began = time.perf_counter()
    lists = generate(100_000, 0)
    generated = time.perf_counter()
    batches(lists, 1, seed=0, epoch=0)
    found = {"generate_s": generated - began, "batches_s": time.perf_counter() - generated}
    print(found)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["list-reduction", "mnist", "pipeline", "data", "merge"])
    parser.add_argument("files", nargs="*", help="for merge: results of list-reduction")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--replicas", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/core-WHAT.json")
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument(
        "--sleep", type=float, default=0.02, help="seconds a sleeping node takes for a message"
    )
    args = parser.parse_args()
    measures = {
        "list-reduction": list_reduction,
        "mnist": mnist,
        "pipeline": pipeline,
        "data": data,
        "merge": merge,
    }
    measured = measures[args.what](args)
    RESULTS.mkdir(exist_ok=True)
    out = args.out or RESULTS / f"core-{'list-reduction' if args.what == 'merge' else args.what}.json"
    save(measured, out)


if __name__ == "__main__":
    main()
