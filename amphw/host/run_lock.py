"""The lock of a run folder: one process at a time trains in it.

The system keeps the lock for the open file, so it goes with the process, however that ends; the file that
stays behind means nothing. A file system without locks gives none, and a run in it is then not protected.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

LOCK = ".lock"
"""In the run folder; holds the number of the process that took the lock last."""
_TAKEN = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder` while inside.

    Raises BlockingIOError, whose text names the holder, where another process (or another part of this one)
    holds it, and OSError where the lock's file cannot be written.
    """
    with open(folder / LOCK, "a+", encoding="utf-8") as file:
        try:
            _take(file)
        except OSError as error:
            if error.errno in _TAKEN:
                raise BlockingIOError(error.errno, _holder(file)) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


if sys.platform == "win32":
    import msvcrt

    def _take(file: IO[str]) -> None:
        file.seek(1 << 30)  # what is locked cannot be read there, and the number shall be
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _take(file: IO[str]) -> None:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def _holder(file: IO[str]) -> str:
    with contextlib.suppress(OSError, ValueError):
        file.seek(0)
        return f"process {int(file.read())}"
    return "another process"
