"""The hardware encodes and decodes words as the host does, and so finds the same damage."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from amphw.rtl.gateware.link.framing import WordDecoder, WordEncoder
from amphw.rtl.isa.word_frames import BLOCK, SEQUENCE, Decoder, Encoder
from tests.rtl.gateware.benches import always, send, simulate, sometimes


def words(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 16, count).astype(np.uint16)


def encoded(sent: np.ndarray) -> bytes:
    return Encoder().feed(sent)


def decoded(line: bytes) -> tuple[list[int], dict[str, int]]:
    """What the hardware makes of some bytes: the words, and in how many cycles it saw what."""
    decoder = WordDecoder()
    received: list[int] = []
    seen = dict.fromkeys(("damaged", "missing", "failed", "started"), 0)
    sent = False

    async def feed(ctx: Any) -> None:
        nonlocal sent
        await send(ctx, decoder.i, list(line), sometimes(0.8, seed=1))
        sent = True

    async def drain(ctx: Any) -> None:
        ready = sometimes(0.7, seed=2)
        while not sent:
            ctx.set(decoder.o.ready, willing := ready())
            ports = (decoder.o.valid, decoder.o.payload, *(getattr(decoder, name) for name in seen))
            _, _, valid, payload, *told = await ctx.tick().sample(*ports)
            for name, what in zip(seen, told, strict=True):
                seen[name] += what
            if valid and willing:
                received.append(payload)

    simulate(decoder, feed, drain)
    return received, seen


def sent_by_the_hardware(sent: np.ndarray, pace: Any, alarm_at: int | None = None) -> bytes:
    """alarm_at: the cycle in which the encoder is to send one."""
    encoder, line, done = WordEncoder(), bytearray(), False

    async def feed(ctx: Any) -> None:
        nonlocal done
        await send(ctx, encoder.i, sent.tolist(), pace)
        await ctx.tick().repeat(60)  # the last check
        done = True

    async def drain(ctx: Any) -> None:
        ready = sometimes(0.7, seed=2)
        while not done:
            ctx.set(encoder.o.ready, willing := ready())
            _, _, valid, byte = await ctx.tick().sample(encoder.o.valid, encoder.o.payload)
            if valid and willing:
                line.append(byte)

    async def alarm(ctx: Any) -> None:
        if alarm_at is not None:
            await ctx.tick().repeat(alarm_at)
            ctx.set(encoder.alarm, 1)
            await ctx.tick()
            ctx.set(encoder.alarm, 0)

    simulate(encoder, feed, drain, alarm)
    return bytes(line)


@pytest.mark.parametrize("count", [1, 40, BLOCK, BLOCK + 1])
def test_the_encoders_agree(count: int) -> None:
    sent = words(count)
    assert sent_by_the_hardware(sent, always) == encoded(sent)


@pytest.mark.parametrize("alarm_at", [None, 1, 7, 150])
def test_the_host_understands_an_encoder_that_pauses(alarm_at: int | None) -> None:
    sent, host = words(40), Decoder()
    line = sent_by_the_hardware(sent, sometimes(0.1, seed=3), alarm_at)
    assert host.feed(line).tolist() == sent.tolist() and len(line) > len(encoded(sent))
    assert (host.damaged, host.lost, host.failed, host.alarm) == (0, 0, 0, alarm_at is not None)


def test_the_decoders_agree_on_whole_words() -> None:
    sent = words(150)
    line = encoded(sent)
    host = Decoder()
    np.testing.assert_array_equal(host.feed(line), sent)
    assert not host.faulty
    assert decoded(line) == (sent.tolist(), {"damaged": 0, "missing": 0, "failed": 0, "started": 0})


@pytest.mark.parametrize("seed", range(6))
def test_the_decoders_agree_on_a_bad_line(seed: int) -> None:
    generator = random.Random(seed)
    line = bytearray()
    for byte in encoded(words(60, seed)):
        fault = generator.random()
        if fault < 0.04:
            continue
        if fault < 0.08:
            line.append(generator.randrange(256))
        line.append(byte ^ (1 << generator.randrange(8)) if fault > 0.96 else byte)
    host = Decoder()
    expected = host.feed(bytes(line))
    received, seen = decoded(bytes(line))
    assert received == expected.tolist()
    assert seen["damaged"] == host.damaged > 0
    assert (seen["missing"] > 0) == (host.lost > 0)
    assert seen["failed"] == host.failed


def test_any_single_wrong_bit_is_found() -> None:
    sent = words(3)
    line = encoded(sent)
    for bit in range(24):
        wrong = bytearray(line)
        wrong[3 + bit // 8] ^= 1 << bit % 8
        host = Decoder()
        received = host.feed(bytes(wrong))
        assert received.tolist() == [sent[0], sent[2]]
        assert host.damaged and host.lost == 1


@pytest.mark.parametrize("bits", [(0, 3), (7, 8), (2, 17), (16, 25)])
def test_two_wrong_bits_are_found_by_the_check(bits: tuple[int, int]) -> None:
    """Which the parity of a word may not tell. Both ends have heard the line from its beginning."""
    line = bytearray(Encoder().start() + encoded(words(20)))
    for bit in bits:
        line[12 + bit // 7] ^= 1 << bit % 7 if bit < 21 else 1 << bit % 4
    host = Decoder()
    received = host.feed(bytes(line))
    assert host.failed or host.damaged
    found, seen = decoded(bytes(line))
    assert found == received.tolist() and seen["failed"] == host.failed and seen["started"] == 1


@pytest.mark.parametrize("half", [0, 1])
def test_a_wrong_half_of_a_check_is_found(half: int) -> None:
    """Two bits that the parity of its word does not tell, in the first half or in the second alone."""
    line = Encoder().start() + encoded(words(5))
    at = 8 * (len(line) - 6 + 3 * half)
    unnoticed = 0
    for first, second in itertools.combinations(range(24), 2):
        wrong = bytearray(line)
        for bit in (at + first, at + second):
            wrong[bit // 8] ^= 1 << bit % 8
        host = Decoder()
        heard = host.feed(bytes(wrong)).tolist()
        if host.damaged or host.alarm or heard != words(5).tolist():
            continue  # it is no check any more
        assert host.failed == 1
        unnoticed += 1
        if unnoticed <= 3:
            received, seen = decoded(bytes(wrong))
            assert received == heard and seen["failed"] == 1 and seen["damaged"] == 0
    assert unnoticed > 3


def test_a_check_of_words_that_were_not_heard_says_nothing() -> None:
    line = encoded(words(2 * BLOCK))
    host = Decoder()
    host.feed(line[30:])
    assert not host.failed
    assert decoded(line[30:])[1]["failed"] == 0


@pytest.mark.parametrize("missing", [1, 2, 14])
def test_missing_words_are_counted(missing: int) -> None:
    line = encoded(words(20))
    host = Decoder()
    host.feed(line[:6] + line[6 + 3 * missing :])
    assert (host.damaged, host.lost) == (0, missing)


def test_as_many_missing_words_as_there_are_numbers_are_found_by_the_check() -> None:
    line = Encoder().start() + encoded(words(40))
    host = Decoder()
    host.feed(line[:9] + line[9 + 3 * SEQUENCE :])
    assert (host.damaged, host.lost, host.failed) == (0, 0, 1)


def test_words_in_another_order_are_found() -> None:
    line = Encoder().start() + encoded(words(20))
    host = Decoder()
    host.feed(line[:9] + line[12:15] + line[9:12] + line[15:])
    assert host.lost and host.failed


@pytest.mark.parametrize("left", [b"", b"\xff", b"\x91\x05", encoded(words(7))[:-4]])
def test_a_board_forgets_what_came_before_the_start(left: bytes) -> None:
    """As of a host that has died within a word, or within a block."""
    sent = words(30)
    line = left + Encoder().start()
    board = Decoder()
    board.feed(line)
    assert not board.faulty
    assert board.feed(encoded(sent)).tolist() == sent.tolist() and not board.faulty
    received, seen = decoded(line + encoded(sent))
    assert received[-30:] == sent.tolist()
    assert (seen["started"], seen["missing"], seen["failed"]) == (1, 0, 0)


def test_the_host_may_cut_the_line_anywhere() -> None:
    sent = words(30)
    line = encoded(sent)
    host = Decoder()
    pieces = [host.feed(line[k : k + 4]) for k in range(0, len(line), 4)]
    np.testing.assert_array_equal(np.concatenate(pieces), sent)
