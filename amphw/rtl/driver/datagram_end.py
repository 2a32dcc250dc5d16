"""The host's end of a session with a circuit, apart from sockets and clocks.

It is told what came and what time it is, and says what to send; `isa/datagrams.py` has the rules. So a test
can lose, double and reorder datagrams, and let time pass, without any.
"""

from __future__ import annotations

import numpy as np

from amphw.rtl.isa.datagrams import FIRST, LONGEST, About, Datagram, DatagramKind, after, ahead
from amphw.rtl.isa.wire import WORD

CALL = 0.1
"""Seconds between two STARTs."""

PING = 0.25
"""Seconds without a word from the host after which it asks for a sign of life, far fewer than HOLD."""

SOONEST, AT_FIRST, LATEST = 0.005, 0.1, 1.0
"""Seconds after which words are sent again: at least, before anything is known, and at most."""

REPEATS = 3
"""Datagrams that confirm nothing new, in a row, after which the one behind what they confirm counts as
lost."""

_BYTES = WORD // 8


class DatagramEnd:
    """One session, of the number `session`, which is not 0.

    about: what circuits have said of themselves that answered START, the first the one whose session it is.
    busy: what one has said that belongs to another host. stranger: what one has said that has no such session
    any more. again: words that were sent more than once.
    """

    def __init__(self, session: int, now: float):
        self.session = session
        self.about: list[About] = []
        self.busy: About | None = None
        self.stranger: About | None = None
        self.again = 0
        self._asked: float | None = None  # since when an answer is awaited
        self._out = bytearray()  # words that are not confirmed, from number `_base` on
        self._base = FIRST
        self._sent = self._room = 0  # words of these: sent, and that there is room for
        self._expected, self._came = FIRST, list[np.ndarray]()
        self._owes = False
        self._said = now - CALL  # when something was sent last
        self._since = now  # when words were sent of which none has been confirmed
        self._wait, self._usual, self._mean, self._spread = AT_FIRST, AT_FIRST, 0.0, 0.0
        self._timed: tuple[int, float] | None = None  # words that were sent once, and when
        self._most = FIRST  # the number behind the last word ever sent
        self._repeats = 0
        self._mended: int | None = None  # that number when words counted as lost, until all are confirmed

    @property
    def open(self) -> bool:
        """Whether a circuit has begun the session."""
        return bool(self.about)

    @property
    def waiting(self) -> int:
        """Words that are not confirmed."""
        return len(self._out) // _BYTES

    def silent(self, now: float) -> float:
        """Seconds for which nothing has come that was to be answered at once."""
        return now - self._asked if self._asked is not None else 0.0

    def write(self, words: np.ndarray) -> None:
        """Words [n] uint16, behind all before."""
        self._out += words.astype("<u2").tobytes()

    def take(self) -> np.ndarray:
        """The words [n] uint16 that have come since the last call."""
        came, self._came = self._came, []
        return np.concatenate(came) if came else np.zeros(0, np.uint16)

    # --- what comes -------------------------------------------------------------------------------

    def hear(self, data: bytes, now: float) -> None:
        """A datagram's payload. What is none of this session's is passed over."""
        said = Datagram.decode(data)
        if said is None or said.session != self.session:
            return
        if said.kind == DatagramKind.STARTED:
            self._answered(said)
        elif said.kind == DatagramKind.BUSY:
            self.busy = About.unpack(said.words)
        elif said.kind == DatagramKind.STRANGER:
            self.stranger = About.unpack(said.words)
        elif self.open and said.kind in (DatagramKind.DATA, DatagramKind.ACK):
            self._asked = None
            self._confirmed(said, now)
            self._took(said)

    def _answered(self, said: Datagram) -> None:
        about = About.unpack(said.words)
        if not self.open:
            self._room = said.room
        if about not in self.about:
            self.about.append(about)

    def _confirmed(self, said: Datagram, now: float) -> None:
        words = ahead(said.taken, self._base)
        if words > self.waiting:
            return  # older than what is known
        self._room = max(self._room - words, said.room)
        if words:
            del self._out[: words * _BYTES]
            self._base, self._sent = said.taken, max(0, self._sent - words)
            self._since, self._repeats = now, 0
            if self._mended is not None and _reached(self._base, self._mended):
                self._mended = None
            self._measure(now)
            self._wait = self._usual  # what was repeated has arrived: there is no crowd to wait for
        elif not len(said.words) and self._sent and self._mended is None:
            # Each datagram that is not the next one is answered by what is still awaited.
            self._repeats += 1
            if self._repeats == REPEATS:
                self._mended = self._most  # once for all that is on its way
                self._rewind()

    def _took(self, said: Datagram) -> None:
        if len(said.words):
            self._owes = True
            if said.number == self._expected:
                self._came.append(said.words)
                self._expected = after(self._expected, len(said.words))

    def _measure(self, now: float) -> None:
        """How long answers take, as TCP judges it (RFC 6298): by words that were sent once alone."""
        if self._timed is None or not _reached(self._base, self._timed[0]):
            return
        took, self._timed = now - self._timed[1], None
        if self._mean:
            self._spread = 0.75 * self._spread + 0.25 * abs(took - self._mean)
            self._mean = 0.875 * self._mean + 0.125 * took
        else:
            self._mean, self._spread = took, took / 2
        self._usual = min(LATEST, max(SOONEST, self._mean + 4 * self._spread))

    # --- what to send -----------------------------------------------------------------------------

    def due(self, now: float) -> list[bytes]:
        """The payloads of what is to be sent now."""
        if not self.open:
            if now < self._said + CALL:
                return []
            self._said = now
            return [Datagram(DatagramKind.START, self.session).encode()]
        if self._sent and now >= self._since + self._wait:
            self._rewind()
            self._wait = min(LATEST, 2 * self._wait)
        out = []
        while count := min(self.waiting, self._room, self._sent + LONGEST) - self._sent:
            if count < 0:
                break
            out.append(self._data(count, now))
        if not out and now >= self._said + (self._wait if self.waiting > self._sent else PING):
            out.append(self._say(DatagramKind.DATA))
        if out and self._asked is None:
            self._asked = now
        if not out and self._owes:
            out.append(self._say(DatagramKind.ACK))
        if out:
            self._said, self._owes = now, False
        return out

    def next(self, now: float) -> float:
        """Seconds until something is to be sent even if nothing comes."""
        if not self.open:
            return max(0.0, self._said + CALL - now)
        if self._sent:
            return max(0.0, self._since + self._wait - now)
        return max(0.0, self._said + (self._wait if self.waiting else PING) - now)

    def end(self) -> bytes:
        """What is said last."""
        return self._say(DatagramKind.END)

    def _data(self, count: int, now: float) -> bytes:
        if not self._sent:
            self._since = now
        number = after(self._base, self._sent)
        words = np.frombuffer(bytes(self._out[_BYTES * self._sent : _BYTES * (self._sent + count)]), "<u2")
        self._sent += count
        new = ahead(after(number, count), self._most)
        if 0 < new < 1 << 31:
            self.again += count - min(count, new)
            self._most = after(number, count)
            if self._timed is None:
                self._timed = self._most, now
        else:
            self.again += count
        return self._say(DatagramKind.DATA, number, words.astype(np.uint16))

    def _say(self, kind: DatagramKind, number: int | None = None, words: np.ndarray | None = None) -> bytes:
        where = after(self._base, self._sent) if number is None else number
        what = np.zeros(0, np.uint16) if words is None else words
        return Datagram(kind, self.session, where, self._expected, 0, what).encode()

    def _rewind(self) -> None:
        """All that is on its way counts as lost."""
        self._sent, self._timed, self._repeats = 0, None, 0


def _reached(number: int, other: int) -> bool:
    """Whether a number is another one or behind it, both being on their way at nearly the same time."""
    return ahead(number, other) < 1 << 31
