"""The examples of docs/wire.md, decoded and packed again by what sends and receives them."""

from __future__ import annotations

import multiprocessing
import re

import numpy as np
import pytest

from amphw.engine.parts.remote import ALIVE, CALL
from amphw.engine.parts.ring import ALIGN, HEADER, POSITIONS, Ring, semaphore
from amphw.rtl.isa import datagrams
from amphw.rtl.isa.datagrams import Datagram, DatagramKind
from amphw.rtl.isa.wire import FIELDS, HEADER_WORDS, Fault, Kind, c_header, pack, unpack
from amphw.rtl.isa.word_frames import ALARM, BLOCK, QUEUE, SEQUENCE, START, Decoder, Encoder, signal
from tests.docs.test_commands import ROOT

PAGE = (ROOT / "docs" / "wire.md").read_text(encoding="utf-8")


def examples(name: str) -> list[list[str]]:
    """The lines of each example in the block of that name."""
    [block] = re.findall(rf"^<!-- recorded: {name} -->\n+```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return [example.splitlines() for example in block.strip().split("\n\n")]


@pytest.mark.parametrize("lines", examples("words"), ids=lambda lines: lines[0].split()[0])
def test_a_message_is_these_words_and_bytes(lines: list[str]) -> None:
    kind, *fields = lines[0].split()
    given = {name: int(value) for name, _, value in (f.partition("=") for f in fields)}
    words = [int(word, 16) for word in lines[1].split()[1:]]
    assert pack(Kind[kind], **given) == words[:HEADER_WORDS]
    assert unpack(words) == {**dict.fromkeys((n for n, _ in FIELDS), 0), "kind": Kind[kind], **given}
    assert len(words) == HEADER_WORDS + given.get("words", 0)
    [first] = re.findall(r"^line (\d+):", lines[2])
    line = bytes.fromhex(lines[2].partition(":")[2])
    encoder, decoder = Encoder(), Decoder()
    decoder.feed(encoder.start())
    decoder.feed(encoder.feed(np.zeros(int(first), np.uint16)))
    assert encoder.feed(np.array(words, np.uint16)) == line
    assert decoder.feed(line).tolist() == words and not decoder.faulty


def test_datagrams_are_these_bytes() -> None:
    for about, line in examples("datagrams"):
        kind, *fields = about.split(" ", 4 if " words=" in about else 99)
        found = dict(each.split("=") for each in fields)
        words = np.array([int(word, 16) for word in found.pop("words", "").split()], np.uint16)
        said = Datagram(DatagramKind[kind], words=words, **{name: int(n) for name, n in found.items()})
        data = bytes.fromhex(line)
        assert said.encode() == data
        read = Datagram.decode(data)
        assert read is not None and {**vars(read), "words": read.words.tolist()} == {
            **vars(said),
            "words": words.tolist(),
        }


def test_a_ring_holds_these_bytes() -> None:
    """Written by one end, and read by another from the page's bytes."""
    context = multiprocessing.get_context("spawn")
    written, read = Ring(semaphore(context), 4096), Ring(semaphore(context), 4096)
    whole = b""
    kinds = []
    for number, (about, *rows) in enumerate(examples("ring")):
        found = re.fullmatch(r"kind=(\d+) number=(\d+) payload=([0-9a-f ]+)", about)
        assert found is not None and int(found[2]) == number
        kinds.append(int(found[1]))
        payload = bytes.fromhex(found[3])
        packet = b"".join(bytes.fromhex(row.split("  ", 2)[2]) for row in rows)
        assert [int(row.split()[0], 16) for row in rows] == list(range(0, len(packet), 16))
        written.send(kinds[-1], payload, 1.0)
        whole += packet
        at = POSITIONS.size
        assert bytes(written._buf[at : at + len(whole)]) == whole
        assert len(packet) == -(-(HEADER.size + len(payload)) // ALIGN) * ALIGN
        read._buf[at : at + len(whole)] = whole
        POSITIONS.pack_into(read._buf, 0, len(whole), read._positions[1])
        read.filled.release()
        assert read.receive(1.0) == (kinds[-1], payload)
    assert kinds == [ALIVE, CALL]
    written.close()
    read.close()


def test_the_tables_of_the_page() -> None:
    """Kinds, sizes and the order of fields as they are defined."""
    for number, name in re.findall(r"(\d+) ([A-Z]{4,})\b", PAGE):
        if name in Kind.__members__:
            assert Kind[name] == int(number)
    assert all(f" {kind.value} {kind.name}" in PAGE for kind in Kind)
    assert f"`{signal(START).hex()}` | START" in PAGE and f"`{signal(ALARM).hex()}` | ALARM" in PAGE
    assert f"words modulo {SEQUENCE}," in PAGE and f"a check behind {BLOCK}" in PAGE
    assert f"queue holds {QUEUE} words" in PAGE and len(list(Fault)) == 5
    order = [name for name, _ in FIELDS]
    assert order == [
        "kind",
        "output",
        "slot",
        "generation",
        "unit",
        "firing",
        "place",
        "payload",
        "words",
        "copy",
        "state",
    ]
    for kind in DatagramKind:
        assert f"| {kind.value} {kind.name} |" in PAGE
    assert f"mark `0x{datagrams.MARK:X}`" in PAGE and f"the version, {datagrams.VERSION}" in PAGE
    assert f"port, {datagrams.PORT} unless" in PAGE and f"room for {datagrams.RING:,} words" in PAGE
    assert f"these words, {datagrams.LONGEST} at most" in PAGE and datagrams.HEADER == 10
    assert "AMPHW_HEADER_WORDS 9" in c_header() and "header of nine 16-bit words" in PAGE
