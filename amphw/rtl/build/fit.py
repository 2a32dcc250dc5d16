"""What a plan takes of a chip before anything is built, and the largest plan that the chip has room for.

Block memories are counted memory by memory; look-up tables, flip-flops and multipliers follow a line through
real builds. No estimate replaces the build, whose figures are the ones reported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from amphw.ir.errors import AmphwError, GraphError
from amphw.ir.graph import Graph
from amphw.ir.update import UpdateRule
from amphw.rtl.build.board_sections import Resources
from amphw.rtl.build.boards import Board
from amphw.rtl.build.fit_logic import FIGURES, errors, logic
from amphw.rtl.build.fit_memory import memories
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.plan.hardware import MOST_WORDS, HardwarePlan, Sizes, hardware_plan
from amphw.rtl.plan.remedies import LEAST_LANES, Remedies, larger
from amphw.rtl.plan.sizing import memory_sizes

LANES = (32, 16, 8, 4, LEAST_LANES)
"""That are tried, the most first, but for those that are more than the columns of any layer."""


class FitError(AmphwError):
    """A design that is larger than the chip. The message says what of it, by how much, and what to do.

    short: names of what there is too little of, and `payload` for words beyond addresses.
    """

    def __init__(self, message: str, short: Collection[str] = ()):
        super().__init__(message)
        self.short = frozenset(short)


@dataclass(frozen=True)
class Estimate:
    """Of a chip's resources, in its own units."""

    luts: int
    ffs: int
    dsps: int
    brams: int

    def excess(self, board: Board, error: Mapping[str, float] | None = None) -> dict[str, tuple[int, int]]:
        """(wanted, there) of each resource that the chip has too little of.

        error: per resource, as a fraction, by how much more may be wanted without being listed.
        """
        there, allowed = asdict(board.placeable), error or {}
        return {k: (n, there[k]) for k, n in asdict(self).items() if n > there[k] * (1 + allowed.get(k, 0))}


ETHERNET = {"luts": 2957, "ffs": 1893, "brams": 5}
USB = {
    ("full", "ecp5"): {"luts": 1680, "ffs": 822, "brams": 1},
    ("high", "ecp5"): {"luts": 1720, "ffs": 880, "brams": 3},
    ("full", "gowin"): {"luts": 2450, "ffs": 940, "brams": 1},
    ("high", "gowin"): {"luts": 2350, "ffs": 905, "brams": 3},
}
"""What a link over Ethernet takes more of an ECP5, and one over USB of a speed of a family's chips, than a
serial line, of which all builds are that estimates are made of: each was mapped, with words that go back as
they come."""


SUPPLIES = {"luts": 125, "ffs": 51, "brams": 0}
"""What a chip takes to set the supplies of its PHY's pins."""


def of_link(board: Board) -> dict[str, int]:
    """What the board's link takes more than a serial line."""
    none = dict.fromkeys(ETHERNET, 0)
    more = none
    if board.link.kind == "ethernet":
        more = ETHERNET
    elif board.link.kind == "usb":
        more = USB[board.usb.speed, board.target.family]
    supplies = SUPPLIES if board.link.kind == "usb" and board.usb.supply_volts else none
    return {what: more[what] + supplies[what] for what in more}


def estimate(plan: HardwarePlan, board: Board) -> Estimate:
    """What the plan takes of the board's chip, about: `fit_logic.errors`; `brams` is exact for ECP5, but for
    bits that turn out to be constant."""
    more = of_link(board)
    found = {name: count + more.get(name, 0) for name, count in logic(plan, board).items()}
    brams = sum(each.blocks(board) for each in memories(plan)) + more["brams"]
    return Estimate(**found, brams=brams)


@dataclass(frozen=True)
class Fit:
    """A plan that a board should have room for, or that an estimate within its error cannot refuse.

    keys: that train at once.
    """

    plan: HardwarePlan
    keys: int
    estimate: Estimate


def fits(
    graph: Graph,
    rules: Mapping[str, UpdateRule],
    formats: Formats,
    board: Board,
    most_keys: int,
    infer_keys: int,
    keys: int | None = None,
    lanes: int | None = None,
    nodes: Collection[str] | None = None,
    remedies: Remedies | None = None,
) -> list[Fit]:
    """Plans that fit, those with more lanes first; each with as many keys as fit, up to `most_keys`.

    Where an estimate is beyond the chip by no more than its own error, the plan is among them: mapping tells.

    keys, lanes: exactly so many. infer_keys: slots for keys that infer, at most as many as train.
    nodes: those of the graph that the device has, in a run with the CPU; all, and a run of its own, if not
    said. remedies: named if nothing fits.
    GraphError for what the hardware cannot run, FitError if nothing fits.
    """
    if lanes is not None and (lanes < 2 or lanes & (lanes - 1)):
        raise FitError(f"{lanes} lanes cannot be built: choose a power of two of 2 or more.")
    found: list[Fit] = []
    refused: tuple[HardwarePlan, int, Estimate] | None = None
    for choice in (lanes,) if lanes is not None else LANES:
        try:
            base = hardware_plan(
                graph,
                rules,
                formats,
                Sizes(lanes=choice, counters=_counters(board)),
                nodes,
            )
        except GraphError:
            if refused is None and not found:
                raise
            break  # parameters lie deeper with fewer lanes, out of reach: what was refused before tells more
        if lanes is None and choice not in useful(LANES, _widest(base)):
            continue
        for many in (keys,) if keys is not None else range(most_keys, 0, -1):
            plan = replace(base, sizes=memory_sizes(base, many, min(many, infer_keys)))
            guess = estimate(plan, board)
            if not guess.excess(board, errors()) and plan.sizes.payload <= MOST_WORDS:
                found.append(Fit(plan, many, guess))
                break
            refused = plan, many, guess
    if not found:
        assert refused is not None
        plan, _, guess = refused
        raise FitError(
            _refusal(*refused, board, remedies or Remedies(lanes, keys)), _short(plan, guess, board)
        )
    return found


def useful(lanes: Sequence[int], columns: int) -> list[int]:
    """Those of some numbers of lanes that have columns to work on, where the widest layer has so many; one
    number is always useful."""
    return [n for n in lanes if n == lanes[-1] or n // 2 < columns]


def _widest(plan: HardwarePlan) -> int:
    """Columns of the widest parameter."""
    return max((p.columns for of in plan.stack.places.values() for p in of.values()), default=1)


def _counters(board: Board) -> int:
    """Counters are for chips with room to spare."""
    return int(board.target.family == "ecp5")


def shortage(of: Estimate, board: Board, estimated: bool = False) -> str:
    """What the board has too little of, and by how much. estimated: whether it is of before the build."""
    parts = []
    for name, (wanted, there) in of.excess(board).items():
        about, has = "about " * (estimated and name in FIGURES), getattr(board.resources, name)
        room = f"{board.name} has {f'{has:,}' if has else 'none'}"
        room += f", of which {there:,} can be placed" * (there < has)
        parts.append(f"{about}{wanted:,} {Resources.NAMES[name]}, {wanted - there:,} too many ({room})")
    return ", ".join(parts)


def _short(plan: HardwarePlan, taken: Estimate, board: Board) -> list[str]:
    return [*taken.excess(board), *(["payload"] if plan.sizes.payload > MOST_WORDS else [])]


def _refusal(plan: HardwarePlan, keys: int, guess: Estimate, board: Board, remedies: Remedies) -> str:
    """Why the least demanding plan does not fit."""
    short = guess.excess(board)
    parts = [shortage(guess, board, estimated=True)] if short else []
    if plan.sizes.payload > MOST_WORDS:
        parts.append(
            f"{plan.sizes.payload:,} words of payload memory, {plan.sizes.payload - MOST_WORDS:,} too many "
            f"(addresses reach {MOST_WORDS:,})"
        )
    amount = f"{keys} key{'s' * (keys > 1)}"
    lines = [f"It does not fit: with {plan.sizes.lanes} lanes and {amount} it needs {', '.join(parts)}."]
    if "brams" in short:
        largest = sorted(memories(plan), key=lambda each: -each.blocks(board))[:3]
        shown = ", ".join(f"{each.name} ({each.blocks(board):,})" for each in largest)
        lines.append(f"The largest memories, in blocks: {shown}.")
    return " ".join([*lines, advice(guess, plan, board, remedies)])


def advice(taken: Estimate, plan: HardwarePlan, board: Board, remedies: Remedies) -> str:
    """What to do about a plan that takes more than the board has."""
    short = _short(plan, taken, board)
    if "payload" in short:
        return remedies.text(short, plan, board, [])  # addresses are as wide on every board
    others = [each for each in larger(short, board) if not estimate(plan, each).excess(each)]
    return remedies.text(short, plan, board, others)
