"""Whether what is at the other end of a line is the circuit that a plan describes.

The hardware has no reset, no version and no name. So the host finds out where messages begin by asking until
the answer is right, and how large the circuit's memories are by messages that just fit and that just do not:
they are of no instance's generation, so that all of them are dropped, and each is answered with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from amphw.ir.errors import DeviceLostError
from amphw.rtl.build.circuit import CircuitError
from amphw.rtl.driver.board_link import LOOKS, BoardLink
from amphw.rtl.driver.messages import Messages
from amphw.rtl.driver.word_line import WordLine
from amphw.rtl.isa.wire import FIELDS, HEADER_WORDS, WORD, Fault, Kind, Register, pack
from amphw.rtl.plan.hardware import HardwarePlan

QUIET = 0.2
"""Seconds without a word after which nothing more is expected; USB bridges wait for up to 16 ms."""

TRIES = 4
LATER = 4
"""Times as long each try waits for a circuit of ours: it may be simulated, on a busy machine."""

ZEROS = 7 * HEADER_WORDS
"""Words that end a message at the other end, at a time: headers of no kind."""

NO_KIND = pack(Kind.FAULT, output=Fault.UNKNOWN)[: HEADER_WORDS - 2]
"""What a circuit of ours says of a header of zeros."""

LONGEST = 1 << WORD
"""Words of a message."""


def settle(line: WordLine) -> None:
    """Have both ends of the line at the beginning of a message.

    Whatever was on its way is thrown away, and a message that an earlier host has not finished is ended. What
    was wrong with the line until then does not count, all that follows does. DeviceLostError where no answer
    is right, with what came instead.
    """
    line.strict = False
    _Settling(line).run()
    line.forgive()
    line.strict = True


class _Settling:
    def __init__(self, line: WordLine):
        self.line = line
        self.heard = 0  # times that something came
        self.words = np.zeros(0, np.uint16)  # since the last question
        self.patience = 1

    def run(self) -> None:
        self._listen(lambda: False)
        self.line.start()
        for number in range(1, TRIES + 1):
            expected = pack(Kind.VALUE, place=Register.VERSION, firing=number)[: HEADER_WORDS - 2]
            self.words = self.words[:0]
            self._send(pack(Kind.PEEK, place=Register.VERSION, firing=number))
            if self._listen(lambda: self.words[-HEADER_WORDS:-2].tolist() == expected):  # noqa: B023
                return
            if not self._begin_message():
                break
            if self._holds(expected) or self._holds(NO_KIND):
                self.patience *= LATER
        raise DeviceLostError(self.line.complaint())

    def _begin_message(self) -> bool:
        """Zeros, until the device says that a header of them is of no kind: then it awaits a header. False
        where it says nothing."""
        before = self.heard
        for _ in range(LONGEST // ZEROS + 2):  # it may be in the middle of a long message
            self._send([0] * ZEROS)
            self._hear(self.line.read(self.line.seconds(ZEROS)))
            if self.heard > before:
                break
        else:
            return False
        self._send([0] * ZEROS)
        self._listen(lambda: False)
        enough = len(self.words) + HEADER_WORDS
        for _ in range(HEADER_WORDS):
            self._send([0])
            if self._listen(lambda: len(self.words) >= enough):
                break
        return True

    def _holds(self, expected: list[int]) -> bool:
        """Whether these words have come, one behind the other, since the last question."""
        n = len(expected)
        if len(self.words) < n:
            return False
        windows = np.lib.stride_tricks.sliding_window_view(self.words, n)
        return bool((windows == expected).all(axis=1).any())

    def _send(self, words: list[int]) -> None:
        self.line.write(np.array(words, np.uint16))

    def _listen(self, enough: Callable[[], bool]) -> bool:
        """Until that is said, or nothing comes any more. A line that is never quiet is not waited for."""
        end = time.monotonic() + 10 * QUIET * self.patience
        silent = 0
        while time.monotonic() < end and silent < self.patience:
            came = self.line.read(QUIET)
            silent = 0 if came is not None else silent + 1
            self._hear(came)
            if came is not None and enough():
                return True
        return False

    def _hear(self, came: np.ndarray | None) -> None:
        if came is not None:
            self.heard += 1
            self.words = np.concatenate([self.words, came])


Probe = tuple[str, int, Kind, dict[str, int], bool]
"""What is probed, its size by the plan, a message, and whether it must be outside."""


def probes(plan: HardwarePlan) -> Iterator[Probe]:
    """Messages at the edge of every memory, just within and just beyond it."""
    sizes, late = plan.sizes, {"generation": 1}
    room = dict(FIELDS)
    for name, kind, field, size, last in (
        ("slots", Kind.BEGIN, "slot", sizes.slots, sizes.slots - 1),
        ("nodes", Kind.FIRINGS, "unit", len(plan.partition.units), len(plan.partition.units) - 1),
        ("firings", Kind.FORWARD, "firing", sizes.firings, sizes.firings - 1),
        ("places", Kind.FORWARD, "place", sizes.places, sizes.places - 1),
        ("payload", Kind.FORWARD, "payload", sizes.payload, sizes.payload),
        ("table", Kind.TABLE, "payload", sizes.table, sizes.table),
    ):
        for value, outside in ((last, False), (last + 1, True)):
            if value < 1 << room[field]:
                yield name, size, kind, {**({} if kind == Kind.BEGIN else late), field: value}, outside


def check_sizes(link: BoardLink, plan: HardwarePlan) -> None:
    """CircuitError unless the circuit's memories are as large as the plan's; lanes are not seen here."""
    asked = list(probes(plan))
    words = pack(Kind.BEGIN)
    for number, (_, _, kind, fields, _) in enumerate(asked):
        words += pack(kind, **fields) + pack(Kind.PEEK, place=Register.VERSION, firing=number)
    left, incoming, silent = np.array(words, np.uint16), Messages(), 0
    found: list[int] = []  # of each probe: why it was dropped, 0 if it was not
    why = 0
    while len(found) < len(asked):
        accepted, came, _ = link.exchange(left, 0)
        left = left[accepted:]
        silent = 0 if len(came) else silent + 1
        if silent > LOOKS:
            raise DeviceLostError(f"{link.line.name} does not answer questions about its sizes")
        for header, _ in incoming.add(came):
            if header["kind"] == Kind.FAULT:
                why = header["output"]
            elif header["kind"] == Kind.VALUE:
                found.append(why)
                why = 0
    wrong = {
        name: size
        for (name, size, _, _, outside), reason in zip(asked, found, strict=True)
        if (reason == Fault.OUTSIDE) != outside
    }
    if wrong:
        raise CircuitError(
            f"the circuit on {link.line.name} is another than this run's: "
            + ", ".join(f"{name} are not {size:,}" for name, size in wrong.items())
            + ". Flash the one that was built for it (amphw flash), or say where that lies (circuit=DIR)"
        )
