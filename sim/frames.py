"""Ethernet frames as a host's network card has them: what stands around a UDP datagram, put on and taken off.

Written from the standards and apart from the gateware, so that each is checked against the other.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

PREAMBLE = b"\x55" * 7 + b"\xd5"
SHORTEST = 60
UDP, ARP_TYPE, IP_TYPE = 17, 0x0806, 0x0800


@dataclass(frozen=True)
class End:
    """An end of a conversation. ip: its four bytes."""

    mac: bytes
    ip: bytes
    port: int = 0


def total(data: bytes) -> int:
    """The Internet's checksum (RFC 1071): 0 of a header that has the right one in it."""
    whole = sum(struct.unpack(f">{len(data) // 2}H", data))
    while whole >> 16:
        whole = (whole & 0xFFFF) + (whole >> 16)
    return whole ^ 0xFFFF


def datagram(payload: bytes, source: End, to: End, **other: int) -> bytes:
    """A frame without preamble and check, filled up. other: fields of IP's header that are not the usual."""
    about = {"version": 0x45, "fragment": 0x4000, "protocol": UDP, "spoilt": 0, **other}
    header = struct.pack(
        ">BBHHHBBH4s4s",
        about["version"],
        0,
        28 + len(payload),
        7,
        about["fragment"],
        64,
        about["protocol"],
        0,
        source.ip,
        to.ip,
    )
    check = total(header) ^ about["spoilt"]
    header = header[:10] + struct.pack(">H", check) + header[12:]
    body = struct.pack(">HHHH", source.port, to.port, 8 + len(payload), 0xBEEF) + payload
    return (to.mac + source.mac + struct.pack(">H", IP_TYPE) + header + body).ljust(SHORTEST, b"\0")


def question(source: End, wanted: bytes) -> bytes:
    """Who has that IP address? Asked of everybody."""
    packet = struct.pack(">HHBBH", 1, IP_TYPE, 6, 4, 1) + source.mac + source.ip + bytes(6) + wanted
    return (b"\xff" * 6 + source.mac + struct.pack(">H", ARP_TYPE) + packet).ljust(SHORTEST, b"\0")


def with_check(frame: bytes) -> bytes:
    """As on the wire: preamble, frame, check."""
    return PREAMBLE + frame + struct.pack("<L", zlib.crc32(frame))


def without_check(wire: bytes) -> bytes:
    """The frame of what was on the wire. AssertionError for what a card would not accept."""
    assert wire.startswith(PREAMBLE), f"no preamble: {wire[:10].hex()}"
    frame, check = wire[len(PREAMBLE) : -4], wire[-4:]
    assert len(frame) >= SHORTEST and len(frame) <= 1514, f"a frame of {len(frame)} bytes"
    assert struct.pack("<L", zlib.crc32(frame)) == check, "a frame whose check is wrong"
    return frame


def opened(frame: bytes) -> tuple[bytes, End, End]:
    """The payload of a UDP datagram's frame, who has sent it, and to whom. AssertionError for any other."""
    to_mac, mac, kind = frame[:6], frame[6:12], struct.unpack(">H", frame[12:14])[0]
    assert kind == IP_TYPE, f"a frame of type {kind:#06x}"
    header, rest = frame[14:34], frame[34:]
    version, _, length, _, fragment, _, protocol = struct.unpack(">BBHHHBB", header[:10])
    assert (version, fragment & 0x3FFF, protocol) == (0x45, 0, UDP), header.hex()
    assert total(header) == 0, "IP's checksum is wrong"
    port, to_port, size, check = struct.unpack(">HHHH", rest[:8])
    assert size == length - 20 and check == 0, "UDP's length or checksum"
    assert len(frame) == max(SHORTEST, 14 + length), "a frame that is longer than what is in it"
    payload = rest[8:size]
    return payload, End(mac, header[12:16], port), End(to_mac, header[16:20], to_port)
