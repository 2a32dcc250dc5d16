"""Which errors of a driver mean what: the kernel is at fault, memory has run out, or the device is lost.

A driver tells of a failed command late, and of a device that has gone in the words of whatever was asked of
it next. So everything but a kernel that cannot run counts as the loss of the device: what was in flight on
it cannot be relied on, and nothing more is asked of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amphw.ir.errors import DeviceLostError
from amphw.opencl.platform.platforms import Found, OpenCLError

_KERNEL = (-11, -15, -17, *range(-57, -43))
"""Status codes of a build, of a program, of a kernel and of how it is launched."""
_MEMORY = (-4, -5, -6)
"""MEM_OBJECT_ALLOCATION_FAILURE, OUT_OF_RESOURCES, OUT_OF_HOST_MEMORY; the second stands for much else."""


def code(error: BaseException) -> int:
    """The status code of a pyopencl error; 0 where it has none."""
    try:
        return int(error.code)  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):
        return 0


def is_driver_error(error: BaseException) -> bool:
    """Whether it comes from pyopencl."""
    import pyopencl as cl

    return isinstance(error, cl.Error)


def is_kernel_error(error: BaseException) -> bool:
    """Whether the device refuses a kernel, and goes on working otherwise."""
    return code(error) in _KERNEL


def lost(error: BaseException, devices: Sequence[Found], arena: int) -> DeviceLostError:
    """What to raise for an error of a driver in mid-run. arena: bytes set aside for what is in flight."""
    advice = _lower(arena) if code(error) in _MEMORY else "Look at the driver's log."
    found = DeviceLostError(
        f"the OpenCL device failed, and what was in flight on it is lost: {error} "
        f"({_names(devices)}). {advice} It can be loaded again, once it answers, and so can another device."
    )
    found.__cause__ = error
    return found


def not_opened(error: BaseException, devices: Sequence[Found], arena: int) -> OpenCLError:
    """What to raise for an error of a driver before anything runs."""
    advice = (
        _lower(arena) if code(error) in _MEMORY else "Look at the driver's log, or choose another device."
    )
    found = OpenCLError(f"the graph cannot be set up on {_names(devices)}: {error}. {advice}")
    found.__cause__ = error
    return found


def _lower(arena: int) -> str:
    return (
        f"If its memory has run out: device.memory = {arena} bytes are set aside for instances in flight, "
        "besides the parameters; lower it, or free memory that other processes hold there."
    )


def _names(devices: Sequence[Any]) -> str:
    return ", ".join(str(device) for device in devices)
