"""The arena: one region of memory that the engine plans in and the kernels work in.

The engine lays out instances, frames and logs in the host's view of it and hands places to the kernels. Where
host and device share memory the device's buffer is that very region. Elsewhere every device has a buffer as
large, in which the same places stand for the same things, and what crosses over is copied: tables, data of
instances, and the few rows that the host reads.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from amphw.opencl.platform.platforms import MemorySettingError

WORD = 4
LARGEST = (1 << 31) * WORD - mmap.PAGESIZE
"""Bytes that places, which are 32-bit numbers of words, can reach."""

LEAST = 1 << 16
"""Bytes below which nothing could be in flight."""

APART = 1024
"""Words between two rows from which on they are fetched one by one: a transfer costs as much as so many."""

RowTable = tuple[int, int, int]
"""(place of a table of places, rows, width)."""


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


class DeviceArena:
    """One device's buffer of the arena; shared: it is the host's memory itself."""

    def __init__(self, cl: Any, context: Any, queue: Any, arena: Arena, shared: bool):
        self.arena, self.shared = arena, shared
        self._cl, self._queue = cl, queue
        self._sent: list[Any] = []
        flags = cl.mem_flags.READ_WRITE
        if shared:
            self.buffer = cl.Buffer(context, flags | cl.mem_flags.USE_HOST_PTR, hostbuf=arena.bytes)
        else:
            self.buffer = cl.Buffer(context, flags, arena.size)

    def upload(self, place: int, words: int) -> None:
        """Give the device what the host has written; the host's memory stays as it is until that is done."""
        if self.shared or not words:
            return
        source = self.arena.words[place : place + words]
        self._sent.append(
            self._cl.enqueue_copy(
                self._queue, self.buffer, source, dst_offset=place * WORD, is_blocking=False
            )
        )

    def sent(self) -> list[Any]:
        """Events of the uploads since the last call: whoever lets go of one before its end waits for it."""
        sent, self._sent = self._sent, []
        return sent

    def download(self, place: int, words: int) -> None:
        """Bring what the device has written to the host's view; waits."""
        if self.shared or not words:
            return
        self._cl.enqueue_copy(
            self._queue, self.arena.words[place : place + words], self.buffer, src_offset=place * WORD
        )

    def fetch(self, place: int, words: int) -> Any:
        """`download` behind what is in the queue -> the event of its end; None: there is nothing to do."""
        if self.shared or not words:
            return None
        return self._cl.enqueue_copy(
            self._queue,
            self.arena.words[place : place + words],
            self.buffer,
            src_offset=place * WORD,
            is_blocking=False,
        )

    def download_rows(self, tables: Sequence[RowTable]) -> None:
        """Bring rows to the host's view, and nothing between them, which is the host's own; waits."""
        if self.shared:
            return
        copies = []
        for rows in self._places(tables):
            rows = rows[np.argsort(rows[:, 0])]
            # A frame's rows are those of several instances, which may lie at opposite ends of the arena.
            gaps = np.flatnonzero(np.diff(rows[:, 0]) > rows.shape[1] + APART) + 1
            for near in np.split(rows, gaps):
                first = int(near[0, 0])
                span = np.empty(int(near[-1, -1]) - first + 1, np.float32)
                event = self._cl.enqueue_copy(
                    self._queue, span, self.buffer, src_offset=first * WORD, is_blocking=False
                )
                copies.append((event, near, span))
        for event, near, span in copies:
            event.wait()
            self.arena.floats[near] = span[near - near[0, 0]]

    def upload_rows(self, tables: Sequence[RowTable]) -> None:
        """Give the device rows that another device has written; waits."""
        if not self.shared:
            for rows in self._places(tables):
                for row in rows:
                    self._cl.enqueue_copy(
                        self._queue, self.buffer, self.arena.floats[row], dst_offset=int(row[0]) * WORD
                    )

    def close(self) -> None:
        self._sent.clear()
        self.buffer.release()

    def _places(self, tables: Sequence[RowTable]) -> list[np.ndarray]:
        """The places of all floats of each table's rows: [rows, width]."""
        return [
            self.arena.words[table : table + rows, None] + np.arange(width, dtype=np.int32)
            for table, rows, width in tables
            if rows and width
        ]
