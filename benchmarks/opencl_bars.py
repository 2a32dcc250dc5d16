"""Training on an OpenCL device beside the CPU's engine, on as many threads; and cold and warm starts.

    python benchmarks/opencl_bars.py                        # everything
    python benchmarks/opencl_bars.py throughput --rounds 5  # one part of it: throughput, accuracy or start

Throughput: list-reduction, tree-lstm and ggnn, each with all nodes on `opencl:0`, in turns with the CPU
device in one run, at the same update intervals and with as many threads: those of PoCL and the one that
drives it together. Settings that suit each device are its own: OpenCL wants larger frames, and more instances
in flight to fill them. Where the time goes is measured in a run of its own, kernel by kernel.

Accuracy: both devices after the same epochs, medians of the seeds. Start: a fresh process until it has
the first frame and the first report, with an empty cache and with a warm one. Both without ggnn.

Results: benchmarks/results/opencl.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from amphw.bench.rounds import Entrant, interleave
from amphw.bench.sides import our_side
from amphw.bench.workloads import get_workload
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.host.devices import make_device
from amphw.host.run_folder import environment
from amphw.models import get_model

RESULT = Path(__file__).parent / "results" / "opencl.json"
BARS = {"list-reduction": 0.4, "tree-lstm": 0.4, "ggnn": 0.35}  # of the CPU engine's throughput
OPENCL = {
    "list-reduction": [
        "train.max_active_keys=16",
        "train.max_infer_keys=16",
        "device.frame_rows=1600",
    ],
    "tree-lstm": [
        "train.max_active_keys=64",
        "train.max_infer_keys=64",
        "device.frame_cap=128",
        "device.min_rows=32",
    ],
    "ggnn": [
        "train.max_active_keys=16",
        "train.max_infer_keys=16",
        "device.frame_cap=128",
        "device.frame_rows=256",
        "device.min_rows=32",
    ],
}
"""What suits an OpenCL device."""

EPOCHS = {"list-reduction": 16, "tree-lstm": 10}
START_S = {"cold": 5.0, "warm": 1.0}

_START = """
import time
from amphw.host.config import resolve
from amphw.host.devices import make_device
from amphw.host.session import update_rules
from amphw.ir.device import DeviceOptions, Mode
from amphw.models import get_model
model = get_model("{model}")
cfg = resolve(model.config, model.defaults, None, [])
graph = model.graph(cfg.model)
instance = model.training(cfg.model, 0, 1, 100)[0]
imported = time.perf_counter()
device = make_device("opencl:0")
device.load(graph, update_rules(cfg, graph), DeviceOptions(1, 1))
loaded = time.perf_counter()
device.submit(0, 0, instance, Mode.TRAIN)
while not device.statistics().frames:
    time.sleep(1e-3)
first = time.perf_counter()
device.drain()
print(loaded - imported, first - imported, time.perf_counter() - imported)
device.close()
"""


def throughput(rounds: int, seconds: float, threads: int) -> list[dict[str, Any]]:
    """Rates of both devices, and where an OpenCL frame's time goes."""
    out = []
    # One thread drives the device; PoCL's own are the others. A single thread is PoCL's basic device.
    if threads == 1:
        os.environ["POCL_DEVICES"] = "basic"
    else:
        os.environ["POCL_MAX_PTHREAD_COUNT"] = str(threads - 1)
    for name, settings in OPENCL.items():
        workload = get_workload(name)
        every = workload.every[0]

        def spec(device: str, more: list[str], name: str = name, every: int = every) -> dict[str, Any]:
            w = get_workload(name)
            return {
                "model": w.model,
                "overrides": [*w.overrides(), f"device.workers={threads}", *more],
                "instances": w.instances,
                "device": device,
                "settings": dict(w.device),
                "every": every,
                "warm": 2.0,
            }

        with ExitStack() as stack:
            cpu = Entrant(stack.enter_context(our_side(spec("cpu", []), threads)), "", every, needed=True)
            ocl = Entrant(
                stack.enter_context(our_side(spec("opencl:0", settings), threads)), "", every, needed=True
            )
            interleave([cpu, ocl], seconds, rounds, say)
        ratios = [b / a for a, b in zip(cpu.rates["train"], ocl.rates["train"], strict=True)]
        row = {
            "model": name,
            "threads": threads,
            "every": every,
            "settings": settings,
            "cpu_per_s": median(cpu.rates["train"]),
            "opencl_per_s": median(ocl.rates["train"]),
            "ratio": median(ratios),
            "ratios": ratios,
            "bar": BARS[name],
            "where": where(name, settings, spec("opencl:0", settings)["overrides"]),
        }
        say(f"{name}, {threads} thread(s): {row['ratio']:.2f} of the CPU engine's throughput")
        out.append(row)
    return out


def where(name: str, settings: list[str], overrides: list[str]) -> dict[str, Any]:
    """Shares of the time of a run on its own: kernels by what they do, and what is no kernel."""
    code = _WHERE.format(name=name, overrides=json.dumps(overrides))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


_WHERE = """
import json, time
from dataclasses import asdict
from amphw.host.pump_loop import PumpLoop
from amphw.host.config import resolve
from amphw.host.devices import make_device
from amphw.host.session import update_rules
from amphw.ir.device import DeviceOptions, Mode
from amphw.models import get_model
model = get_model("{name}")
cfg = resolve(model.config, model.defaults, None, json.loads('{overrides}'))
graph = model.graph(cfg.model)
found = model.training(cfg.model, 0, 1, 0)
instances = [found[i] for i in range(200)]
keys = cfg.train.max_active_keys
device = make_device("opencl:0")
settings = asdict(cfg.device) | {{"profile": True}}
device.load(graph, update_rules(cfg, graph), DeviceOptions(keys, 1, settings=settings))
loop = PumpLoop(device, instances, [1] * len(instances), range(keys), Mode.TRAIN)
loop.run(1.0)
(executor,) = device.plane.executors
executor.kernel_times()
device.statistics()
told = loop.run(3.0)
seconds, kinds, launches = told["seconds"], {{}}, 0
for name, (spent, runs) in executor.kernel_times().items():
    kind = "gradients" if "gradient" in name else "updates" if "update" in name else "moves of gradients"
    kind = name.split("_")[0] if name.startswith(("forward", "inference", "backward")) else kind
    kinds[kind] = kinds.get(kind, 0.0) + spent / seconds
    launches += runs
frames = device.statistics().frames
device.close()
print(json.dumps({{
    "kernels": kinds, "no kernel": 1 - sum(kinds.values()), "launches_per_s": launches / seconds,
    "frames_per_s": frames / seconds, "processor_seconds_per_s": told["cpu"] / seconds}}))
"""


def accuracy(seeds: Mapping[str, int]) -> list[dict[str, Any]]:
    """The last validation accuracy on each device after the same epochs. seeds: how many, by model."""
    out = []
    for name in EPOCHS:
        settings = OPENCL[name]
        found: dict[str, list[float]] = {"cpu": [], "opencl:0": []}
        for seed in range(seeds[name]):
            for device in found:
                model: Any = get_model(name)
                overrides = [
                    f"train.epochs={EPOCHS[name]}",
                    "train.target=none",
                    "train.trace=false",
                    f"train.seed={seed}",
                    *(settings if device != "cpu" else []),
                ]
                cfg = resolve(model.config, model.defaults, None, overrides)
                summary = Trainer(model, cfg, make_device(device), None).run()
                found[device].append(float(summary.valid["accuracy"]))
                say(f"{name}, seed {seed}, {device}: {found[device][-1]:.4f}")
        medians = {device: median(values) for device, values in found.items()}
        out.append({"model": name, "epochs": EPOCHS[name], "accuracy": found, "median": medians})
    return out


def start() -> list[dict[str, Any]]:
    """Seconds from the device on to the first frame and to the first report, and of the whole process."""
    out = []
    for model in EPOCHS:
        with tempfile.TemporaryDirectory() as cache:
            for state in ("cold", "warm"):
                began = time.perf_counter()
                done = subprocess.run(
                    [sys.executable, "-c", _START.format(model=model)],
                    env={**os.environ, "AMPHW_CACHE": cache},
                    capture_output=True,
                    text=True,
                    check=True,
                )
                load, first, report = map(float, done.stdout.split())
                row = {
                    "model": model,
                    "state": state,
                    "load_s": load,
                    "first_frame_s": first,
                    "first_report_s": report,
                    "process_s": time.perf_counter() - began,
                    "bar_s": START_S[state],
                }
                say(f"{model}, {state}: {first:.2f} s to the first frame, {report:.2f} s to the first report")
                out.append(row)
    return out


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", help="throughput, accuracy, start; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--seeds", type=int, nargs=2, default=[3, 1], help="of list-reduction, of tree-lstm")
    parser.add_argument("--threads", type=int, nargs="*", default=[2, 1])
    given = parser.parse_args()
    parts = given.parts or ["start", "throughput", "accuracy"]
    record = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    record |= {"date": date.today().isoformat(), "environment": environment()}
    if "start" in parts:
        record["start"] = start()
    if "accuracy" in parts:
        record["accuracy"] = accuracy(dict(zip(EPOCHS, given.seeds, strict=True)))
    if "throughput" in parts:
        rows = []
        for threads in given.threads:
            kept = dict(os.environ)
            rows += throughput(given.rounds, given.seconds, threads)
            os.environ.clear()
            os.environ.update(kept)
        record["throughput"] = rows
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"written to {RESULT}")


if __name__ == "__main__":
    main()
