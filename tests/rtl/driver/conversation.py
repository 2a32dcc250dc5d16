"""What a host and a board say to each other while one instance trains, byte by byte, from the first word on.

`recorded/conversation.txt` keeps it: a line for each piece, `>` to the board and `<` from it. After a change
of the protocol that is meant, write it anew: python -m tests.rtl.driver.conversation
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from amphw.ir.device import DeviceOptions, Mode, Report
from amphw.ir.update import NodeParameters
from amphw.rtl.build.circuit import FILE, Circuit
from amphw.rtl.driver.board import BoardDevice
from amphw.rtl.driver.serial_line import Line
from amphw.rtl.driver.serial_words import SerialWords
from tests.rtl.driver.small_board import RULE, plan, problem

RECORD = Path(__file__).parent / "recorded" / "conversation.txt"


class OnLine(BoardDevice):
    """A board at any line. The port exists everywhere and is not opened."""

    def __init__(self, line: Line, folder: Path):
        (folder / FILE).write_text(Circuit.of(plan()).text())
        super().__init__(f"/dev/null,circuit={folder},silence=3600")
        self.line = line

    def make_line(self) -> SerialWords:
        return SerialWords(self.line, self.baud)


def talk(line: Line, folder: Path) -> tuple[list[Report], dict[str, NodeParameters]]:
    """One instance trains, with an update of the recurrent cell in it, and the parameters are fetched."""
    graph, instances = problem()
    device = OnLine(line, folder)
    device.load(graph, {"*": RULE}, DeviceOptions(1, 0, "self", 3))
    device.submit(0, 1, max(instances, key=lambda i: len(i.tables["tokens"])), Mode.TRAIN)
    reports = device.drain()
    return reports, device.parameters()


def read() -> list[tuple[str, bytes]]:
    lines = RECORD.read_text(encoding="ascii").splitlines()
    return [(line[0], bytes.fromhex(line[2:])) for line in lines if line[0] in "<>"]


def write(said: list[tuple[str, bytes]]) -> None:
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text("".join(f"{who} {data.hex()}\n" for who, data in said), encoding="ascii")


class RecordedLine:
    """Plays the board: what the host says must be what it said then."""

    name = "recorded"

    def __init__(self) -> None:
        self.left = read()

    def write(self, data: bytes) -> None:
        who, then = self.left.pop(0)
        assert (who, data.hex()) == (">", then.hex())

    def read(self, seconds: float) -> bytes:
        if not self.left or self.left[0][0] == ">":
            return b""
        return self.left.pop(0)[1]

    def close(self) -> None:
        """There is nothing to close."""


def words_of(data: list[bytes]) -> np.ndarray:
    from amphw.rtl.isa.word_frames import Decoder

    decoder = Decoder()
    found = decoder.feed(b"".join(data))
    assert not decoder.faulty
    return found


def with_another_bit(data: bytes, number: int) -> bytes:
    """The line with the lowest bit of word `number` turned over, and its block's check to match."""
    from amphw.rtl.isa.word_frames import BYTES, Encoder

    frames = [data[k : k + BYTES] for k in range(0, len(data), BYTES)]
    words = [k for k, frame in enumerate(frames) if frame[0] >> 3 & 15 != 15]
    checks = [k for k, frame in enumerate(frames) if frame[0] >> 3 & 15 == 15]
    at = words[number]
    end = next(k for k in checks if k > at)
    begin = max((k for k in checks if k < at), default=-1) + 1
    block = words_of([b"".join(frames[begin:end])])
    block[at - begin] ^= 1
    encoded = Encoder().feed(block)
    frames[at] = _numbered(encoded[BYTES * (at - begin) :][:BYTES], frames[at])
    frames[end : end + 2] = [encoded[-2 * BYTES : -BYTES], encoded[-BYTES:]]
    return b"".join(frames)


def _numbered(frame: bytes, like: bytes) -> bytes:
    """The frame with another's sequence number, and the parity that belongs to it."""
    first = frame[0] & 0x83 | like[0] & 0x78
    ones = first.bit_count() + frame[1].bit_count() + frame[2].bit_count()
    return bytes([first | (ones % 2 == 0) << 2, frame[1], frame[2]])


if __name__ == "__main__":
    import tempfile

    from sim.board import DirectLine

    recording = DirectLine(plan())
    with tempfile.TemporaryDirectory() as folder:
        talk(recording, Path(folder))
    write(recording.said)
    print(f"{len(recording.said)} pieces, {sum(len(d) for _, d in recording.said):,} bytes")
