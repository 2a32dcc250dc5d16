"""Messages to a board and back, over whatever carries words: how far the board is, and whether it is alive.

A board answers PEEKs and UPDATEs in the order in which they come, after everything before them. So each
answer says how many words it has taken, and whose answer it is. No more words are on their way than the
line's `window`: a PEEK of the link's own now and then asks how far the board is, and one after a while
without a word whether it is there at all.
"""

from __future__ import annotations

import time
from collections import deque

import numpy as np

from amphw.ir.errors import DeviceLostError
from amphw.rtl.driver.messages import Messages
from amphw.rtl.driver.word_line import WordLine
from amphw.rtl.isa.wire import Kind, Register, pack

BUFFER = 1 << 17
"""Words that wait here; more than the longest message has."""

LOOKS = 100
"""Times in which the patience with a silent device is used up, at least."""

LOOK = 0.05
"""Seconds for which others of the same run wait while nothing comes, at most."""

ASKS: dict[int, Kind] = {Kind.PEEK: Kind.VALUE, Kind.UPDATE: Kind.UPDATED}
MARK = pack(Kind.PEEK, place=Register.VERSION)


class BoardLink:
    """See `Link`. patience: seconds for which the device may be silent while it owes an answer.

    The line must be at the beginning of a message on both sides: `settle` sees to that.
    """

    def __init__(self, line: WordLine, patience: float):
        self.line, self.patience = line, patience + line.lag
        self._offered, self._incoming = Messages(), Messages()
        self._queue: deque[np.ndarray] = deque()  # messages to be sent
        self._held = 0  # words in it
        self._asked: deque[tuple[int, Kind, bool]] = (
            deque()
        )  # (words sent until then, answer, the link's own)
        self._sent = self._taken = self._marked = (
            0  # words: sent, known to be taken, sent until the last mark
        )
        self._heard = time.monotonic()
        self._lost = ""

    def exchange(self, words: np.ndarray, cycles: int) -> tuple[int, np.ndarray, list[int]]:
        """See `Link`; `cycles` is nothing that a host could count. Returns when something has come, or when
        nothing has come for a while. DeviceLostError for what cannot be repaired."""
        if self._lost:
            raise DeviceLostError(self._lost)
        try:
            return self._exchange(words)
        except DeviceLostError as error:
            self._lost = str(error)
            raise

    def _exchange(self, words: np.ndarray) -> tuple[int, np.ndarray, list[int]]:
        accepted = min(len(words), BUFFER - self._held - self._offered.partial)
        messages = list(self._offered.cut(words[:accepted]))
        self._queue += messages
        self._held += sum(map(len, messages))
        found: list[np.ndarray] = []
        while True:
            self._send()
            came = self.line.read(min(self.patience / LOOKS, LOOK))
            if came is not None:
                found += self._take(came)
            else:
                self._look()
            if found or came is None or not self._queue:
                break
        return accepted, np.concatenate(found) if found else np.zeros(0, np.uint16), []

    def close(self) -> None:
        self.line.close()

    # --- to the device ----------------------------------------------------------------------------

    def _send(self) -> None:
        """All messages that the device has room for."""
        out: list[np.ndarray] = []
        while self._queue:
            message = self._queue[0]
            under_way = self._sent - self._taken
            if under_way and under_way + len(message) > self.line.window:
                if self._marked < self._sent:
                    self._mark(out)
                break
            out.append(self._queue.popleft())
            self._held -= len(message)
            self._sent += len(message)
            if (answer := ASKS.get(int(message[0]) & 15)) is not None:
                self._expect(answer, False)
            elif self._sent - self._marked > self.line.window // 2:
                self._mark(out)
        self._write(out)

    def _mark(self, out: list[np.ndarray]) -> None:
        out.append(np.array(MARK, np.uint16))
        self._sent += len(MARK)
        self._expect(Kind.VALUE, True)

    def _expect(self, answer: Kind, own: bool) -> None:
        if not self._asked:
            self._heard = time.monotonic()
        self._asked.append((self._sent, answer, own))
        self._marked = self._sent

    def _write(self, messages: list[np.ndarray]) -> None:
        if messages:
            self.line.write(np.concatenate(messages))

    # --- from the device --------------------------------------------------------------------------

    def _take(self, words: np.ndarray) -> list[np.ndarray]:
        """The messages that these words complete, without the answers to the link's own questions."""
        self._heard = time.monotonic()
        return [m for m in self._incoming.cut(words) if not self._own(int(m[0]) & 15)]

    def _own(self, kind: int) -> bool:
        """Whether it answers a question of the link."""
        if kind not in ASKS.values():
            return False
        if not self._asked or self._asked[0][1] != kind:
            expects = self._asked[0][1].name if self._asked else "no answer"
            raise DeviceLostError(
                f"{self.line.name} sends {Kind(kind).name} where the host expects {expects}: words have been "
                "lost on the way to it, or it is no circuit of this version"
            )
        self._taken, _, own = self._asked.popleft()
        return own

    def _look(self) -> None:
        """Nothing has come for a while."""
        silent = time.monotonic() - self._heard
        if self._asked and silent > self.patience:
            raise DeviceLostError(
                f"{self.line.name} is silent: for {silent:.1f} s it has owed {len(self._asked)} answer(s), "
                f"{self._sent - self._taken} word(s) are on their way to it and {self._held} wait. Is it "
                "powered, and is the circuit still in it (amphw flash)?"
            )
        if not self._asked and self._sent > self._taken and silent > self.patience / 2:
            mark: list[np.ndarray] = []  # a sign of life is wanted
            self._mark(mark)
            self._write(mark)
