"""Memory that external executors share with the engine: one region of the host's address space."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np

from amphw.ir.errors import AmphwError

WORD = 4
LARGEST = (1 << 31) * WORD - mmap.PAGESIZE
"""Bytes that places, which are 32-bit numbers of words, can reach."""

LEAST = 1 << 16
"""Bytes below which nothing could be in flight."""


class MemorySettingError(AmphwError):
    """device.memory is not what a device, or the graph, can do with."""


class Arena:
    """The host's view. The memory is only taken up as it is used."""

    def __init__(self, size: int):
        self.size = min(size, LARGEST) // mmap.PAGESIZE * mmap.PAGESIZE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        try:
            self._map = mmap.mmap(-1, self.size, flags=flags)
        except OSError as error:
            raise MemorySettingError(
                f"device.memory = {self.size}: the host does not give so many bytes of address space "
                f"({error.strerror}); lower it"
            ) from error
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without them
                self._map.madvise(mmap.MADV_HUGEPAGE)
        self.bytes = np.frombuffer(self._map, np.uint8)
        self.words = self.bytes.view(np.int32)
        self.floats = self.bytes.view(np.float32)

    @property
    def address(self) -> int:
        return int(self.bytes.ctypes.data)

    def forget(self) -> None:
        """Give the memory back. Places stay valid: the engine may still be asked about them."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
