"""The folder tree is the architecture: which part of the package may import which other part.

Imports are read from the source, including those inside functions and under TYPE_CHECKING: a dependency is
one wherever it stands. The device registry alone names backends, in strings that it imports when asked to.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest

import amphw
from amphw.bench.sides import peers_folder

ROOT = Path(amphw.__file__).parent

ALLOWED = {
    "ir": set(),
    "page": {"ir"},  # whose units it writes
    "frontend": {"ir"},
    "engine": {"ir"},
    "cpu_runtime": {"ir", "engine"},
    "opencl": {"ir", "engine"},
    "mixed": {"ir", "engine", "cpu_runtime"},  # whose engine it gives parts to
    "rtl": {"ir", "engine"},
    # whose plans it counts, whose parts it asks, and whose devices it opens and times
    "estimate": {"ir", "engine", "page", "host"},
    "data": {"ir"},
    "models": {"ir", "data", "frontend"},
    "host": {"ir", "engine", "page"},  # whose parts its own devices offer
    # whose kernels and whose ranks it measures, and in whose gateware it tries faults
    "bench": {"ir", "engine", "estimate", "data", "models", "host", "opencl", "replicas", "rtl"},
    "replicas": {"ir", "host"},  # whose trainer each of them is
    # which it puts together; of the engine it tells the user what stands in for it, and of circuits how fast
    # they would be
    "library": {
        *("ir", "engine", "page", "frontend", "data", "models", "host", "replicas"),
        *("estimate", "rtl"),
    },
    # whose platforms and sources it shows, and whose hardware it builds
    "cli": {
        "library",
        "ir",
        "engine",
        "page",
        "estimate",
        "data",
        "models",
        "host",
        "replicas",
        "bench",
        "opencl",
        "rtl",
    },
}
"""Per part, the other parts that it may import. A part that does not exist yet has no files to check."""

BACKENDS = {"cpu_runtime", "mixed", "opencl", "rtl"}
REGISTRY = "host/devices.py"


def imported_modules(source: str, module: str) -> set[str]:
    """Absolute names of what `source`, the text of `module`, imports; `from a import b` gives a.b."""
    package = module.split(".")[:-1]
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            names.update(f"{stem}.{alias.name}" for alias in node.names)
    return names


def files() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if len(path.relative_to(ROOT).parts) > 1)


def imports_of(path: Path) -> set[str]:
    relative = path.relative_to(ROOT.parent).with_suffix("")
    return imported_modules(path.read_text(encoding="utf-8"), ".".join(relative.parts))


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def test_every_part_is_known() -> None:
    """A new folder needs a line in ALLOWED; without one it would be free to import everything."""
    assert {part_of(path) for path in files()} <= set(ALLOWED)


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_part_imports_only_what_it_may(path: Path) -> None:
    part = part_of(path)
    wanted = {name.split(".")[1] for name in imports_of(path) if name.startswith("amphw.")}
    siblings = {name for name in wanted if name in ALLOWED} - {part}
    forbidden = siblings - ALLOWED[part]
    assert not forbidden, f"{path.relative_to(ROOT)} imports amphw.{', amphw.'.join(sorted(forbidden))}"


def test_nothing_imports_the_command_line() -> None:
    guilty = [
        str(path.relative_to(ROOT))
        for path in files()
        if part_of(path) != "cli" and any(name.startswith("amphw.cli") for name in imports_of(path))
    ]
    assert not guilty


def test_only_the_device_registry_names_backends() -> None:
    """Elsewhere in the host a device is whatever keeps the protocol."""
    wanted = {f"amphw.{part}" for part in BACKENDS}
    guilty = set()
    for path in files():
        relative = path.relative_to(ROOT).as_posix()
        if not relative.startswith("host/") or relative == REGISTRY:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                # Whole names of modules or objects: prose in a docstring may speak of a backend.
                if any(node.value.split(":")[0].split(".")[:2] == name.split(".") for name in wanted):
                    guilty.add(relative)
    assert not guilty


def test_only_the_generators_import_amaranth() -> None:
    """The fixed-point model must be usable where no hardware tools are installed."""
    users = {
        path.relative_to(ROOT).as_posix()
        for path in files()
        if any(name.split(".")[0] == "amaranth" for name in imports_of(path))
    }
    assert all(user.startswith("rtl/") for user in users)
    assert not {user for user in users if "fixed" in user or "format" in user}


def test_imports_are_found_in_every_form() -> None:
    """The checks above are worth what this reader finds."""
    source = """
import amphw.cli.main as x, json
from amphw import host
from amphw.ir.graph import Graph
from . import sibling
from ..opencl import device
def late():
    from amphw.rtl import fixed
"""
    assert imported_modules(source, "amphw.host.links") == {
        "amphw.cli.main",
        "json",
        "amphw.host",
        "amphw.ir.graph.Graph",
        "amphw.host.sibling",
        "amphw.opencl.device",
        "amphw.rtl.fixed",
    }


def test_no_framework_is_in_the_package() -> None:
    """The benchmark's peers are programs of their own, `benchmarks/peers`, which a wheel does not bring."""
    frameworks = {"torch_geometric", "dynet", "jax", "tensorflow"}
    guilty = {
        path.relative_to(ROOT).as_posix()
        for path in files()
        if {name.split(".")[0] for name in imports_of(path)} & frameworks
    }
    assert not guilty
    torch = {
        part_of(path) for path in files() if any(name.split(".")[0] == "torch" for name in imports_of(path))
    }
    assert torch <= {"frontend"}  # which imports its modules


def test_a_peers_process_needs_nothing_of_amphw() -> None:
    """Its interpreter need not have amphw: of our package it takes two files that need nothing themselves."""
    program = (
        "import runpy, sys; sys.modules['amphw'] = None; sys.argv = ['peers', '--probe']; "
        f"runpy.run_path({str(peers_folder())!r}, run_name='__main__'); "
        "print(*[name for name in sys.modules if name.split('.')[0] == 'amphw'])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=True, env=environment, cwd=tempfile.gettempdir(),
    )  # fmt: skip
    found, imported = done.stdout.splitlines()
    assert "versions" in json.loads(found) and imported == "amphw"


def test_a_wheel_brings_package_and_boards_alone() -> None:
    settings = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))
    packages = settings["tool"]["scikit-build"]["wheel"]["packages"]
    assert packages == {"amphw": "amphw", "amphw/boards": "boards"}


def test_estimates_of_circuits_generate_none() -> None:
    """What counts cycles is there at once; the language that circuits are written in takes time to load."""
    code = "import sys, amphw.rtl.timing.circuit; sys.exit('amaranth' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
