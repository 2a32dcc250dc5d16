"""Structures of values: tuples, lists and dicts of tensors, taken apart and put together again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from amphw.frontend.graph_spec import GraphValue
from amphw.frontend.index import Context, Dim, dims_of, union, without
from amphw.frontend.integer import Integer, items_of
from amphw.frontend.source import FrontendError
from amphw.frontend.spec import RecordValue, SequenceValue
from amphw.frontend.states import reordered
from amphw.frontend.tensor import Constant, Tensor, align, compute, filled, of_each, spread, ungroup
from amphw.frontend.trace import current
from amphw.frontend.tree_spec import TreeValue
from amphw.ir import functions as f
from amphw.ir.expr import Expr, substitute
from amphw.ir.routing import Isu


def leaves(value: Any) -> list[Tensor]:
    """The tensors of a structure, in order; of a dict in the order of its keys, whoever wrote it how."""
    value = items_of(value)
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [x for part in value for x in leaves(part)]
    if isinstance(value, dict):
        return [x for key in sorted(value) for x in leaves(value[key])]
    raise _no_value(value)


def like(structure: Any, tensors: Sequence[Tensor]) -> Any:
    """The structure with other tensors in it."""
    waiting = iter(tensors)

    def build(value: Any) -> Any:
        if isinstance(items_of(value), Tensor):
            return next(waiting)
        if isinstance(value, dict):
            built = {k: build(value[k]) for k in sorted(value)}
            return {k: built[k] for k in value}
        parts = [build(v) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)

    return build(structure)


def shape(value: Any) -> Any:
    """A structure with widths for tensors, to compare and to show."""
    value = items_of(value)
    if isinstance(value, Tensor):
        return value.width
    if isinstance(value, dict):
        return {k: shape(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return tuple(shape(v) for v in value)
    raise _no_value(value)


def _no_value(value: Any) -> FrontendError:
    """The error of something in the place of a value, with what to write where it is an array."""
    hint = ""
    if isinstance(value, np.ndarray) or type(value).__module__.partition(".")[0] == "torch":
        shape = tuple(getattr(value, "shape", ()))
        same = np.unique(np.asarray(value)) if isinstance(value, np.ndarray) else np.zeros(0)
        number = f", {float(same[0]):g}" if same.size == 1 and same[0] else ""
        what = (
            f"`constant({shape[-1]}{number})` is that, without a batch in front"
            if shape and same.size == 1
            else "`constant(width, number)` is the same number `width` times, a Layer has other numbers as "
            "its parameters"
        )
        hint = f", an array of shape {shape}; {what}"
    elif isinstance(value, int | float):
        hint = f"; `constant(width, {value})` makes one of a number"
    got = type(value).__name__ if hint.startswith(",") else repr(value)
    return FrontendError(f"expected values of the model, or tuples, lists and dicts of them; got {got}{hint}")


def concat(*tensors: Tensor) -> Tensor:
    """Side by side: the numbers of all in one value."""
    if len(tensors) == 1:
        return tensors[0]
    return compute(f.concat, *tensors, stem="concat")


def pack(tensors: Sequence[Tensor], context: Context = ()) -> Tensor:
    """All in one message of the context, or of a wider one if they need it."""
    real = [x for x in tensors if not isinstance(x, Constant)]
    if len(tensors) == 1 and real:
        x = ungroup(tensors[0]) if tensors[0].rows else tensors[0]
        return spread(x, union(context, x.context))
    aligned, wide, rows = align(tensors, least=context)
    if not real:
        parts = [filled(x, wide, rows) for x in tensors if isinstance(x, Constant)]
        packed = concat(*parts)
    else:
        packed = concat(*aligned)
    return ungroup(packed) if packed.rows else packed


def unpack(packed: Tensor, widths: Sequence[int]) -> list[Tensor]:
    """What was packed."""
    if len(widths) == 1:
        return [packed]
    starts = [sum(widths[:i]) for i in range(len(widths))]
    return [packed[a : a + w] for a, w in zip(starts, widths, strict=True)]


@dataclass(frozen=True)
class Rename:
    """A dimension in the place of another one of the same extent, and each in terms of the other."""

    old: Dim
    new: Dim
    new_of_old: Expr
    old_of_new: Expr


def looking(dim: Dim, stem: str) -> Rename:
    """A dimension with the same positions, for what reads all of them at each: queries beside their keys."""
    why = f"a position that looks at {dim.name}"
    new = current().dim(stem, dim.extent, dim.bound, why, least=dim.least, needs=dim.needs)
    return Rename(dim, new, dim.at, new.at)


def renamed(x: Tensor, *renames: Rename) -> Tensor:
    """x with other dimensions in the place of some of its own."""
    if x.rows is not None and any(x.rows is r.old or r.old in x.rows.needs for r in renames):
        x = ungroup(x)
    decided = tuple(e for r in renames for e in r.new.needs if e.capture is not None)
    x = spread(x, union(x.context, decided), x.rows)
    for d in dims_of(x.context):
        old = [r.old for r in renames]
        if d.capture is None and d not in old and any(e in d.needs for e in old):
            inner = _inner(d, renames)
            renames = (*renames, Rename(d, inner, d.at, inner.at))
    gone = [r.old for r in renames]
    context = union(without(x.context, *gone), tuple(r.new for r in renames))
    for e in without(x.context, *gone):
        for d in gone:
            if d in e.needs and e.capture is not None:
                raise of_each(e, d)
        if any(d in e.needs for d in gone):
            raise FrontendError(f"a value bound to {e.name} is not read position by position")
    name = current().name(f"{gone[0].name}_to_{renames[0].new.name}")
    drop = {r.old: r.old_of_new for r in renames}
    map = reordered(dims_of(x.context), drop=drop, add={r.new: r.new_of_old for r in renames})
    current().emit(Isu(name, map), {"in": x.port})
    return Tensor((name, "out"), x.width, context, x.rows)


def at_position(value: Any, *renames: Rename) -> Any:
    """What a sequence brings at a position of a loop: its item, with the loop's dimension for its own."""
    first = renames[0]
    if isinstance(value, Integer):
        # All at once: a dimension that stays behind for a moment would bring in what it needs again.
        found = [r for r in renames if r.old in value.context]
        expr = substitute(value.expr, {r.old.name: r.old_of_new for r in found})
        kept = without(value.context, *(r.old for r in found))
        return Integer(expr, union(kept, tuple(r.new for r in found)), value.high)
    if isinstance(value, Tensor):
        found = [r for r in renames if r.old is value.rows or r.old in value.context]
        return renamed(value, *found) if found else value
    if isinstance(value, SequenceValue):
        if value.dim is first.old:
            return at_position(value.item, *renames)
        if first.old in value.dim.needs:
            inner = _inner(value.dim, renames)
            renames = (*renames, Rename(value.dim, inner, value.dim.at, inner.at))
            return SequenceValue(
                inner, at_position(value.item, *renames), at_position(value.length, *renames)
            )
        return SequenceValue(value.dim, at_position(value.item, *renames), value.length)
    if isinstance(value, TreeValue | GraphValue):
        return _with_inner(value, renames)
    if isinstance(value, RecordValue | Positioned):
        return Positioned(value, lambda v: at_position(v, *renames))
    if isinstance(value, tuple | list):
        return type(value)(at_position(v, *renames) for v in value)
    if isinstance(value, dict):
        return {k: at_position(v, *renames) for k, v in value.items()}
    raise FrontendError(f"a loop goes over sequences and values of the model, got {value!r}")


def _with_inner(value: TreeValue | GraphValue, renames: Sequence[Rename]) -> TreeValue | GraphValue:
    """A tree or a graph of the item at a position: what it has is numbered within that item."""
    found = [r for r in renames if any(r.old in d.needs for d in value.dims)]
    if not found:
        return value
    one, other = value.dims
    dims = _inner(one, found), _inner(other, found)
    inner = [Rename(old, new, old.at, new.at) for old, new in zip(value.dims, dims, strict=True)]
    to = {r.old.name: r.old_of_new for r in found}
    return value.moved(dims, to, lambda record: Positioned(record, lambda v: at_position(v, *found, *inner)))


def _inner(dim: Dim, renames: Sequence[Rename]) -> Dim:
    """The dimension of a sequence within others, where loops go over the others."""
    known = current().net.made
    renames = [r for r in renames if r.old in dim.needs]
    key = ("inner", dim, *(r.new for r in renames))
    if key not in known:
        new = {r.old: r.new for r in renames}
        needs = tuple(new[e] if isinstance(e, Dim) and e in new else e for e in dim.needs)
        extent = substitute(dim.extent, {r.old.name: r.old_of_new for r in renames})
        inner = known[key] = current().dim(dim.name, extent, dim.bound, dim.why, least=dim.least, needs=needs)
        # What a loop gives for each of its turns has the sequence's own dimension again.
        known["inner", inner, *(r.old for r in renames)] = dim
    made: Dim = known[key]
    return made


class Positioned:
    """A record at a position; its parts are brought there when they are read."""

    def __init__(self, record: Any, bring: Callable[[Any], Any]) -> None:
        self._record, self._bring = record, bring

    @property
    def _parts(self) -> Mapping[str, Any]:
        parts: Mapping[str, Any] = self._record._parts
        return parts

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._bring(getattr(self._record, name))
