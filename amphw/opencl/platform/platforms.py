"""Which OpenCL devices there are, and which of them `opencl:...` stands for.

Devices are numbered over all platforms: GPUs first, then accelerators, then CPUs, so that `opencl` (the same
as `opencl:0`) is the one that most likely pays; within a kind by the platform's name, and as the platform
orders them. pyopencl is imported inside the functions: without it, everything else of amphw works.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from amphw.ir.device import Capabilities
from amphw.ir.errors import DeviceAbsentError
from amphw.opencl.codegen.forms import CPU_FORM, GPU_FORM, SINGLE_FORM, Form
from amphw.opencl.platform import pocl

KINDS = ("gpu", "accelerator", "cpu", "other")
INSTALL = 'pip install "amphw[opencl]" brings it, and PoCL, which runs OpenCL on CPUs'

_opened_in: list[int] = []  # the process that used the platforms first


class OpenCLError(DeviceAbsentError):
    """There is no such OpenCL device, or it cannot be used here. The message says what to do."""


@dataclass(frozen=True)
class Found:
    """One device. number: behind `opencl:`. Sizes in bytes. handle: the pyopencl device.

    unified: host and device share memory, so that buffers on the host's arrays are likely not copied.
    """

    number: int
    name: str
    kind: str
    platform: str
    platform_version: str
    driver: str
    language: str
    """Such as "OpenCL C 1.2 PoCL"."""
    compute_units: int
    memory: int
    largest_allocation: int
    local_memory: int
    largest_group: int
    fp64: bool
    fp16: bool
    unified: bool
    pocl: bool
    handle: Any = field(compare=False, repr=False)

    @property
    def spec(self) -> str:
        return f"opencl:{self.number}"

    def __str__(self) -> str:
        return f"{self.spec} {self.name} ({self.kind}, {self.platform})"


def found() -> list[Found]:
    """Every device of every platform, in the order of their numbers; empty if there is none.

    Raises OpenCLError where pyopencl is not installed, and in a child forked after the first call.
    """
    check_process()
    try:
        import pyopencl as cl
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "pyopencl"
        why = "is not installed" if missing else f"cannot be imported ({error})"
        raise OpenCLError(f"OpenCL needs the package pyopencl, which {why}: {INSTALL}.") from error
    with pocl.environment():
        if not _opened_in:
            _opened_in.append(os.getpid())
        handles = [(platform, device) for platform in _platforms(cl) for device in _devices_of(cl, platform)]
    order = sorted(handles, key=lambda each: (KINDS.index(_kind(cl, each[1])), each[0].name.strip()))
    return [_described(cl, number, platform, device) for number, (platform, device) in enumerate(order)]


def choose(argument: str = "") -> list[Found]:
    """The devices that `opencl:argument` stands for.

    argument: "" (the first), a number, numbers with commas between ("0,1": all of them, in this order),
    "gpu", "cpu" or "accelerator" (the first of its kind), or a part of a device's or a platform's name that
    fits one device only, upper or lower case. Raises OpenCLError. Call `check_usable` before building.
    """
    devices = found()
    if not devices:
        raise OpenCLError(_nothing())
    argument = argument.strip()
    if not argument:
        return devices[:1]
    if re.fullmatch(r"[\d,\s]+", argument):
        return _by_number(argument, devices)
    if argument.lower() in KINDS[:3]:
        kind = argument.lower()
        if not (fit := [each for each in devices if each.kind == kind]):
            raise OpenCLError(f"there is no OpenCL device of the kind {kind!r}. {_listed(devices)}")
        return fit[:1]
    part = argument.lower()
    fit = [each for each in devices if part in each.name.lower()]
    fit = fit or [each for each in devices if part in each.platform.lower()]
    if not fit:
        raise OpenCLError(
            f"there is no OpenCL device {argument!r}: expected a number, numbers with commas between, gpu, "
            f"cpu, accelerator, or a part of a name. {_listed(devices)}"
        )
    if len(fit) > 1:
        raise OpenCLError(f"{argument!r} fits {len(fit)} OpenCL devices; give a number. {_listed(fit)}")
    return fit


def check_usable(device: Found) -> None:
    """Raise OpenCLError where no kernel can be built for the device. Trying it may abort the process."""
    check_process()
    if not device.handle.available:
        raise OpenCLError(f"{device} is not available: its driver says that it is in use or switched off.")
    if not device.handle.compiler_available:
        raise OpenCLError(f"{device} has no compiler, but kernels are compiled here. Choose another device.")
    if device.pocl and pocl.linker() is None:
        raise OpenCLError(
            f"{device} needs the linker ld, which is not on the path. Install binutils (on Debian: "
            "apt install binutils)."
        )
    if device.pocl and pocl.is_unknown(device.handle):
        raise OpenCLError(
            f"{device} cannot build kernels: this processor is newer than {device.platform_version}. "
            "Install a newer PoCL, or choose another device."
        )


def check_process() -> None:
    """Raise OpenCLError in a child forked from a process that uses OpenCL: there, every call would hang."""
    if _opened_in and _opened_in[0] != os.getpid():
        raise OpenCLError(
            f"OpenCL was opened by process {_opened_in[0]}, from which this one was forked, and cannot be "
            'used here. Start processes afresh: multiprocessing.get_context("spawn").'
        )


def default_form(device: Found) -> Form:
    """Kernels that suit the device, unless measuring has found better ones."""
    if device.kind == "cpu":
        return CPU_FORM
    tiles = GPU_FORM.product
    floats = tiles.group * (tiles.rows + tiles.vectors) * tiles.depth
    roomy = device.largest_group >= tiles.group**2 and device.local_memory >= 4 * floats
    return GPU_FORM if roomy else SINGLE_FORM


def capabilities(device: Found) -> Capabilities:
    """What `amphw devices` shows of one device."""
    units = device.compute_units
    parts = [device.name, device.kind, f"{units} compute unit{'s' * (units != 1)}"]
    parts.append(
        f"{device.memory / 2**30:.1f} GiB, at most {device.largest_allocation / 2**30:.1f} of it in one piece"
    )
    if device.unified:
        parts.append("memory shared with the host")
    parts.append(device.platform_version)
    if device.pocl and pocl.is_renamed(device.handle):
        parts.append(f"kernels compiled for {pocl.processor(device.handle)}")
    advice = pocl.cache_problem() if device.pocl else ""
    return Capabilities(device.spec, "opencl", memory=device.memory, notes=", ".join(parts), advice=advice)


def listed() -> dict[str, Capabilities | str]:
    """By what stands behind `opencl:`: what the device is, or why it cannot be used."""
    devices = found()
    if not devices:
        raise OpenCLError(_nothing())
    about: dict[str, Capabilities | str] = {}
    for each in devices:
        try:
            check_usable(each)
            about[str(each.number)] = capabilities(each)
        except OpenCLError as error:
            about[str(each.number)] = str(error)
    return about


def survey() -> tuple[str, str]:
    """What of OpenCL works here, and how to get what is missing: empty if every device can be used."""
    try:
        devices = found()
    except OpenCLError as error:
        return "not usable", str(error)
    version = metadata.version("pyopencl")
    if not devices:
        return f"pyopencl {version}, no devices", _nothing()
    platforms = dict.fromkeys(f"{each.platform} ({each.platform_version})" for each in devices)
    parts = [f"pyopencl {version}", *platforms, f"{len(devices)} device{'s' * (len(devices) > 1)}"]
    problems = []
    if any(each.pocl for each in devices):
        parts.append(f"linker {pocl.linker() or 'not found'}")
        parts.append(f"compiled kernels in {pocl.cache_folder()}")
        problems.append(pocl.cache_problem())
    for each in devices:
        try:
            check_usable(each)
        except OpenCLError as error:
            problems.append(str(error))
    return ", ".join(parts), " ".join(filter(None, problems))


def _platforms(cl: Any) -> Sequence[Any]:
    try:
        return cl.get_platforms()  # type: ignore[no-any-return]
    except cl.LogicError:  # what the loader raises where it finds none
        return ()


def _devices_of(cl: Any, platform: Any) -> Sequence[Any]:
    try:
        return platform.get_devices()  # type: ignore[no-any-return]
    except cl.Error:  # a driver without its hardware must not hide the other platforms
        return ()


def _kind(cl: Any, device: Any) -> str:
    named = {"gpu": cl.device_type.GPU, "accelerator": cl.device_type.ACCELERATOR, "cpu": cl.device_type.CPU}
    return next((kind for kind, bit in named.items() if device.type & bit), "other")


def _described(cl: Any, number: int, platform: Any, device: Any) -> Found:
    is_pocl = pocl.is_pocl(device)
    if is_pocl:
        pocl.put_right(device)
    extensions = set(device.extensions.split())
    return Found(
        number=number,
        name=device.name.strip(),
        kind=_kind(cl, device),
        platform=platform.name.strip(),
        platform_version=_version(platform.version),
        driver=device.driver_version.strip(),
        language=device.opencl_c_version.strip(),
        compute_units=device.max_compute_units,
        memory=device.global_mem_size,
        largest_allocation=device.max_mem_alloc_size,
        local_memory=device.local_mem_size,
        largest_group=device.max_work_group_size,
        fp64="cl_khr_fp64" in extensions,
        fp16="cl_khr_fp16" in extensions,
        unified=bool(device.host_unified_memory),
        pocl=is_pocl,
        handle=device,
    )


def _version(text: str) -> str:
    """ "OpenCL 3.0 PoCL 3.0-rc2  Linux, Release, ..." without how it was built."""
    return text.split(",")[0].split("  ")[0].strip()


def _by_number(argument: str, devices: Sequence[Found]) -> list[Found]:
    parts = [part.strip() for part in argument.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise OpenCLError(f"opencl:{argument}: expected numbers with commas between, such as opencl:0,1")
    numbers = [int(part) for part in parts]
    for n in numbers:
        if n >= len(devices):
            raise OpenCLError(f"there is no OpenCL device {n}. {_listed(devices)}")
        if numbers.count(n) > 1:
            raise OpenCLError(f"opencl:{argument} names device {n} twice; each can be opened once.")
    return [devices[n] for n in numbers]


def _listed(devices: Sequence[Found]) -> str:
    return f"Devices: {'; '.join(map(str, devices))}."


def _nothing() -> str:
    told = [f"{name}={os.environ[name]}" for name in _HIDING if os.environ.get(name)]
    hidden = f" {' and '.join(told)} may hide them." if told else ""
    return (
        f"there is no OpenCL device here.{hidden} Install the driver of your GPU with its OpenCL part, or, "
        'for CPUs, PoCL: pip install "amphw[opencl]".'
    )


_HIDING = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "POCL_DEVICES", "CUDA_VISIBLE_DEVICES")
