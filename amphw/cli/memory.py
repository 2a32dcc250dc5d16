"""Too little memory to begin with."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

_BLAS_THREADS = 3
_BASE_BYTES = 512 << 20
"""Address space for the libraries and BLAS buffers of as many threads, beside what a run itself needs."""
_RAISE = f"raise the limit: {_BASE_BYTES >> 20} MB and what the model needs have to be left"


def check_limit() -> None:
    """Raise MemoryError where a memory limit (ulimit -v) leaves too little to begin with.

    A BLAS library that gets no memory ends the process by itself. So under a limit it is kept to one thread
    from the start, before it is loaded.
    """
    room = _room()
    if room is None:
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if room < _BASE_BYTES:
        error = MemoryError(f"the limit on this process, ulimit -v, leaves {room >> 20} MB")
        error.add_note(_RAISE)
        raise error


def take_blas_buffers() -> None:
    """Under a memory limit, let BLAS take its buffers while there is memory; it keeps them for good.

    Raises MemoryError where there is too little for that.
    """
    if _room() is None:
        return
    import numpy as np

    ready = threading.Barrier(_BLAS_THREADS)
    failed: list[Exception] = []

    def multiply() -> None:
        try:
            a = np.ones((256, 256), np.float32)
            ready.wait()
            a @ a
        except threading.BrokenBarrierError:
            pass  # another one has failed
        except MemoryError as error:
            give_up(error)

    def give_up(error: Exception) -> None:
        failed.append(error)
        ready.abort()  # else the others would wait for ever

    threads = [threading.Thread(target=multiply, daemon=True) for _ in range(_BLAS_THREADS)]
    started = []
    for thread in threads:
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:  # no room for another stack
            give_up(error)
            break
        started.append(thread)
    for thread in started:
        thread.join()
    if failed:
        short = MemoryError(str(failed[0]))
        short.add_note(_RAISE)
        raise short


def _room() -> int | None:
    """Bytes of address space that a limit still leaves; None without one, or where that cannot be told."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            return max(0, limit - pages * resource.getpagesize())
    return None
