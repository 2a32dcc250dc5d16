"""From text to kernels that can be launched."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any

from amphw.opencl.abi import Kernel
from amphw.opencl.platforms import Found, OpenCLError

OPTIONS = ["-cl-mad-enable", "-cl-std=CL1.2"]
"""Nothing that would let a NaN be optimised away."""


def built(cl: Any, context: Any, device: Found, what: str, text: str) -> Any:
    """The program; OpenCLError with the compiler's words and the line that they are about.

    what: the unit whose program it is, for the error.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # compilers talk on success, too
            return cl.Program(context, text).build(OPTIONS)
    except cl.Error as error:
        raise OpenCLError(_explained(str(error), device, what, text)) from error


def _explained(log: str, device: Found, what: str, text: str) -> str:
    lines = text.splitlines()
    found = re.search(r":(\d+):\d+: error: (.*)", log)
    where = ""
    if found is not None and int(found[1]) <= len(lines):
        where = f" Line {found[1]} of its source, {lines[int(found[1]) - 1].strip()!r}: {found[2].strip()}."
    kept = [line for line in log.splitlines() if line.strip()][:12]
    return (
        f"the kernels of node '{what}' cannot be built for {device}.{where} `amphw opencl MODEL --out DIR` "
        "writes the source. What the compiler says:\n" + "\n".join(kept)
    )


class Launch:
    """A kernel with its arguments in place, but for the frame's."""

    def __init__(
        self, cl: Any, program: Any, kernel: Kernel, arena: Any, faults: Any, buffers: Mapping[str, Any]
    ):
        self.kernel = kernel
        self.handle = cl.Kernel(program, kernel.name)
        # A kernel does not keep what it is given.
        self._kept = [arena, faults, *(buffers[name] for name in kernel.buffers)]
        self.handle.set_arg(0, arena)
        for position, buffer in enumerate(self._kept[1:], 2):
            self.handle.set_arg(position, buffer)
