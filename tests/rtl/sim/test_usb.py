"""The link over USB at full speed, on its wires, opposite a host of our own: nothing that goes wrong there
changes a word."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("luna")

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring

from amphw.rtl.gateware.board_top import attached
from amphw.rtl.gateware.usb.link import WIRES, FullSpeedLink
from amphw.rtl.gateware.usb.serial_port import DATA
from amphw.rtl.isa.word_frames import BYTES, Decoder, Encoder
from sim.usb_host import Host, Stalled
from sim.usb_wires import SimulatedWires
from tests.rtl.network_echo import Echo
from tests.rtl.usb_words import echoed, numbers, received, sent

PACKET = 64
DETACHED = 1e-4
ALLOWED = 6.5
"""Bits behind a packet within which a device begins to answer it (USB 2.0, 7.1.18.1)."""


def wires(clocks: float = 1.3, drift: float = 0.0) -> SimulatedWires:
    """At an echo, just configured. clocks: of the circuit, which is faster than USB's up to 2."""
    made = SimulatedWires(Echo(FullSpeedLink(48e6, "0123456789abcdef", DETACHED), WIRES), clocks, drift)
    made.wait(0.3)
    return made


@pytest.fixture
def line() -> Iterator[SimulatedWires]:
    made = wires()
    yield made
    made.close()


@pytest.fixture
def host(line: SimulatedWires) -> Host:
    """Of a device that was found, whose port is open."""
    made = Host(line)
    made.find()
    made.open()
    return made


def test_a_host_finds_a_serial_port(line: SimulatedWires) -> None:
    """Of a class that every operating system has a driver for, without AT commands, which would have programs
    look for a modem there; and it answers in time for hubs between them."""
    host = Host(line)
    assert line.attached
    found = host.find()
    assert found.strings == ["amphw", "amphw circuit", "0123456789abcdef"]
    assert [each[:1] for each in found.interfaces] == [(2,), (10,)] and found.interfaces[0] == (2, 2, 0)
    assert found.endpoints == {0x83: 8, 0x84: PACKET, 0x04: PACKET}
    assert not any(host.counts[what] for what in ("silence", "stall", "damaged", "again"))
    assert 2 <= line.late <= ALLOWED


def test_it_is_not_there_before_the_chip_has_been_configured_for_a_while() -> None:
    """So that a host sees that what was in the chip before has gone."""
    made = SimulatedWires(Echo(FullSpeedLink(48e6, "0123456789abcdef", DETACHED), WIRES), 1.3)
    made.wait(0.01)
    assert not made.attached
    made.wait(0.3)
    assert made.attached
    made.close()


@pytest.mark.parametrize(("clocks", "drift"), [(1.3, 0.0025), (1.3, -0.0025), (2.7, 0.0), (6.1, 0.0025)])
def test_words_there_and_back(clocks: float, drift: float) -> None:
    """With clocks as far apart as the standard allows, in front of a circuit that is faster than the wires,
    and of one that is slower."""
    line = wires(clocks, drift)
    host = Host(line)
    host.find()
    host.open()
    echoed(host, numbers(1000))
    assert line.late <= ALLOWED and not host.counts["silence"]
    line.close()


def test_what_has_no_room_waits_with_the_host(host: Host) -> None:
    """Nobody reads, until nothing more fits in: nothing of it is lost, though it comes to more than there is
    room for in the queue."""
    encoder, decoder, words = Encoder(), Decoder(), numbers(3000)
    out = encoder.start() + encoder.feed(words)
    at = refused = 0
    while refused < 20:
        taken = host.send(DATA, out[at : at + PACKET])
        at, refused = at + PACKET * taken, 0 if taken else refused + 1
    assert BYTES * 512 < at < len(out) and host.counts["nak"] >= 20
    found = decoder.feed(received(host, PACKET) + sent(host, out[at:]))
    while len(found) < len(words):
        found = np.concatenate([found, decoder.feed(received(host, 1))])
    assert np.array_equal(found, words) and not decoder.faulty


def test_damaged_packets_and_lost_confirmations(host: Host) -> None:
    """Both are sent again, and each packet counts once."""
    chance = random.Random(5)
    host.faults.damages_data = lambda: chance.random() < 0.2
    host.faults.loses_ack = lambda: chance.random() < 0.2
    echoed(host, numbers(2000))
    assert host.counts["again"] > 10 and host.counts["silence"] > 10


@pytest.mark.parametrize("packets", [1, 2])
def test_a_reset_of_the_bus_begins_anew(host: Host, packets: int) -> None:
    """Whatever number of packets went before: a host counts from 0 again, and so does the device."""
    for _ in range(packets):
        assert host.send(DATA, b"")
    echoed(host, numbers(20 * packets))
    host.find(address=9)
    host.open()
    echoed(host, numbers(40, 1))
    host.configure()
    host.open()
    echoed(host, numbers(40, 2))


def test_nothing_is_kept_for_a_host_that_has_closed_the_port(host: Host) -> None:
    """And the circuit does not wait for one."""
    host.close()
    encoder, old = Encoder(), numbers(2000, 3)
    out = encoder.start() + encoder.feed(old)
    for at in range(0, len(out), PACKET):
        for _ in range(50):
            if host.send(DATA, out[at : at + PACKET]):
                break
        else:
            raise AssertionError("the circuit waits")
    host.wires.wait(0.2)
    host.open()
    assert all(host.receive(DATA) is None for _ in range(20))
    echoed(host, numbers(100, 4))


class Answers(wiring.Component):
    """A link behind which each word is answered by as many words as it says."""

    def __init__(self) -> None:
        self.link = FullSpeedLink(48e6, "", DETACHED)
        super().__init__(WIRES)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.link = link = self.link
        left = Signal(16)
        m.d.comb += [
            *attached(link, self, WIRES),
            link.o.ready.eq(left == 0),
            link.i.valid.eq(left != 0),
            link.i.payload.eq(left),
        ]
        with m.If(left == 0):
            m.d.sync += left.eq(Mux(link.o.valid, link.o.payload, 0))
        with m.Elif(link.i.ready):
            m.d.sync += left.eq(left - 1)
        return m


def test_an_answer_that_fills_its_packets_is_followed_by_an_empty_one() -> None:
    """A host waits for a packet that is not full before it passes bytes on: whatever the length of an answer,
    the last of its packets is such a one."""
    line = SimulatedWires(Answers(), 1.3)
    line.wait(0.3)
    host = Host(line)
    host.find()
    host.open()
    encoder, decoder = Encoder(), Decoder()
    sent(host, encoder.start())
    sizes = {1: [9], 19: [63], 20: [64, 2], 62: [64, 64, 64, 0], 63: [64, 64, 64, 3]}
    for count, expected in sizes.items():
        sent(host, encoder.feed(np.array([count], np.uint16)))
        parts = [part for _ in range(20) if (part := host.receive(DATA)) is not None]
        assert [len(part) for part in parts] == expected
        assert decoder.feed(b"".join(parts)).tolist() == list(range(count, 0, -1)) and not decoder.faulty
    line.close()


def test_a_cable_that_is_pulled_and_plugged_in_again(line: SimulatedWires, host: Host) -> None:
    echoed(host, numbers(50))
    line.plugged = False
    assert not host.send(DATA, b"lost") and not line.attached
    line.wait(1)
    line.plugged = True
    host.find()
    host.open()
    echoed(host, numbers(50, 1))


def test_a_port_that_is_suspended_and_resumed(line: SimulatedWires, host: Host) -> None:
    """No frame begins for longer than 3 ms. The device keeps its address, and words on their way."""
    line.wait(8)
    echoed(host, numbers(100))


def test_what_a_serial_port_has_not_is_refused(host: Host) -> None:
    """By a vendor's request, one of the class, and a descriptor: hosts ask all kinds, and go on."""
    for kind, request, value in ((0xC0, 1, 0), (0xA1, 0x55, 0), (0x80, 6, 6 << 8)):
        with pytest.raises(Stalled):
            host.request(kind, request, value, 0, 8)
    echoed(host, numbers(30))
