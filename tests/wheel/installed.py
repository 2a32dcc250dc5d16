"""Empty environments outside of the checkout, with what is distributed installed in them, and no compiler."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from pathlib import Path

from amphw.engine._native import kernels

from benchmarks.rtl_plans import SMALL_DEVICE

ROOT = Path(__file__).parents[2]
SMALL = [
    word
    for setting in ("hidden=8", "train_instances=200", "valid_instances=100", "epochs=1")
    for word in ("--set", setting)
]
MINORS = range(11, 15)


def interpreters() -> dict[str, str]:
    """Those that are here, by version such as 3.12; pyenv keeps some that are on no path."""
    found = {}
    for minor in MINORS:
        there = shutil.which(f"python3.{minor}")  # pyenv's may stand for nothing
        others = sorted(map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3")))
        for program in [*([there] if there else []), *reversed(others)]:
            if subprocess.run([program, "-c", "import venv"], capture_output=True).returncode == 0:
                found[f"3.{minor}"] = program
                break
    return found


def wheels(machine: str = platform.machine()) -> list[Path]:
    """What `make wheel` has built for a kind of processor."""
    return sorted((ROOT / "dist").glob(f"amphw-*_{machine}.whl"))


def wheel_for(version: str, machine: str = platform.machine()) -> Path | None:
    """The one that pip would take: that of the version, else the one for it and all later ones."""
    minor = int(version.split(".")[1])
    own = [each for each in wheels(machine) if f"-cp3{minor}-cp3{minor}-" in each.name]
    stable = [each for each in wheels(machine) if "-abi3-" in each.name]
    return (own or (stable if minor >= 12 else []) or [None])[0]


class Installed:
    """An environment in `folder`/env with one package alone in it: a wheel, or a source distribution, which
    is built as it is installed."""

    def __init__(self, folder: Path, program: str, package: Path, extras: str = "") -> None:
        self.folder = folder
        subprocess.run([program, "-m", "venv", folder / "env"], check=True)
        self.bin = folder / "env" / "bin"
        self.pip(f"{package}{extras}")

    def pip(self, *what: str) -> None:
        """Install more, with this process's environment: here a compiler is on the path."""
        command = [self.bin / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check", *what]
        subprocess.run(command, check=True, cwd=self.folder)

    def run(self, *command: str, fails: bool = False) -> subprocess.CompletedProcess[str]:
        """A program of the environment, which sees no other: so no compiler either."""
        kept = {name: os.environ[name] for name in ("HOME", "AMPHW_CACHE") if name in os.environ}
        kept["AMPHW_ENGINE"] = "native"  # without the engine in C++ the device is refused
        done = subprocess.run(
            [self.bin / command[0], *command[1:]],
            cwd=self.folder,
            env=kept | {"PATH": str(self.bin), "MPLCONFIGDIR": str(self.folder / "matplotlib")},
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert (done.returncode != 0) == fails, f"{command}\n{done.stdout}\n{done.stderr}"
        return done

    def trains_and_estimates(self, *demo: str) -> None:
        """What everybody does with it; demo: options of the demonstration."""
        where = self.run(
            "python", "-c", "import amphw, amphw.engine._native as n; print(amphw.__file__, n.__file__)"
        )
        assert all(path.startswith(str(self.folder)) for path in where.stdout.split())
        devices = json.loads(self.run("amphw", "devices", "--json").stdout)["devices"]
        (cpu,) = (each for each in devices if each["name"] == "cpu")
        assert f"{kernels.chosen()} kernels" in cpu["notes"], "as a build from the source chooses"
        self.run("amphw", "demo", "--out", "demo", *demo)
        settings = [*SMALL, "--set", "target=none"]
        done = self.run("amphw", "train", "list-reduction", *settings, "--json", "--out", "run")
        assert json.loads(done.stdout)["messages"]["lost"] == 0
        self.run("amphw", "predict", "list-reduction", "--checkpoint", "run", "range 3 1 4")
        self.run("amphw", "estimate", "list-reduction", "--flops", "1TFLOPS", *SMALL[:2])
        self.run("amphw", "check")

    def says_what_circuits_need(self) -> None:
        """Without the extra: which one it is."""
        for more in ([], ["--no-simulate"]):
            refused = self.run("amphw", "rtl", "list-reduction", "--out", "none", *more, fails=True)
            assert "pip install 'amphw[rtl]'" in refused.stderr, refused.stderr
            assert "Traceback" not in refused.stderr
        refused = self.run("amphw", "train", "list-reduction", "--device", "verilator", fails=True)
        assert "pip install 'amphw[rtl]'" in refused.stderr, refused.stderr
        assert not (self.folder / "none").exists()

    def builds_a_circuit(self) -> None:
        """With the extra, and without a compiler: a circuit, placed and routed, but no simulation. It is the
        one that `make hardware` builds, too, which leaves it in the cache."""
        words = [word for each in SMALL_DEVICE for word in ("--set", each)]
        design = ["rtl", "list-reduction", "--lanes", "4", "--keys", "2", "--bitstream", *words]
        refused = self.run("amphw", *design, "--out", "none", fails=True)
        assert "apt install g++ make perl" in refused.stderr and "--no-simulate" in refused.stderr
        done = self.run("amphw", *design, "--no-simulate", "--json", "--out", "circuit")
        facts = json.loads(done.stdout)
        assert facts["board"] == "ulx3s-85f" and facts["fmax_mhz"] > 25
        assert Path(self.folder / facts["files"]["bitstream"]).stat().st_size > 500_000
        assert "module top" in (self.folder / facts["files"]["verilog"]).read_text(encoding="utf-8")
