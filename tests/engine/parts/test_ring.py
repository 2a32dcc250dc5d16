"""Rings of packets between processes: everything arrives once, in order, or the link says what is wrong."""

from __future__ import annotations

import multiprocessing
import struct
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amphw.engine.parts.ring import ALIGN, HEADER, POSITIONS, LinkError, Ring, semaphore

CONTEXT = multiprocessing.get_context("spawn")
CAPACITY = 1024


@pytest.fixture
def ends() -> Iterator[tuple[Ring, Ring]]:
    made = Ring(semaphore(CONTEXT), CAPACITY)
    other = Ring(made.filled, name=made.name)
    yield made, other
    other.close()
    made.close()


PACKETS = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=300)), max_size=30)


@settings(max_examples=50)
@given(PACKETS)
def test_everything_arrives_once_and_in_order(packets: list[tuple[int, bytes]]) -> None:
    """The ring is much smaller than what goes through it."""
    made = Ring(semaphore(CONTEXT), CAPACITY)
    other = Ring(made.filled, name=made.name)
    sender = threading.Thread(target=lambda: [made.send(kind, data, 10.0) for kind, data in packets])
    sender.start()
    came = [other.receive(10.0) for _ in packets]
    sender.join()
    assert [(kind, bytes(data)) for kind, data in came if data is not None] == packets
    assert other.receive(0.0) is None
    other.close()
    made.close()


def test_who_does_not_read_stops_the_writer(ends: tuple[Ring, Ring]) -> None:
    made, _ = ends
    with pytest.raises(LinkError, match="the other end has taken nothing"):
        for _ in range(20):
            made.send(1, bytes(100), 0.05)
    with pytest.raises(LinkError, match="a packet of 2,016 bytes, the ring holds 1,0"):
        made.send(1, bytes(2000), 0.05)


def patched(ring: Ring, offset: int, data: bytes) -> None:
    ring._buf[POSITIONS.size + offset : POSITIONS.size + offset + len(data)] = data


@pytest.mark.parametrize(
    ("offset", "data", "complaint"),
    [
        (0, b"\0\0", "a packet begins with 0x0000 instead of 0x4d41"),
        (2, b"\7", "the other end speaks version 7 of the protocol, this one 1"),
        (HEADER.size + 3, b"\xff", "packet 0 is damaged"),
        (3, b"\x55", "packet 0 is damaged"),
        (8, struct.pack("<I", 1 << 20), "a packet of 1,048,576 bytes of which"),
    ],
)
def test_what_is_damaged_is_not_believed(ends, offset: int, data: bytes, complaint: str) -> None:
    made, other = ends
    made.send(1, b"four", 1.0)
    patched(made, offset, data)
    with pytest.raises(LinkError, match=complaint):
        other.receive(1.0)


def test_a_packet_that_comes_again_is_passed_over(ends: tuple[Ring, Ring]) -> None:
    made, other = ends
    made.send(1, b"one", 1.0)
    made._sent = 0
    made.send(1, b"one", 1.0)
    made.send(2, b"two", 1.0)
    assert other.receive(1.0) == (1, b"one")
    assert other.receive(1.0) == (2, b"two")


def test_a_packet_that_is_missing_is_noticed(ends: tuple[Ring, Ring]) -> None:
    made, other = ends
    made.send(1, b"one", 1.0)
    made._sent = 3
    made.send(2, b"two", 1.0)
    assert other.receive(1.0) == (1, b"one")
    with pytest.raises(LinkError, match="packet 3 came, 1 was the next: some are lost"):
        other.receive(1.0)


def test_packets_begin_at_multiples(ends: tuple[Ring, Ring]) -> None:
    made, other = ends
    for size in (0, 1, 7, 8):
        made.send(size, bytes(size), 1.0)
        assert other.receive(1.0) == (size, bytes(size))
        written, read = POSITIONS.unpack_from(made._buf, 0)
        assert written == read and written % ALIGN == 0
