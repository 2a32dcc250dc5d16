"""A host of USB opposite a simulated device: transactions, what an operating system asks when it finds a
device, and a serial port's driver. Written from the standards (USB 2.0; CDC 1.2, PSTN 1.2), and from what
Linux's usbcore and cdc_acm send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from sim.usb_wire import ACK, IN, NAK, OUT, PING, SETUP, STALL, WireError, data, payload_of, token

STANDARD_IN, STANDARD_OUT, CLASS_INTERFACE_OUT = 0x80, 0x00, 0x21
GET_DESCRIPTOR, SET_ADDRESS, SET_CONFIGURATION, CLEAR_FEATURE = 6, 5, 9, 1
SET_LINE_CODING, SET_CONTROL_LINE_STATE = 0x20, 0x22
DEVICE, CONFIGURATION, STRING = 1, 2, 3
ENDPOINT, INTERFACE = 5, 4
BULK = 4
"""Number of the endpoints of a serial port's bytes, where a host does not look for it."""
TRIES = 400
"""Transactions of one stage of a request, most of which are to be refused."""


class Wires(Protocol):
    """A way for packets to a device and back."""

    def say(self, packet: bytes) -> None: ...

    def hear(self) -> bytes | None:
        """The packet that answers; None where none comes in time. WireError for one that is none."""
        ...

    def reset(self, milliseconds: float) -> None: ...

    def wait(self, milliseconds: float) -> None: ...

    @property
    def attached(self) -> bool: ...


class Stalled(Exception):
    """The device refuses a request for good."""


@dataclass
class Faults:
    """What goes wrong on the wires, each asked before a packet goes: whether it is damaged, or lost."""

    damages_data: Callable[[], bool] = lambda: False
    loses_ack: Callable[[], bool] = lambda: False  # of ours for what has come


@dataclass
class Found:
    """What a device says of itself."""

    device: bytes
    configuration: bytes
    strings: list[str]
    endpoints: dict[int, int] = field(default_factory=dict)  # bytes in a packet, by address
    interfaces: list[tuple[int, int, int]] = field(default_factory=list)  # class, subclass, protocol


class Host:
    """With one device. counts: of transactions, by what came of them."""

    def __init__(self, wires: Wires) -> None:
        self.wires, self.address, self.faults = wires, 0, Faults()
        self.toggles: dict[int, int] = {}
        self.counts = dict.fromkeys(("ack", "nak", "stall", "silence", "damaged", "again"), 0)
        self.found: Found | None = None

    @property
    def packet(self) -> int:
        """Bytes in a packet of a serial port's, which has been found."""
        assert self.found is not None
        return min(self.found.endpoints[BULK], self.found.endpoints[0x80 | BULK])

    # --- transactions -------------------------------------------------------------------------------

    def send(self, endpoint: int, payload: bytes, pid: int = OUT) -> bool:
        """One packet to the device: whether it has taken it."""
        packet = data(self.toggles.get(endpoint, 0), payload)
        if self.faults.damages_data():
            middle = 1 + len(payload) // 2
            packet = packet[:middle] + bytes([packet[middle] ^ 0x10]) + packet[middle + 1 :]
        self.wires.say(token(pid, self.address, endpoint))
        self.wires.say(packet)
        answer = self._hear()
        if answer == bytes([ACK]):
            self.toggles[endpoint] = self.toggles.get(endpoint, 0) ^ 1
        return self._counted(answer)

    def receive(self, endpoint: int) -> bytes | None:
        """One packet from the device, if it has one."""
        which = 0x80 | endpoint
        self.wires.say(token(IN, self.address, endpoint))
        answer = self._hear()
        if answer is None or len(answer) == 1:
            self._counted(answer)
            return None
        toggle, payload = payload_of(answer)
        if self.faults.loses_ack():
            # It is lost on its way: we have the packet, and know it when it comes again.
            if toggle != self.toggles.get(which, 0):
                self.counts["again"] += 1
                return None
            self.toggles[which] = toggle ^ 1
            return payload
        self.wires.say(bytes([ACK]))
        if toggle != self.toggles.get(which, 0):
            self.counts["again"] += 1
            return None
        self.toggles[which] = toggle ^ 1
        self.counts["ack"] += 1
        return payload

    def ping(self, endpoint: int) -> bool:
        """At high speed: whether there is room for a packet."""
        self.wires.say(token(PING, self.address, endpoint))
        return self._counted(self._hear())

    def _hear(self) -> bytes | None:
        try:
            return self.wires.hear()
        except WireError:
            self.counts["damaged"] += 1
            return None

    def _counted(self, answer: bytes | None) -> bool:
        if answer is None:
            self.counts["silence"] += 1
            return False
        what = {ACK: "ack", NAK: "nak", STALL: "stall"}[answer[0]]
        self.counts[what] += 1
        if what == "stall":
            raise Stalled
        return what == "ack"

    # --- requests -----------------------------------------------------------------------------------

    def request(
        self, kind: int, request: int, value: int = 0, index: int = 0, body: bytes | int = b""
    ) -> bytes:
        """A request of endpoint 0. body: what goes with it, or how many bytes are asked for."""
        length = body if isinstance(body, int) else len(body)
        setup = bytes([kind, request]) + b"".join(n.to_bytes(2, "little") for n in (value, index, length))
        self.toggles[0] = 0
        self._until(lambda: self.send(0, setup, SETUP))
        self.toggles |= {0: 1, 0x80: 1}
        came = b""
        if isinstance(body, int):
            while len(came) < length:
                part = self._until_data()
                came += part
                if len(part) < 64:
                    break
            self.toggles[0] = 1
            self._until(lambda: self.send(0, b""))
        else:
            for at in range(0, len(body), 64):
                self._until(lambda part=body[at : at + 64]: self.send(0, part))
            self.toggles[0x80] = 1
            if status := self._until_data():
                raise AssertionError(f"a status of {len(status)} bytes")
        return came

    def _until(self, done: Callable[[], bool]) -> None:
        for _ in range(TRIES):
            if done():
                return
        raise AssertionError(f"not taken in {TRIES} transactions: {self.counts}")

    def _until_data(self) -> bytes:
        for _ in range(TRIES):
            if (part := self.receive(0)) is not None:
                return part
        raise AssertionError(f"no data in {TRIES} transactions: {self.counts}")

    def descriptor(self, kind: int, number: int, length: int, language: int = 0) -> bytes:
        return self.request(STANDARD_IN, GET_DESCRIPTOR, kind << 8 | number, language, length)

    # --- what an operating system does --------------------------------------------------------------

    def find(self, address: int = 5) -> Found:
        """Reset the bus and see what is there, as Linux does: a look at the device, another reset, an
        address, the descriptors, the texts, and a configuration."""
        self.reset()
        self.descriptor(DEVICE, 0, 64)
        self.reset()
        self.request(STANDARD_OUT, SET_ADDRESS, address)
        self.address = address
        self.wires.wait(0.1)
        device = self.descriptor(DEVICE, 0, 18)
        length = int.from_bytes(self.descriptor(CONFIGURATION, 0, 9)[2:4], "little")
        configuration = self.descriptor(CONFIGURATION, 0, length)
        language = int.from_bytes(self.descriptor(STRING, 0, 255)[2:4], "little")
        texts = [self.descriptor(STRING, number, 255, language)[2:] for number in device[14:17] if number]
        found = Found(device, configuration, [text.decode("utf-16-le") for text in texts])
        at = 0
        while at < len(configuration):
            part = configuration[at : at + configuration[at]]
            if part[1] == ENDPOINT:
                found.endpoints[part[2]] = int.from_bytes(part[4:6], "little")
            elif part[1] == INTERFACE:
                found.interfaces.append((part[5], part[6], part[7]))
            at += part[0]
        self.configure()
        self.found = found
        return found

    def reset(self) -> None:
        """Of the bus: both ends begin anew."""
        self.wires.reset(0.2)
        self.address, self.toggles = 0, {}

    def configure(self) -> None:
        self.request(STANDARD_OUT, SET_CONFIGURATION, 1)
        self.toggles = {}

    def open(self) -> None:
        """As cdc_acm does when a program opens the port."""
        coding = (1_000_000).to_bytes(4, "little") + bytes([0, 0, 8])
        self.request(CLASS_INTERFACE_OUT, SET_LINE_CODING, 0, 0, coding)
        self.request(CLASS_INTERFACE_OUT, SET_CONTROL_LINE_STATE, 3)

    def close(self) -> None:
        self.request(CLASS_INTERFACE_OUT, SET_CONTROL_LINE_STATE, 0)
