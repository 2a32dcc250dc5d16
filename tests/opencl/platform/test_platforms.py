"""Devices are found in a known order, and chosen by number, kind or name; what is wrong is said in full."""

from __future__ import annotations

import json
import os
import re
import sys
from types import SimpleNamespace

import pytest

from amphw.opencl.codegen.forms import CPU_FORM, GPU_FORM, SINGLE_FORM
from amphw.opencl.platform import platforms, pocl
from amphw.opencl.platform.platforms import OpenCLError, check_usable, choose, default_form, found
from tests.opencl.conftest import a_device

POCL = "Portable Computing Language"
LISTED = (
    "Devices: opencl:0 Big 7 (gpu, Some platform); opencl:1 Big 9 (gpu, Some platform); "
    "opencl:2 Board (accelerator, Boards); opencl:3 Small (cpu, CPUs)."
)


@pytest.fixture
def four(pretend) -> None:
    """Two GPUs, an accelerator and a CPU, which their platforms list in another order."""
    pretend(
        a_device("Small", "cpu", "CPUs"),
        a_device("Big 7", "gpu"),
        a_device("Board", "accelerator", "Boards"),
        a_device(" Big 9 ", "gpu"),
    )


def refused(argument: str) -> str:
    with pytest.raises(OpenCLError) as caught:
        choose(argument)
    return str(caught.value)


def unusable(device: SimpleNamespace, pretend) -> str:
    pretend(device)
    with pytest.raises(OpenCLError) as caught:
        check_usable(found()[0])
    return str(caught.value)


# --- what PoCL really shows ---------------------------------------------------------------------------------


def test_pocl_is_found_and_builds_kernels() -> None:
    import numpy as np
    import pyopencl as cl

    device = next(each for each in found() if each.pocl)
    check_usable(device)
    assert device.kind == "cpu" and device.unified and not device.fp16 and "PoCL" in device.platform_version
    assert device.memory >= device.largest_allocation > 0 and device.compute_units > 0
    assert default_form(device) == CPU_FORM
    assert platforms.capabilities(device).name == device.spec

    context = cl.Context([device.handle])
    queue = cl.CommandQueue(context)
    program = cl.Program(context, "kernel void add(global float *x) { x[get_global_id(0)] += 1; }").build()
    values = np.arange(16, dtype=np.float32)
    buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=values)
    kernel = cl.Kernel(program, "add")
    kernel(queue, (16,), (1,), buffer)
    result = np.empty_like(values)
    cl.enqueue_copy(queue, result, buffer)
    assert (result == values + 1).all()


def test_several_devices_of_pocl(python) -> None:
    program = """
from amphw.opencl.platform.platforms import choose, OpenCLError
print([each.number for each in choose("1,0")], len({each.handle for each in choose("0, 1")}))
try:
    choose("PTHREAD")
except OpenCLError as error:
    print(error)
"""
    numbers, message = python(program, POCL_DEVICES="pthread pthread").splitlines()
    assert numbers == "[1, 0] 2"
    named = rf"opencl:%d pthread\S* .*\(cpu, {POCL}\)"
    assert re.fullmatch(
        rf"'PTHREAD' fits 2 OpenCL devices; give a number\. Devices: {named % 0}; {named % 1}\.", message
    )


def test_the_device_that_runs_in_the_calling_thread(python) -> None:
    program = "from amphw.opencl.platform.platforms import found; print([each.name for each in found()])"
    assert re.fullmatch(r"\['basic\S* .*'\]", python(program, POCL_DEVICES="basic"))


def test_a_forked_child_is_refused_and_does_not_hang(python) -> None:
    program = """
import os
from amphw.opencl.platform.platforms import found, check_usable, OpenCLError
device = found()[0]
child = os.fork()
if child == 0:
    for call in (found, lambda: check_usable(device)):
        try:
            call()
        except OpenCLError as error:
            print(str(error).replace(str(os.getppid()), "N"), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    message = (
        "OpenCL was opened by process N, from which this one was forked, and cannot be used here. "
        'Start processes afresh: multiprocessing.get_context("spawn").'
    )
    assert python(program).splitlines() == [message, message]


# --- what there is ------------------------------------------------------------------------------------------


def test_gpus_come_first_and_cpus_last(four) -> None:
    assert [(each.number, each.name) for each in found()] == [
        (0, "Big 7"),
        (1, "Big 9"),
        (2, "Board"),
        (3, "Small"),
    ]


def test_platforms_are_ordered_by_name(pretend) -> None:
    pretend(a_device("x", "gpu", "Zeta"), a_device("y", "gpu", "Alpha"))
    assert [each.platform for each in found()] == ["Alpha", "Zeta"]


def test_what_a_device_says_of_itself(pretend) -> None:
    pretend(a_device("Big", "gpu"))
    [device] = found()
    assert device.fp64 and not device.fp16 and not device.unified and not device.pocl
    assert str(device) == "opencl:0 Big (gpu, Some platform)"
    able = platforms.capabilities(device)
    assert (able.name, able.kind, able.memory) == ("opencl:0", "opencl", 8 << 30)
    assert (
        able.notes == "Big, gpu, 8 compute units, 8.0 GiB, at most 2.0 of it in one piece, OpenCL 3.0 1.2.3"
    )


def test_a_platform_without_its_hardware_hides_no_other(pretend, monkeypatch) -> None:
    import pyopencl as cl

    def fail() -> None:
        raise cl.RuntimeError("DEVICE_NOT_FOUND")

    pretend(a_device("Big", "gpu"))
    broken = SimpleNamespace(name="Broken", version="", get_devices=fail)
    others = platforms._platforms(cl)
    monkeypatch.setattr(platforms, "_platforms", lambda cl: [broken, *others])
    assert [each.name for each in found()] == ["Big"]


@pytest.mark.parametrize(
    ("changed", "form"),
    [({}, GPU_FORM), ({"max_work_group_size": 128}, SINGLE_FORM), ({"local_mem_size": 4096}, SINGLE_FORM)],
)
def test_the_form_that_suits_a_gpu(pretend, changed, form) -> None:
    pretend(a_device("Big", "gpu", **changed))
    assert default_form(found()[0]) == form


# --- choosing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "numbers"),
    [
        ("", [0]),
        ("2", [2]),
        ("3,0", [3, 0]),
        ("1, 2", [1, 2]),
        ("gpu", [0]),
        ("CPU", [3]),
        ("accelerator", [2]),
        ("big 9", [1]),
        ("SMALL", [3]),
        ("boards", [2]),  # the platform's name
    ],
)
def test_by_number_kind_or_name(four, argument, numbers) -> None:
    assert [each.number for each in choose(argument)] == numbers


def test_no_such_number(four) -> None:
    assert refused("4") == f"there is no OpenCL device 4. {LISTED}"
    assert refused("0,7") == f"there is no OpenCL device 7. {LISTED}"


def test_no_such_name(four) -> None:
    assert refused("nvidia") == (
        "there is no OpenCL device 'nvidia': expected a number, numbers with commas between, gpu, cpu, "
        f"accelerator, or a part of a name. {LISTED}"
    )


def test_no_such_kind(pretend) -> None:
    pretend(a_device("Small", "cpu", "CPUs"))
    assert refused("gpu") == (
        "there is no OpenCL device of the kind 'gpu'. Devices: opencl:0 Small (cpu, CPUs)."
    )


def test_a_name_that_fits_several(four) -> None:
    assert refused("big") == (
        "'big' fits 2 OpenCL devices; give a number. Devices: opencl:0 Big 7 (gpu, Some platform); "
        "opencl:1 Big 9 (gpu, Some platform)."
    )


def test_a_device_named_twice(four) -> None:
    assert refused("1,0,1") == "opencl:1,0,1 names device 1 twice; each can be opened once."


@pytest.mark.parametrize("argument", ["0,", ",", "0 1"])
def test_a_list_that_cannot_be_read(four, argument) -> None:
    assert refused(argument) == (
        f"opencl:{argument}: expected numbers with commas between, such as opencl:0,1"
    )


# --- what is missing ----------------------------------------------------------------------------------------

NOTHING = (
    "there is no OpenCL device here.{} Install the driver of your GPU with its OpenCL part, or, for CPUs, "
    'PoCL: pip install "amphw[opencl]".'
)


def test_no_device(python) -> None:
    program = """
from amphw.opencl.platform.platforms import choose, found, survey, OpenCLError
assert found() == []
try:
    choose()
except OpenCLError as error:
    print(error)
assert survey()[0].endswith(", no devices")
"""
    assert python(program, POCL_DEVICES="nosuch") == NOTHING.format(" POCL_DEVICES=nosuch may hide them.")


def test_no_platform(monkeypatch) -> None:
    import pyopencl as cl

    def fail() -> None:
        raise cl.LogicError("clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR")

    monkeypatch.setattr(cl, "get_platforms", fail)
    for name in platforms._HIDING:
        monkeypatch.delenv(name, raising=False)
    assert found() == []
    assert refused("0") == NOTHING.format("")
    with pytest.raises(OpenCLError, match="there is no OpenCL device here"):
        platforms.listed()
    found_here, remedy = platforms.survey()
    assert re.fullmatch(r"pyopencl \S+, no devices", found_here) and remedy == NOTHING.format("")


MISSING = (
    "OpenCL needs the package pyopencl, which {}: "
    'pip install "amphw[opencl]" brings it, and PoCL, which runs OpenCL on CPUs.'
)


def test_pyopencl_is_not_installed(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    assert refused("") == MISSING.format("is not installed")
    assert platforms.survey() == ("not usable", MISSING.format("is not installed"))


def test_pyopencl_cannot_be_imported(python, tmp_path) -> None:
    (tmp_path / "pyopencl.py").write_text("raise ImportError('libOpenCL.so.1: no such file')\n")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from amphw.opencl.platform.platforms import found, OpenCLError
try:
    found()
except OpenCLError as error:
    print(error)
"""
    assert python(program) == MISSING.format("cannot be imported (libOpenCL.so.1: no such file)")


def test_nothing_of_opencl_is_imported_before_it_is_needed(python) -> None:
    program = """
import sys, amphw.opencl.platform.platforms, amphw.host.devices
amphw.host.devices.device_entries()
print("pyopencl" in sys.modules)
"""
    assert python(program) == "False"


# --- what would fail later ----------------------------------------------------------------------------------


def test_without_a_linker_nothing_is_built(pretend, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert unusable(a_device("pthread-x", "cpu", POCL, version="PoCL HSTR: x-y-znver3"), pretend) == (
        f"opencl:0 pthread-x (cpu, {POCL}) needs the linker ld, which is not on the path. Install "
        "binutils (on Debian: apt install binutils)."
    )
    problem = platforms.listed()["0"]
    assert isinstance(problem, str) and "needs the linker ld" in problem
    pretend(a_device("Big", "gpu"))
    check_usable(found()[0])  # other drivers bring their own


def test_a_processor_that_pocl_does_not_know_and_that_cannot_be_put_right(pretend, monkeypatch) -> None:
    monkeypatch.setattr(pocl, "_is_x86", lambda: True)
    monkeypatch.setattr(pocl, "linker", lambda: "/usr/bin/ld")

    def fail(record: int, known: str, name: str) -> None:
        raise LookupError

    monkeypatch.setattr(pocl, "_rename", fail)
    assert unusable(
        a_device("pthread-x", "cpu", POCL, version="PoCL HSTR: x-linux-gnu-generic"), pretend
    ) == (
        f"opencl:0 pthread-x (cpu, {POCL}) cannot build kernels: this processor is newer than OpenCL 3.0 "
        "1.2.3. Install a newer PoCL, or choose another device."
    )


def test_a_device_that_is_away_or_has_no_compiler(pretend) -> None:
    assert unusable(a_device("Big", "gpu", available=0), pretend) == (
        "opencl:0 Big (gpu, Some platform) is not available: its driver says that it is in use or "
        "switched off."
    )
    assert unusable(a_device("Big", "gpu", compiler_available=0), pretend) == (
        "opencl:0 Big (gpu, Some platform) has no compiler, but kernels are compiled here. "
        "Choose another device."
    )


def test_the_survey_names_all_that_is_needed(python, tmp_path) -> None:
    program = "import json; from amphw.opencl.platform.platforms import survey; print(json.dumps(survey()))"
    about, remedy = json.loads(python(program))
    assert re.fullmatch(
        rf"pyopencl \S+, {POCL} \(.*PoCL.*\), 1 device, linker /\S*ld, compiled kernels in "
        rf"{re.escape(str(tmp_path))}/cache/pocl/0",
        about,
    )
    assert remedy == ""
    about, remedy = json.loads(python(program, PATH=os.devnull))
    assert "linker not found" in about and "apt install binutils" in remedy
