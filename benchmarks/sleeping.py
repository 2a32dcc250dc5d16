"""The sleep method beside the calculation: what a model trains where its layers wait as devices would.

    python benchmarks/sleeping.py [--seconds 4] [--json FILE]

Each is one run of `amphw estimate --method sleep`; the table of docs/estimate.md comes from here.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from record import save

RUNS = {
    "tree-lstm": ("200MFLOPS", "2GFLOPS", "1TFLOPS"),
    "ggnn": ("200MFLOPS", "2GFLOPS", "1TFLOPS"),
    "list-reduction": ("200MFLOPS", "2GFLOPS"),
    "list-reduction --set replicas=4": ("200MFLOPS", "2GFLOPS", "1TFLOPS"),
}
"""By model the rates of a device; generated data where a model has it."""
SAMPLED = ("tree-lstm", "ggnn")


def slept(model: str, flops: str, seconds: float) -> dict[str, Any]:
    sample = ["--set", "sample=true"] if model in SAMPLED else []
    words = ["estimate", *model.split(), *sample, "--flops", flops, "--method", "sleep", "--json"]
    command = [sys.executable, "-m", "amphw.cli", *words, "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return {
        "model": model,
        "flops": flops,
        "calculated": found["throughput"] * found["counted_per_instance"],
        "slept": found["measured"]["train_per_s"],
        "counted": found["counted"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--json", type=Path, help="where the record is written")
    args = parser.parse_args()
    rows = []
    for model, rates in RUNS.items():
        for flops in rates:
            row = slept(model, flops, args.seconds)
            rows.append(row)
            print(
                f"{model:32} {flops:>10}: calculated {row['calculated']:,.4g} {row['counted']}/s, "
                f"by sleeping {row['slept']:,.4g}",
                flush=True,
            )
    if args.json is not None:
        save({"seconds": args.seconds, "runs": rows}, args.json)


if __name__ == "__main__":
    main()
