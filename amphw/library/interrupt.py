"""Ctrl-C in two steps: the first asks a run to stop in good order, the second ends it at once.

A terminal that goes away (SIGHUP, as when a connection breaks) asks, too, unless the run was told to outlive
it (nohup). It never ends a run at once: shells and service managers send it twice, or after SIGTERM. What is
written to the terminal from then on would fail, and the run with it; so it goes nowhere. Where processes are
supervised, the supervisor takes in those signals, and asks (`replicas.supervise`).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SAVES = "stopping: what is in flight is finished and saved; Ctrl-C again to abort without saving"
"""What is said where a run is asked to stop."""


@contextmanager
def stopping(stop: Callable[[], None], note: Callable[[str], None], said: str = SAVES) -> Iterator[None]:
    """While inside, the first SIGINT, SIGTERM, SIGHUP or STOP of a supervisor calls `stop`, and notes what is
    to be `said` then; a SIGINT or SIGTERM after it raises KeyboardInterrupt.

    `stop` is called from a thread of its own, because a signal handler runs between any two instructions of
    the main thread, which may hold the very lock that `stop` needs. Outside the main thread, where Python
    has no signal handlers, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False
    terminals = [stream for stream in (1, 2) if os.isatty(stream)]

    def handle(received: int, _frame: FrameType | None) -> None:
        nonlocal asked
        hung_up = received not in (signal.SIGINT, signal.SIGTERM)  # or it may be so, for a supervisor
        if hung_up:
            _leave(terminals)
        if asked and hung_up:
            return
        if asked:
            raise KeyboardInterrupt
        asked = True
        threading.Thread(target=announce, name="stop", daemon=True).start()

    def announce() -> None:
        stop()
        note(said)

    before = {each: signal.signal(each, handle) for each in _signals()}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _signals() -> list[signal.Signals]:
    """Those that ask a run to stop. Windows has no SIGHUP, and nohup has it ignored."""
    from amphw.replicas.launch import STOP, Told

    found = [signal.SIGINT, signal.SIGTERM]
    if Told.here() is not None and STOP not in found:
        found.append(STOP)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        found.append(signal.SIGHUP)
    return found


def _leave(terminals: list[int]) -> None:
    """Let streams that were terminals and are none any more end in nothing."""
    for stream in terminals:
        if not os.isatty(stream):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream)
            os.close(nowhere)
