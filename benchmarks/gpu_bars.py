"""Training on a GPU by OpenCL, beside PyTorch on the same GPU.

    python benchmarks/gpu_bars.py                             # every workload, on the first GPU
    python benchmarks/gpu_bars.py mlp ggnn --rounds 3
    python benchmarks/gpu_bars.py --also-cpu                  # our CPU engine with all processors, too

Both sides update at the same intervals: those of `amphw bench`, and ten times as large ones, as a GPU likes
large batches. Ours has several settings of frames, tried for a moment each; PyTorch has its forms, also
through `torch.compile`, which records graphs of kernels where shapes do not change. Its batches lie in the
GPU's memory before the time begins; ours are copied there while it runs. Products are in whole single
precision on both sides. There is no bar: what a GPU does is told as it is.

The record says which form the tuning found for products: benchmarks/results/gpu-NAME.json.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from record import RESULTS, save

from amphw.bench.errors import BenchError
from amphw.bench.forms import BATCHED, FORMS, Form
from amphw.bench.plan import Plan, peers_of
from amphw.bench.sides import our_side, processors
from amphw.bench.subject import SubjectError
from amphw.bench.throughput import compare
from amphw.bench.workloads import WORKLOADS
from amphw.opencl.platform.platforms import Found, choose, default_form
from amphw.opencl.tuning import Tuner

NAMES = ("mlp", "list-reduction", "tree-lstm", "ggnn", "bilstm")
LARGER = 10
"""Times the usual interval between updates, for the second comparison."""

TRIED: dict[str, tuple[tuple[int, int, int], ...]] = {
    "mlp": ((4, 200, 1), (16, 200, 1)),
    "list-reduction": ((16, 1600, 1), (48, 2000, 1)),
    "tree-lstm": ((64, 128, 32), (400, 2000, 64)),
    "ggnn": ((32, 512, 32), (256, 2000, 64)),
    "bilstm": ((32, 128, 1), (200, 1000, 16)),
}
"""Instances in flight, most rows of a frame, and rows for which a frame waits, at the usual interval. Frames
are no larger than twice the rows that an interval brings to the node that has most, as on CPUs: a larger one
would be an update of more. At larger intervals all three are larger, too."""


def settings(keys: int, rows: int, least: int) -> list[str]:
    """As `section.key=value`."""
    return [
        *(f"train.{name}={keys}" for name in ("max_active_keys", "max_infer_keys")),
        *(f"device.frame_cap={rows}", f"device.frame_rows={rows}", f"device.min_rows={least}"),
    ]


def wanted(form: Form, args: argparse.Namespace) -> bool:
    """Those that were named; or all but compiled forms of changing shapes, which take minutes to compile."""
    return form.name in args.forms if args.forms else not form.compiled or form.name == "layers+compiled"


def plan_of(name: str, args: argparse.Namespace, every: int, more: list[str]) -> Plan:
    workload = replace(WORKLOADS[name], device={})
    return Plan(
        workload=workload,
        overrides=more,
        every=(every,),
        peers=[p for p in peers_of(name) if p in ("torch", "pyg")],
        peer_python=args.peer_python,
        peer_forms=[form.name for form in FORMS[name] if form.kind == BATCHED and wanted(form, args)],
        seconds=args.seconds,
        rounds=args.rounds,
        inference=False,
        device=args.device,
        peer_device="cuda",
    )


def fastest(name: str, args: argparse.Namespace, every: int) -> tuple[list[str], list[Any]]:
    """The settings that are fastest in a moment's run, and what each did."""
    tried = []
    times = every // WORKLOADS[name].every[0]
    for keys, rows, least in ((k * times, r * times, 1 if n == 1 else n * times) for k, r, n in TRIED[name]):
        plan = plan_of(name, args, every, settings(keys, rows, least))
        try:
            with our_side(plan.our_spec(every), plan.cfg.device.workers) as side:
                rate, _ = side.run(args.seconds)
        except SubjectError as error:
            print(f"{name}: {keys} keys, frames of {rows} rows: {error}", flush=True)
            tried.append({"keys": keys, "rows": rows, "least": least, "error": str(error)})
            continue
        print(f"{name}: {keys} keys, frames of {rows} rows: {rate:,.0f}/s", flush=True)
        tried.append({"keys": keys, "rows": rows, "least": least, "rate": rate})
    ran = [each for each in tried if "rate" in each]
    if not ran:
        raise BenchError(f"{name} runs with none of the settings: {tried[-1]['error']}")
    best = max(ran, key=lambda each: each["rate"])
    return settings(best["keys"], best["rows"], best["least"]), tried


def measured(name: str, args: argparse.Namespace, every: int) -> dict[str, Any]:
    """Both sides, and our CPU engine if it is asked for."""
    chosen, tried = fastest(name, args, every)
    out = {**compare(plan_of(name, args, every, chosen), print), "tried": tried, "settings": chosen}
    if args.also_cpu:
        plan = replace(plan_of(name, args, every, []), workload=WORKLOADS[name], device="cpu", peers=())
        plan = replace(plan, overrides=[f"device.workers={processors()}"])
        with our_side(plan.our_spec(every), processors()) as side:
            out["cpu"] = sorted(side.run(args.seconds)[0] for _ in range(args.rounds))
    return out


def described(device: Found) -> dict[str, Any]:
    """What it is, and the forms that tuning finds for its products."""
    told = {k: v for k, v in vars(device).items() if k != "handle"}
    tuner = Tuner(device, default_form(device))
    told["forms"] = {
        size: asdict(tuner.forms(*shape)) for size, shape in (("small", (128, 128)), ("large", (384, 512)))
    }
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--device", default="opencl:gpu")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--forms", nargs="*", default=[], help="of the peers; without it, all")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--also-cpu", action="store_true", help="our CPU engine with all processors, too")
    parser.add_argument("--json", type=Path, help="where the record goes")
    args = parser.parse_args()
    device = choose(args.device.partition(":")[2])[0]
    about = described(device)
    print(f"{device}, products: {about['forms']}", flush=True)
    slug = re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-")
    path = args.json or RESULTS / f"gpu-{slug}.json"
    record: dict[str, Any] = {
        "device": about,
        "workloads": {},
        "failed": {},
    }
    for times in (1, LARGER):
        for name in args.names or NAMES:
            every = times * WORKLOADS[name].every[0]
            try:
                record["workloads"].setdefault(name, {})[str(every)] = one = measured(name, args, every)
            except BenchError as error:
                print(f"{name}, every {every}: {error}", flush=True)
                record["failed"][f"{name}, every {every}"] = str(error)
            else:
                print(f"{name}, every {every}: {one['ratio_best_single_process']:.2f} of PyTorch", flush=True)
            save(record, path)
    return int(bool(record["failed"]))


if __name__ == "__main__":
    sys.exit(main())
