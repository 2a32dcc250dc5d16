"""Merging: equal operations on neighbouring columns become one wide operation.

So the sigmoids of three gates are one, and what `build` cut into atoms is whole again where the pieces
fared alike. Results that are wanted in different places stay apart: one of them would have to be copied.
"""

from __future__ import annotations

from dataclasses import replace

from amphw.engine.tiles.draft import ZERO, Draft, Kind, Node, Piece, Row, zeros
from amphw.engine.tiles.operations import COLUMN_OPS, Op
from amphw.engine.tiles.place import IN_PLACE, Home, claims

MERGED = (IN_PLACE - {Op.Dropout, Op.AddAt}) | {Op.SpreadCols}
"""Operations of which column j of the result depends on column j of the operands, whatever j is."""


def merge(draft: Draft) -> None:
    """Merge until there are no two neighbours left."""
    while (pair := _neighbours(draft)) is not None:
        left, right = pair
        a, b = draft.nodes[left], draft.nodes[right]
        draft.nodes[left] = replace(
            a,
            width=a.width + b.width,
            args=tuple(_joint(a, k, x, y) for k, (x, y) in enumerate(zip(a.args, b.args, strict=True))),
        )
        draft.replace(right, (Piece(left, a.width, b.width),))
        draft.sweep()


def _neighbours(draft: Draft) -> tuple[int, int] | None:
    claimed = claims(draft)
    alike: dict[tuple[Op, int], list[int]] = {}
    for i, node in draft.nodes.items():
        if node.kind == Kind.Instr and node.op in MERGED:
            alike.setdefault((node.op, node.args[0][0].var), []).append(i)
    for same in alike.values():
        for i in same:
            a = draft.nodes[i]
            for j in same:
                b = draft.nodes[j]
                if i != j and _alike(a, b) and _side_by_side(claimed.get(i), claimed.get(j), a.width):
                    # Neither can need the other: their operands are pieces of the same variables.
                    return i, j
    return None


def _alike(a: Node, b: Node) -> bool:
    """Whether b does to the columns behind a's what a does."""
    if (a.op, a.space, a.f, a.ints, len(a.args)) != (b.op, b.space, b.f, b.ints, len(b.args)):
        return False
    return all(_joint(a, k, x, y) != () for k, (x, y) in enumerate(zip(a.args, b.args, strict=True)))


def _joint(node: Node, arg: int, x: Row, y: Row) -> Row:
    """Operands of two neighbours as one; () where they cannot be one."""
    (p,), (q,) = x, y
    if (node.op in COLUMN_OPS and arg == 1) or node.op == Op.SpreadCols:
        return x if x == y else ()
    if p.var == ZERO and q.var == ZERO:
        return zeros(p.width + q.width)
    if p.var != q.var or p.offset + p.width != q.offset:
        return ()
    return (Piece(p.var, p.offset, p.width + q.width),)


def _side_by_side(left: Home | None, right: Home | None, width: int) -> bool:
    if left is None or right is None:
        return left is right
    return right == Home(left.block, left.offset + width)
