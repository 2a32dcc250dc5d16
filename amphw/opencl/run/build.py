"""From text to kernels that can be launched."""

from __future__ import annotations

import re
import struct
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amphw.opencl.abi import Kernel
from amphw.opencl.platform.lost import is_kernel_error
from amphw.opencl.platform.platforms import Found, OpenCLError

OPTIONS = ["-cl-mad-enable", "-cl-std=CL1.2"]
"""Nothing that would let a NaN be optimised away."""


def built(cl: Any, context: Any, device: Found, what: str, text: str) -> Any:
    """The program; OpenCLError with the compiler's words and the line that they are about.

    what: the unit whose program it is, for the error.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # compilers talk on success, too
            program = cl.Program(context, text).build(OPTIONS)
    except cl.Error as error:
        raise OpenCLError(_explained(str(error), device, what, text)) from error
    _sources[program] = _Source(what, device, text)
    return program


@dataclass(frozen=True)
class _Source:
    """Whose program it is, for errors that come after the build. Arguments of `built`."""

    what: str
    device: Found
    text: str


_sources: weakref.WeakKeyDictionary[Any, _Source] = weakref.WeakKeyDictionary()


def refused(program: Any, kernel: str, error: BaseException) -> OpenCLError:
    """What to raise where the device refuses a kernel of a program that it has built.

    Drivers put off a part of their work until a kernel is made or launched for the first time.
    """
    source = _sources[program]
    head = re.compile(rf"\bvoid\s+{re.escape(kernel)}\s*\(")
    lines = [(n, line) for n, line in enumerate(source.text.splitlines(), 1) if head.search(line)]
    where = f" (line {lines[0][0]} of its source, {lines[0][1].strip()!r})" if lines else ""
    found = OpenCLError(
        f"the kernel '{kernel}' of node '{source.what}' cannot run on {source.device}{where}: {error}. "
        "`amphw opencl MODEL --out DIR` writes the source."
    )
    found.__cause__ = error
    return found


_COMPLAINT = re.compile(r"(?:^|:)(\d+):\d+: (?:fatal )?error: (.*)|^error: .*?:(\d+):\d+: (.*)", re.MULTILINE)
"""Compilers write "<where>:<line>:<column>: error: <what>"; PoCL puts its "error:" in front."""


def _explained(log: str, device: Found, what: str, text: str) -> str:
    lines = text.splitlines()
    found = _COMPLAINT.search(log)
    where = ""
    if found is not None:
        number, says = int(found[1] or found[3]), (found[2] or found[4]).strip()
        if 0 < number <= len(lines):
            where = f" Line {number} of its source, {lines[number - 1].strip()!r}: {says}."
    kept = [line for line in log.splitlines() if line.strip()][:12]
    return (
        f"the kernels of node '{what}' cannot be built for {device}.{where} `amphw opencl MODEL --out DIR` "
        "writes the source. What the compiler says:\n" + "\n".join(kept)
    )


_word = struct.Struct("i").pack


def place_setter(kernel: Any, position: int) -> Callable[[int], None]:
    """What sets a kernel's argument of one word, before each launch.

    `set_arg` finds out what kind of argument it is given by trying one kind after the other. That takes
    pyopencl 18 us, where setting a word takes 0.2 us, and launching a kernel 2 us.
    """
    given = getattr(kernel, "_set_arg_buf", kernel.set_arg)

    def set_place(place: int) -> None:
        given(position, _word(place))

    return set_place


Profile = list[tuple[str, Any]]
"""(kernel, event) of every run."""


class Launch:
    """A kernel with its arguments in place, but for the frame's. count: how often it was launched.

    profile: where each run's event is added, by name; None where nobody asks.
    """

    def __init__(
        self,
        cl: Any,
        program: Any,
        kernel: Kernel,
        arena: Any,
        faults: Any,
        buffers: Mapping[str, Any],
        profile: Profile | None,
    ):
        self.kernel, self._profile, self._program = kernel, profile, program
        self.count = 0
        try:
            self.handle = cl.Kernel(program, kernel.name)
        except cl.Error as error:
            raise refused(program, kernel.name, error) from error
        # A kernel does not keep what it is given.
        self._kept = [arena, faults, *(buffers[name] for name in kernel.buffers)]
        self.handle.set_arg(0, arena)
        for position, buffer in enumerate(self._kept[1:], 2):
            self.handle.set_arg(position, buffer)
        self._set_place = place_setter(self.handle, 1)
        self._enqueue = cl.enqueue_nd_range_kernel

    def __call__(self, queue: Any, place: Any, rows: Sequence[int], messages: int) -> Any:
        """Put the kernel into the queue -> its event, or None where there is nothing to do.

        place: of the frame's header, or of the job's; rows: by space.
        """
        size = self.kernel.global_size(rows, messages)
        if 0 in size:
            return None
        self._set_place(place)
        try:
            event = self._enqueue(queue, self.handle, size, self.kernel.local_size)
        except Exception as error:
            if is_kernel_error(error):
                raise refused(self._program, self.kernel.name, error) from error
            raise
        self.count += 1
        if self._profile is not None:
            self._profile.append((self.kernel.name, event))
        return event
