"""Whether list reduction reaches its target without Adam, with the settings that it recommends for that.

    python benchmarks/momentum_bars.py                          # all, some hours on two cores
    python benchmarks/momentum_bars.py cpu opencl --seeds 0 1
    python benchmarks/momentum_bars.py fixed --jobs 8           # eight runs at once
    python benchmarks/momentum_bars.py --report                 # the table alone, from what has been run

Each run is the command that a user types, `amphw train list-reduction --device ...`, to its end; on
devices that have Adam, the settings are given. The bar: with ten seeds on each device, every run
reaches the target (97 % of the validation sequences right), none diverges. For comparison: `narrower`
formats, in which some runs explode, and `unclipped` runs, with the settings that were recommended
before, which limit no gradient. A run is added to benchmarks/results/momentum.json when it ends, with
its processor, and is not repeated if it is there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from amphw.host.run_folder import environment
from amphw.models import get_model

RESULTS = Path(__file__).parent / "results" / "momentum.json"
FIXED = "fixed:q10.6,w=q5.11,g=q6.10"


def given(sections: Mapping[str, Any], name: str = "") -> Iterator[str]:
    """Nested settings as arguments of the command."""
    for key, value in sections.items():
        if isinstance(value, Mapping):
            yield from given(value, f"{name}{key}.")
        else:
            yield from ("--set", f"{name}{key}={value}")


MOMENTUM = tuple(given(get_model("list-reduction").momentum))
UNCLIPPED = tuple(
    given({"update": {"clip": 0, "lr": 0.05, "schedule_steps": 16000}, "train": {"epochs": 16}})
)

RUNS: dict[str, tuple[str, ...]] = {
    "cpu": ("--device", "cpu", *MOMENTUM),
    "opencl": ("--device", "opencl:0", *MOMENTUM),
    "fixed": ("--device", FIXED),
    "narrower fixed": ("--device", FIXED.replace("q10.6", "q9.7")),
    "head on fixed": ("--device", f"cpu,a=process:{FIXED}", "--set", "device.place=head=a,cell=cpu"),
    "cell on fixed": ("--device", f"cpu,a=process:{FIXED}", "--set", "device.place=cell=a,head=cpu"),
    "unclipped cpu": ("--device", "cpu", *MOMENTUM, *UNCLIPPED),
    "unclipped fixed": ("--device", FIXED, *UNCLIPPED),
}
"""By name, what `amphw train list-reduction` is given."""


def trained(arguments: tuple[str, ...], seed: int) -> dict[str, Any]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [*arguments, "--set", f"seed={seed}", "--out", f"{folder}/run", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "amphw.cli", "train", "list-reduction", *command],
            capture_output=True,
            text=True,
        )
        seconds = round(time.monotonic() - began, 1)
        if done.returncode:
            return {"ended": done.stderr.strip().splitlines()[-1], "reached": False, "seconds": seconds}
        found = json.loads(done.stdout)
    return {
        "ended": found["stopped_by"],
        "reached": found["target_reached"],
        "epochs": found["epochs"],
        "accuracy": found["valid"]["accuracy"],
        "seconds": seconds,
    }


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return {"environment": {}, "commands": {}, "runs": {}} | found


def keep(name: str, seed: int, run: dict[str, Any]) -> None:
    record = recorded()
    record["environment"] = environment()
    record["commands"][name] = " ".join(["amphw train list-reduction", *RUNS[name]])
    run["processor"] = record["environment"]["cpu"]["name"]
    record["runs"].setdefault(name, {})[str(seed)] = run
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")


def report() -> None:
    for name, runs in recorded()["runs"].items():
        reached = sorted(run["epochs"] for run in runs.values() if run["reached"])
        best = ", ".join(f"{100 * run['accuracy']:.1f}" for run in runs.values() if "accuracy" in run)
        print(f"{name:16} {len(reached)} of {len(runs)} reach the target, in epochs {reached}; {best} %")
        for seed, run in runs.items():
            if "accuracy" not in run:
                print(f"  seed {seed}: {run['ended']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RUNS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(10)))
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--report", action="store_true", help="run nothing")
    args = parser.parse_args()
    if unknown := set(args.names) - set(RUNS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; names: {', '.join(RUNS)}")
    wanted = [(name, seed) for name in args.names or RUNS for seed in args.seeds]
    missing = [(name, seed) for name, seed in wanted if str(seed) not in recorded()["runs"].get(name, {})]
    with ThreadPoolExecutor(args.jobs) as pool:
        running = {
            pool.submit(trained, RUNS[name], seed): (name, seed)
            for name, seed in (() if args.report else missing)
        }
        for done in as_completed(running):
            name, seed = running[done]
            print(name, seed, done.result(), flush=True)
            keep(name, seed, done.result())
    report()


if __name__ == "__main__":
    main()
