"""The measured process's side of the pipe: a JSON object a line, a request in, an answer out.

    request   {"do": "run", "seconds": 2.0, ...}
    answers   any number of {"progress": {...}}, then {"ok": {...}} or {"error": "what went wrong"}

Before the first request the process says {"ok": {...}} once it is ready, or {"error": ...} and ends. An error
in a request leaves the process alive for the next one. The end of the input ends the process, and so does the
end of the one that started it, also while a request is under way.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

Handler = Callable[[dict[str, Any]], Mapping[str, Any]]


class Channel:
    """Where answers go. Opening one sends whatever else is printed to stderr, libraries in C included."""

    def __init__(self) -> None:
        self._out: TextIO = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def send(self, message: Mapping[str, Any]) -> None:
        print(json.dumps(message), file=self._out, flush=True)

    def progress(self, **values: Any) -> None:
        self.send({"progress": values})


def serve(begin: Callable[[Channel], tuple[Mapping[str, Any], Mapping[str, Handler]]]) -> None:
    """Answer requests until the input ends. begin: what loads everything -> (what to say first, handlers)."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    channel = Channel()
    try:
        first, handlers = begin(channel)
    except Exception as error:
        channel.send({"error": _words(error)})
        return
    channel.send({"ok": dict(first)})
    for line in sys.stdin:
        try:
            request = json.loads(line)
            handler = handlers.get(request.pop("do"))
            if handler is None:
                raise ValueError(f"a request can be {', '.join(handlers)}")
            channel.send({"ok": dict(handler(request))})
        except Exception as error:
            if os.environ.get("AMPHW_DEBUG", "") not in ("", "0"):
                import traceback

                traceback.print_exc()
            channel.send({"error": _words(error)})


def _end_with(parent: int) -> None:
    """End this process once its parent has: it may be at a request that takes hours, and would keep a
    processor busy on which the next benchmark measures."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def timed(
    step: Callable[[], int], seconds: float, finish: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """Call `step`, which says how many instances it did, for `seconds` -> count, seconds, cpu.

    finish: waits for what steps have begun; its time counts.
    """
    count, cpu, began = 0, time.process_time(), time.perf_counter()
    while True:
        count += step()
        if time.perf_counter() - began >= seconds:
            finish()
            elapsed = time.perf_counter() - began
            return {"count": count, "seconds": elapsed, "cpu": time.process_time() - cpu}


def _words(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
