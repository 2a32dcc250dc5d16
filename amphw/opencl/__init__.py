"""The OpenCL device: programs become OpenCL C, and run on whatever an OpenCL platform offers."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    # Found by name when asked for: listing devices must not need what running on one needs.
    if name == "OpenCLDevice":
        return importlib.import_module("amphw.opencl.device").OpenCLDevice
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
