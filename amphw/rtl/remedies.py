"""What a user can still change so that a design that is larger than the chip becomes smaller."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from amphw.rtl.boards import BOARDS, Board
from amphw.rtl.hardware_plan import HardwarePlan

LEAST_LANES = 2

_LOGIC = {"luts", "ffs", "dsps"}
_MEMORY = {"brams", "payload"}


@dataclass(frozen=True)
class Remedies:
    """What was chosen, as far as it can be chosen smaller.

    lanes, keys: as given; None where the least that is possible has been tried. settings: options that make
    the model's own messages and layers smaller, as they are written. own_schema: whether the user wrote the
    model, and so the bounds of its schema.
    """

    lanes: int | None = None
    keys: int | None = None
    settings: Sequence[str] = ()
    own_schema: bool = False

    def text(self, short: Collection[str], plan: HardwarePlan, board: Board) -> str:
        """Those that act on what is short: names of resources, and `payload` for words beyond addresses."""
        of = set(short)
        options: list[str] = []
        if self.lanes is not None and self.lanes > LEAST_LANES and of & (_LOGIC | {"brams"}):
            options.append("fewer lanes (--lanes)")
        if self.keys is not None and self.keys > 1 and of & _MEMORY:
            options.append("fewer keys (--keys)")
        if of & _MEMORY:
            options += self.settings
            if self.own_schema:
                options.append("lower bounds in the schema")
        if any(rule.mu is not None for rule in plan.rules.values()) and of - {"payload"}:
            options.append("--set optimizer=sgd")
        options += [f"--board {other}" for other in _larger(of, board)]
        if not options:
            return "Nothing else can be chosen smaller: take a smaller model."
        return f"What would help: {', '.join(options)}."


def _larger(short: Collection[str], board: Board) -> list[str]:
    """Boards that have more of everything that is short."""
    if "payload" in short:  # addresses are as wide on every board
        return []
    return [
        other.name
        for other in BOARDS.values()
        if all(getattr(other.resources, r) > getattr(board.resources, r) for r in short)
    ]
