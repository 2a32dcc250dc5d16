"""What models learn in the default number formats, beside float32 and beside `q4.12`, which was the default.

    python benchmarks/default_formats.py [--json FILE] [MODEL ...]

Each model is trained by `amphw train` with the optimiser that a circuit has, on the CPU, on `fixed` with the
default formats, and with those of before. Epochs, and widths, are as many as take some minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from record import save

from amphw.host.run_folder import METRICS, RunFolder
from amphw.rtl.numbers.formats import DEFAULT

FLOAT, BEFORE = "cpu", "q4.12"


@dataclass(frozen=True)
class Case:
    settings: tuple[str, ...]


CASES = {
    "list-reduction": Case(
        ("cell=gru", "hidden=32", "optimizer=momentum", "lr=0.6", "min_update_interval=600", "epochs=4",
         "update.nodes.head.min_update_interval=100", "schedule=cosine", "schedule_steps=4000", "warmup=400"),
    ),
    "mnist": Case(("width=64", "optimizer=momentum", "epochs=10")),
    "tree-lstm": Case(("hidden=18", "embedding=37", "vocabulary=272", "optimizer=momentum", "epochs=3")),
}  # fmt: skip


def trained(model: str, device: str, settings: tuple[str, ...]) -> dict[str, Any]:
    """The metric after each epoch."""
    words = [word for each in ("target=none", "trace=false", *settings) for word in ("--set", each)]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "amphw.cli", "train", model, "--device", device, *words]
        done = subprocess.run([*command, "--out", str(out), "--json"], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{model} on {device}:\n{done.stderr}")
        epochs = RunFolder(out).read_json(METRICS)
    metric = json.loads(done.stdout)["metric"]
    return {"device": device, "metric": metric, "curve": [each["valid"][metric] for each in epochs]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(CASES)}; all")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: dict[str, Any] = {}
    for model in given.models or CASES:
        case = CASES[model]
        found[model] = {"settings": case.settings, "runs": []}
        for device in (FLOAT, *(f"fixed:{formats}" for formats in (DEFAULT, BEFORE))):
            run = trained(model, device, case.settings)
            found[model]["runs"].append(run)
            print(f"{model:16} {device:32} {run['metric']} {run['curve'][-1]:.4g}", flush=True)
    if given.json:
        save({"models": found}, given.json)


if __name__ == "__main__":
    main()
