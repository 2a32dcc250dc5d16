"""The arena of a device with memory of its own: what crosses over, and what does not."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from amphw.engine.parts.arena import WORD, Arena
from amphw.opencl.platform.platforms import choose
from amphw.opencl.run.memory import DeviceArena
from tests.opencl.devices import PTHREAD

SIZE = 16 << 20
WORDS = SIZE // WORD


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


@pytest.fixture
def device() -> Iterator[Device]:
    pytest.importorskip("pyopencl")
    made = Device()
    yield made
    made.memory.close()


@pytest.mark.parametrize("waits", [True, False])
def test_what_is_fetched_is_what_was_asked_for(device: Device, waits: bool) -> None:
    values = np.arange(WORDS, dtype=np.float32)
    device.holds(values)
    spans = [(WORDS - 32, 5), (1000, 45), (WORDS // 2, 0)]
    for place, words in spans:
        if waits:
            device.memory.download(place, words)
        elif (event := device.memory.fetch(place, words)) is not None:
            event.wait()
    written = np.zeros(WORDS, bool)
    for place, words in spans:
        written[place : place + words] = True
    np.testing.assert_array_equal(device.arena.floats[written], values[written])
    assert not device.arena.floats[~written].any()
    assert device.copies == [5 * WORD, 45 * WORD]


def test_what_is_uploaded_leaves_the_rest_alone(device: Device) -> None:
    device.holds(np.zeros(WORDS, np.float32))
    device.arena.floats[1000:2000] = 1.0
    device.arena.floats[WORDS - 32 :] = 2.0
    device.memory.upload(1000, 5)
    device.memory.upload(WORDS - 32, 5)
    found = np.empty(WORDS, np.float32)
    device.cl.enqueue_copy(device.queue, found, device.memory.buffer)
    assert found.sum() == 5 * 1.0 + 5 * 2.0
    assert (found[1000:1005] == 1.0).all() and (found[WORDS - 32 : WORDS - 27] == 2.0).all()
