"""Packets of USB 2.0 as they are on the wires at full speed, both ways: this is written from the standard's
chapters 7.1 and 8.3, and shares nothing with the device that it is put opposite to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

OUT, IN, SOF, SETUP, PING = 0xE1, 0x69, 0xA5, 0x2D, 0xB4
DATA = (0xC3, 0x4B)
ACK, NAK, STALL = 0xD2, 0x5A, 0x1E

SE0, J, K = 0, 1, 2
"""Of the pair of wires: D+ is the low bit."""

DRIVEN = 4
"""Set where a sample is of somebody who drives the wires."""


class WireError(AssertionError):
    """What is on the wires is no packet."""


def crc5(value: int, bits: int = 11) -> int:
    """As it stands behind a token's bits, lowest first."""
    rest = 0x1F
    for bit in range(bits):
        rest = (rest << 1 ^ (0x05 if (rest >> 4 ^ value >> bit) & 1 else 0)) & 0x1F
    return int(f"{rest ^ 0x1F:05b}"[::-1], 2)


def crc16(data: bytes) -> bytes:
    rest = 0xFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (0xA001 if rest & 1 else 0)
    return (rest ^ 0xFFFF).to_bytes(2, "little")


def token(pid: int, address: int, endpoint: int) -> bytes:
    """Of SOF, `address` is the low half of the frame's number and `endpoint` the rest."""
    value = address | endpoint << 7
    return bytes([pid]) + (value | crc5(value) << 11).to_bytes(2, "little")


def data(toggle: int, payload: bytes) -> bytes:
    return bytes([DATA[toggle]]) + payload + crc16(payload)


def payload_of(packet: bytes) -> tuple[int, bytes]:
    """The toggle and the payload of a packet of data. WireError for a check that is wrong."""
    if packet[0] not in DATA or crc16(packet[1:-2]) != packet[-2:]:
        raise WireError(f"no packet of data: {packet.hex()}")
    return DATA.index(packet[0]), packet[1:-2]


def levels(packet: bytes) -> list[int]:
    """The state of the wires in each bit: synchronisation, stuffed bits, end of packet."""
    bits = [0] * 7 + [1] + [byte >> k & 1 for byte in packet for k in range(8)]
    found, state, ones = [], J, 0
    for bit in bits:
        if not bit:
            state = J + K - state
        found.append(state)
        ones = ones + 1 if bit else 0
        if ones == 6:
            state = J + K - state
            found.append(state)
            ones = 0
    return [*found, SE0, SE0, J]


def samples(packet: bytes, per_bit: float) -> np.ndarray:
    """Driven, of a sender whose bits take so many samples on average."""
    states = np.array(levels(packet), np.uint16)
    ends = np.round(np.arange(1, states.size + 1) * per_bit).astype(int)
    return np.repeat(states | DRIVEN, np.diff(ends, prepend=0)).astype(np.uint16)


def packet_of(states: Sequence[int]) -> bytes:
    """The packet of the states of its bits, from its first to its end. WireError for what is none."""
    before, ones, bits = J, 0, []
    for position, state in enumerate(states):
        if state == SE0:
            if list(states[position : position + 3]) != [SE0, SE0, J]:
                raise WireError(f"a packet's end is {states[position:]}")
            break
        bit = int(state == before)
        before = state
        if ones == 6:
            if bit:
                raise WireError("seven ones in a row")
            ones = 0
            continue
        ones = ones + 1 if bit else 0
        bits.append(bit)
    else:
        raise WireError("a packet without an end")
    if bits[:8] != [0] * 7 + [1] or len(bits) % 8:
        raise WireError(f"{len(bits)} bits that begin with {bits[:8]}")
    found = bytes(sum(bits[at + k] << k for k in range(8)) for at in range(8, len(bits), 8))
    if found[0] & 0xF != found[0] >> 4 ^ 0xF:
        raise WireError(f"no packet's kind is {found[0]:02x}")
    return found
