"""The device that a run predicts on: it stays loaded between calls, for as long as what it holds is right."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from amphw.host.checkpoint import CheckpointError
from amphw.host.prediction import Predictor

if TYPE_CHECKING:
    from amphw.ir.device import Device


class HeldDevice:
    """At most one device with the parameters of a checkpoint, for one call at a time.

    It goes when another device or other parameters are asked for, when a call on it fails, with `close`, and
    when this object goes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: tuple[object, ...] | None = None
        self._predictor: Predictor | None = None
        self._closes: weakref.finalize | None = None  # type: ignore[type-arg]

    @contextmanager
    def on(
        self, name: str, checkpoint: Path, opened: Callable[[], Device], load: Callable[[Device], Predictor]
    ) -> Iterator[Predictor]:
        """The predictor on the device of this name with the parameters in this file, as it is now.

        opened: makes the device, load: puts the model on it; both are called only where they have to be.
        """
        with self._lock:
            try:
                about = checkpoint.stat()
            except OSError as error:
                raise CheckpointError(f"{checkpoint}: {error.strerror}; check the path") from error
            key = (name, checkpoint, about.st_mtime_ns, about.st_size, about.st_ino)
            try:
                if self._predictor is None or key != self._key:
                    self._drop()
                    device = opened()
                    self._closes = weakref.finalize(self, device.close)
                    self._predictor, self._key = load(device), key
                yield self._predictor
            except BaseException:
                self._drop()
                raise

    def close(self) -> None:
        """Give the device back; the next call takes a new one."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        self._predictor = self._key = None
        if self._closes is not None:
            self._closes()
            self._closes = None
