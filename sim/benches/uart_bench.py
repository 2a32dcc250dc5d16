"""A link of words over a serial line, whose other end is played bit by bit."""

from __future__ import annotations

import random
from typing import Any

import cocotb
import numpy as np

from amphw.rtl.isa.word_frames import ALARM, BYTES, START, Decoder, Encoder, signal
from sim.bench import PACES, Bench, always, never, settings
from sim.streams import Receiver, Sender


class Line:
    """The other end of the line: sends bytes on `rx`, and reads those on `tx`.

    received: whole bytes. faults: cycles in which the component reported a fault.
    """

    def __init__(self, dut: Any) -> None:
        self.dut, self.divisor = dut, settings()["divisor"]
        self.restart()

    def restart(self) -> None:
        self.levels: list[int] = []
        self.received = bytearray()
        self.faults = 0
        self._tx: list[int] = []
        self.dut.rx.value = 1

    def send(self, data: bytes, stop: int = 1) -> None:
        """Bytes, one after the other; with `stop` 0 they lack their stop bits, and the line rests behind."""
        for byte in data:
            bits = [0, *(byte >> k & 1 for k in range(8)), stop]
            self.levels += [bit for bit in bits for _ in range(self.divisor)]
            self.levels += [1] * (0 if stop else 2 * self.divisor)

    def drive(self) -> None:
        self.dut.rx.value = self.levels.pop(0) if self.levels else 1

    def sample(self) -> None:
        self.faults += int(self.dut.faults.value)
        level = int(self.dut.tx.value)
        if self._tx or level == 0:
            self._tx.append(level)
        if len(self._tx) == 10 * self.divisor:
            bits = self._tx[self.divisor // 2 :: self.divisor]
            assert bits[0] == 0 and bits[9] == 1, "a byte without start or stop bit"
            self.received.append(sum(bit << k for k, bit in enumerate(bits[1:9])))
            self._tx.clear()


def words(count: int) -> np.ndarray:
    return np.array([random.randrange(1 << 16) for _ in range(count)], np.uint16)


def encode(sent: np.ndarray) -> bytes:
    return Encoder().feed(sent)


def heard(line: Line) -> tuple[list[int], Decoder]:
    """The words on the line, and how the host found them."""
    host = Decoder()
    return host.feed(bytes(line.received)).tolist(), host


def made(dut: Any, sender: Any = always, receiver: Any = always) -> tuple[Bench, Sender, Receiver, Line]:
    source, sink, line = Sender(dut, "i", sender), Receiver(dut, "o", receiver), Line(dut)
    return Bench(dut, source, sink, line), source, sink, line


@cocotb.test()
@cocotb.parametrize(pace=list(PACES))
async def both_ways_at_once(dut: Any, pace: str) -> None:
    bench, source, sink, line = made(dut, PACES[pace](), PACES[pace]())
    await bench.start()
    outward, inward = words(20), words(20)
    source.send(outward.tolist())
    line.send(encode(inward))
    whole = BYTES * (20 + 2)  # and a check at least
    await bench.until(
        lambda: len(sink.received) == 20 and len(line.received) >= whole, 20_000, "the last word"
    )
    await bench.step(120 * settings()["divisor"])
    found, host = heard(line)
    assert found == outward.tolist() and not host.faulty
    assert sink.received == inward.tolist() and line.faults == 0


@cocotb.test()
async def a_full_queue_is_a_fault(dut: Any) -> None:
    """Nothing can stop the line: what does not fit is lost, and this is reported."""
    bench, _, sink, line = made(dut, receiver=never)
    await bench.start()
    sent = words(settings()["depth"] + 10)
    line.send(encode(sent))
    await bench.until(lambda: not line.levels, 100_000, "the end of the line")
    assert line.faults > 0
    sink.pace = always
    await bench.step(settings()["depth"] + 10)
    assert sink.received[: settings()["depth"]] == sent[: settings()["depth"]].tolist()
    assert heard(line)[1].alarm  # the other end is told


@cocotb.test()
async def a_line_that_is_bad_is_told_of_once(dut: Any) -> None:
    """Until the other end starts anew, after which everything counts again."""
    bench, source, sink, line = made(dut)
    await bench.start()
    spoilt = bytearray(encode(words(12)))
    for at in (4, 13, 22):
        spoilt[at] ^= 1
    for _ in range(2):
        line.received.clear()
        line.send(Encoder().start() + bytes(spoilt))
        await bench.until(lambda: not line.levels, 20_000, "the end of the line")
        await bench.step(80 * settings()["divisor"])
        assert bytes(line.received) == signal(ALARM)
    line.received.clear()
    line.faults, outward = 0, words(3)
    line.send(Encoder().start() + encode(words(5)))
    source.send(outward.tolist())
    await bench.until(lambda: not line.levels, 20_000, "the end of the line")
    await bench.step(80 * settings()["divisor"])
    found, host = heard(line)
    assert found == outward.tolist() and not host.faulty and line.faults == 0


@cocotb.test()
async def any_bytes(dut: Any) -> None:
    """Of frames that are damaged, cut and mixed with others, the words that the driver's decoder finds."""
    bench, _, sink, line = made(dut)
    await bench.start()
    host, expected = Decoder(), list[int]()
    for _ in range(settings()["spoilt"]):
        data = bytearray(Encoder().start() + encode(words(12)))
        changes = random.randrange(5)
        for _ in range(changes):
            at = random.randrange(len(data))
            match random.randrange(4):
                case 0:
                    data[at] ^= 1 << random.randrange(8)
                case 1:
                    del data[at : at + random.randrange(1, 4)]
                case 2:
                    data[at:at] = random.randbytes(random.randrange(1, 4))
                case _:
                    data[at : at + BYTES] = signal(random.choice((ALARM, START ^ 1 << random.randrange(16))))
        line.faults = 0
        host.forgive()
        line.send(bytes(data))
        expected += host.feed(bytes(data)).tolist()
        await bench.until(lambda: not line.levels, 20_000, "the end of the line")
        await bench.step(20 * settings()["divisor"])
        assert sink.received == expected
        # What comes before the sign to start anew the driver forgets.
        if changes == 0 or host.damaged or host.lost or host.failed:
            assert (line.faults > 0) == (changes > 0), f"{line.faults} faults, of {host}"


@cocotb.test()
async def a_missing_stop_bit_is_a_fault(dut: Any) -> None:
    bench, _, sink, line = made(dut)
    await bench.start()
    sent = words(3)
    frames = encode(sent)
    line.send(frames[:4])
    line.send(frames[4:5], stop=0)
    line.send(frames[5:])
    await bench.until(lambda: not line.levels, 10_000, "the end of the line")
    await bench.step(50)
    assert sink.received == [sent[0], sent[2]]
    assert line.faults > 0


@cocotb.test()
async def a_spike_is_no_byte(dut: Any) -> None:
    bench, _, sink, line = made(dut)
    await bench.start()
    line.levels += [0] + [1] * 40
    sent = words(2)
    line.send(encode(sent))
    await bench.until(lambda: len(sink.received) == 2, 10_000, "two words")
    assert sink.received == sent.tolist() and line.faults == 0


@cocotb.test()
async def reset(dut: Any) -> None:
    """A reset in the middle of a byte, in both directions."""
    bench, source, sink, line = made(dut)
    await bench.start()
    source.send(words(5).tolist())
    line.send(encode(words(5)))
    await bench.step(17 * settings()["divisor"])
    await bench.reset()
    await bench.step(2 * settings()["divisor"])
    outward, inward = words(4), words(4)
    source.send(outward.tolist())
    line.send(encode(inward))
    whole = BYTES * (4 + 2)
    await bench.until(
        lambda: len(sink.received) == 4 and len(line.received) >= whole, 10_000, "the last word"
    )
    await bench.step(80 * settings()["divisor"])
    assert sink.received == inward.tolist() and line.faults == 0
    assert heard(line)[0] == outward.tolist()
