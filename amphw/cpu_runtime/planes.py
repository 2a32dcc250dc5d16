"""Which data plane the CPU device runs: the C++ engine where it has been built, else numpy."""

from __future__ import annotations

import os
import shutil
from typing import Any

from amphw.engine.environment import ENGINE, wanted
from amphw.engine.native_headers import fingerprint
from amphw.engine.numpy_plane import NumpyPlane, Replay
from amphw.ir.errors import AmphwError

ISA = "AMPHW_ISA"
STALE = "was built from other definitions of operations than amphw has now"


def built() -> bool:
    """Whether the C++ extension is there and can be loaded."""
    return not _missing()


def _missing() -> str:
    """Why the C++ extension cannot be used; empty if it can."""
    try:
        import amphw.engine._native as native
    except ModuleNotFoundError:
        return "is not built"
    except ImportError as error:
        return f"cannot be loaded ({error})"
    return STALE if getattr(native, "generated_from", "") != fingerprint() else ""


def described() -> tuple[str, str]:
    """(what runs here, what to do for something better), for whoever lists devices."""
    plane, _ = chosen()
    if wanted() == "numpy":
        return plane.name, ""
    if missing := _missing():
        compiler = os.environ.get("CXX", "g++")
        first = "" if shutil.which(compiler) else f"get {compiler} (apt install g++, or set CXX), then "
        return plane.name, f"the C++ data plane, which is faster, {missing}: {first}install amphw again"
    from amphw.engine._native import kernels

    return f"{plane.name}, {kernels.chosen()} kernels", ""


def chosen() -> tuple[Any, Any]:
    """(plane, its replay), as the environment asks; "reference" is the host's business."""
    asked = wanted()
    if asked != "numpy" and _missing() == STALE:
        # To take the numpy data plane in its place would be slow, and nobody would know why.
        raise AmphwError(
            f"the C++ data plane {STALE}: install amphw again (pip install -e .), or set {ENGINE}=numpy"
        )
    if asked == "numpy" or (asked != "native" and not built()):
        return NumpyPlane, Replay
    if not built():
        raise AmphwError(
            f"{ENGINE}=native, but the C++ data plane {_missing()}; install amphw where there is g++"
        )
    from amphw.cpu_runtime.native_plane import NativePlane
    from amphw.engine._native import kernels
    from amphw.engine.replay import EngineReplay

    if not kernels.chosen():
        names = ", ".join(kernels.isa_names())
        raise AmphwError(f"{ISA}={os.environ.get(ISA)}, this machine runs {names}")

    return NativePlane, EngineReplay
