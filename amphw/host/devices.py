"""Devices by name: those that come with amphw, and those that other packages add.

A package adds one through an entry point of the group `amphw.devices`, whose object is called with the text
behind the colon of `name:argument` (or with nothing) and returns a `Device`. A device's module is imported
when the device is asked for, so that one that cannot be imported hinders nobody else.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import Any

from amphw.engine.environment import wanted
from amphw.ir.config_fields import did_you_mean
from amphw.ir.device import Capabilities, Device
from amphw.ir.errors import AmphwError, DeviceAbsentError
from amphw.ir.service_log import ServiceLog

GROUP = "amphw.devices"


class DeviceError(AmphwError):
    """There is no such device. The message says which there are."""


class UnusableError(DeviceError, DeviceAbsentError):
    """A device that cannot be imported here."""


@dataclass(frozen=True)
class DeviceEntry:
    """A device that can be asked for. target: `module:object`. origin: the package that brings it.

    variants: `module:function` of a device of which a machine may have several; see `device_variants`.
    options: `module:class` of settings of its own, a dataclass whose module imports no toolchain.
    """

    name: str
    target: str
    summary: str
    origin: str = "amphw"
    variants: str = ""
    options: str = ""


_HARDWARE = "amphw.rtl.options:HardwareOptions"
_BUILT_IN = (
    DeviceEntry("cpu", "amphw.cpu_runtime:CpuDevice", "this machine's cores"),
    DeviceEntry(
        "opencl",
        "amphw.opencl:OpenCLDevice",
        "OpenCL devices, such as opencl:0, opencl:gpu",
        variants="amphw.opencl.platform.platforms:listed",
        options="amphw.opencl.options:OpenCLOptions",
    ),
    DeviceEntry(
        "fixed",
        "amphw.rtl.fixed.device:FixedDevice",
        "the hardware's int16 arithmetic in numpy, such as fixed:q4.12",
        options=_HARDWARE,
    ),
    DeviceEntry(
        "verilator",
        "amphw.rtl.driver.verilator:VerilatorDevice",
        "the generated hardware, simulated in this process, such as verilator:q4.12",
        options=_HARDWARE,
    ),
    DeviceEntry(
        "board",
        "amphw.rtl.driver.board:BoardDevice",
        "a circuit on an FPGA board, such as board:/dev/ttyUSB0,circuit=FOLDER",
        variants="amphw.rtl.driver.board:listed",
        options=_HARDWARE,
    ),
    DeviceEntry("reference", "amphw.ir.reference:ReferenceDevice", "one message at a time; slow and exact"),
    DeviceEntry(
        "sleep",
        "amphw.mixed.sleep:SleepDevice",
        "waits as long as a device of so many FLOPS would compute, such as sleep:1TFLOPS",
    ),
    DeviceEntry(
        "process",
        "amphw.host.process_device:ProcessDevice",
        "another device in a process of its own, such as process:fixed:q4.12",
        variants="amphw.host.process_device:listed",
    ),
    DeviceEntry("null", "amphw.host.null_device:NullDevice", "runs nothing; measures the host alone"),
)


def declared_options() -> list[type]:
    """The settings that devices declare for themselves, each dataclass once."""
    targets = dict.fromkeys(entry.options for entry in _BUILT_IN if entry.options)
    return [getattr(importlib.import_module(module), name) for module, _, name in map(_parts, targets)]


def _parts(target: str) -> tuple[str, str, str]:
    return target.partition(":")


def device_entries() -> dict[str, DeviceEntry]:
    """Every device by name. Nothing is imported, so that a device which is listed may still be unusable.

    A device that comes with amphw cannot be replaced by a package's.
    """
    found = {}
    for point in metadata.entry_points(group=GROUP):
        origin = point.dist.name if point.dist is not None else "another package"
        found[point.name] = DeviceEntry(point.name, point.value, f"from the package {origin}", origin)
    return {entry.name: entry for entry in _BUILT_IN} | {
        name: entry for name, entry in sorted(found.items()) if name not in {e.name for e in _BUILT_IN}
    }


def stands_for(spec: str) -> str:
    """What is opened for `spec`: the reference in place of the CPU device, with AMPHW_ENGINE=reference.

    The same job, unchanged, then runs on the definition: the first question when the two seem to differ.
    """
    return "reference" if spec == "cpu" and wanted() == "reference" else spec


def make_device(spec: str, replay: ServiceLog | None = None) -> Device:
    """The device that `name` or `name:argument` stands for, as in `reference:lifo`; or a run on several of
    them beside the CPU, as in `cpu,opencl:0` or, with names of their own, `cpu,a=verilator,b=verilator`.

    replay: the log of a run whose decisions it takes again. Raises DeviceError for an unknown name, a device
    that cannot be imported (UnusableError, unless its package names what it does not have), an argument that
    it refuses, and one that cannot go by a log.
    """
    spec = stands_for(spec)
    several = split_specs(spec)
    if len(several) > 1 or several[0][1].partition(":")[0] == "process":
        return _mixed(several, replay)
    made = _made(spec, replay)
    # What computes nodes alone needs an engine to route for it: the CPU's.
    return made if hasattr(made, "submit") else _mixed(several, replay)


def _made(spec: str, replay: ServiceLog | None = None) -> Device:
    """One device."""
    name, colon, argument = spec.partition(":")
    entries = device_entries()
    if "," in name:  # a list with a piece that names no device
        pieces = [piece.strip() for piece in name.split(",")]
        wrong = next((p for p in pieces if p.rpartition("=")[2] not in entries), name)
        label, _, name = wrong.rpartition("=")
        if not name:
            raise DeviceError(f"{label!r} has no device behind its '='. {_listed(entries)}")
    if name not in entries:
        near = did_you_mean(name, list(entries))
        raise DeviceError(f"there is no device {name!r}.{near} {_listed(entries)}")
    factory = _load(entries[name])
    if replay is not None:
        factory = _repeating(spec, factory, replay)
    try:
        made: Device = factory(argument) if colon else factory()
        return made
    except TypeError as error:
        if colon:
            raise DeviceError(f"the device {name!r} takes no argument, but {spec!r} gives one.") from error
        raise


def _repeating(spec: str, factory: Callable[..., Any], replay: ServiceLog) -> Callable[..., Any]:
    """The factory, of devices that go by the log. Raises DeviceError where there are none."""
    if not hasattr(factory, "submit"):
        return factory  # a part alone: the engine beside it goes by the log
    if "replay" not in inspect.signature(factory).parameters:
        name, _, argument = spec.partition(":")
        formats = f":{argument}" if argument else ""
        instead = f"fixed{formats}, which computes the same" if name == "verilator" else "reference"
        raise DeviceError(
            f"the device {name!r} cannot be made to take an order: it decides for itself. Repeat the log on "
            f"--device {instead}"
        )
    return partial(factory, replay=replay)


def split_specs(text: str) -> list[tuple[str, str]]:
    """(label, spec) of each device in a list of them: `a=fixed:q7.9,w=q5.11,cpu` are two.

    A piece begins a device if it names one, alone or behind `LABEL=`; else it belongs to the argument before.
    A device without a label of its own is called by its name.
    """
    found: list[list[str]] = []
    names = device_entries()
    for piece in text.split(","):
        label, equals, name = (part.strip() for part in piece.partition(":")[0].rpartition("="))
        spec = piece.partition("=")[2] if equals else piece
        if name in names and (not equals or label.strip().isidentifier()):
            found.append([label.strip() or name, spec.strip()])
        elif found:
            found[-1][1] += f",{piece}"
        else:
            found.append([piece.partition(":")[0], piece])
    return [(label, spec) for label, spec in found]


def _mixed(several: list[tuple[str, str]], replay: ServiceLog | None = None) -> Device:
    if any(spec == "cpu" for _, spec in several) and [s for s in several if "cpu" in s] != [("cpu", "cpu")]:
        raise DeviceError("the cpu is in a run once, under its own name: it holds the run together")
    labels = [label for label, _ in several]
    for label in labels:
        if labels.count(label) > 1:
            first, second = [spec for each, spec in several if each == label][:2]
            names = "ab" if not {"a", "b"} & set(labels) else (f"{label}_0", f"{label}_1")
            raise DeviceError(
                f"two devices are called {label!r}: give them names, such as "
                f"{names[0]}={first},{names[1]}={second}"
            )
    others: dict[str, Device] = {}
    absent: dict[str, str] = {}
    for label, spec in several:
        try:
            if spec != "cpu":
                others[label] = _made(spec)
        except DeviceAbsentError as error:
            absent[label] = str(error)
    entry = DeviceEntry("several devices", "amphw.mixed.device:MixedDevice", "")
    made: Device = _load(entry)(others, absent, replay)
    return made


def device_variants(entry: DeviceEntry) -> dict[str, Capabilities | str]:
    """Each device of the entry that this machine has, as `name:argument`: what it can do, or what is wrong.

    Raises an AmphwError where there is none, which says why.
    """
    found = _load(entry, entry.variants)()
    return {f"{entry.name}:{argument}": about for argument, about in found.items()}


def _load(entry: DeviceEntry, target: str = "") -> Callable[..., Any]:
    named = target or entry.target
    module, _, attribute = named.partition(":")
    try:
        found = importlib.import_module(module)
    except (ImportError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise _misnamed(entry, named) from error
        others = {name: each for name, each in device_entries().items() if name != entry.name}
        raise UnusableError(
            f"the device {entry.name!r} cannot be used here: {error}. Install what it needs, "
            f"or choose another one. {_listed(others)}"
        ) from error
    if not hasattr(found, attribute):
        raise _misnamed(entry, named)
    return getattr(found, attribute)  # type: ignore[no-any-return]


def _misnamed(entry: DeviceEntry, named: str) -> DeviceError:
    """Nothing that could be installed: the package itself is wrong."""
    return DeviceError(
        f"the device {entry.name!r} {entry.summary} cannot be made: its entry point names {named}, and there "
        "is no such thing; this is a mistake in that package"
    )


def _listed(entries: dict[str, DeviceEntry]) -> str:
    return f"Devices: {', '.join(entries)}."
