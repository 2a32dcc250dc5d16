"""The arena of a device with memory of its own: what crosses over, and what does not."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from amphw.opencl.platform.platforms import choose
from amphw.opencl.run.memory import WORD, Arena, DeviceArena
from tests.opencl.devices import PTHREAD

SIZE = 16 << 20
WORDS = SIZE // WORD
TABLE = 64
"""Place of the table of places."""


class Device:
    """copies: bytes of each copy."""

    def __init__(self) -> None:
        import pyopencl as cl

        def enqueue_copy(queue: Any, to: Any, source: Any, **options: Any) -> Any:
            self.copies.append((to if isinstance(to, np.ndarray) else source).nbytes)
            return cl.enqueue_copy(queue, to, source, **options)

        self.copies: list[int] = []
        context = cl.Context([choose(PTHREAD)[0].handle])
        self.cl, self.queue, self.arena = cl, cl.CommandQueue(context), Arena(SIZE)
        names = {name: getattr(cl, name) for name in ("mem_flags", "Buffer")}
        asked = SimpleNamespace(**names, enqueue_copy=enqueue_copy)
        self.memory = DeviceArena(asked, context, self.queue, self.arena, shared=False)

    def holds(self, values: np.ndarray) -> None:
        self.cl.enqueue_copy(self.queue, self.memory.buffer, values)

    def table(self, places: list[int]) -> None:
        self.arena.words[TABLE : TABLE + len(places)] = places


@pytest.fixture
def device() -> Iterator[Device]:
    pytest.importorskip("pyopencl")
    made = Device()
    yield made
    made.memory.close()


def test_rows_are_fetched_without_what_lies_between_them(device: Device) -> None:
    values = np.arange(WORDS, dtype=np.float32)
    device.holds(values)
    places = [WORDS - 32, 1000, 3000, 1040, WORDS // 2]
    device.table(places)
    device.memory.download_rows([(TABLE, len(places), 5), (TABLE, 0, 5), (TABLE, 1, 0)])
    written = np.zeros(WORDS, bool)
    for place in places:
        np.testing.assert_array_equal(device.arena.floats[place : place + 5], values[place : place + 5])
        written[place : place + 5] = True
    written[TABLE : TABLE + len(places)] = True
    assert not device.arena.floats[~written].any()


def test_rows_far_apart_do_not_bring_the_memory_between_them(device: Device) -> None:
    device.table([1000, 1040, WORDS - 32, WORDS - 64])
    device.memory.download_rows([(TABLE, 4, 5)])
    assert device.copies == [45 * WORD, 37 * WORD]  # rows of one instance in one piece


def test_rows_of_another_device_are_uploaded_alone(device: Device) -> None:
    device.holds(np.zeros(WORDS, np.float32))
    device.table([1000, WORDS - 32])
    device.arena.floats[1000:2000] = 1.0
    device.arena.floats[WORDS - 32 :] = 2.0
    device.memory.upload_rows([(TABLE, 2, 5)])
    found = np.empty(WORDS, np.float32)
    device.cl.enqueue_copy(device.queue, found, device.memory.buffer)
    assert found.sum() == 5 * 1.0 + 5 * 2.0
    assert (found[1000:1005] == 1.0).all() and (found[WORDS - 32 : WORDS - 27] == 2.0).all()
