"""What travels over a link: 16-bit words, a header of constant size and a payload.

The header is defined once, here: Python packs it, the hardware's layout is made from it, and so is the C
header of a board's driver. Integers are unsigned, fields lie from the low bits of the first word upwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from itertools import accumulate

from amphw.ir.errors import AmphwError
from amphw.rtl.isa.commands import Bank

WORD = 16
"""Bits of a link word."""


class Kind(IntEnum):
    """What a message says; the fields beside it that it uses, and its payload.

    To the device. FORWARD: slot, generation, firing, place, payload (where to put the words), state.
    BACKWARD: slot, generation, firing (who sent it), place (reserved for the answer), output, payload; no
    words: an empty gradient. BEGIN: slot, generation, output = 1 for inference. TABLE: payload = address in
    table memory, words. FIRINGS: firing = the first, copy = how many, payload = the first record, place =
    words of a record, state = messages that complete a firing, unit. POKE: place = a memory (`Bank`),
    payload = beat, firing = lane, state and copy: low 32 and high bits of the number; or place = a
    `Register`, unit, state. PEEK: the same without a number. UPDATE: unit.

    From the device. FORWARD: slot, generation, unit, firing, copy (number among its messages on this path),
    output, place = path, state = decisions, words. BACKWARD: slot, generation, place, words. IDLE: slot,
    generation, copy = FORWARD messages taken since BEGIN. VALUE: the answer to PEEK. UPDATED: the answer to
    UPDATE, state = version. FAULT: output = what is wrong (`Fault`), the header's other fields as they came.
    """

    FORWARD = 1
    BACKWARD = 2
    BEGIN = 3
    TABLE = 4
    FIRINGS = 5
    POKE = 6
    PEEK = 7
    UPDATE = 8
    IDLE = 9
    VALUE = 10
    UPDATED = 11
    FAULT = 15


class Register(IntEnum):
    """Places of POKE and PEEK beside the lane engine's memories (`commands.Bank`)."""

    VERSION = 8  # updates of `unit`
    ROWS = 9  # gradient rows of `unit` since its last update
    COUNTER = 10  # number `payload` of the device's counters


class Fault(IntEnum):
    """Why a message was dropped."""

    UNKNOWN = 1  # no such kind
    LATE = 2  # its generation is not the slot's
    OUTSIDE = 3  # an address beyond the device's memory, or a number of what it has not got
    STATE = 4  # operands of one firing disagree about its state
    LENGTH = 5  # words behind the header of a kind that has none


FIELDS: Sequence[tuple[str, int]] = (
    ("kind", 4),
    ("output", 4),
    ("slot", 8),
    ("generation", 8),
    ("unit", 8),
    ("firing", 16),
    ("place", 16),
    ("payload", 16),
    ("words", 16),
    ("copy", 16),
    ("state", 32),
)
"""Name and bits of the header's fields."""

HEADER_WORDS = sum(bits for _, bits in FIELDS) // WORD


@cache
def _places(layout: tuple[tuple[str, int], ...]) -> dict[str, tuple[int, int]]:
    """By field, where it begins and its bits."""
    ends = accumulate(bits for _, bits in layout)
    return {name: (end - bits, bits) for (name, bits), end in zip(layout, ends, strict=True)}


def joined(layout: Sequence[tuple[str, int]], whose: str, **given: int) -> int:
    """Fields as one number, those not given as 0; AmphwError for a number that does not fit its field."""
    places = _places(tuple(layout))
    if unknown := given.keys() - places.keys():
        raise AmphwError(f"{whose} has no field {', '.join(repr(name) for name in given if name in unknown)}")
    total = 0
    for name, number in given.items():
        (offset, bits), value = places[name], int(number)
        if not 0 <= value < 1 << bits:
            raise AmphwError(f"{whose}'s '{name}' = {value} does not fit {bits} bits")
        total |= value << offset
    return total


def parted(layout: Sequence[tuple[str, int]], total: int) -> dict[str, int]:
    """The fields of such a number."""
    return {name: total >> at & (1 << bits) - 1 for name, (at, bits) in _places(tuple(layout)).items()}


def pack(kind: Kind, **fields: int) -> list[int]:
    """The header's words; AmphwError for a number that does not fit its field."""
    total = joined(FIELDS, "a message", kind=int(kind), **fields)
    return [total >> WORD * k & 0xFFFF for k in range(HEADER_WORDS)]


def unpack(words: Sequence[int]) -> dict[str, int]:
    """The fields of a header's words."""
    return parted(FIELDS, sum(int(w) << WORD * k for k, w in enumerate(words[:HEADER_WORDS])))


def c_header() -> str:
    """The same for a driver in C: constants, and a function each way."""
    lines = [
        "/* Messages of an amphw device: generated from amphw/rtl/isa/wire.py. */",
        "#ifndef AMPHW_WIRE_H",
        "#define AMPHW_WIRE_H",
        "#include <stdint.h>",
        "",
        f"#define AMPHW_HEADER_WORDS {HEADER_WORDS}",
    ]
    lines += [f"#define AMPHW_KIND_{k.name} {k.value}" for k in Kind]
    lines += [f"#define AMPHW_PLACE_{p.name} {p.value}" for p in (*Bank, *Register)]
    lines += [f"#define AMPHW_FAULT_{f.name} {f.value}" for f in Fault]
    lines += ["", "typedef struct {"]
    lines += [f"    uint{32 if bits > 16 else 16}_t {name};" for name, bits in FIELDS]
    lines += ["} amphw_header;", ""]
    pack_lines, unpack_lines, offset = [], [], 0
    for name, bits in FIELDS:
        done = 0
        while done < bits:
            word, shift = divmod(offset + done, WORD)
            part = min(bits - done, WORD - shift)
            mask = (1 << part) - 1
            pack_lines.append(
                f"    words[{word}] |= (uint16_t)(((h->{name} >> {done}) & 0x{mask:x}u) << {shift});"
            )
            kind = 32 if bits > 16 else 16
            unpack_lines.append(
                f"    h->{name} |= (uint{kind}_t)((uint{kind}_t)((words[{word}] >> {shift}) & 0x{mask:x}u)"
                f" << {done});"
            )
            done += part
        offset += bits
    clear = [f"    for (int i = 0; i < {HEADER_WORDS}; i++) words[i] = 0;"]
    lines += ["static inline void amphw_pack(const amphw_header* h, uint16_t* words) {", *clear, *pack_lines]
    zero = "    *h = (amphw_header){0};"
    lines += ["}", "", "static inline void amphw_unpack(amphw_header* h, const uint16_t* words) {", zero]
    return "\n".join([*lines, *unpack_lines, "}", "", "#endif", ""])


assert sum(bits for _, bits in FIELDS) % WORD == 0
