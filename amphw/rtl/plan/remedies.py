"""What a user can still change so that a design that is larger than the chip becomes smaller."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from amphw.rtl.build.board_sections import Resources
from amphw.rtl.build.boards import BOARDS, Board
from amphw.rtl.build.fit_logic import FIGURES, errors, of_lanes
from amphw.rtl.plan.hardware import HardwarePlan

LEAST_LANES = 2

LOGIC = frozenset({"luts", "ffs", "dsps"})
"""What fewer lanes, and less arithmetic, take less of; `MEMORY`: what smaller messages and layers do."""

MEMORY = frozenset({"brams", "payload"})
_NAMES = {**Resources.NAMES, "payload": "words of payload memory"}


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

    def text(self, short: Collection[str], plan: HardwarePlan, board: Board, others: Sequence[Board]) -> str:
        """Those that act on what is short, if there are some for all of it; else that there are none.

        short: names of resources, and `payload` for words beyond addresses. others: boards that have room.
        """
        acting = {option: set(short) & of for option, of in self._options(plan).items()}
        helps = [option for option, of in acting.items() if of]
        stuck = [r for r in short if _beyond(r, board) or not any(r in of for of in acting.values())]
        if not stuck:
            return f"What would help: {', '.join([*helps, *map(_chosen, _smallest(others))])}."
        there = ""
        if not others:  # that have room for it as it is: some may have for a smaller one
            others = [each for each in larger(stuck, board) if not any(_beyond(r, each) for r in FIGURES)]
            there = f", and there {', '.join(helps)}" if helps else ""
        if not others:
            return "Nothing else can be chosen smaller: take a smaller model."
        return f"{_why(stuck, board)} What would help: {' or '.join(map(_chosen, _smallest(others)))}{there}."

    def _options(self, plan: HardwarePlan) -> dict[str, frozenset[str]]:
        """What each option that there still is makes smaller."""
        options: dict[str, frozenset[str]] = {}
        if self.lanes is not None and self.lanes > LEAST_LANES:
            options["fewer lanes (--lanes)"] = LOGIC | {"brams"}
        if self.keys is not None and self.keys > 1:
            options["fewer keys (--keys)"] = MEMORY
        options |= dict.fromkeys(self.settings, MEMORY)
        if self.own_schema:
            options["lower bounds in the schema"] = MEMORY
        if any(rule.mu is not None for rule in plan.rules.values()):
            options["--set optimizer=sgd"] = LOGIC | {"brams"}
        if any(rule.limit for rule in plan.rules.values()):
            options["--set clip=0"] = LOGIC
        return options


def _smallest(boards: Sequence[Board], most: int = 3) -> list[Board]:
    """As many as are worth a look: any larger one would do as well."""
    return sorted(boards, key=lambda each: (each.resources.luts, each.name))[:most]


def _chosen(board: Board) -> str:
    return f"--board {board.name}"


def _beyond(resource: str, board: Board) -> bool:
    """Whether the smallest circuit of all takes more than the board has."""
    if resource not in FIGURES:
        return False
    least = of_lanes(LEAST_LANES, board.target.family)[resource]
    return least > getattr(board.placeable, resource) * (1 + errors().get(resource, 0))


def _why(stuck: Sequence[str], board: Board) -> str:
    """Why nothing but another board helps."""
    absent = [each for each in stuck if each in Resources.NAMES and not getattr(board.resources, each)]
    if not absent:
        return f"No option lowers the number of {', '.join(_NAMES[each] for each in stuck)} far enough."
    return " ".join(
        f"{board.name} has no {_NAMES[each]}, and no circuit does without, however small the model; the "
        f"smallest boards that have them: {', '.join(b.name for b in _smallest(larger([each], board)))}."
        for each in absent
    )


def larger(short: Collection[str], board: Board) -> list[Board]:
    """Boards that have more of everything that is short."""
    if "payload" in short:  # addresses are as wide on every board
        return []
    return [other for other in BOARDS.values() if all(_amount(r, other) > _amount(r, board) for r in short)]


def _amount(resource: str, board: Board) -> int:
    """Of a resource; block memories in bits, since they are not of one size everywhere."""
    amount: int = getattr(board.placeable, resource)
    return amount * board.resources.bram_bits if resource == "brams" else amount
