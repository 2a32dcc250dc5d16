"""How 16-bit words travel in UDP datagrams through a network that may lose, double or reorder these.

Each end numbers the words that it sends, from `FIRST` in each session. A datagram holds some words, the
number of the first, how many words of the other end have been taken in order (`taken`), and, from a circuit,
how many more it has room for (`room`). Whoever receives takes a datagram whose first word is the next one and
drops any other; whoever sends sends again, from the first word that is not known to be taken, what has not
been confirmed for a while. So every word arrives once and in order, or none behind it does.

Behind the words comes their CRC-32, of the header's words too, as in a block on a serial line
(`word_frames.checksum`). Neither what Ethernet nor what UDP brings along would be enough: a frame's own check
is made anew by every switch, which may damage what it keeps in between, and UDP's sum of 16 bits sees no
words that change places. Circuits send no UDP checksum and do not look at the host's.

`gateware.network` is the circuit's end, `driver.datagram_end` the host's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from amphw.rtl.isa.wire import WORD, joined, parted
from amphw.rtl.isa.word_frames import checksum

SCHEME = "udp://"
PORT = 19_761
"""Of UDP, at the circuit: it belongs to nobody else."""

MARK, VERSION = 0x4D57, 2
"""What each datagram begins with. An end ignores those of another mark or version."""

LONGEST = 512
"""Words in a datagram at most: with all headers it stays below Ethernet's 1,500 bytes."""

RING = 2048
"""Words that a circuit has room for, in each direction: received and not taken, sent and not confirmed."""

HOLD = 10.0
"""Seconds for which a host may be silent before a circuit lets another one begin a session."""

RETRY = 0.01
"""Seconds after which a circuit sends again what has not been confirmed."""


class DatagramKind(IntEnum):
    """From the host: START, DATA, ACK, END. From a circuit: STARTED, DATA, ACK, BUSY, STRANGER.

    START begins a session, whose number the host draws; it is repeated until STARTED answers. It ends the
    session of whoever was there before if that was the same host and port, or has been silent for HOLD;
    otherwise the answer is BUSY. DATA has words, or none to ask for a sign of life: a circuit answers each.
    ACK confirms and is not answered. END ends the session. STRANGER answers whatever belongs to no session of
    the circuit. The words of STARTED, BUSY and STRANGER are those of `About`.
    """

    START = 1
    STARTED = 2
    DATA = 3
    ACK = 4
    END = 5
    BUSY = 6
    STRANGER = 7


FIELDS: Sequence[tuple[str, int]] = (
    ("mark", 16),
    ("kind", 8),
    ("version", 8),
    ("session", 32),
    ("number", 32),
    ("taken", 32),
    ("room", 16),
    ("words", 16),
)
"""Name and bits of the header's fields, from the low bits of the first word upwards."""

HEADER = sum(bits for _, bits in FIELDS) // WORD
CHECK = 2
"""Words of the header, and of the CRC-32 behind all others, its low half first."""

ABOUT: Sequence[tuple[str, int]] = (
    ("mac", 48),
    ("began", 32),
    ("identity", 64),
    ("host", 32),
    ("port", 16),
)
"""What a circuit says of itself: the address of its Ethernet port; the cycle at which its session began,
which differs between two boards; the digest of what was built; whose session it is, 0 if nobody's."""

_NUMBERS = 1 << 32

FIRST = _NUMBERS - 600
"""The number of a session's first word: behind the last number comes 0, and so it does early in every session
and every test, not first after eight gigabytes."""


def after(number: int, words: int) -> int:
    """The number so many words on."""
    return (number + words) % _NUMBERS


def ahead(number: int, of: int) -> int:
    """How many words a number is ahead of another; of one that is behind, nearly 2**32."""
    return (number - of) % _NUMBERS


@dataclass(frozen=True)
class About:
    """See ABOUT. host: as four bytes in an integer, the first the highest."""

    mac: int
    began: int
    identity: int
    host: int = 0
    port: int = 0

    @property
    def mac_text(self) -> str:
        return self.mac.to_bytes(6, "big").hex(":")

    @property
    def holder(self) -> str:
        """The host of the session, as ADDRESS:PORT."""
        return f"{'.'.join(map(str, self.host.to_bytes(4, 'big')))}:{self.port}"

    def pack(self) -> np.ndarray:
        total = joined(ABOUT, "what a circuit says of itself", **vars(self))
        return _words(total, sum(bits for _, bits in ABOUT) // WORD)

    @classmethod
    def unpack(cls, words: np.ndarray) -> About:
        return cls(**parted(ABOUT, _number(words)))


@dataclass(frozen=True)
class Datagram:
    """words: uint16 [n], at most LONGEST. The other fields are as in FIELDS."""

    kind: DatagramKind
    session: int
    number: int = 0
    taken: int = 0
    room: int = 0
    words: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint16))

    def encode(self) -> bytes:
        """The payload of a UDP datagram: words with the low byte first."""
        total = joined(
            FIELDS,
            "a datagram",
            mark=MARK,
            kind=self.kind,
            version=VERSION,
            session=self.session,
            number=self.number,
            taken=self.taken,
            room=self.room,
            words=len(self.words),
        )
        said = np.concatenate([_words(total, HEADER), self.words])
        crc = checksum(said)
        return np.append(said, np.array([crc & 0xFFFF, crc >> WORD], np.uint16)).astype("<u2").tobytes()

    @classmethod
    def decode(cls, data: bytes) -> Datagram | None:
        """What was said; None for what is no datagram of this protocol, or damaged."""
        if len(data) % 2 or len(data) // 2 < HEADER + CHECK:
            return None
        words = np.frombuffer(data, "<u2").astype(np.uint16)
        header = parted(FIELDS, _number(words[:HEADER]))
        rest = words[HEADER:-CHECK]
        if (header.pop("mark"), header.pop("version"), header.pop("words")) != (MARK, VERSION, len(rest)):
            return None
        if checksum(words[:-CHECK]) != _number(words[-CHECK:]) or header["kind"] not in list(DatagramKind):
            return None
        return cls(DatagramKind(header.pop("kind")), words=rest, **header)


def _words(total: int, count: int) -> np.ndarray:
    return np.frombuffer(total.to_bytes(2 * count, "little"), "<u2").astype(np.uint16)


def _number(words: np.ndarray) -> int:
    return int.from_bytes(words.astype("<u2").tobytes(), "little")


assert sum(bits for _, bits in FIELDS) % WORD == sum(bits for _, bits in ABOUT) % WORD == 0
