"""Packets between two processes of one machine: a ring of bytes in shared memory for each direction.

One process writes a ring, one reads it. Positions only grow; they are the ring's first two words, each
written by one side alone. A semaphore counts packets, so that a reader sleeps. Each packet has a header with
a sequence number and a checksum: shared memory loses nothing, but a process that dies while it writes, or
one that writes where it should not, must not be believed.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from multiprocessing import shared_memory
from multiprocessing.synchronize import Semaphore
from typing import Any

from amphw.ir.errors import AmphwError

HEADER = struct.Struct("<HBBIII")
"""magic, version, kind, sequence number, bytes of the payload, CRC-32 of all before it and of the payload."""

MAGIC, VERSION = 0x4D41, 1
POSITIONS = struct.Struct("<QQ")
"""Bytes written and bytes read since the beginning; in front of the ring's contents."""

ALIGN = 8
NAP = 50e-6
"""Seconds after which a writer looks again whether there is room."""


class LinkError(AmphwError):
    """What came over a link cannot be what was sent, or nothing goes through any more."""


class Ring:
    """One end of a ring of `capacity` bytes. name: of one that exists; None makes it.

    filled: a semaphore of both processes, 0 at the start. OSError where there is not so much shared memory.
    """

    def __init__(self, filled: Semaphore, capacity: int = 0, name: str | None = None):
        self.filled = filled
        size = POSITIONS.size + capacity
        self._owner = name is None
        # That of a container is often small, and the system says so only when it is written to: by a signal.
        self._memory = shared_memory.SharedMemory(name, create=self._owner, size=size if self._owner else 0)
        if self._owner:
            self._allocate(size)
        buffer = self._memory.buf
        assert buffer is not None  # it is None once it is closed
        self._buf: memoryview = buffer
        self._positions = buffer[: POSITIONS.size].cast("Q")  # written in one piece, unlike with struct
        self.name = self._memory.name
        self.capacity = (len(self._buf) - POSITIONS.size) // ALIGN * ALIGN
        self._sent = self._received = 0  # packets

    def _allocate(self, size: int) -> None:
        """OSError where there is not so much."""
        try:
            os.posix_fallocate(self._memory._fd, 0, size)  # type: ignore[attr-defined]
        except OSError:
            self._memory.close()
            self._memory.unlink()
            raise

    # --- the writer -------------------------------------------------------------------------------

    def send(self, kind: int, payload: bytes | bytearray, timeout: float) -> None:
        """Waits for room. LinkError where there is none after `timeout` seconds, or never will be."""
        length = HEADER.size + len(payload)
        padded = -(-length // ALIGN) * ALIGN
        if padded > self.capacity:
            raise LinkError(f"a packet of {length:,} bytes, the ring holds {self.capacity:,}")
        end = time.perf_counter() + timeout
        while True:
            written, read = self._positions
            if written - read + padded <= self.capacity:
                break
            if time.perf_counter() > end:
                raise LinkError(f"the other end has taken nothing for {timeout:.0f} s")
            time.sleep(NAP)
        head = HEADER.pack(MAGIC, VERSION, kind, self._sent & 0xFFFFFFFF, len(payload), 0)
        checksum = zlib.crc32(payload, zlib.crc32(head[:-4]))
        self._write(written, head[:-4] + checksum.to_bytes(4, "little"))
        self._write(written + HEADER.size, payload)
        self._positions[0] = written + padded
        self._sent += 1
        self.filled.release()

    def _write(self, position: int, data: bytes | bytearray) -> None:
        at = POSITIONS.size + position % self.capacity
        first = min(len(data), POSITIONS.size + self.capacity - at)
        self._buf[at : at + first] = data[:first]
        rest = len(data) - first
        self._buf[POSITIONS.size : POSITIONS.size + rest] = data[first:]

    @property
    def sent(self) -> int:
        """Packets, by this end."""
        return self._sent

    # --- the reader -------------------------------------------------------------------------------

    def receive(self, timeout: float) -> tuple[int, bytearray] | None:
        """(kind, payload) of the next packet; None after `timeout` seconds without one.

        A packet that has been received already is passed over. LinkError for one that is damaged, of another
        version, or not the next.
        """
        while self.filled.acquire(True, max(0.0, timeout)):
            written, read = self._positions
            if written - read < HEADER.size:
                raise LinkError("a packet was announced that is not there")
            head = bytes(self._read(read, HEADER.size))
            magic, version, kind, number, length, checksum = HEADER.unpack(head)
            if magic != MAGIC:
                raise LinkError(f"a packet begins with {magic:#06x} instead of {MAGIC:#06x}")
            if version != VERSION:
                raise LinkError(f"the other end speaks version {version} of the protocol, this one {VERSION}")
            if HEADER.size + length > written - read:
                raise LinkError(f"a packet of {length:,} bytes of which {written - read:,} were written")
            payload = self._read(read + HEADER.size, length)
            if zlib.crc32(payload, zlib.crc32(head[:-4])) != checksum:
                raise LinkError(f"packet {number} is damaged (its checksum differs)")
            self._positions[1] = read + -(-(HEADER.size + length) // ALIGN) * ALIGN
            expected = self._received & 0xFFFFFFFF
            if number == expected:
                self._received += 1
                return kind, payload
            if (expected - number) & 0xFFFFFFFF > 1 << 31:  # it is ahead
                raise LinkError(f"packet {number} came, {expected} was the next: some are lost")
        return None

    @property
    def received(self) -> int:
        """Packets, by this end."""
        return self._received

    def _read(self, position: int, length: int) -> bytearray:
        at = POSITIONS.size + position % self.capacity
        first = min(length, POSITIONS.size + self.capacity - at)
        out = bytearray(self._buf[at : at + first])
        out += self._buf[POSITIONS.size : POSITIONS.size + length - first]
        return out

    def close(self) -> None:
        """The maker removes it from the machine."""
        self._positions.release()
        self._memory.close()
        if self._owner:
            self._memory.unlink()


def semaphore(context: Any) -> Semaphore:
    """For a ring: `context` is of multiprocessing."""
    made: Semaphore = context.Semaphore(0)
    return made
