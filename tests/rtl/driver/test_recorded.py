"""A recorded conversation, with either end played by what was recorded."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from amphw.rtl.build.circuit import CircuitError
from amphw.rtl.driver.messages import Messages
from amphw.rtl.fixed.device import FixedDevice
from amphw.rtl.isa.commands import Bank
from amphw.rtl.isa.wire import HEADER_WORDS, Kind, unpack
from amphw.rtl.isa.word_frames import Decoder, Encoder
from tests.conformance.harness import run
from tests.rtl.driver.conversation import RecordedLine, read, talk, with_another_bit, words_of
from tests.rtl.driver.small_board import FORMATS, RULE, plan, problem


def test_the_host_says_what_it_said(tmp_path: Path) -> None:
    """And what it makes of the board's bytes is what the model of its arithmetic computes."""
    line = RecordedLine()
    [report], parameters = talk(line, tmp_path)
    assert not line.left
    assert parameters["cell"].version == 1
    graph, instances = problem()
    [instance] = [i for i in instances if i.number == report.number]
    expected = run(FixedDevice(FORMATS), graph, [instance], keys=1, updates="self", rule=RULE)
    assert {report.number: sum(s["loss"] for s in report.sums.values())} == expected.losses
    for name, found in parameters.items():
        for key, value in found.values.items():
            assert np.array_equal(value, expected.parameters[f"{name}.{key}"])
            assert np.array_equal(found.gradients[key], expected.gradients[f"{name}.{key}"])


def test_weights_that_the_board_does_not_keep(tmp_path: Path) -> None:
    """One bit of one weight is another when it is read back; its frames are whole."""
    line = RecordedLine()
    said = [data for who, data in line.left if who == "<"]
    words, at = words_of(said), 0
    while (header := unpack(words[at:].tolist()))["kind"] != Kind.VALUE or header["place"] != Bank.WEIGHT:
        at += HEADER_WORDS + header["words"]
    spoilt = io.BytesIO(with_another_bit(b"".join(said), at + HEADER_WORDS - 2))
    line.left = [(who, spoilt.read(len(data)) if who == "<" else data) for who, data in line.left]
    with pytest.raises(
        CircuitError, match="/dev/null does not keep the weights of cell: the circuit was built"
    ):
        talk(line, tmp_path)


@pytest.mark.thorough
def test_the_circuit_says_what_it_said() -> None:
    pytest.importorskip("amaranth")
    from sim.board import DirectLine

    line = DirectLine(plan())
    for number, (who, data) in enumerate(read()):
        if who == ">":
            line.write(data)
        else:
            assert line.read(0.0).hex() == data.hex(), number
    line.close()


@pytest.mark.parametrize("who", "<>")
def test_its_words_are_messages(who: str) -> None:
    data = [piece for end, piece in read() if end == who]
    words, messages = words_of(data), Messages()
    kinds = {Kind(header["kind"]) for header, _ in messages.add(words)}
    assert not messages.partial
    assert (
        kinds
        == {
            ">": {Kind.PEEK, Kind.POKE, Kind.BEGIN, Kind.TABLE, Kind.FIRINGS, Kind.FORWARD, Kind.BACKWARD},
            "<": {Kind.VALUE, Kind.FAULT, Kind.FORWARD, Kind.BACKWARD},
        }[who]
    )
    if who == ">":
        encoder, decoder = Encoder(), Decoder()
        assert data[0] == encoder.start() and not decoder.feed(data[0]).size
        assert [encoder.feed(decoder.feed(piece)) for piece in data[1:]] == data[1:]
