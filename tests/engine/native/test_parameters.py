"""Published versions under threads, without the engine around them: a program that is compiled for it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from amphw.engine import native_headers

HERE = Path(__file__).parent
NATIVE = Path(__file__).parents[3] / "amphw" / "engine" / "native"
COMPILER = os.environ.get("CXX", "g++")


@pytest.mark.skipif(shutil.which(COMPILER) is None, reason="there is no C++ compiler")
@pytest.mark.thorough
def test_a_pinned_version_is_not_written(tmp_path: Path) -> None:
    """Without `pin`'s second look a reader goes wrong about ten times a second, on two processors."""
    program = tmp_path / "pin_stress"
    sources = [
        HERE / "pin_stress.cpp",
        *sorted(NATIVE.glob("parameters*.cpp")),
        NATIVE / "kernels" / "kernels.cpp",
        NATIVE / "device_memory.cpp",
    ]
    native_headers.write(tmp_path / "generated")
    flags = ["-std=c++20", "-O1", "-pthread", f"-I{NATIVE}", f"-I{tmp_path}"]
    # A sanitizer that is loaded into this process is not meant for these.
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run([COMPILER, *flags, *map(str, sources), "-o", str(program)], check=True, env=plain)
    done = subprocess.run(
        [str(program), "2", "2"], check=True, capture_output=True, text=True, timeout=60, env=plain
    )
    wrong, reads, updates = map(int, done.stdout.split())
    assert wrong == 0
    assert reads > 1000 and updates > 1000
