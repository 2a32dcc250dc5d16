"""Which data plane the CPU device runs: the C++ engine where it has been built, else numpy."""

from __future__ import annotations

import os
from typing import Any

from amphw.cpu_runtime.numpy_plane import NumpyPlane
from amphw.cpu_runtime.replay import Replay
from amphw.ir.errors import AmphwError

ENGINE = "AMPHW_ENGINE"
ENGINES = ("native", "numpy", "reference")
ISA = "AMPHW_ISA"


def built() -> bool:
    """Whether the C++ extension is there."""
    try:
        import amphw.cpu_runtime._native  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def chosen() -> tuple[Any, Any]:
    """(plane, its replay), as AMPHW_ENGINE asks; "reference" is the host's business."""
    wanted = os.environ.get(ENGINE, "")
    if wanted not in {"", *ENGINES}:
        raise AmphwError(f"{ENGINE}={wanted}, allowed is {', '.join(ENGINES)}")
    if wanted == "numpy" or (wanted != "native" and not built()):
        return NumpyPlane, Replay
    if not built():
        raise AmphwError(
            f"{ENGINE}=native, but the C++ data plane is not built; install amphw where there is g++"
        )
    from amphw.cpu_runtime._native import kernels
    from amphw.cpu_runtime.native_plane import NativePlane, NativeReplay

    if not kernels.chosen():
        names = ", ".join(kernels.isa_names())
        raise AmphwError(f"{ISA}={os.environ.get(ISA)}, this machine runs {names}")

    return NativePlane, NativeReplay
