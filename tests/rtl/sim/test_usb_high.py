"""The link over USB at high speed, opposite a PHY and a host of our own."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("luna")

from amphw.rtl.gateware.usb.link import ULPI, HighSpeedLink
from amphw.rtl.gateware.usb.serial_port import DATA
from amphw.rtl.isa.word_frames import Decoder, Encoder
from sim.ulpi_phy import UlpiWires
from sim.usb_host import Host
from sim.usb_wire import J
from tests.rtl.network_echo import Echo
from tests.rtl.usb_words import echoed, numbers, received, sent

PACKET = 512
ALLOWED = 14
"""Cycles of 60 MHz within which a device begins to answer (ULPI 1.1, 3.8.2.6.3)."""
NORMAL, FULL_SPEED, TERMINATED = 0b100_0000, 0b100_0101, 0b100_0100
"""What the register of a PHY's function says: awake, at high speed; and before a host has chirped."""


@pytest.fixture
def line() -> Iterator[UlpiWires]:
    made = UlpiWires(Echo(HighSpeedLink(60e6, "0123456789abcdef", 1e-4), ULPI))
    made.wait(1.3)  # the PHY is left alone for a millisecond
    made.status(J, 0.1)
    yield made
    made.close()


@pytest.fixture
def host(line: UlpiWires) -> Host:
    """Of a device that was found, whose port is open."""
    made = Host(line)
    made.find()
    made.open()
    return made


def test_a_device_and_a_host_find_each_other_at_high_speed(line: UlpiWires) -> None:
    assert line.function == FULL_SPEED  # where a device begins, with its pull-up
    host = Host(line)
    found = host.find()
    assert line.function == NORMAL
    assert found.strings == ["amphw", "amphw circuit", "0123456789abcdef"]
    assert found.endpoints == {0x83: 8, 0x84: PACKET, 0x04: PACKET}
    assert not any(host.counts[what] for what in ("silence", "stall", "damaged", "again"))
    assert 1 <= line.late <= ALLOWED


def test_a_host_without_high_speed_is_not_taken_for_one(line: UlpiWires) -> None:
    line.high = False
    line.reset(1)
    assert line.function == FULL_SPEED


def test_words_there_and_back(line: UlpiWires, host: Host) -> None:
    echoed(host, numbers(5000))
    assert line.late <= ALLOWED and not host.counts["silence"]


def test_damaged_packets_and_lost_confirmations(host: Host) -> None:
    """Both are sent again, and each packet counts once."""
    chance = random.Random(5)
    host.faults.damages_data = lambda: chance.random() < 0.2
    host.faults.loses_ack = lambda: chance.random() < 0.2
    echoed(host, numbers(8000))
    assert host.counts["again"] > 5 and host.counts["silence"] > 5


def test_what_has_no_room_waits_with_the_host(host: Host) -> None:
    """A host asks whether there is room before it sends again: what it is told is so."""
    encoder, decoder, words = Encoder(), Decoder(), numbers(5000)
    out = encoder.start() + encoder.feed(words)
    at = refused = 0
    while refused < 20:
        asked = host.ping(DATA)
        taken = host.send(DATA, out[at : at + PACKET])
        assert taken or not asked
        at, refused = at + PACKET * taken, 0 if taken else refused + 1
    assert at < len(out)
    found = decoder.feed(received(host, PACKET) + sent(host, out[at:]))
    while len(found) < len(words):
        found = np.concatenate([found, decoder.feed(received(host, 1))])
    assert np.array_equal(found, words) and not decoder.faulty
    assert host.ping(DATA)


@pytest.mark.parametrize("packets", [1, 2])
def test_a_reset_of_the_bus_begins_anew(line: UlpiWires, host: Host, packets: int) -> None:
    for _ in range(packets):
        assert host.send(DATA, b"")
    echoed(host, numbers(20 * packets))
    host.find(address=9)
    host.open()
    assert line.function == NORMAL
    echoed(host, numbers(40, 1))
