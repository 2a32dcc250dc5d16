"""Datagrams as bytes, and bytes that are none."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from amphw.rtl.isa.datagrams import HEADER, LONGEST, About, Datagram, DatagramKind, after, ahead


def same(a: Datagram, b: Datagram) -> bool:
    return {**vars(a), "words": a.words.tolist()} == {**vars(b), "words": b.words.tolist()}


@pytest.mark.parametrize("count", [0, 1, 9, LONGEST])
def test_a_datagram_is_read_as_it_was_written(count: int) -> None:
    words = np.random.default_rng(count).integers(0, 1 << 16, count).astype(np.uint16)
    said = Datagram(DatagramKind.DATA, 0x89ABCDEF, (1 << 32) - 3, 17, 2048, words)
    found = Datagram.decode(said.encode())
    assert found is not None and same(found, said)


def test_its_bytes() -> None:
    """Low bytes first, of each field and each word; the check is zlib's of all before."""
    data = Datagram(DatagramKind.DATA, 0x11223344, 5, 6, 7, np.array([0xABCD], np.uint16)).encode()
    head = "574d 0302 44332211 05000000 06000000 0700 0100 cdab"
    assert data[:-4] == bytes.fromhex(head)
    assert data[-4:] == zlib.crc32(data[:-4]).to_bytes(4, "little")


def test_every_bit_matters() -> None:
    data = Datagram(DatagramKind.ACK, 3, words=np.array([1, 2], np.uint16)).encode()
    for bit in range(8 * len(data)):
        spoilt = bytearray(data)
        spoilt[bit // 8] ^= 1 << bit % 8
        assert Datagram.decode(bytes(spoilt)) is None, bit


@pytest.mark.parametrize("cut", [0, 1, 2, 2 * HEADER, 2 * HEADER + 3])
def test_what_is_too_short_is_no_datagram(cut: int) -> None:
    assert Datagram.decode(Datagram(DatagramKind.START, 3).encode()[:cut]) is None


def test_another_kind_is_no_datagram() -> None:
    said = Datagram(99, 3)  # type: ignore[arg-type]
    assert Datagram.decode(said.encode()) is None


def test_numbers_go_round() -> None:
    assert after((1 << 32) - 1, 3) == 2
    assert ahead(2, (1 << 32) - 1) == 3
    assert ahead((1 << 32) - 1, 2) == (1 << 32) - 3


def test_what_a_circuit_says_of_itself() -> None:
    about = About(0x024D_0000_0032, 77, (1 << 64) - 2, 0xC0A8_0101, 40_001)
    assert About.unpack(about.pack()) == about
    assert (about.mac_text, about.holder) == ("02:4d:00:00:00:32", "192.168.1.1:40001")
