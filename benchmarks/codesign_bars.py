"""The search for circuits on models of three kinds: whether it finds one as good as float32, and how fast.

    python benchmarks/codesign_bars.py [list-reduction] [mnist] [tree-lstm]    # an hour each, on two cores

Each is the command that a user types. The bar: the chosen circuit is within 1 point of float32 at the end of
training, within 60 minutes on two processors. What a model's search found is written into
benchmarks/results/codesign.json when it ends.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a script

from benchmarks.record import RESULTS, about

RECORD = RESULTS / "codesign.json"
RUNS = {
    "list-reduction": ("--set", "hidden=32"),
    "mnist": ("--set", "width=64"),
    "tree-lstm": (),
}
"""By model, what the command is given beside `--loss 1`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", default=list(RUNS), choices=list(RUNS))
    parser.add_argument("--minutes", type=float, default=60.0)
    said = parser.parse_args()
    for model in said.models:
        given = ("codesign", model, "--loss", "1", "--minutes", f"{said.minutes:g}", *RUNS[model], "--json")
        done = subprocess.run(
            [sys.executable, "-m", "amphw.cli", *given], stdout=subprocess.PIPE, text=True, check=True
        )
        found = json.loads(done.stdout)
        record = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
        record[model] = {**about(), "command": f"amphw {' '.join(given)}", **found}
        RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        chosen, reference = found["chosen"], found["float32"]["median"]
        said_of = f"{chosen[found['metric']]:.4g}, {chosen['formats']}" if chosen else "none within a point"
        print(f"{model}: {said_of}; float32 {reference:.4g}; {found['seconds'] / 60:.0f} minutes", flush=True)


if __name__ == "__main__":
    main()
