"""How long `amphw train` takes until it trains: from the start of its process to the first instance's report.

    python benchmarks/start_up.py             # of list reduction, seven times
    python benchmarks/start_up.py tree-lstm ggnn

The command is what a user types, with nothing but the folder of the run. The process ends at the first
report, before which its first frames have run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a script

from benchmarks.record import RESULTS, save

TIMES = 7
BAR_S = 1.5

_CHILD = """
import os, sys, time
from amphw.cpu_runtime.device import CpuDevice
poll = CpuDevice.poll
def first(self, *given):
    found = poll(self, *given)
    if found:
        os.write({pipe}, repr(time.time()).encode())
        os._exit(0)
    return found
CpuDevice.poll = first
from amphw.cli.main import app
sys.argv = ["amphw", "train", {model!r}, "--out", {out!r}]
app()
"""


def once(model: str) -> float:
    """Seconds."""
    with tempfile.TemporaryDirectory() as folder:
        read, write = os.pipe()
        code = _CHILD.format(model=model, out=str(Path(folder) / "run"), pipe=write)
        began = time.time()
        done = subprocess.run([sys.executable, "-c", code], pass_fds=(write,), capture_output=True, text=True)
        os.close(write)
        said = os.read(read, 64)
        os.close(read)
    if not said:
        raise SystemExit(f"{model} did not train:\n{done.stderr}")
    return float(said) - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=["list-reduction"])
    said = parser.parse_args()
    found = {}
    for model in said.models:
        once(model)  # files of the package come from the disk once
        seconds = [once(model) for _ in range(TIMES)]
        found[model] = {"seconds": seconds, "median_s": statistics.median(seconds), "bar_s": BAR_S}
        low, high = min(seconds), max(seconds)
        print(f"{model}: {found[model]['median_s']:.2f} s to the first report ({low:.2f} to {high:.2f})")
    save({"models": found}, RESULTS / "start-up.json")


if __name__ == "__main__":
    main()
