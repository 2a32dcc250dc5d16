"""A link over Ethernet between a network card that others wrote (cocotbext-eth) and a circuit's streams.

Three clocks: the circuit's, and two of 125 MHz that are not quite the same. The host's end is the driver's.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.utils import get_sim_time
from cocotbext.eth import GmiiFrame, GmiiSink, GmiiSource

from amphw.rtl.driver import datagram_end
from amphw.rtl.driver.datagram_end import DatagramEnd
from amphw.rtl.isa.datagrams import FIRST, HEADER, LONGEST, PORT, RING, About, Datagram, DatagramKind, after
from amphw.rtl.isa.word_frames import checksum
from sim.bench import PACES, Bench, always, counted, generator, never, settings
from sim.frames import PREAMBLE, End, datagram, opened, question, with_check
from sim.streams import Receiver, Sender

BOARD = End(settings()["mac"].to_bytes(6, "big"), settings()["ip"].to_bytes(4, "big"), PORT)
NANOSECOND = 1e-9
LATE = 300_000
"""Cycles after which a session begins late."""
NEARLY = 16
"""Cycles by which two clocks may make it later or earlier that a frame is heard."""

datagram_end.CALL = 0.002  # a START that is lost is repeated sooner: simulated time is dear


def somebody() -> End:
    """A host that may be anybody, of an address that is its own alone."""
    mac, ip, port = random.randbytes(6), random.randbytes(4), random.randrange(1, 1 << 16)
    return End(bytes([mac[0] & 0xFE]) + mac[1:], ip, port)


def holder(host: End) -> str:
    """As a circuit says whose session it is."""
    return f"{'.'.join(map(str, host.ip))}:{host.port}"


class Cards:
    """The network's side. host, other: two computers there. came: the payloads of datagrams with their
    receivers; frames: all others."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.host, self.other = somebody(), somebody()
        self.source = GmiiSource(dut.rx_data, dut.rx_error, dut.rx_valid, dut.rx_clk)
        self.sink = GmiiSink(dut.tx_data, None, dut.tx_enable, dut.tx_clk)
        for each in (self.source, self.sink):
            each.log.setLevel("WARNING")
        self.came: list[tuple[bytes, End]] = []
        self.frames: list[bytes] = []

    def put(self, frame: bytes, **about: Any) -> None:
        self.source.send_nowait(GmiiFrame(with_check(frame), **about))

    def drive(self) -> None:
        """Nothing is driven by the circuit's clock."""

    def sample(self) -> None:
        while not self.sink.empty():
            found = self.sink.recv_nowait()
            # This sink takes the first byte as the sign that a frame begins, and keeps those behind it.
            assert found.check_fcs() and bytes(found.get_preamble()) == PREAMBLE[1:]
            assert found.error is None or not any(found.error)
            frame = bytes(found.get_payload())
            if frame[12:14] == b"\x08\x00":
                payload, source, to = opened(frame)
                assert source == BOARD
                self.came.append((payload, to))
            else:
                self.frames.append(frame)

    def restart(self) -> None:
        """A reset of the circuit is none of the network's."""


class Host:
    """The driver's end of a session at one of the cards, behind a network that loses, doubles, delays and
    damages datagrams, each with the probability of that name."""

    def __init__(self, cards: Cards, who: End | None = None, session: int = 0, **chances: float) -> None:
        self.cards, self.who, self.chances = cards, who or cards.host, chances
        self.end = DatagramEnd(session or random.randrange(1, 1 << 32), now())
        self.words: list[int] = []
        self._late: tuple[list[bytes], list[bytes]] = [], []  # to the host, to the circuit

    def _chance(self, what: str) -> bool:
        return random.random() < self.chances.get(what, 0.0)

    def _through(self, data: bytes, to_circuit: bool) -> list[bytes]:
        """What becomes of a datagram in the network, and of those that wait behind it."""
        late, came = self._late[to_circuit], [data]
        for what in ("lose", "damage", "delay", "double"):
            if not self._chance(what):
                continue
            counted(what, 1)
            if what == "lose":
                return []
            if what == "delay":
                late.append(came[0])
                return []
            if what == "double":
                came = [*came, *came]
            else:
                at = random.randrange(len(data))
                came = [data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]]
        came += late
        late.clear()
        return came

    def drive(self) -> None:
        """Nothing is driven by the circuit's clock."""

    def sample(self) -> None:
        for payload, to in [each for each in self.cards.came if each[1] == self.who]:
            self.cards.came.remove((payload, to))
            for each in self._through(payload, False):
                self.end.hear(each, now())
        for data in self.end.due(now()):
            for each in self._through(data, True):
                self.cards.put(datagram(each, self.who, BOARD))
        self.words += self.end.take().tolist()

    def restart(self) -> None:
        """A reset of the circuit is none of the host's."""


def now() -> float:
    """In seconds, of a clock that is fast: what takes milliseconds in a network takes fewer here."""
    return 50 * get_sim_time("ns") * NANOSECOND


def words(count: int) -> list[int]:
    return generator().integers(0, 1 << 16, count).tolist()


async def made(dut: Any, period: float = 12.0, sender: Any = always, receiver: Any = always) -> Any:
    """A bench without a host -> the bench, the circuit's source and sink of words, and the cards."""
    Clock(dut.rx_clk, 8_000, unit="ps").start()
    Clock(dut.tx_clk, 8_002, unit="ps").start()
    source, sink, cards = Sender(dut, "i", sender), Receiver(dut, "o", receiver), Cards(dut)
    bench = Bench(dut, source, sink, cards)
    Clock(dut.clk, round(1000 * period), unit="ps").start()
    await bench.reset()
    return bench, source, sink, cards


def joined(bench: Bench, host: Host) -> Host:
    bench.agents = (*bench.agents, host)
    return host


async def begun(bench: Bench, host: Host) -> None:
    await bench.until(lambda: host.end.open, 100_000, "STARTED")


@cocotb.test()
async def who_has_the_address(dut: Any) -> None:
    """It is said to who has asked, once, and to nobody who has asked for another one."""
    bench, _, _, cards = await made(dut)
    cards.put(question(cards.other, bytes([192, 168, 1, 51])))
    cards.put(question(cards.host, BOARD.ip))
    await bench.until(lambda: len(cards.frames) == 1, 3_000, "an answer")
    [frame] = cards.frames
    assert frame[:14] == cards.host.mac + BOARD.mac + b"\x08\x06"
    assert frame[14:22] == bytes([0, 1, 8, 0, 6, 4, 0, 2])
    assert frame[22:42] == BOARD.mac + BOARD.ip + cards.host.mac + cards.host.ip
    assert frame[42:] == bytes(18)
    await bench.step(500)
    assert len(cards.frames) == 1


ANNOUNCED = (1, 2, 3, *(1 << bit for bit in range(2, 16)), *((1 << bit) - 2 for bit in range(3, 17)))
"""Words that a datagram says to have and has not; the check is counted as some of them, or none is left."""


def announced(data: bytes, words: int) -> bytes:
    """A datagram without words that says it has so many, with the right check of what there is."""
    header = data[: 2 * HEADER - 2] + words.to_bytes(2, "little")
    return header + checksum(np.frombuffer(header, "<u2")).to_bytes(4, "little")


@cocotb.test()
async def what_is_not_for_the_circuit_is_ignored(dut: Any) -> None:
    """Then it hears what is."""
    bench, _, _, cards = await made(dut)
    start = Datagram(DatagramKind.START, 7).encode()
    good = datagram(start, cards.host, BOARD)
    elsewhere = End(BOARD.mac, bytes([192, 168, 1, 51]), PORT)
    for frame in (
        datagram(start, cards.host, End(bytes.fromhex("024d00000033"), BOARD.ip, PORT)),
        datagram(start, cards.host, elsewhere),
        datagram(start, cards.host, End(BOARD.mac, BOARD.ip, PORT + 1)),
        datagram(start, cards.host, BOARD, protocol=6),
        datagram(start, cards.host, BOARD, version=0x46),
        datagram(start, cards.host, BOARD, fragment=0x2000),
        datagram(start, cards.host, BOARD, fragment=0x0001),
        datagram(start, cards.host, BOARD, spoilt=0x0100),
        good[:12] + b"\x86\xdd" + good[14:],
        good + b"\0",  # of an odd number of bytes
        datagram(start[:-2], cards.host, BOARD),
        datagram(start[:-1] + bytes([start[-1] ^ 1]), cards.host, BOARD),
        datagram(b"\0" + start[1:], cards.host, BOARD),  # no mark
        datagram(b"", cards.host, BOARD),
        question(cards.host, BOARD.ip)[:20] + b"\0\2" + question(cards.host, BOARD.ip)[22:],  # an answer
        good[:30],
        *(datagram(announced(start, words), cards.host, BOARD) for words in ANNOUNCED),
    ):
        cards.put(frame)
    wire = with_check(good)
    cards.source.send_nowait(GmiiFrame(wire, error=[0] * 30 + [1] + [0] * (len(wire) - 31)))
    cards.source.send_nowait(GmiiFrame(wire[:-1] + bytes([wire[-1] ^ 0x80])))
    cards.source.send_nowait(GmiiFrame(PREAMBLE[:-1] + b"\x57" + wire[8:]))
    cards.source.send_nowait(GmiiFrame(PREAMBLE + b"\1"))
    await bench.until(cards.source.idle, 50_000, "the end of the frames")
    await bench.step(500)
    assert not cards.came and not cards.frames
    cards.put(good)
    await bench.until(lambda: len(cards.came) == 1, 3_000, "an answer")
    said = Datagram.decode(cards.came[0][0])
    assert said is not None and (said.kind, said.session, said.room) == (DatagramKind.STARTED, 7, RING)
    about = About.unpack(said.words)
    assert (about.mac, about.identity) == (settings()["mac"], settings()["identity"])
    assert about.holder == holder(cards.host)


async def exchanged(
    bench: Bench, source: Sender, sink: Receiver, host: Host, count: int, waiting: Sequence[int] = ()
) -> None:
    """So many words each way, all of them, once and in order, behind those that wait for the circuit."""
    outward, inward, before = words(count), words(count), len(sink.received)
    heard = len(host.words)
    source.send(outward)
    host.end.write(np.array(inward, np.uint16))
    await bench.until(
        lambda: len(sink.received) >= before + len(waiting) + count and len(host.words) >= heard + count,
        600_000,
        "the last word",
    )
    await bench.until(lambda: not host.end.waiting, 200_000, "the last word's confirmation")
    await bench.step(300)
    assert sink.received[before:] == [*waiting, *inward] and host.words[heard:] == outward


@cocotb.test()
@cocotb.parametrize(pace=list(PACES))
async def both_ways_at_once(dut: Any, pace: str) -> None:
    bench, source, sink, cards = await made(dut, 12.0, PACES[pace](), PACES[pace]())
    host = joined(bench, Host(cards))
    await begun(bench, host)
    await exchanged(bench, source, sink, host, 1500)


@cocotb.test()
@cocotb.parametrize(period=[7.9, 40.0])
async def other_clocks(dut: Any, period: float) -> None:
    """The PHY's is faster than the circuit's, or as good as the same."""
    bench, source, sink, cards = await made(dut, period)
    host = joined(bench, Host(cards))
    await begun(bench, host)
    await exchanged(bench, source, sink, host, 3000)


@cocotb.test()
@cocotb.parametrize(what=["lose", "double", "delay", "damage", "all"], share=[0.1, 0.3])
async def a_bad_network(dut: Any, what: str, share: float) -> None:
    """Nothing is lost, doubled or exchanged; what has to be sent again is."""
    bench, source, sink, cards = await made(dut, 12.0, PACES["half"](), PACES["bursts"]())
    kinds = ["lose", "double", "delay", "damage"] if what == "all" else [what]
    host = joined(bench, Host(cards, **dict.fromkeys(kinds, share / len(kinds))))
    await begun(bench, host)
    for _ in range(5):
        await exchanged(bench, source, sink, host, 600)


@cocotb.test()
async def a_flood_of_other_frames(dut: Any) -> None:
    """Of a network with others in it, faster than a slow circuit takes them: what is lost is repaired."""
    bench, source, sink, cards = await made(dut, 40.0)
    host = joined(bench, Host(cards))
    await begun(bench, host)
    elsewhere = End(bytes.fromhex("024d00000033"), bytes([192, 168, 1, 51]), PORT)
    for _ in range(40):
        cards.put(datagram(bytes(1400), cards.other, elsewhere))
    await exchanged(bench, source, sink, host, 1000)


@cocotb.test()
async def a_circuit_that_takes_nothing(dut: Any) -> None:
    """No more is sent to it than it has room for, and it says so once there is some."""
    bench, source, sink, cards = await made(dut, 12.0, receiver=never)
    host = joined(bench, Host(cards))
    await begun(bench, host)
    sent = words(2 * RING)
    host.end.write(np.array(sent, np.uint16))
    await bench.step(20_000)
    assert host.end.waiting == 2 * RING - RING - 1  # and the one on offer
    again = host.end.again
    await bench.step(20_000)
    assert host.end.again == again
    sink.pace = always
    await bench.until(lambda: len(sink.received) == len(sent), 60_000, "the last word")
    assert sink.received == sent


@cocotb.test()
async def a_host_that_sends_more_than_there_is_room_for(dut: Any) -> None:
    """What is too much is dropped whole, and nothing that waits is overwritten."""
    bench, source, sink, cards = await made(dut, 12.0, receiver=never)
    host = joined(bench, Host(cards))
    await begun(bench, host)
    sent = words(RING + 1 - LONGEST // 2)  # and one of them on offer
    host.end.write(np.array(sent, np.uint16))
    await bench.until(lambda: not host.end.waiting, 60_000, "the last word's confirmation")
    for count in (LONGEST, LONGEST // 2 + 1):
        much = np.array(words(count), np.uint16)
        number = after(FIRST, len(sent))
        data = Datagram(DatagramKind.DATA, host.end.session, number, FIRST, words=much).encode()
        cards.put(datagram(data, cards.host, BOARD))
        await bench.step(3_000)
    sink.pace = always
    await exchanged(bench, source, sink, host, 300, sent)


@cocotb.test()
async def a_host_that_does_not_listen(dut: Any) -> None:
    """The circuit waits with what finds no room, and gives it once somebody does listen."""
    bench, source, sink, cards = await made(dut)
    host = Host(cards)
    await begun(bench, joined(bench, host))
    bench.agents = bench.agents[:-1]
    sent = words(RING + 50)
    source.send(sent)
    await bench.step(30_000)
    assert len(source.accepted) == RING
    cards.came.clear()
    joined(bench, host)
    await bench.until(lambda: len(host.words) == len(sent), 100_000, "the last word")
    assert host.words == sent


@cocotb.test()
async def another_host_is_refused(dut: Any) -> None:
    """Until the first has ended its session, or has been silent; one that has no session is told so."""
    bench, source, sink, cards = await made(dut)
    first, second = joined(bench, Host(cards)), Host(cards, cards.other)
    await begun(bench, first)
    joined(bench, second)
    await bench.until(lambda: second.end.busy is not None, 20_000, "BUSY")
    assert second.end.busy is not None and second.end.busy.holder == holder(cards.host)
    await exchanged(bench, source, sink, first, 300)
    assert not second.end.open
    cards.put(datagram(first.end.end(), cards.host, BOARD))
    bench.agents = tuple(agent for agent in bench.agents if agent is not first)
    await begun(bench, second)
    await exchanged(bench, source, sink, second, 300)
    cards.put(datagram(Datagram(DatagramKind.DATA, first.end.session).encode(), cards.host, BOARD))
    joined(bench, first)
    await bench.until(lambda: first.end.stranger is not None, 20_000, "STRANGER")
    assert first.end.stranger is not None and first.end.stranger.holder == holder(cards.other)
    await exchanged(bench, source, sink, second, 300)


@cocotb.test()
async def a_host_that_has_died(dut: Any) -> None:
    """Another one gets the circuit once it has been silent; words of the old session are gone."""
    bench, source, sink, cards = await made(dut, 12.0, receiver=never)
    first = joined(bench, Host(cards))
    await begun(bench, first)
    first.end.write(np.array(words(900), np.uint16))
    source.send(words(900))
    await bench.step(3_000)
    bench.agents = bench.agents[:-1]
    second = joined(bench, Host(cards, cards.other))
    await bench.until(lambda: second.end.open, settings()["hold"] + 20_000, "STARTED")
    assert second.end.busy is not None
    sink.pace = always
    await bench.step(5_000)
    assert len(sink.received) <= 1  # the one that was on offer
    await bench.until(lambda: not source.waiting, 20_000, "words of before")
    await bench.step(20_000)
    await exchanged(bench, source, sink, second, 300)


@cocotb.test()
async def the_same_host_begins_anew(dut: Any) -> None:
    """At once, with the words of both directions counted from the beginning."""
    bench, source, sink, cards = await made(dut)
    for number in range(3):
        host = joined(bench, Host(cards, session=number + 5))
        await begun(bench, host)
        await exchanged(bench, source, sink, host, 200 + number)
        # A START that comes twice begins nothing.
        cards.put(datagram(Datagram(DatagramKind.START, number + 5).encode(), cards.host, BOARD))
        await exchanged(bench, source, sink, host, 200)
        assert len(host.end.about) == 1
        bench.agents = bench.agents[:-1]


@cocotb.test()
async def many_hosts_one_after_another(dut: Any) -> None:
    """Each is answered at its address, in frames whose checks are right."""
    bench, _, _, cards = await made(dut)
    for session in range(1, 31):
        host = somebody()
        cards.put(datagram(Datagram(DatagramKind.START, session).encode(), host, BOARD))
        await bench.until(lambda: len(cards.came) == 1, 3_000, "an answer")
        [(payload, to)] = cards.came
        said = Datagram.decode(payload)
        assert to == host and said is not None and said.kind == DatagramKind.STARTED
        assert About.unpack(said.words).holder == holder(host)
        cards.came.clear()
        cards.put(datagram(Datagram(DatagramKind.END, session).encode(), host, BOARD))


@cocotb.test()
async def how_long_a_host_may_be_silent(dut: Any) -> None:
    """Another one gets the circuit no sooner and no later than it should."""
    bench, _, _, cards = await made(dut)

    async def answers(host: End, then: int) -> tuple[DatagramKind, DatagramKind]:
        """What is said to a START of the host, and to one of another so many cycles later."""
        said = []
        for who, cycles in ((host, then), (cards.other, 3_000)):
            cards.came.clear()
            cards.put(datagram(Datagram(DatagramKind.START, 9).encode(), who, BOARD))
            await bench.step(cycles)
            [(payload, _)] = cards.came
            found = Datagram.decode(payload)
            assert found is not None
            said.append(found.kind)
        return said[0], said[1]

    hold = settings()["hold"]
    assert await answers(cards.host, hold - NEARLY) == (DatagramKind.STARTED, DatagramKind.BUSY)
    assert await answers(cards.host, hold + NEARLY) == (DatagramKind.STARTED, DatagramKind.STARTED)


@cocotb.test()
async def a_session_that_begins_late(dut: Any) -> None:
    """What it says of its beginning, the cycle, is right."""
    bench, _, _, cards = await made(dut, 12.0)
    await bench.step(LATE)
    host = joined(bench, Host(cards))
    await begun(bench, host)
    [about] = host.end.about
    assert LATE <= about.began < LATE + 3_000


@cocotb.test()
async def words_that_wait_are_not_sent_one_by_one(dut: Any) -> None:
    """A message goes as one datagram, and many as full ones."""
    bench, source, sink, cards = await made(dut)
    host = joined(bench, Host(cards))
    await begun(bench, host)
    source.send(words(9))
    await bench.until(lambda: len(host.words) == 9, 5_000, "a message")
    bench.agents = bench.agents[:-1]
    await bench.step(2_000)
    cards.came.clear()
    source.send(words(2 * LONGEST + 9))
    await bench.step(2_000 + 3 * 2 * LONGEST)
    said = [Datagram.decode(payload) for payload, _ in cards.came]
    sizes = [len(each.words) for each in said if each is not None]
    assert len(sizes) <= 8 and sum(sizes[:4]) >= 2 * LONGEST, sizes
