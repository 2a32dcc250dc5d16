"""The circuit's end of a session without a circuit: as `gateware.network.session` has it, in a few lines.

It gives back each word that it takes, plus one.
"""

from __future__ import annotations

import numpy as np

from amphw.rtl.isa.datagrams import FIRST, LONGEST, RING, About, Datagram, DatagramKind, after, ahead

MAC = 0x024D_0000_0032


class FakeCircuit:
    """takes: how many words it takes in a turn. about: what it says of itself."""

    def __init__(self, takes: int = 1 << 20, mac: int = MAC, identity: int = 5) -> None:
        self.takes, self.about = takes, About(mac, 1234, identity)
        self.session = 0
        self.held: list[int] = []
        self.out: list[int] = []
        self.base, self.sent, self.expected = FIRST, 0, FIRST
        self.most = 0  # words held at once
        self.taken: list[int] = []

    def hear(self, data: bytes) -> list[bytes]:
        """-> what it says to that."""
        said = Datagram.decode(data)
        if said is None:
            return []
        if said.kind == DatagramKind.START:
            if said.session != self.session:
                self.session, self.held, self.out = said.session, [], []
                self.base, self.sent, self.expected = FIRST, 0, FIRST
            return [self._about(DatagramKind.STARTED, said.session)]
        if said.session != self.session:
            return [self._about(DatagramKind.STRANGER, said.session)]
        if said.kind == DatagramKind.END:
            self.session = 0
            return []
        words = ahead(said.taken, self.base)
        if words <= len(self.out):
            self.out, self.base, self.sent = self.out[words:], said.taken, max(0, self.sent - words)
        if said.kind != DatagramKind.DATA:
            return []
        if said.number == self.expected and len(said.words) <= RING - len(self.held):
            self.held += said.words.tolist()
            self.expected = after(self.expected, len(said.words))
            self.most = max(self.most, len(self.held))
        return self.turn(True)

    def turn(self, owes: bool = False) -> list[bytes]:
        """It takes some words, and says what they give."""
        now, self.held = self.held[: self.takes], self.held[self.takes :]
        self.taken += now
        self.out += [(word + 1) & 0xFFFF for word in now]
        said = []
        while self.sent < min(len(self.out), RING):
            words = np.array(self.out[self.sent : min(RING, self.sent + LONGEST)], np.uint16)
            said.append(self._say(DatagramKind.DATA, words))
            self.sent += len(words)
        if not said and owes:
            said.append(self._say(DatagramKind.ACK, np.zeros(0, np.uint16)))
        return said

    def repeat(self) -> list[bytes]:
        """It says again what has not been confirmed."""
        self.sent = 0
        return self.turn()

    def _say(self, kind: DatagramKind, words: np.ndarray) -> bytes:
        number, room = after(self.base, self.sent), RING - len(self.held)
        return Datagram(kind, self.session, number, self.expected, room, words).encode()

    def _about(self, kind: DatagramKind, session: int) -> bytes:
        return Datagram(kind, session, 0, 0, RING, self.about.pack()).encode()
