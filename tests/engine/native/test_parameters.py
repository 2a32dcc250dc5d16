"""Published versions under threads, without the engine around them: programs that are compiled for it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from amphw.engine import native_headers

HERE = Path(__file__).parent
NATIVE = Path(__file__).parents[3] / "amphw" / "engine" / "native"
COMPILER = os.environ.get("CXX", "g++")
# A sanitizer that is loaded into this process is not meant for these.
PLAIN = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}

needs_compiler = pytest.mark.skipif(shutil.which(COMPILER) is None, reason="there is no C++ compiler")


PARAMETERS = [
    *sorted(NATIVE.glob("parameters*.cpp")),
    NATIVE / "kernels" / "kernels.cpp",
    NATIVE / "device_memory.cpp",
]


def built(name: str, folder: Path, *flags: str, engine: Sequence[Path] = PARAMETERS) -> Path | None:
    """The program, with these parts of the engine; None where the compiler does not have these flags."""
    program = folder / name
    sources = [HERE / f"{name}.cpp", *engine]
    native_headers.write(folder / "generated")
    wanted = ["-std=c++20", "-O1", "-pthread", f"-I{NATIVE}", f"-I{folder}", *flags]
    nothing = folder / "nothing.cpp"
    nothing.write_text("int main() {}\n")
    trial = [COMPILER, *flags, str(nothing), "-o", str(folder / "nothing")]
    if subprocess.run(trial, check=False, env=PLAIN, capture_output=True).returncode != 0:
        return None
    command = [COMPILER, *wanted, *map(str, sources), "-o", str(program)]
    subprocess.run(command, check=True, env=PLAIN)
    return program


def counted(program: Path, seconds: int, readers: int) -> list[int]:
    done = subprocess.run(
        [str(program), str(seconds), str(readers)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env=PLAIN,
    )
    assert done.returncode == 0, done.stderr  # where a sanitizer says what it has found
    return [int(word) for word in done.stdout.split()]


@needs_compiler
@pytest.mark.thorough
def test_a_pinned_version_is_not_written(tmp_path: Path) -> None:
    """Without `pin`'s second look a reader goes wrong about ten times a second, on two processors."""
    program = built("pin_stress", tmp_path)
    assert program is not None
    wrong, reads, updates = counted(program, 2, 2)
    assert wrong == 0
    assert reads > 1000 and updates > 1000


@needs_compiler
@pytest.mark.thorough
@pytest.mark.parametrize("flags", [[], ["-fsanitize=thread"]], ids=["plain", "thread sanitizer"])
def test_beside_updates_nothing_is_told_or_received_in_parts(tmp_path: Path, flags: list[str]) -> None:
    program = built("exchange_stress", tmp_path, *flags)
    if program is None:
        pytest.skip(f"{COMPILER} does not build with {flags[0]}")
    wrong, reads, updates, received = counted(program, 2, 2)
    assert wrong == 0
    assert reads > 100 and updates > 100 and received > 100


@needs_compiler
@pytest.mark.thorough
@pytest.mark.parametrize("flags", [[], ["-fsanitize=thread"]], ids=["plain", "thread sanitizer"])
def test_shared_work_is_done_once_and_waited_for(tmp_path: Path, flags: list[str]) -> None:
    program = built("shared_stress", tmp_path, *flags, engine=[])
    if program is None:
        pytest.skip(f"{COMPILER} does not build with {flags[0]}")
    wrong, own, helped, thrown = counted(program, 60, 2)  # it ends once enough has been helped
    assert wrong == 0
    assert own > 0 and helped >= 100 and thrown > 0
