"""Devices that turn out not to be there, or not to be usable, when a run is set up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from amphw.ir.errors import DeviceAbsentError, DeviceLostError


class Unavailable(Exception):
    """A device that cannot be set up, and why."""

    def __init__(self, label: str, why: str) -> None:
        super().__init__(why)
        self.label = label


@contextlib.contextmanager
def unavailable(label: str) -> Iterator[None]:
    try:
        yield
    except (DeviceAbsentError, DeviceLostError) as error:
        raise Unavailable(label, str(error)) from error
