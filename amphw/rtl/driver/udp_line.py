"""A board at a network address as a line of words: a socket, and the host's end of a session.

Nothing is sent while nobody reads or writes; a circuit waits for HOLD seconds before it lets another host
have it, and repeats what it has said in the meantime.
"""

from __future__ import annotations

import errno
import random
import socket
import time

import numpy as np

from amphw.ir.errors import AmphwError, DeviceAbsentError, DeviceLostError
from amphw.rtl.driver.datagram_end import PING, DatagramEnd
from amphw.rtl.isa.datagrams import HOLD, PORT, SCHEME
from amphw.rtl.isa.wire import WORD

ANSWER = 5.0
"""Seconds in which a board that is there has answered START: a PHY that was reset takes three of them to
agree with its other end."""

BITS_PER_S = 1e9
LARGEST = 1 << 16
BUFFER = 1 << 20
"""Bytes that the system may keep for us: what does not fit is lost, and sent again."""

_TRANSIENT = {
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ENETDOWN,
    errno.EHOSTDOWN,
    errno.ECONNREFUSED,
    errno.ENOBUFS,
    errno.EAGAIN,
    errno.EADDRNOTAVAIL,
}
"""Errors of a network that may pass, such as that of a cable that is plugged in again."""


def parse(port: str) -> tuple[str, int]:
    """`udp://ADDRESS` or `udp://ADDRESS:PORT` -> address and port. Raises AmphwError."""
    host, colon, number = port.removeprefix(SCHEME).partition(":")
    if not host or (colon and not (number.isdecimal() and 0 < int(number) < 1 << 16)):
        raise AmphwError(
            f"{port!r} names no board in a network: write udp://192.168.1.50 or udp://192.168.1.50:{PORT}"
        )
    return host, int(number) if colon else PORT


class UdpLine:
    """See `WordLine`. patience: seconds for which the board may not be heard while a session lasts.

    Raises DeviceAbsentError for a name that is no address.
    """

    window = LARGEST  # the circuit itself says how many words it has room for

    def __init__(self, port: str, patience: float):
        host, number = parse(port)
        self.name, self.patience, self.strict, self.lag = port, patience, True, 4 * PING
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._end: DatagramEnd | None = None
        self._error = 0
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            # From now on no other address is heard.
            self._socket.connect((host, number))
        except OSError as error:
            self._socket.close()
            if error.errno in _TRANSIENT:
                raise DeviceAbsentError(self._unanswered(error.errno or 0)) from error
            raise DeviceAbsentError(f"{port} is no address that can be reached ({error})") from error

    # --- the session ------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins a session. DeviceAbsentError where nothing answers, or another host keeps the board for
        longer than HOLD, which one that has died does not."""
        begun = time.monotonic()
        self._end = end = DatagramEnd(random.randrange(1, 1 << 32), begun)
        while not end.open:
            now = time.monotonic()
            if now > begun + (HOLD + ANSWER if end.busy else ANSWER):
                raise DeviceAbsentError(self._unanswered(self._error))
            self._turn(end, 0.05)
        until = time.monotonic() + 0.02  # another board of this address would answer about now
        while time.monotonic() < until:
            self._turn(end, 0.005)
        self._check(end)

    @property
    def identity(self) -> int | None:
        return self._end.about[0].identity if self._end is not None and self._end.open else None

    def write(self, words: np.ndarray) -> None:
        end = self._begun()
        end.write(words)
        self._say(end)

    def read(self, seconds: float) -> np.ndarray | None:
        if self._end is None:
            return None  # nobody says anything before START
        end, until = self._end, time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            self._turn(end, max(0.0, left))
            came = end.take()
            self._check(end)
            if len(came) or left <= 0:
                return came if len(came) else None

    def forgive(self) -> None:
        """Nothing goes wrong that is not repaired."""

    def seconds(self, words: int) -> float:
        return words * WORD / BITS_PER_S

    def close(self) -> None:
        try:
            if self._end is not None and self._end.open:
                self._send(self._end.end())
        except DeviceLostError:  # then the circuit lets go of this host by itself
            pass
        finally:
            self._socket.close()

    def complaint(self) -> str:
        return (
            f"a circuit at {self.name} has begun a session, but does not answer what it is asked: it is of "
            "another version of amphw, or hangs. Build and flash it anew (amphw rtl, amphw flash)"
        )

    def _begun(self) -> DatagramEnd:
        assert self._end is not None, "a line is written to before it was started"
        return self._end

    def _check(self, end: DatagramEnd) -> None:
        """DeviceLostError where the session is over."""
        if len(end.about) > 1:
            both = " and ".join(about.mac_text for about in end.about[:2])
            raise DeviceLostError(
                f"two boards answer at {self.name} ({both}): give each an address of its own ([link] in the "
                "board's file, amphw rtl), or take one off the network"
            )
        if end.stranger is not None:
            other = end.stranger
            if other.mac != end.about[0].mac:
                raise DeviceLostError(
                    f"another board answers at {self.name} than before ({other.mac_text} instead of "
                    f"{end.about[0].mac_text}): two boards of one address, or one was exchanged"
                )
            taken = (
                f"the host {other.holder} drives it now" if other.host else "it was flashed or powered anew"
            )
            raise DeviceLostError(
                f"the board at {self.name} knows nothing of this run any more: {taken}. Two boards of one "
                "address would look like that, too"
            )
        silent = end.silent(time.monotonic())
        if silent > self.patience:
            raise DeviceLostError(
                f"nothing has come from {self.name} for {silent:.1f} s{self._reason()}: see whether its "
                "cable is plugged in and the board is powered. A run goes on by itself if that is mended in "
                f"silence= seconds ({self.patience:g} here)"
            )

    # --- the network ------------------------------------------------------------------------------

    def _turn(self, end: DatagramEnd, seconds: float) -> None:
        """Send what is due; take all that has come, or wait for it that long at most, or until more is
        due."""
        self._say(end)
        now = time.monotonic()
        came = self._receive(min(seconds, end.next(now)))
        while came is not None:
            end.hear(came, time.monotonic())
            came = self._receive(0.0)
        self._say(end)

    def _say(self, end: DatagramEnd) -> None:
        for data in end.due(time.monotonic()):
            self._send(data)

    def _send(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except OSError as error:
            self._failed(error)

    def _receive(self, seconds: float) -> bytes | None:
        try:
            self._socket.settimeout(seconds)
            came = self._socket.recv(LARGEST)
            self._error = 0  # which has passed
            return came
        except (TimeoutError, BlockingIOError):
            return None
        except OSError as error:
            self._failed(error)
            time.sleep(min(seconds, 0.01))  # an error does not wait
            return None

    def _failed(self, error: OSError) -> None:
        if error.errno not in _TRANSIENT:
            raise DeviceLostError(f"{self.name}: the network fails ({error})") from error
        self._error = error.errno or 0

    def _reason(self) -> str:
        return f" ({errno.errorcode[self._error]})" if self._error else ""

    def _unanswered(self, number: int) -> str:
        end = self._end
        if end is not None and end.busy is not None:
            return (
                f"the board at {self.name} is driven by another host, {end.busy.holder}: it can be had once "
                f"that has ended its run, or has been silent for {HOLD:g} s"
            )
        if number == errno.ECONNREFUSED:
            return f"a machine answers at {self.name}, but nothing there listens: it is no board of amphw's"
        if number in (errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL):
            return (
                f"this machine has no way to {self.name}: give its network card an address of the same "
                "network, such as 192.168.1.1 with the netmask 255.255.255.0"
            )
        return (
            f"nothing answers at {self.name}{self._reason()}: is the board powered, and the circuit in it "
            "(amphw flash)? Is the cable plugged in, and do its lights shine? Is this the address in the "
            "board's file, and is this machine's in the same network (the same address under its netmask)?"
        )
