"""Ctrl-C in two steps: the first asks a run to stop in good order, the second ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping(stop: Callable[[], None], note: Callable[[str], None]) -> Iterator[None]:
    """While inside, the first SIGINT or SIGTERM calls `stop` and the next raises KeyboardInterrupt.

    `stop` is called from a thread of its own, because a signal handler runs between any two instructions of
    the main thread, which may hold the very lock that `stop` needs. Outside the main thread, where Python
    has no signal handlers, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def handle(_signal: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        threading.Thread(target=announce, name="stop", daemon=True).start()

    def announce() -> None:
        stop()
        note("stopping: what is in flight is finished and saved; Ctrl-C again to abort without saving")

    before = {each: signal.signal(each, handle) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
