"""What `make wheel` has built, installed into empty environments outside of the checkout, without a compiler.

`make wheel-test` runs it, after building; every interpreter from 3.11 on that is here is tried. Environments
get their other packages from the registry, so this takes minutes.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parents[2]
SMALL = [
    "--set",
    "hidden=8",
    "--set",
    "train_instances=200",
    "--set",
    "valid_instances=100",
    "--set",
    "epochs=1",
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


def wheels() -> list[Path]:
    return sorted((ROOT / "dist").glob(f"amphw-*_{platform.machine()}.whl"))


def wheel_for(version: str) -> Path | None:
    """The one that pip would take: that of the version, else the one for it and all later ones."""
    minor = int(version.split(".")[1])
    own = [each for each in wheels() if f"-cp3{minor}-cp3{minor}-" in each.name]
    stable = [each for each in wheels() if "-abi3-" in each.name]
    return (own or (stable if minor >= 12 else []) or [None])[0]


class Installed:
    """An environment with the wheel alone in it. There is no compiler on its path."""

    def __init__(self, folder: Path, program: str, wheel: Path, extras: str = "") -> None:
        self.folder = folder
        subprocess.run([program, "-m", "venv", folder / "env"], check=True)
        self.bin = folder / "env" / "bin"
        self._pip(f"{wheel}{extras}")

    def _pip(self, what: str) -> None:
        command = [self.bin / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check", what]
        subprocess.run(command, check=True, cwd=self.folder)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
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
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done


@pytest.fixture(params=sorted(interpreters()) or ["none"])
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> Installed:
    wheel = wheel_for(request.param) if request.param != "none" else None
    if wheel is None:
        pytest.skip(f"no wheel for Python {request.param} in dist/; run make wheel with it")
    return Installed(tmp_path, interpreters()[request.param], wheel)


@pytest.mark.timeout(1800)
def test_it_trains_and_estimates_without_a_compiler(installed: Installed) -> None:
    where = installed.run(
        "python", "-c", "import amphw, amphw.engine._native as n; print(amphw.__file__, n.__file__)"
    )
    assert all(path.startswith(str(installed.folder)) for path in where.stdout.split())
    installed.run("amphw", "demo", "--out", "demo")
    done = installed.run(
        "amphw", "train", "list-reduction", *SMALL, "--set", "target=none", "--json", "--out", "run"
    )
    assert json.loads(done.stdout)["messages"]["lost"] == 0
    installed.run("amphw", "predict", "list-reduction", "--checkpoint", "run", "range 3 1 4")
    installed.run("amphw", "estimate", "list-reduction", "--flops", "1TFLOPS", *SMALL[:2])
    installed.run("amphw", "check")


@pytest.mark.timeout(1800)
def test_it_builds_a_circuit(tmp_path: Path) -> None:
    version = f"3.{sys.version_info[1]}"
    wheel = wheel_for(version)
    if wheel is None:
        pytest.skip(f"no wheel for Python {version} in dist/; run make wheel")
    installed = Installed(tmp_path, sys.executable, wheel, "[rtl]")
    settings = ["--set", "hidden=4", "--set", "batch=1"]
    installed.run("amphw", "rtl", "list-reduction", *settings, "--no-simulate", "--out", "circuit")
    assert any((tmp_path / "circuit").glob("*.v"))


def test_it_brings_what_is_needed_and_nothing_else() -> None:
    if not wheels():
        pytest.skip("there is no wheel in dist/; run make wheel")
    for wheel in wheels():
        names = zipfile.ZipFile(wheel).namelist()
        tops = {name.split("/")[0] for name in names}
        assert {top for top in tops if not top.startswith("amphw")} == set(), tops
        assert not [name for name in names if name.endswith((".cpp", ".hpp"))]
        assert len([name for name in names if "/_native." in name]) == 1
        assert any(name.startswith("amphw/boards/") for name in names)
        assert wheel.stat().st_size < 4e6
