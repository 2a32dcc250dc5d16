"""The hardware encodes and decodes words as the host does, and so finds the same damage."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from amphw.rtl.gateware.framing import WordDecoder, WordEncoder
from amphw.rtl.word_frames import Decoder, encode
from tests.rtl.gateware.benches import receive, send, simulate, sometimes


def words(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 16, count).astype(np.uint16)


def decoded(line: bytes) -> tuple[list[int], int, int]:
    """What the hardware makes of some bytes: the words, how often it saw damage, and how often a gap."""
    decoder = WordDecoder()
    received: list[int] = []
    damaged = missing = 0
    sent = False

    async def feed(ctx: Any) -> None:
        nonlocal sent
        await send(ctx, decoder.i, list(line), sometimes(0.8, seed=1))
        sent = True

    async def drain(ctx: Any) -> None:
        nonlocal damaged, missing
        ready = sometimes(0.7, seed=2)
        while not sent:
            ctx.set(decoder.o.ready, willing := ready())
            ports = (decoder.o.valid, decoder.o.payload, decoder.damaged, decoder.missing)
            _, _, valid, payload, bad, gap = await ctx.tick().sample(*ports)
            damaged, missing = damaged + bad, missing + gap
            if valid and willing:
                received.append(payload)

    simulate(decoder, feed, drain)
    return received, damaged, missing


def test_the_encoders_agree() -> None:
    encoder, sent = WordEncoder(), words(40)
    line: list[int] = []

    async def feed(ctx: Any) -> None:
        await send(ctx, encoder.i, sent.tolist(), sometimes(0.8, seed=1))

    async def drain(ctx: Any) -> None:
        await receive(ctx, encoder.o, 120, line, sometimes(0.7, seed=2))

    simulate(encoder, feed, drain)
    assert bytes(line) == encode(sent)


def test_the_decoders_agree_on_whole_words() -> None:
    sent = words(40)
    assert decoded(encode(sent, first=5)) == (sent.tolist(), 0, 0)
    host = Decoder()
    np.testing.assert_array_equal(host.feed(encode(sent, first=5)), sent)
    assert (host.damaged, host.lost) == (0, 0)


@pytest.mark.parametrize("seed", range(6))
def test_the_decoders_agree_on_a_bad_line(seed: int) -> None:
    generator = random.Random(seed)
    line = bytearray()
    for byte in encode(words(60, seed)):
        fault = generator.random()
        if fault < 0.04:
            continue
        if fault < 0.08:
            line.append(generator.randrange(256))
        line.append(byte ^ (1 << generator.randrange(8)) if fault > 0.96 else byte)
    host = Decoder()
    expected = host.feed(bytes(line))
    received, damaged, missing = decoded(bytes(line))
    assert received == expected.tolist()
    assert damaged == host.damaged > 0
    assert (missing > 0) == (host.lost > 0)


def test_any_single_wrong_bit_is_found() -> None:
    sent = words(3)
    line = encode(sent)
    for bit in range(24):
        wrong = bytearray(line)
        wrong[3 + bit // 8] ^= 1 << bit % 8
        host = Decoder()
        received = host.feed(bytes(wrong))
        assert received.tolist() == [sent[0], sent[2]]
        assert host.damaged and host.lost == 1


@pytest.mark.parametrize("missing", [1, 2, 15])
def test_missing_words_are_counted(missing: int) -> None:
    sent = words(20)
    line = encode(sent)
    host = Decoder()
    host.feed(line[:6] + line[6 + 3 * missing :])
    assert (host.damaged, host.lost) == (0, missing)


def test_the_host_may_cut_the_line_anywhere() -> None:
    sent = words(30)
    line = encode(sent)
    host = Decoder()
    pieces = [host.feed(line[k : k + 4]) for k in range(0, len(line), 4)]
    np.testing.assert_array_equal(np.concatenate(pieces), sent)
