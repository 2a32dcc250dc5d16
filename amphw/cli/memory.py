"""Too little memory: which settings ask for much, and whether there is enough to begin with."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_IN_FLIGHT = ("max_active_keys", "max_infer_keys", "pipeline_depth")
"""Settings of [train] that multiply what an instance needs; all of [model] may count."""

_BLAS_THREADS = 3
_BASE_BYTES = 512 << 20
"""Address space for the libraries and BLAS buffers of as many threads, beside what a run itself needs."""
_RAISE = f"raise the limit: {_BASE_BYTES >> 20} MB and what the model needs have to be left"


@contextmanager
def naming_large_settings(model: Any, cfg: Any) -> Iterator[None]:
    """Have a MemoryError from inside say which settings are far above what the model recommends."""
    try:
        yield
    except MemoryError as error:
        if large := _large(model, cfg):
            error.add_note(f"{', '.join(large)}: lower {'it' if len(large) == 1 else 'the first of them'}")
        raise


def _large(model: Any, cfg: Any) -> list[str]:
    from amphw.host.config import resolve

    usual = resolve(model.config, model.defaults)
    pairs = [
        (f"{section}.{name}", getattr(getattr(cfg, section), name), getattr(getattr(usual, section), name))
        for section, names in (("model", vars(cfg.model)), ("train", _IN_FLIGHT))
        for name in names
    ]
    above = [
        (value / default, f"{name} is {value}, usually {default}")
        for name, value, default in pairs
        if type(value) is type(default) is int and value >= 2 * default > 0
    ]
    return [text for _, text in sorted(above, reverse=True)]


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
