"""Faults on the way between the host and a part in another process, for `benchmarks/fault_campaign.py`.

Packets are changed in the rings themselves or on their way into them, below sequence numbers and checksums.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from amphw.engine.parts.remote import BEAT, RemotePart
from amphw.engine.parts.ring import ALIGN, HEADER, POSITIONS, Ring

SIGNALS = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP}
PACKETS = ("drop", "duplicate", "corrupt", "reorder")
FAULTS = (*SIGNALS, *PACKETS)


class Injector:
    """One fault in one run. where: "to" or "back", the ring. at: seconds after the start for a signal, else
    the packet's number. hit: when it happened, on the clock of `time.perf_counter`; None: it has not yet.
    """

    def __init__(self, fault: str, where: str, at: float, rng: random.Random):
        self.fault, self.where, self.at, self.rng = fault, where, at, rng
        self.hit: float | None = None
        self.packets = {"to": 0, "back": 0}
        self._held: list[tuple[int, Any]] = []
        self._over = threading.Event()

    def attach(self, part: RemotePart) -> None:
        """To a part that has been loaded."""
        self._send(part._to)
        self._receive(part._back)
        if self.fault in SIGNALS:
            threading.Thread(target=self._strike, args=(part.process.pid,), daemon=True).start()

    def over(self) -> None:
        """The run has ended: nothing more is to happen."""
        self._over.set()

    def _strike(self, pid: int) -> None:
        if not self._over.wait(self.at):
            os.kill(pid, SIGNALS[self.fault])
            self._now()

    def _now(self) -> None:
        self.hit = time.perf_counter()

    def _turn(self, where: str) -> bool:
        """Whether the packet that comes now is the one."""
        self.packets[where] += 1
        return self.where == where and self.fault in PACKETS and self.packets[where] == int(self.at)

    # --- on the way to the process ----------------------------------------------------------------

    def _send(self, ring: Ring) -> None:
        plain, write = ring.send, ring._write

        def damaged(position: int, data: bytes | bytearray) -> None:
            write(position, self._flipped(data) if len(data) > HEADER.size else data)

        def send(kind: int, payload: Any, timeout: float) -> None:
            if not self._turn("to"):
                plain(kind, payload, timeout)
                for held in self._held:  # the packet that should have come before
                    ring._sent -= 2
                    plain(*held, timeout)
                    ring._sent += 1
                self._held.clear()
                return
            self._now()
            if self.fault == "corrupt":
                ring._write = damaged  # type: ignore[method-assign]
                plain(kind, payload, timeout)
                ring._write = write  # type: ignore[method-assign]
            elif self.fault == "duplicate":
                plain(kind, payload, timeout)
                ring._sent -= 1
                plain(kind, payload, timeout)
            else:
                if self.fault == "reorder":
                    self._held.append((kind, payload))
                ring._sent += 1

        ring.send = send  # type: ignore[method-assign]

    def _flipped(self, data: bytes | bytearray) -> bytearray:
        out = bytearray(data)
        bit = self.rng.randrange(8 * len(out))
        out[bit // 8] ^= 1 << bit % 8
        return out

    # --- on the way back --------------------------------------------------------------------------

    def _receive(self, ring: Ring) -> None:
        plain = ring.receive

        def receive(timeout: float) -> Any:
            mine = self.where == "back" and self.fault in PACKETS and self.hit is None
            if not mine or self.packets["back"] + 1 < int(self.at):
                found = plain(timeout)
                self.packets["back"] += found is not None
                return found
            if self.fault == "reorder" and not _swap(ring, 2 * BEAT):
                return plain(timeout)
            if self.fault == "corrupt" and not self._damage(ring):
                return plain(timeout)
            before = ring._positions[1]
            found = plain(timeout) if self.fault not in ("reorder", "corrupt") else None
            if found is None and self.fault in ("drop", "duplicate"):
                return None  # there was none yet
            self._now()
            if self.fault == "drop":
                ring._received -= 1
                return plain(timeout)
            if self.fault == "duplicate":
                struct.pack_into("<Q", ring._buf, 8, before)
                ring.filled.release()
                return found
            return plain(timeout)

        ring.receive = receive  # type: ignore[method-assign]

    def _damage(self, ring: Ring) -> bool:
        written, read = ring._positions
        if written == read:
            return False
        packet = bytes(ring._read(read, _length(ring, read)))
        ring._write(read, self._flipped(packet))
        return True


def _length(ring: Ring, position: int) -> int:
    """Of the packet there, without what fills it up to a multiple of 8 bytes."""
    return HEADER.size + int(HEADER.unpack(bytes(ring._read(position, HEADER.size)))[4])


def _swap(ring: Ring, timeout: float) -> bool:
    """Exchange the next two packets, once there are two -> whether there were."""
    end = time.perf_counter() + timeout
    while time.perf_counter() < end:
        written, read = ring._positions
        if written > read:
            first = -(-_length(ring, read) // ALIGN) * ALIGN
            if written > read + first:
                second = -(-_length(ring, read + first) // ALIGN) * ALIGN
                one, other = ring._read(read, first), ring._read(read + first, second)
                ring._write(read, other)
                ring._write(read + second, one)
                return True
        time.sleep(0.001)
    return False


def watch_loads(attach: Callable[[RemotePart], None]) -> Callable[[], None]:
    """Call `attach` with each part in a process once it is loaded -> what ends that."""
    plain = RemotePart.load

    def load(part: RemotePart, *arguments: Any) -> None:
        plain(part, *arguments)
        attach(part)

    RemotePart.load = load  # type: ignore[assignment,method-assign]

    def end() -> None:
        RemotePart.load = plain  # type: ignore[method-assign]

    return end


assert POSITIONS.size == 16  # `read` is the second of two words
