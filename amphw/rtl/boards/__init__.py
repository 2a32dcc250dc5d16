"""Boards that can be built for, one file each; `board` finds them by name.

To add a board, write a `Board` and put it into `BOARDS` under its name. It needs a chip of a family that
`amphw.rtl.toolchain.families` knows, what the chip has, and a pin-out: a class of amaranth-boards, or one of
your own beside it, whose default clock is the oscillator and whose resources hold a `uart` number 0.
"""

from __future__ import annotations

import difflib

from amphw.rtl.boards.board import Board, BoardError, Resources
from amphw.rtl.boards.icebreaker import ICEBREAKER
from amphw.rtl.boards.tang_nano_9k import TANG_NANO_9K
from amphw.rtl.boards.ulx3s_85f import ULX3S_85F

BOARDS: dict[str, Board] = {board.name: board for board in (ULX3S_85F, ICEBREAKER, TANG_NANO_9K)}

__all__ = ["BOARDS", "Board", "BoardError", "Resources", "board"]


def board(name: str) -> Board:
    """The board of a name. Raises BoardError, with the nearest names, for one that is not known."""
    if name in BOARDS:
        return BOARDS[name]
    near = difflib.get_close_matches(name, list(BOARDS), n=2, cutoff=0.4)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    raise BoardError(
        f"There is no board {name!r}. {hint}Boards: {', '.join(BOARDS)}. "
        "To add one: python -m pydoc amphw.rtl.boards"
    )
