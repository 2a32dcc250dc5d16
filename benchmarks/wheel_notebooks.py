"""The tutorial notebooks, run from a wheel in an environment that has nothing else: how long they take.

    make wheel && python benchmarks/wheel_notebooks.py        # or make wheel-notebooks

Installs the wheel of this interpreter with the extras that the notebooks need into a new environment outside
of the checkout, runs each notebook there from its first cell to its last, without a compiler, and writes
benchmarks/results/wheel-notebooks.json. A notebook that fails ends it with an error; then nothing is written.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

from record import RESULTS, save

from amphw.bench.load import UsageMeter

ROOT = RESULTS.parents[1]
EXTRAS = "notebook,torch,rtl"
BAR_S = 600.0
"""What all notebooks together may take."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--wheel", type=Path, help="which; else that of this interpreter in dist/")
    parser.add_argument("--out", type=Path, default=RESULTS / "wheel-notebooks.json", help="the record")
    options = parser.parse_args()
    wheel = (options.wheel or own_wheel()).resolve()
    with tempfile.TemporaryDirectory(prefix="amphw-notebooks-") as name:
        folder = Path(name)
        began = time.perf_counter()
        programs = install(wheel, folder)
        installed_s = time.perf_counter() - began
        print(f"{wheel.name}[{EXTRAS}] installed in {installed_s:.0f} s", flush=True)
        rows = [
            execute(path, folder, programs) for path in sorted((ROOT / "examples/notebooks").glob("*.ipynb"))
        ]
    seconds = sum(row["seconds"] for row in rows)
    print(f"all: {seconds:.0f} s, where {BAR_S:.0f} s are allowed")
    save(
        {
            "wheel": wheel.name,
            "extras": EXTRAS,
            "install_s": round(installed_s, 1),
            "seconds": round(seconds, 1),
            "bar_s": BAR_S,
            "met": seconds < BAR_S,
            "notebooks": rows,
        },
        options.out,
    )
    sys.exit(seconds >= BAR_S)


def own_wheel() -> Path:
    minor = sys.version_info[1]
    found = sorted((ROOT / "dist").glob(f"amphw-*-cp3{minor}-*_{os.uname().machine}.whl"))
    if not found and minor >= 12:
        found = sorted((ROOT / "dist").glob(f"amphw-*-abi3-*_{os.uname().machine}.whl"))
    if not found:
        sys.exit(f"there is no wheel for Python 3.{minor} in dist/; run make wheel")
    return found[-1]


def install(wheel: Path, folder: Path) -> Path:
    """A new environment -> its folder of programs."""
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    programs = folder / "env" / "bin"
    with (ROOT / "pyproject.toml").open("rb") as file:
        listed = tomllib.load(file)["project"]["optional-dependencies"]["dev"]
    client = next(each for each in listed if each.startswith("nbclient"))
    pip = [programs / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, f"{wheel}[{EXTRAS}]", client], check=True, cwd=folder)
    # Cells run `amphw` through it; of the system's other programs, compilers among them, none is on the path.
    (programs / "sh").symlink_to("/bin/sh")
    return programs


def execute(path: Path, folder: Path, programs: Path) -> dict[str, Any]:
    """Run a notebook where nothing but the environment is on the path -> its row of the record."""
    work = folder / path.stem
    work.mkdir()
    shutil.copy(path, work)
    environment = {name: os.environ[name] for name in ("HOME", "AMPHW_CACHE") if name in os.environ}
    before, meter = _processor_s(), UsageMeter([])
    command = [programs / "jupyter", "execute", path.name, "--timeout=600"]
    done = subprocess.run(
        command, cwd=work, env=environment | {"PATH": str(programs)}, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{path.name} failed:\n{done.stderr[-4000:]}")
    usage, own = meter.read(), _processor_s() - before
    foreign = None
    if usage.busy is not None:
        foreign = round(max(0.0, usage.busy - own) / (usage.seconds * usage.processors), 2)
    row = {
        "notebook": path.stem,
        "seconds": round(usage.seconds, 1),
        "processor_s": round(own, 1),
        "foreign_load": foreign,
    }
    print(row, flush=True)
    return row


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
