"""A process that is measured, seen from the process that measures. `serving` is its other end."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from amphw.bench.errors import BenchError

START_S, GRACE_S = 300.0, 120.0
"""Seconds within which a process must be ready, and by which an answer may be later than expected."""

_SHOWN = 400  # characters of a dead process's last words


def _inherited() -> dict[str, str]:
    """This process's environment, less what gives OpenBLAS an older processor's kernels."""
    return {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}


class SubjectError(BenchError):
    """A measured process died, hung, or refused a request; the message holds its last words."""


class Subject:
    """One process, driven over its standard input and output. To be closed, or used in a `with`."""

    def __init__(
        self, label: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.label = label
        self._log = tempfile.TemporaryFile()
        self._answers: queue.Queue[str | None] = queue.Queue()
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={**_inherited(), **(environment or {})},
                text=True,
                start_new_session=True,  # Ctrl-C is for the process that measures, which ends the others
            )
        except OSError as error:
            self._log.close()
            raise SubjectError(f"{label} cannot be started: {error}") from error
        self._reader = threading.Thread(target=self._read, name=f"read {label}", daemon=True)
        self._reader.start()
        self.first: dict[str, Any] = {}

    def __enter__(self) -> Subject:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def ready(self, timeout: float = START_S) -> dict[str, Any]:
        """What the process says first, once it can take requests."""
        self.first = self.answer(timeout)
        return self.first

    def send(self, do: str, **values: Any) -> None:
        """Make a request, without waiting for the answer."""
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"do": do, **values}) + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise SubjectError(self._dead()) from None

    def answer(
        self, timeout: float = GRACE_S, progress: Callable[[dict[str, Any]], None] = lambda values: None
    ) -> dict[str, Any]:
        """The answer to the request, or to the start; every sign of progress gives it `timeout` again."""
        while True:
            try:
                line = self._answers.get(timeout=timeout)
            except queue.Empty:
                self.close(patience=0)
                raise SubjectError(f"{self.label} did not answer within {timeout:.0f} s") from None
            if line is None:
                raise SubjectError(self._dead())
            try:
                message = json.loads(line)
                kind, value = next(iter(message.items()))
            except (ValueError, AttributeError, StopIteration):
                raise SubjectError(
                    f"{self.label} answered {line.strip()[:80]!r}, which is no JSON object"
                ) from None
            if kind == "progress":
                progress(value)
                continue
            if kind == "error":
                raise SubjectError(f"{self.label}: {value}")
            return dict(value)

    def ask(self, do: str, timeout: float = GRACE_S, **values: Any) -> dict[str, Any]:
        """A request and its answer."""
        self.send(do, **values)
        return self.answer(timeout)

    def close(self, patience: float = 3.0) -> None:
        """End the process: kindly, and after `patience` seconds not so."""
        with contextlib.suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def _dead(self) -> str:
        for _ in range(20):  # it closes its output a moment before it is gone
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        code = self._process.poll()
        how = "closed its output" if code is None else f"ended with code {code}"
        words = ""
        if not self._log.closed:
            self._log.seek(0, os.SEEK_END)
            self._log.seek(max(0, self._log.tell() - _SHOWN))
            words = self._log.read().decode("utf-8", "replace").strip()
        return f"{self.label} {how}" + (f"; its last words: {words}" if words else "")
