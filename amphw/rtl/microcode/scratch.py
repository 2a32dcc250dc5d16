"""Places in scratch for arrays that only one program needs; a place is used again when its array is dead."""

from __future__ import annotations

from collections.abc import Sequence

from amphw.rtl.microcode.abstract import Command
from amphw.rtl.microcode.arrays import Array, Home
from amphw.rtl.plan.records import RowSpaces, Words


def place_scratch(
    commands: Sequence[Command], spaces: RowSpaces, pointer: int
) -> tuple[dict[Array, int], Words]:
    """Give every array that has no home one behind PTR[pointer] -> the slot of each, and how much they take.

    Two arrays with one slot never live at the same time.
    """
    slot_of, slots = _slots(commands, spaces)
    # Constant sizes first: their addresses need no pointer of their own.
    offsets: dict[int, Words] = {}
    end = Words()
    for slot in sorted(range(len(slots)), key=lambda s: bool(slots[s].each)):
        offsets[slot] = end
        end += slots[slot]
    for array, slot in slot_of.items():
        array.home = Home(pointer, offsets[slot])
    return slot_of, end


def scratch_room(commands: Sequence[Command], spaces: RowSpaces) -> Words:
    """How much they take in this order, without giving them homes."""
    return sum(_slots(commands, spaces)[1], start=Words())


def _slots(commands: Sequence[Command], spaces: RowSpaces) -> tuple[dict[Array, int], list[Words]]:
    """The slot of each array, and the size of each slot."""
    first, last = _lives(commands)
    slots: list[Words] = []
    slot_of: dict[Array, int] = {}
    free: list[int] = []
    for at in range(len(commands)):
        for array in (a for a, n in first.items() if n == at):
            size = spaces.words(array.space, array.width)
            slot = _choose(size, free, slots)
            if slot is None:
                slots.append(size)
                slot = len(slots) - 1
            else:
                free.remove(slot)
            slot_of[array] = slot
        free.extend(slot_of[a] for a, n in last.items() if n == at)
    return slot_of, slots


def _lives(commands: Sequence[Command]) -> tuple[dict[Array, int], dict[Array, int]]:
    first: dict[Array, int] = {}
    last: dict[Array, int] = {}
    for at, command in enumerate(commands):
        for view in (*command.reads, *command.writes):
            if view.array.home is None:
                first.setdefault(view.array, at)
                last[view.array] = at
    return first, last


def _choose(size: Words, free: Sequence[int], slots: Sequence[Words]) -> int | None:
    """The smallest free slot that holds as much, however many rows there are."""
    fitting = [s for s in free if size.fits(slots[s])]
    return min(fitting, key=lambda s: (sum(n for _, n in slots[s].each), slots[s].constant), default=None)
