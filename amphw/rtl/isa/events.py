"""What a device tells whoever watches it: events, each one number, as the simulation hands them over.

Defined once, here, as `wire` does for messages: the hardware's layout is made from it, and the host
reads with it. Fields lie from the low bits upwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from amphw.rtl.isa.wire import joined, parted


class What(IntEnum):
    """What happened; the fields beside it that say more."""

    BEGIN = 0  # a firing: kind (`numbering.FrameKind`), unit, slot, firing
    END = 1  # the one that began last
    UPDATE = 2  # parameters have changed: unit
    WRITE = 3  # an engine writes a word: firing = its address, data


FIELDS: Sequence[tuple[str, int]] = (
    ("what", 2),
    ("kind", 2),
    ("unit", 8),
    ("slot", 8),
    ("firing", 16),
    ("data", 16),
)
"""Name and bits."""

BITS = dict(FIELDS)


def pack(what: What, **fields: int) -> int:
    """An event; AmphwError for a number that does not fit its field."""
    return joined(FIELDS, "an event", what=int(what), **fields)


def unpack(event: int) -> dict[str, int]:
    """Its fields."""
    return parted(FIELDS, event)
