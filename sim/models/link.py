"""What the receiving end of a link makes of words, whatever they are; and random messages for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from amphw.rtl.gateware.controller.memory import ControlShape
from amphw.rtl.isa.commands import Bank
from amphw.rtl.isa.wire import FIELDS, HEADER_WORDS, Fault, Kind, Register, pack, unpack

Header = dict[str, int]

READ, WRITTEN = (*Bank, *Register), (*Bank, Register.VERSION, Register.ROWS)
"""Places of PEEK and of POKE."""

BARE = (Kind.BEGIN, Kind.FIRINGS, Kind.POKE, Kind.PEEK, Kind.UPDATE)
"""Kinds without a payload."""


class LinkModel:
    """payload, table: what was written, if it is known. generations: by slot. events, requests, faults:
    headers, in order."""

    def __init__(self, shape: ControlShape, payload: int) -> None:
        self.shape = shape
        self.payload: list[int | None] = [0] * payload
        self.table: list[int | None] = [0] * shape.table
        self.generations = [0] * shape.slots
        self.restart()

    def restart(self) -> None:
        """As a reset: memories keep what they hold."""
        self.events: list[Header] = []
        self.requests: list[Header] = []
        self.faults: list[Header] = []
        self._header: list[int] = []
        self._left = 0

    @property
    def resting(self) -> bool:
        return not self._header

    def feed(self, words: list[int]) -> None:
        for word in words:
            if len(self._header) < HEADER_WORDS:
                self._header.append(word)
                if len(self._header) < HEADER_WORDS:
                    continue
                self._begin(unpack(self._header))
            else:
                self._take(word)
            if self._left == 0:
                self._end()

    def _begin(self, header: Header) -> None:
        self._now, self._left = header, header["words"]
        self._fault = self.wrong(header)
        self._at = header["payload"]

    def wrong(self, h: Header) -> Fault | None:
        """Why a message with this header is dropped, as things are now."""
        if h["kind"] in BARE and h["words"]:
            return Fault.LENGTH
        if self._outside(h):
            return Fault.OUTSIDE
        if h["kind"] in (Kind.FORWARD, Kind.BACKWARD, Kind.TABLE, Kind.FIRINGS):
            return None if h["generation"] == self.generations[h["slot"]] else Fault.LATE
        return None if h["kind"] in BARE else Fault.UNKNOWN

    def _outside(self, h: Header) -> bool:
        s, end = self.shape, h["payload"] + h["words"]
        if h["kind"] in (Kind.POKE, Kind.PEEK, Kind.UPDATE):
            places = {Kind.POKE: WRITTEN, Kind.PEEK: READ}.get(Kind(h["kind"]), [h["place"]])
            return h["unit"] >= s.units or h["place"] not in places
        if h["kind"] not in (Kind.FORWARD, Kind.BACKWARD, Kind.TABLE, Kind.FIRINGS, Kind.BEGIN):
            return False
        beyond = h["slot"] >= s.slots
        if h["kind"] == Kind.TABLE:
            beyond |= end > s.table
        if h["kind"] == Kind.FIRINGS:
            beyond |= h["firing"] + h["copy"] > s.firings or h["unit"] >= s.units
        if h["kind"] in (Kind.FORWARD, Kind.BACKWARD):
            beyond |= end > len(self.payload) or h["output"] >= s.outputs
            beyond |= h["firing"] >= s.firings or h["place"] >= s.places
        return beyond

    def _take(self, word: int) -> None:
        self._left -= 1
        if self._fault is None:
            (self.table if self._now["kind"] == Kind.TABLE else self.payload)[self._at] = word
            self._at += 1

    def _end(self) -> None:
        h, self._header = self._now, []
        if self._fault is not None:
            self.faults.append({**h, "kind": Kind.FAULT, "output": self._fault, "words": 0})
        elif h["kind"] in (Kind.POKE, Kind.PEEK, Kind.UPDATE):
            self.requests.append(h)
        elif h["kind"] != Kind.TABLE:
            if h["kind"] == Kind.BEGIN:
                self.generations[h["slot"]] = h["generation"]
            self.events.append(h)


def header_words(header: Header) -> list[int]:
    """The words of a header of any kind, those that do not exist included."""
    fields = dict(header)
    return pack(fields.pop("kind"), **fields)  # type: ignore[arg-type]


def header_bits(header: Header) -> int:
    """A header as the integer of its bits."""
    return sum(word << 16 * k for k, word in enumerate(header_words(header)))


def random_message(
    rng: np.random.Generator, model: LinkModel, slots: range, payload: range, wrong: float
) -> list[int]:
    """Words of a message for one of `slots`, its payload within `payload`.

    wrong: the chance that a field becomes anything, where that spoils the message.
    """
    s = model.shape

    def draw(below: int) -> int:
        return int(rng.integers(max(1, below)))

    slot = slots[draw(len(slots))]
    kind = (Kind.FORWARD, Kind.BACKWARD, Kind.TABLE, *BARE)[draw(8)]
    room = s.table if kind == Kind.TABLE else payload.stop
    least = 0 if kind == Kind.TABLE else payload.start
    first = least + draw(room - least)
    words = 0 if kind in BARE else min(draw(24), room - first)
    firing = draw(s.firings)
    fields: dict[str, Any] = {
        "slot": slot, "generation": model.generations[slot], "firing": firing, "place": draw(s.places),
        "payload": first, "output": draw(s.outputs), "unit": draw(s.units), "copy": draw(s.firings - firing),
        "state": draw(1 << 32), "words": words,
    }  # fmt: skip
    if kind == Kind.BEGIN:
        fields["generation"] = draw(256)
    if kind in (Kind.POKE, Kind.PEEK):
        fields["place"] = int(rng.choice(WRITTEN if kind == Kind.POKE else READ))
    message = pack(kind, **fields)
    if rng.random() < wrong:
        spoiled = _spoiled(rng, message, model)
        if model.wrong(unpack(spoiled)) is not None:
            message, words = spoiled, unpack(spoiled)["words"]
    return message + rng.integers(0, 1 << 16, words).tolist()


def _spoiled(rng: np.random.Generator, header: list[int], model: LinkModel) -> list[int]:
    """A header with one field that is anything, has one bit that is another, or is just beyond what there is,
    or a power of two beyond; as many words follow as it says."""
    fields, s = unpack(header), model.shape
    name, bits = FIELDS[int(rng.integers(len(FIELDS)))]
    how = rng.random()
    if how < 0.02:  # as many words follow, up to all that there may be
        return header_words({**fields, "words": fields["words"] ^ 1 << int(rng.integers(16))})
    if how < 0.2 or (how < 0.6 and name == "words"):
        most = 32 if name == "words" else 1 << bits
        return header_words({**fields, name: int(rng.integers(most))})
    if how < 0.6:
        return header_words({**fields, name: fields[name] ^ 1 << int(rng.integers(bits))})
    room = s.table if fields["kind"] == Kind.TABLE else len(model.payload)
    ends = {
        "slot": s.slots,
        "unit": s.units,
        "firing": s.firings - (fields["copy"] - 1 if fields["kind"] == Kind.FIRINGS else 0),
        "place": s.places,
        "output": s.outputs,
        "payload": room - fields["words"] + 1,
    }
    name = str(rng.choice(list(ends)))
    bits = dict(FIELDS)[name]
    further = (1 << int(rng.integers(bits))) - 1 if rng.random() < 0.5 else 0
    return header_words({**fields, name: (ends[name] + further) % (1 << bits)})
