"""Starts a bench: builds the simulator of a component unless the cache has it, runs the bench, reads its
results.

The first test that fails is run again with the same seed and with waveforms, which are kept with its log in
`build/sim/NAME`: everything random in a bench comes from the seed, so that it fails the same way. (All tests
are, if it does not fail alone.)
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from amphw.rtl.toolchain.build_cache import cached, key
from amphw.rtl.toolchain.environment import ToolchainError, environment, require, versions
from amphw.rtl.toolchain.state_machines import state_machines
from amphw.rtl.toolchain.verilog import verilog

FAILURES = Path(__file__).parent.parent / "build" / "sim"
SETTINGS = "AMPHW_BENCH_SETTINGS"
"""The environment variable through which a bench is told its component's parameters."""
WAVES = "dump.vcd"
REPORT = "report.json"
"""The file in which a bench leaves what it has tried, and the states that it has seen, per state machine."""

_LOG_LINES = 40
_SMALL = "CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O1 OPT_SLOW=-O0 OPT_GLOBAL=-O0"


class BenchFailure(AssertionError):
    """A bench found a fault. The message has the end of its log, and says where the waveforms are."""


@dataclass(frozen=True)
class BenchResult:
    """What a bench that passed has done.

    tests: how many tests ran. counts: how many of what they tried. seen, unseen: per state machine, the
    states that were met, and the others.
    """

    tests: int
    counts: dict[str, int]
    seen: dict[str, set[str]]
    unseen: dict[str, set[str]]


def run_bench(
    make: Callable[[], Any],
    bench: str,
    *,
    name: str,
    seed: int = 1,
    settings: Mapping[str, Any] | None = None,
) -> BenchResult:
    """Run all tests of `sim.benches.{bench}` on a component, which `make` makes.

    name: of the folder that a failure leaves behind. settings: what the bench has to know, as JSON.
    Raises BenchFailure if a test fails, ToolchainError if nothing can be built or run.
    """
    require("test benches")
    component = make()  # which may be elaborated once
    machines = state_machines(make())
    binary = _build(verilog(component, clocked=True))
    options = {
        **(settings or {}),
        "state_machines": {path: list(states) for path, states in machines.items()},
    }
    with tempfile.TemporaryDirectory(prefix="amphw-bench-") as scratch:
        work = Path(scratch)
        failed, tests = _run(binary, bench, work, seed, options, waves=False)
        if failed:
            again = FAILURES / name
            shutil.rmtree(again, ignore_errors=True)
            again.mkdir(parents=True)
            # One test alone: waveforms of all of them would fill the disk. It has a seed of its own.
            repeated, _ = _run(binary, bench, again, seed, options, waves=True, only=failed[0])
            if not repeated:
                _run(binary, bench, again, seed, options, waves=True)
            raise BenchFailure(
                f"{bench} on {type(component).__name__}, seed {seed}: {', '.join(failed)} failed. "
                f"Log and waveforms: {again}\n{_tail(work / 'log')}"
            )
        report = work / REPORT
        found = json.loads(report.read_text()) if report.is_file() else {"counts": {}, "states": {}}
    seen = {
        path: {states[value] for value in found["states"].get(path, ())} for path, states in machines.items()
    }
    unseen = {path: set(states.values()) - seen[path] for path, states in machines.items()}
    return BenchResult(tests, found["counts"], seen, unseen)


def record_bench(
    make: Callable[[], Any], bench: str, *, seed: int = 1, settings: Mapping[str, Any] | None = None
) -> Path:
    """The waveforms (VCD) of a component's ports, and of nothing inside it, while a bench runs that passes.

    They are kept in the cache. Arguments and errors as for `run_bench`.
    """
    require("test benches")
    source = verilog(make(), clocked=True)
    binary = _build(source, "--trace-depth", "1")
    options = {**(settings or {}), "state_machines": {}}

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="amphw-bench-") as scratch:
            work = Path(scratch)
            failed, _ = _run(binary, bench, work, seed, options, waves=True)
            if failed:
                raise BenchFailure(f"{bench}, seed {seed}: {', '.join(failed)} failed. {_tail(work / 'log')}")
            shutil.move(work / WAVES, folder / WAVES)

    texts = _texts(f"sim.benches.{bench}")
    name = key(source, bench, str(seed), json.dumps(options, sort_keys=True), *texts)
    return cached("waves", name, build) / WAVES


def _texts(module: str) -> list[str]:
    """The text of a module of the benches, and of those that it imports."""
    root = Path(__file__).parents[1]
    found: dict[str, str] = {}
    todo = [module]
    while todo:
        name = todo.pop()
        path = root.joinpath(*name.split(".")).with_suffix(".py")
        if name in found or not path.is_file():
            continue
        found[name] = path.read_text()
        todo += re.findall(r"^from (sim\.[\w.]+) import", found[name], re.MULTILINE)
    return [found[name] for name in sorted(found)]


def _build(source: str, *further: str) -> Path:
    """The folder of the simulator of a Verilog text. further: options of Verilator."""

    def build(folder: Path) -> None:
        objects = "\\ ".join(str(part) for part in sorted(_runtime().glob("*.o")))
        _compile(source, folder, f"VM_GLOBAL_FAST= VM_GLOBAL_SLOW= LOADLIBES={objects}", further)
        for left in folder.iterdir():
            if left.name not in ("top", "top.v"):
                left.unlink()

    return cached("benches", key(source, _SMALL, *further, versions("verilator", "cocotb")), build)


def _runtime() -> Path:
    """The folder of Verilator's own object files: the same for every design, and most of what is compiled."""

    def build(folder: Path) -> None:
        _compile("module top(input clk, output reg q = 0); always @(posedge clk) q <= !q; endmodule", folder)
        for left in folder.iterdir():
            if not (left.name.startswith("verilated") and left.suffix == ".o"):
                left.unlink()

    return cached("bench-runtime", key(_SMALL, versions("verilator", "cocotb")), build)


def _compile(source: str, folder: Path, make: str = "", further: Sequence[str] = ()) -> None:
    from cocotb_tools.runner import get_runner

    (folder / "top.v").write_text(source)
    log = folder / "build.log"
    with _quiet_environment():
        os.environ["MAKEFLAGS"] = f"{_SMALL} {make}"
        try:
            get_runner("verilator").build(
                sources=[folder / "top.v"],
                hdl_toplevel="top",
                build_dir=folder,
                build_args=["-Wno-fatal", "-Wno-lint", "-Wno-STMTDLY", *further],
                timescale=("1ns", "1ps"),
                waves=True,
                log_file=log,
            )
        except (SystemExit, RuntimeError, OSError) as error:
            message = f"The bench's simulator cannot be built ({error}):\n{_tail(log)}"
            raise ToolchainError(message) from error


def _run(
    binary: Path,
    bench: str,
    work: Path,
    seed: int,
    settings: Mapping[str, Any],
    *,
    waves: bool,
    only: str | None = None,
) -> tuple[list[str], int]:
    """Names of the tests that failed, and the number of tests. only: the name of the one to run."""
    from cocotb_tools.config import libs_dir
    from cocotb_tools.runner import get_runner

    results, log = work / "results.xml", work / "log"
    with _quiet_environment():
        try:
            get_runner("verilator").test(
                test_module=f"sim.benches.{bench}",
                hdl_toplevel="top",
                hdl_toplevel_lang="verilog",
                build_dir=binary,
                test_dir=work,
                results_xml=str(results),
                seed=seed,
                waves=waves,
                test_filter=None if only is None else re.escape(only) + "$",
                log_file=log,
                # The simulator may have been built by an environment that is gone, whose libraries it names.
                extra_env={SETTINGS: json.dumps(settings), "LD_LIBRARY_PATH": str(libs_dir)},
            )
        except (SystemExit, RuntimeError) as error:
            if not results.is_file():
                raise ToolchainError(f"{bench} did not run ({error}):\n{_tail(log)}") from error
    if not results.is_file():
        raise ToolchainError(f"{bench} left no results:\n{_tail(log)}")
    cases = list(ElementTree.parse(results).iter("testcase"))
    if not cases:
        raise ToolchainError(f"{bench} has no tests:\n{_tail(log)}")
    failed = [
        case.get("name", "?")
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    return failed, len(cases)


@contextmanager
def _quiet_environment() -> Iterator[None]:
    """The tools' environment, without what tells cocotb that pytest runs it: it would end the process."""
    with environment():
        os.environ.pop("PYTEST_CURRENT_TEST", None)
        yield


def _tail(log: Path) -> str:
    if not log.is_file():
        return "(no log)"
    return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
