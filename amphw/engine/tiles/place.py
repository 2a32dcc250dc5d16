"""Where each variable of a draft lives.

A *block* is a run of columns that variables share: an output, a gradient row, a log buffer (fixed), or a free
one, which becomes part of what is saved for the backward direction or of the scratch rows. A pack's parts are
computed in their place inside its block if they can be, and copied otherwise. What one elementwise operation
alone reads is computed where that operation's result goes, so that it works in place.

Nobody but the operation that overwrites it reads an input gradient: where nobody wants it, the rows of a tile
may all be one and the same row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from amphw.engine.tiles.code import Base, Place
from amphw.engine.tiles.draft import (
    ZERO,
    Draft,
    Kind,
    Node,
    Piece,
    Row,
    Use,
    boundaries,
    joined,
    part,
    width_of,
)
from amphw.engine.tiles.operations import ELEMENTWISE, Op
from amphw.engine.tiles.order import ordered

IN_PLACE = ELEMENTWISE | {Op.Dropout, Op.Mov, Op.AddAt}
"""Operations whose result may lie exactly where an operand does."""


@dataclass
class Block:
    """base: of a fixed block. saved: holds what the backward direction reads."""

    space: int
    width: int
    base: Base | None = None
    saved: bool = False


@dataclass(frozen=True, slots=True)
class Home:
    """Where a variable's first column is."""

    block: int
    offset: int


@dataclass
class Places:
    """homes: by variable, sources excepted."""

    blocks: list[Block] = field(default_factory=list)
    homes: dict[int, Home] = field(default_factory=dict)

    def open(self, block: Block) -> int:
        self.blocks.append(block)
        return len(self.blocks) - 1


def claims(draft: Draft) -> dict[int, Home]:
    """The variables that can be computed inside a pack, with the pack's number in the place of a block."""
    uses = draft.uses()
    out: dict[int, Home] = {}
    for id, node in _packs(draft):
        at = 0
        for p in node.args[0]:
            if p.var not in out and _fits(draft, uses, node, p):
                out[p.var] = Home(id, at)
            at += p.width
    return out


def _packs(draft: Draft) -> list[tuple[int, Node]]:
    """Fixed ones in their order, then the others, wide ones first."""
    packs = [(i, n) for i, n in draft.nodes.items() if n.kind == Kind.Pack]
    return [
        *((i, n) for i, n in packs if n.base is not None),
        *sorted(((i, n) for i, n in packs if n.base is None), key=lambda item: -item[1].width),
    ]


def _fits(draft: Draft, uses: dict[int, list[Use]], pack: Node, p: Piece) -> bool:
    if p.var == ZERO or p.offset:
        return False
    node = draft.nodes[p.var]
    if node.kind in (Kind.Source, Kind.Pack) or node.width != p.width or node.space != pack.space:
        return False
    write_only = pack.base is not None and pack.base.place == Place.InputGradient
    return not write_only or len(uses[p.var]) == 1


def place(draft: Draft) -> Places:
    """Give every variable a home; what has to be copied into a pack becomes an instruction."""
    places = Places()
    _settle(draft, places)
    uses = draft.uses()
    kept = {p.var for node in draft.nodes.values() if node.kind == Kind.Keep for p in node.args[0]}
    taken: set[int] = set()
    for id in reversed(ordered(draft)):
        node = draft.nodes[id]
        if node.kind in (Kind.Instr, Kind.Gemm, Kind.Move) and node.width and id not in places.homes:
            _house(draft, places, uses[id], id, taken, kept)
    for id in kept & places.homes.keys():
        places.blocks[places.homes[id].block].saved = True
    return places


def _settle(draft: Draft, places: Places) -> None:
    """Homes for the packs and their parts; every part is then a variable of its own that lies in the pack.

    A pack whose row occurs in an earlier one lies inside that; it waits for its own parts only.
    """
    claimed = claims(draft)
    rows: list[tuple[int, Row]] = []
    for id, node in _packs(draft):
        row = node.args[0]
        inside = _within(draft, places, rows, row) if node.base is None else None
        if inside is not None:
            places.homes[id], node.args = inside
            continue
        rows.append((id, row))
        block = places.open(Block(node.space, node.width, node.base))
        places.homes[id] = Home(block, 0)
        pieces, at = [], 0
        for p in row:
            if claimed.get(p.var) != Home(id, at):
                p = _copied(draft, node.space, p)
            places.homes[p.var] = Home(block, at)
            pieces.append(p)
            at += p.width
        node.args = (tuple(pieces),)


def _within(
    draft: Draft, places: Places, rows: list[tuple[int, Row]], row: Row
) -> tuple[Home, tuple[Row]] | None:
    """Where a row lies in a pack that is settled, and the variables that it consists of there; or None.

    rows: what each settled pack consisted of before parts of it were copied.
    """
    width = width_of(row)
    for id, whole in rows:
        pack = draft.nodes[id]
        if pack.base is not None and pack.base.place == Place.InputGradient:
            continue
        for start in sorted({0} | boundaries(whole)):
            if part(whole, start, width) == row:
                return Home(places.homes[id].block, start), (part(pack.args[0], start, width),)
    return None


def _copied(draft: Draft, space: int, p: Piece) -> Piece:
    if p.var == ZERO:
        (piece,) = draft.instr(Op.Fill, space, p.width)
    else:
        (piece,) = draft.instr(Op.Mov, space, p.width, [joined([p])])
    return piece


def _house(draft: Draft, places: Places, uses: list[Use], id: int, taken: set[int], kept: set[int]) -> None:
    """A home for one variable: where its readers put their results, if those can work in place."""
    node = draft.nodes[id]
    inside = _overwriters(draft, uses, taken)
    # What is saved is written to memory that is far away, so nothing is saved for its neighbours' sake.
    saved = {places.homes[v].block for v in kept & places.homes.keys()}
    staying = {u for u in inside if places.homes[u].block in saved}
    if id not in kept and sum(inside[u].width for u in staying) < node.width:
        inside = {u: p for u, p in inside.items() if u not in staying}
    taken.update(inside)
    spots = {Home(places.homes[u].block, places.homes[u].offset - p.offset) for u, p in inside.items()}
    if len(spots) == 1 and sum(p.width for p in inside.values()) == node.width:
        places.homes[id] = spots.pop()
        return
    block = places.open(Block(node.space, node.width))
    places.homes[id] = Home(block, 0)
    for u, p in inside.items():
        theirs = places.homes[u].block
        old = places.blocks[theirs]
        if old.base is not None or old.width != p.width:
            taken.discard(u)
            continue
        for v, home in places.homes.items():
            if home.block == theirs:
                places.homes[v] = Home(block, p.offset + home.offset)


def _overwriters(draft: Draft, uses: list[Use], taken: set[int]) -> dict[int, Piece]:
    """Elementwise readers that are alone in reading their columns, and may thus write over them."""
    pieces: dict[int, set[Piece]] = {}
    for u in uses:
        pieces.setdefault(u.reader, set()).add(u.piece)
    out: dict[int, Piece] = {}
    for reader, read in pieces.items():
        node = draft.nodes[reader]
        if len(read) != 1 or reader in taken or node.kind != Kind.Instr or node.op not in IN_PLACE:
            continue
        (p,) = read
        others = (q for r, qs in pieces.items() if r != reader for q in qs)
        apart = all(q.offset + q.width <= p.offset or p.offset + p.width <= q.offset for q in others)
        if p.width == node.width and apart:
            out[reader] = p
    return out
