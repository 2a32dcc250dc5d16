"""The link to a board, without one: where messages begin, what is on its way, and lines that are bad."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from amphw.ir.errors import DeviceLostError
from amphw.rtl.build.circuit import CircuitError
from amphw.rtl.driver import board_check
from amphw.rtl.driver.board_check import check_sizes, settle
from amphw.rtl.driver.board_link import BUFFER, BoardLink
from amphw.rtl.driver.messages import Messages
from amphw.rtl.driver.serial_words import SerialWords
from amphw.rtl.isa.wire import HEADER_WORDS, Kind, pack
from amphw.rtl.isa.word_frames import ALARM, QUEUE, signal
from amphw.rtl.plan.hardware import Sizes
from tests.rtl.driver.fake_board import SIZES, FakeBoard

BAUD = 1_000_000


def link_to(board: FakeBoard, patience: float) -> BoardLink:
    return BoardLink(SerialWords(board, BAUD), patience)


def settled(board: FakeBoard, baud: int = BAUD) -> SerialWords:
    line = SerialWords(board, baud)
    settle(line)
    return line


def ask(link: BoardLink, words: list[int], turns: int = 2000) -> list[dict[str, int]]:
    """Send words -> headers of what came back, until nothing comes any more."""
    left, incoming, found = np.array(words, np.uint16), Messages(), []
    quiet = 0
    for _ in range(turns):
        accepted, came, _ = link.exchange(left, 0)
        left = left[accepted:]
        found += [header for header, _ in incoming.add(came)]
        quiet = 0 if len(came) or accepted else quiet + 1
        if quiet > 5000:
            break
    assert not len(left)
    return found


@pytest.mark.parametrize("taken", range(HEADER_WORDS))
@pytest.mark.parametrize("rest", [0, 3, 40_000])
def test_messages_begin_together_whatever_was_left(taken: int, rest: int) -> None:
    """An earlier host may have died within a header, or within a payload."""
    words = [0x0002, 0x0301, 5, 6, 7, rest, 9, 10, 11]
    board = FakeBoard(tuple(words[:taken]), 0 if taken else rest)
    settled(board)
    assert not board.header and not board.left and not board.queue
    link = link_to(board, 1.0)
    assert [h["firing"] for h in ask(link, pack(Kind.PEEK, firing=5))] == [5]


@pytest.mark.parametrize("pace", [1, 2, 3, 5, 7, 9, 20])
@pytest.mark.parametrize("taken", [0, 3, HEADER_WORDS - 1])
def test_a_board_that_is_slower_than_its_line_is_waited_for(pace: int, taken: int) -> None:
    """Such as a simulated one on a busy machine: it answers when nothing more was expected."""
    words = [0x0002, 0x0301, 5, 6, 7, 3, 9, 10, 11]
    board = FakeBoard(tuple(words[:taken]), 0 if taken else 3, pace=pace)
    line = settled(board)
    assert not board.header and not board.left and not board.queue
    assert [h["firing"] for h in ask(BoardLink(line, 1.0), pack(Kind.PEEK, firing=5))] == [5]


@pytest.mark.parametrize("garbage", [b"\0", b"hello, world", bytes(range(256)), b"\xff\x7f\x7f\x90\x01"])
def test_garbage_before_the_first_message_is_passed_over(garbage: bytes) -> None:
    board = FakeBoard(garbage=garbage)
    settled(board)
    assert board.taken[-1]["kind"] == Kind.PEEK


@pytest.mark.parametrize("cut", [27, 28, 30, 31, 33])
def test_the_link_goes_on_where_settling_has_stopped_reading(cut: int) -> None:
    """The answer is known before its check has come, of which a read may give a part."""
    board = FakeBoard(garbage=b"hello")
    board.most = cut
    line = settled(board)
    link = BoardLink(line, 1.0)
    assert [h["firing"] for h in ask(link, pack(Kind.PEEK, firing=5))] == [5]


def test_nobody_answers() -> None:
    board = FakeBoard()
    board.dumb = True
    with pytest.raises(DeviceLostError, match=r"^nothing comes from fake at 1,000,000 baud: is the board po"):
        settled(board)


def test_another_baud_rate_is_garbage() -> None:
    board = FakeBoard()
    rng = np.random.default_rng(4)
    board.spoil = lambda data: rng.bytes(len(data) // 3)  # type: ignore[assignment, misc]
    with pytest.raises(
        DeviceLostError, match=r"came from fake at 9,600 baud, the first .*: that is no amphw"
    ):
        settled(board, 9600)


def test_another_version_of_the_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its words are whole, but what they say is not an answer."""
    board = FakeBoard()
    monkeypatch.setattr(board, "_message", lambda fields: board.say([1, 2, 3, 4]))
    with pytest.raises(
        DeviceLostError, match="the circuit is of another version of amphw, or what is connec"
    ):
        settled(board)


@pytest.mark.parametrize("pace", [1, 7, 500])
def test_no_more_is_on_its_way_than_the_board_has_room_for(pace: int) -> None:
    """Messages of all lengths, and a board that takes its time; all arrive, in order, but for the marks."""
    board, rng = FakeBoard(pace=pace), np.random.default_rng(5)
    link = link_to(board, 5.0)
    words: list[int] = []
    for number in range(300):
        length = int(rng.choice([0, 0, 3, 40, 200]))
        words += pack(Kind.BACKWARD, firing=number, words=length) + [0] * length
        if number % 40 == 0:
            words += pack(Kind.PEEK, firing=1000 + number)
    answers = ask(link, words, turns=20_000)
    assert board.fullest <= QUEUE
    assert [h["firing"] for h in answers] == [1000 + n for n in range(0, 300, 40)]
    assert [h["firing"] for h in board.taken if h["kind"] == Kind.BACKWARD] == list(range(300))


def test_a_message_longer_than_the_queue_goes_when_nothing_else_is_on_its_way() -> None:
    board = FakeBoard()
    link = link_to(board, 5.0)
    long = [*pack(Kind.TABLE, words=60_000), *range(60_000)]
    assert ask(link, [*pack(Kind.BEGIN), *long, *pack(Kind.PEEK, firing=3)])[-1]["firing"] == 3
    assert not board.left and len(long) < BUFFER


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda d: d[:2] + bytes([d[2] ^ 1]) + d[3:], "1 damaged word"),
        (lambda d: d[:3] + d[6:], "at least 1 missing"),  # lost
        (lambda d: d[:6] + d[3:], "at least 14 missing"),  # twice
        (lambda d: d[:3] + d[6:9] + d[3:6] + d[9:], "missing"),  # in another order
        (lambda d: d[:4] + b"\x81" + d[5:], "damaged"),
        (lambda d: d[:1] + bytes([d[1] ^ 1, d[2] ^ 1]) + d[3:], "1 block.* whose checksum is wrong"),
    ],
)
def test_a_bad_line_ends_the_link(spoil: Any, what: str) -> None:
    board = FakeBoard()
    link = link_to(board, 1.0)
    ask(link, pack(Kind.PEEK))
    board.spoil = spoil
    with pytest.raises(DeviceLostError, match=f"the line from fake is bad: .*({what})") as caught:
        ask(link, pack(Kind.PEEK))
    assert "Nothing is sent again" in str(caught.value)
    with pytest.raises(DeviceLostError, match="the line from fake is bad"):  # and stays ended
        link.exchange(np.zeros(0, np.uint16), 0)


def test_a_board_that_hears_badly_ends_the_link() -> None:
    board = FakeBoard()
    link = link_to(board, 1.0)
    ask(link, pack(Kind.PEEK))
    board.pending += signal(ALARM)
    with pytest.raises(
        DeviceLostError, match="the line to fake is bad: the board says that words came damaged"
    ):
        ask(link, pack(Kind.PEEK))


def test_silence_says_what_is_owed() -> None:
    board = FakeBoard()
    link = link_to(board, 0.05)
    board.dumb = True
    words = pack(Kind.PEEK) * 60
    with pytest.raises(
        DeviceLostError, match=r"fake is silent: .* owed 49 answer\(s\), 441 word\(s\) .* and 99 wait"
    ):
        while True:
            accepted, _, _ = link.exchange(np.array(words, np.uint16), 0)
            words = words[accepted:]


def test_a_board_that_has_nothing_to_say_is_asked_for_a_sign_of_life() -> None:
    board = FakeBoard()
    link = link_to(board, 0.05)
    message = np.array(pack(Kind.BEGIN), np.uint16)
    link.exchange(message, 0)
    while not any(h["kind"] == Kind.PEEK for h in board.taken):
        _, came, _ = link.exchange(message[:0], 0)
        assert not len(came)


def test_an_answer_that_nobody_has_asked_for() -> None:
    board = FakeBoard()
    link = link_to(board, 1.0)
    board.say(pack(Kind.UPDATED))
    with pytest.raises(DeviceLostError, match="fake sends UPDATED where the host expects no answer"):
        link.exchange(np.zeros(0, np.uint16), 0)


def plan(**sizes: int) -> Any:
    wanted = Sizes(
        slots=SIZES["slot"],
        firings=SIZES["firing"],
        places=SIZES["place"],
        payload=SIZES["payload"],
        table=SIZES["payload"],
    )
    return SimpleNamespace(
        sizes=replace(wanted, **sizes), partition=SimpleNamespace(units=[None] * SIZES["unit"])
    )


def test_sizes_are_those_of_the_plan() -> None:
    check_sizes(link_to(FakeBoard(), 1.0), plan())


@pytest.mark.parametrize("name", ["slots", "firings", "places", "payload", "table"])
@pytest.mark.parametrize("factor", [0.5, 2])
def test_another_circuit_is_told_by_its_sizes(name: str, factor: float) -> None:
    size = int(getattr(plan().sizes, name) * factor)
    with pytest.raises(CircuitError, match=rf"the circuit on fake is another .*: {name} are not {size}\. "):
        check_sizes(link_to(FakeBoard(), 1.0), plan(**{name: size}))


def test_every_probe_is_dropped_by_the_board() -> None:
    """None must do anything there: each is of no instance's generation, or begins one."""
    for _, _, kind, fields, outside in board_check.probes(plan()):
        assert outside or kind == Kind.BEGIN or fields["generation"] == 1
