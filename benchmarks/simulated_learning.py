"""What list reduction learns with its recurrent cell in a simulated circuit, the lanes as a functional model.

    python benchmarks/simulated_learning.py [--out FOLDER] [--json FILE]
    python benchmarks/simulated_learning.py --run FOLDER --json FILE     of a run that is there

`amphw train list-reduction --device cpu,verilator:lanes=model` with the settings below: the cell is updated
after 16 messages, the head after each, and the rates of both fall to 0 when the last of the 300,000 sequences
come. The bar is 85 % of the validation sequences within a quarter of an hour of training, on two cores.
`--device cpu,fixed --set device.frame_cap=1` has the same arithmetic, is several times faster and, as the
circuit does, serves one message at a time: to try other settings.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

from record import save

from amphw.host.run_folder import ENVIRONMENT, METRICS, RunFolder

BAR, MINUTES = 0.85, 15
SETTINGS = (
    *("device.lanes=32", "cell=gru", "hidden=32", "embedding=8", "batch=8", "seed=1"),
    *("lr=0.7", "momentum=0.7", "update.clip=1", "min_update_interval=124", "schedule_steps=18750"),
    *("update.nodes.head.min_update_interval=4", "update.nodes.head.schedule_steps=37500"),
    *("epochs=3", "valid_instances=4000"),
)


def trained(folder: Path) -> None:
    settings = [word for each in SETTINGS for word in ("--set", each)]
    device = ["--device", "cpu,verilator:lanes=model"]
    command = [sys.executable, "-m", "amphw.cli", "train", "list-reduction", *device, *settings]
    subprocess.run([*command, "--out", str(folder)], check=True)


def found_in(folder: Path) -> dict[str, Any]:
    """By epoch: sequences and seconds since the beginning, validation not counted, and the accuracy."""
    run = RunFolder(folder)
    epochs = [
        {"sequences": e["instances"], "seconds": e["seconds"], "accuracy": e["valid"]["accuracy"]}
        for e in run.read_json(METRICS)
    ]
    met = any(e["accuracy"] >= BAR and e["seconds"] <= 60 * MINUTES for e in epochs)
    return {"run": run.read_json(ENVIRONMENT), "epochs": epochs, "bar": BAR, "minutes": MINUTES, "met": met}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/simulated-learning"))
    parser.add_argument("--run", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.run is None:
        trained(given.out)
    found = found_in(given.run or given.out)
    for epoch in found["epochs"]:
        rate = epoch["sequences"] / epoch["seconds"]
        print(
            f"{epoch['sequences']:>9,.0f} sequences, {epoch['seconds']:>6,.0f} s ({rate:,.0f}/s): "
            f"{epoch['accuracy']:.1%}"
        )
    print(f"bar of {BAR:.0%} within {MINUTES} minutes: {'met' if found['met'] else 'NOT met'}")
    if given.json:
        save(found, given.json)


if __name__ == "__main__":
    main()
