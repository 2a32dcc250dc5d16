"""A device's view of the arena, the memory that the engine plans in and the kernels work in.

The engine lays out instances, frames and logs in the host's view of it and hands places to the kernels. Where
host and device share memory the device's buffer is that very region. Elsewhere every device has a buffer as
large, in which the same places stand for the same things, and what crosses over is copied: tables, data of
instances, and rows of messages that come from elsewhere or go there.
"""

from __future__ import annotations

from typing import Any

from amphw.engine.parts.arena import WORD, Arena


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

    def close(self) -> None:
        self._sent.clear()
        self.buffer.release()
