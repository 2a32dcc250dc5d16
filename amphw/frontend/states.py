"""Changes of state, in the one order of fields that all values share: that in which dimensions were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amphw.frontend.index import Context, Dim, dims_of
from amphw.ir.behaviour import StateMap
from amphw.ir.expr import Expr
from amphw.ir.state import StateType


def state_type(context: Context) -> StateType:
    return StateType(tuple(d.field for d in dims_of(context)))


def reordered(
    old: Sequence[Dim],
    *,
    drop: Mapping[Dim, Expr | None] | None = None,
    add: Mapping[Dim, Expr] | None = None,
    set: Mapping[Dim, Expr] | None = None,
    inverse: Mapping[Dim, Expr] | None = None,
    store: Sequence[Dim] = (),
) -> StateMap:
    """The StateMap from the fields `old`, in their order, to fields in the order of their dimensions.

    A field that must change its place is dropped and added again.
    """
    dropped, added, sets, back = dict(drop or {}), dict(add or {}), dict(set or {}), dict(inverse or {})
    kept = [d for d in old if d not in dropped and d not in store]
    new = sorted([*kept, *added], key=lambda d: d.number)
    same = 0
    while same < len(kept) and kept[same] is new[same]:
        same += 1
    for d in kept[same:]:
        added[d] = sets.pop(d, d.at)
        dropped[d] = back.pop(d, d.at)
    return StateMap(
        set={d.name: e for d, e in sets.items()},
        add=tuple((d.field, added[d]) for d in new[same:]),
        drop={d.name: e for d, e in dropped.items()},
        inverse={d.name: e for d, e in back.items()},
        store=tuple(d.name for d in store),
    )
