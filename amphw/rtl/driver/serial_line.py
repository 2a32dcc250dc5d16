"""A serial port as a line of bytes, with errors that say what is the matter with it."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import metadata
from typing import Any, Protocol

from amphw.ir.errors import AmphwError, DeviceAbsentError, DeviceLostError

NEEDS = "serial ports need the package pyserial, which is not installed: pip install 'amphw[board]' brings it"


class Line(Protocol):
    """Bytes to a board and back. DeviceLostError where the line has gone."""

    name: str

    def write(self, data: bytes) -> None: ...

    def read(self, seconds: float) -> bytes:
        """What has come, as soon as there is something; b"" after so long without."""
        ...

    def close(self) -> None: ...


def absent(port: str) -> str:
    """Why the port cannot be opened, as far as that can be told without touching it; empty: it is there."""
    try:
        import serial  # noqa: F401
    except ImportError:
        return NEEDS
    if not os.path.exists(port):
        return f"there is no serial port {port}. {ports_here()}"
    if not os.access(port, os.R_OK | os.W_OK):
        return (
            f"the serial port {port} may not be opened by this user: join the group that owns it "
            "(on Debian: sudo usermod -a -G dialout $USER, then log in anew)"
        )
    return ""


def ports() -> dict[str, str]:
    """The USB serial ports that are there, and what each says that it is. DeviceAbsentError: no pyserial."""
    try:
        from serial.tools import list_ports
    except ImportError as error:
        raise DeviceAbsentError(NEEDS) from error
    found = {each.device: each.description or "" for each in list_ports.comports() if each.vid is not None}
    return dict(sorted(found.items()))


def ports_here() -> str:
    """The same in a sentence. DeviceAbsentError: no pyserial."""
    return f"USB serial ports here: {', '.join(ports()) or 'none; is the board plugged in?'}"


def survey() -> tuple[str, str]:
    """What of boards can be used here, and what to do about the rest: empty if there is nothing to do.

    No port is no reason: a board that has one can be plugged in, and then its port is named.
    """
    try:
        found = ports()
    except DeviceAbsentError as error:
        return "not installed", str(error)
    about = f"pyserial {metadata.version('pyserial')}; {ports_here()}"
    return about, "; ".join(why for port in found if (why := absent(port)))


class SerialLine:
    """A port of pyserial, held by this process alone. DeviceAbsentError where it cannot be opened."""

    def __init__(self, port: str, baud: int, patience: float):
        if why := absent(port):
            raise DeviceAbsentError(why)
        import serial

        self.name = port
        self._lost = (serial.SerialException, OSError, TypeError)  # the last: closed by another thread
        try:
            self._port: Any = serial.Serial(port, baud, write_timeout=patience, exclusive=True)
            self._port.reset_input_buffer()
        except ValueError as error:
            raise AmphwError(f"{port}: {baud} baud cannot be set ({error})") from error
        except (serial.SerialException, OSError) as error:
            raise DeviceAbsentError(
                f"the serial port {port} cannot be opened ({error}). If another program holds it, such as a "
                "terminal or another run, close that"
            ) from error

    def write(self, data: bytes) -> None:
        self._guarded(lambda: self._port.write(data))

    def read(self, seconds: float) -> bytes:
        def get() -> bytes:
            if self._port.timeout != seconds:  # setting it sets the whole port
                self._port.timeout = seconds
            first: bytes = self._port.read(1)
            return first + self._port.read(self._port.in_waiting) if first else first

        found: bytes = self._guarded(get)
        return found

    def _guarded(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except self._lost as error:
            raise DeviceLostError(
                f"the serial port {self.name} has gone ({error}): was it unplugged?"
            ) from error

    def close(self) -> None:
        self._port.close()
