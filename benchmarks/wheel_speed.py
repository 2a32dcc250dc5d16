"""The wheel, which another compiler builds, beside the build from the source: throughput, in turns.

    make wheel && python benchmarks/wheel_speed.py

The wheel of this interpreter is installed in a new environment outside of the checkout; the source build is
what this interpreter imports. Both train and infer the same models from the same settings, in rounds, on the
same machine in the same minutes. Writes benchmarks/results/wheel-speed.json. A record is `valid` if others
used less than 5 % of the processors meanwhile; the figures of any other one mean little.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from record import RESULTS, save
from wheel_notebooks import own_wheel

from amphw.bench.figures import paired
from amphw.bench.load import total
from amphw.bench.plan import Plan
from amphw.bench.rounds import Entrant, interleave
from amphw.bench.sides import Setup, Side, our_side
from amphw.bench.subject import Subject
from amphw.bench.workloads import WORKLOADS

MODELS = ("list-reduction", "tree-lstm")
FOREIGN = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--wheel", type=Path, help="which; else that of this interpreter in dist/")
    parser.add_argument("--models", nargs="*", default=MODELS, help="workloads of amphw bench")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a round, for each side")
    parser.add_argument("--out", type=Path, default=RESULTS / "wheel-speed.json", help="the record")
    options = parser.parse_args()
    wheel = (options.wheel or own_wheel()).resolve()
    with tempfile.TemporaryDirectory(prefix="amphw-wheel-") as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
        python = folder / "env" / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "-qq", wheel], check=True, cwd=folder)
        rows = [compare(model, python, folder, options) for model in options.models]
    foreign = [row["foreign_load"] for row in rows]
    found = {
        "wheel": wheel.name,
        "compilers": {"wheel": "zig (clang)", "source": os.environ.get("CXX", "g++")},
        "rounds": options.rounds,
        "seconds": options.seconds,
        "foreign_load": max((each for each in foreign if each is not None), default=None),
        "valid": all(each is not None and each < FOREIGN for each in foreign),
        "models": rows,
    }
    save(found, options.out)


def compare(model: str, python: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A model on both sides, in turns -> its row of the record: rates a second of what the model counts."""
    plan = Plan(WORKLOADS[model], (), (100,), (), sys.executable)
    spec = plan.our_spec(100)
    workers = plan.cfg.device.workers
    with ExitStack() as stack:
        source = stack.enter_context(our_side(spec, workers))
        command = [str(python), "-P", "-m", "amphw.bench.ours", json.dumps(spec)]
        # -P: the checkout, in which this runs, is not searched for the package.
        alone = {"PYTHONPATH": "", "AMPHW_ENGINE": "native"}
        subject = stack.enter_context(Subject("amphw from the wheel", command, alone))
        subject.ready(900.0)
        modes = ("train", "infer")
        entrants = {
            "source": Entrant(source, "source", 100, modes, needed=True),
            "wheel": Entrant(Side(Setup("wheel", workers), [subject]), "wheel", 100, modes, needed=True),
        }
        interleave(
            list(entrants.values()), options.seconds, options.rounds, lambda line: print(line, flush=True)
        )
    row: dict[str, Any] = {"model": model, "counted": plan.model.counted}
    for mode in modes:
        figures = {side: each.figure(mode) for side, each in entrants.items()}
        ratio = paired(figures["wheel"], figures["source"])
        assert ratio is not None
        row[mode] = {side: figure.to_json() for side, figure in figures.items() if figure}
        row[mode]["wheel_over_source"] = ratio.to_json()
        print(f"{model}, {mode}: the wheel does {ratio.median:.2f} of the source build", flush=True)
    foreign = total(usage for each in entrants.values() for usage in each.usages).foreign
    return row | {"foreign_load": foreign}


if __name__ == "__main__":
    main()
