"""From many values to one, and from one to many: over the rows of a message, or over messages."""

from __future__ import annotations

from typing import Any

from amphw.frontend.index import Context, Dim, dims_of, union, without
from amphw.frontend.integer import Integer, integer
from amphw.frontend.remedies import no_keyword
from amphw.frontend.source import FrontendError
from amphw.frontend.spec import SequenceValue, items_of
from amphw.frontend.states import reordered
from amphw.frontend.tensor import Constant, Tensor, filled, gathered, spread, ungroup
from amphw.frontend.tensor import group as group_by
from amphw.frontend.trace import current
from amphw.ir import functions as f
from amphw.ir.expr import ROW, Const, Expr, both, maximum, substitute, where
from amphw.ir.nodes import NPT
from amphw.ir.program import Value, trace
from amphw.ir.routing import Cond, Isu

REDUCTIONS = ("sum", "mean", "max")
Over = Dim | SequenceValue | Tensor | None
"""A dimension, a sequence, or a value whose rows are meant: the children of a node."""


def _dim(over: object) -> Dim | None:
    if over is None or isinstance(over, Dim):
        return over
    if isinstance(over, SequenceValue):
        return over.dim
    if isinstance(over, Tensor) and over.rows is not None:
        return over.rows
    raise FrontendError(
        f"`over` is a sequence, the `nodes` of a graph or a tree, or the children of a node; got {over!r}"
    )


def innermost(x: Any, over: Over) -> Dim:
    """The dimension meant by `over`; without it the one of the rows, else the last one."""
    if not isinstance(x, Tensor):
        hint = "; `number(i)` or an Embedding makes a value of one" if isinstance(x, Integer) else ""
        raise FrontendError(f"expected a value that is computed, got {x!r}{hint}")
    over = _dim(over)
    turns = current().turns
    dims = [d for d in dims_of(x.context) if d not in turns]
    found = over or x.rows or (dims[-1] if dims else None)
    if found in turns:
        raise FrontendError("the turns of a loop are not put together within its body; `scan` gives them all")
    union(x.context)  # where a loop has ended, its values are gone
    if over is not None and over is not x.rows and over not in dims:
        raise FrontendError(
            f"{x!r} does not depend on {over.name} ({over.why}): there is nothing to gather over it"
        )
    if found is None or (found is not x.rows and found not in dims):
        raise FrontendError(f"{x!r} has one value an instance: there is nothing to gather or take apart")
    return found


def group(x: Tensor, over: Over = None) -> Tensor:
    """All values along a dimension in one message, as its rows; what follows is computed for all at once."""
    x = items_of(x)
    return group_by(x, innermost(x, over))


def reduced(members: Value, how: str, count: Expr, space: str) -> Value:
    """The rows of a message as one: their sum, mean or maximum; 0 where there are none."""
    if how == "max":
        return f.max_rows(members, space)
    total = f.sum_rows(members, space)
    return total / f.number(total, maximum(count, 1)) if how == "mean" else total


_OVER = "`over=x.words` names the sequence; of columns there are `sum_columns`, `mean_columns`, `largest`"


def reduce(x: Tensor, how: str = "sum", over: Over = None, **others: Any) -> Tensor:
    """The sum, mean or maximum along a dimension; 0 where it is empty."""
    no_keyword("reduce", others, {"dim": _OVER, "axis": _OVER, "keepdim": "its width stays as it is"})
    x = items_of(x)
    if how not in REDUCTIONS:
        raise FrontendError(f"unknown reduction '{how}'; there are {', '.join(REDUCTIONS)}")
    if isinstance(x, Constant):
        if (along := _dim(over)) is None:
            raise FrontendError("a constant is the same everywhere; say over what it is reduced")
        x = filled(x, union((along,)))
    dim = innermost(x, over)
    if x.rows is not dim:
        return gathered(x, dim, lambda m: reduced(m, how, dim.extent, "rows"), how)
    program = trace(lambda m: reduced(m, how, dim.extent, "one"), {"x0": x.width}, spaces={"one": 1})
    name = current().name(how)
    current().emit(NPT(name, program), {"x0": x.port})
    return Tensor((name, "out"), x.width, x.context)


def pick(x: Any, position: Integer | int, over: Over = None) -> Any:
    """The value, or the Integer, at one position of a dimension, such as the last word or the root.

    The position is below the length of the dimension, for each instance.
    """
    x, position = items_of(x), integer(position)
    if isinstance(x, Integer):
        if not (dims := dims_of(x.context)):
            raise FrontendError("the Integer has one value an instance: there is nothing to pick from")
        along = _dim(over) or dims[-1]
        _refuse_beyond(along, position)
        if not _exists(along, position):
            # Parts lie one behind the other: a position too far would read the next one's.
            index = where(_within(along, position), position.expr, _NOWHERE)
            position = Integer(index, union(position.context, along.needs))
        return x.at(along, position)
    dim = innermost(x, over)
    _refuse_beyond(dim, position)
    if dim in position.context:
        raise FrontendError(f"the position '{position.expr}' depends on {dim.name} itself")
    if dim.least == 0 and x.rows is not dim:
        x = group_by(x, dim)  # of none, nobody could say that the position does not exist
    x = _beside(x if x.rows is dim or x.rows is None else ungroup(x), position.context)
    if x.rows is dim:
        program = trace(lambda v: f.gather_rows(v, position.expr, "one"), {"x0": x.width}, spaces={"one": 1})
        name = current().name("pick")
        current().emit(NPT(name, program), {"x0": x.port})
        return Tensor((name, "out"), x.width, x.context)
    for e in x.context:
        if dim in e.needs:
            raise FrontendError(f"the value is not picked along {dim.name} while it is bound to {e.name}")
    name = current().name("pick")
    source = x.port
    if not _exists(dim, position):
        # Of a position that does not exist no message would know; a Cond refuses what no port is for.
        there = Cond(current().name("pick?"), where(_within(dim, position), 0, 1), ("yes",), ())
        source = (current().emit(there, {"in": source}), "yes")
    current().emit(Cond(name, dim.at.eq(position.expr), ("others", "picked"), ()), {"in": source})
    return _dropped(Tensor((name, "picked"), x.width, x.context), dim)


_NOWHERE = 1 << 30  # no table has so many entries


def _within(dim: Dim, position: Integer) -> Expr:
    return both(position.expr >= 0, position.expr < dim.extent)


def _exists(dim: Dim, position: Integer) -> bool:
    """Whether every instance has that position: the first one or the last."""
    return position.expr in (Const(0), dim.extent - 1) and dim.least > 0


def _refuse_beyond(dim: Dim, position: Integer) -> None:
    known = position.expr.value if isinstance(position.expr, Const) else 0
    if not 0 <= known < dim.bound:
        raise FrontendError(
            f"there is no position {known} of {dim.name} ({dim.why}), which are {dim.bound} at most"
        )


def _beside(x: Tensor, context: Context) -> Tensor:
    """x where an index of that context is known too, and the branches that are being traced are taken."""
    return spread(x, union(x.context, context, tuple(current().active)), x.rows)


def _dropped(x: Tensor, dim: Dim) -> Tensor:
    """x without a dimension whose value a Cond before has fixed."""
    name = current().name(f"without_{dim.name}")
    current().emit(Isu(name, reordered(dims_of(x.context), drop={dim: None})), {"in": x.port})
    return Tensor((name, "out"), x.width, without(x.context, dim))


def take(x: Tensor, index: Integer, over: Over = None) -> Tensor:
    """Rows of x by number, for each position that the index is about: `x[index]`, the Distribute of a graph.

    The result has a row for each value of the last dimension that the index depends on, turns of loops apart.
    An index that is not below the number of rows is an error when the model runs.
    """
    x, index = items_of(x), integer(index)
    x = group_by(x, innermost(x, over))
    target = _target(x, index)
    beside = without(index.context, target)
    if x.rows in beside:
        raise FrontendError(f"the index '{index.expr}' depends on {x.rows.name} itself, whose rows are taken")
    x = _beside(x, beside)
    expr = _by_row(index, target)
    program = trace(
        lambda v: f.gather_rows(v, expr, target.name), {"x0": x.width}, spaces={target.name: target.extent}
    )
    name = current().name("take")
    current().emit(NPT(name, program), {"x0": x.port})
    return Tensor((name, "out"), x.width, x.context, target)


def put(x: Tensor, index: Integer, into: Dim | SequenceValue) -> Tensor:
    """Add each row of x to the row `index` of a new value with rows `into`: the Collect of a graph.

    An index that is not below the number of rows `into` is an error when the model runs.
    """
    dim = into.dim if isinstance(into, SequenceValue) else into
    x, index = items_of(x), integer(index)
    x = group_by(x, innermost(x, None))
    assert x.rows is not None
    x = _beside(x, union(without(index.context, x.rows), dim.needs))
    assert x.rows is not None
    expr = _by_row(index, x.rows)
    program = trace(
        lambda v: f.scatter_rows(v, expr, dim.name), {"x0": x.width}, spaces={dim.name: dim.extent}
    )
    name = current().name("put")
    current().emit(NPT(name, program), {"x0": x.port})
    return Tensor((name, "out"), x.width, x.context, dim)


def _target(x: Tensor, index: Integer) -> Dim:
    # In one turn of a loop an index has the one value of that turn.
    known = {*x.context, *current().inside}
    free = [d for d in dims_of(index.context) if d not in known]
    if not free:
        raise FrontendError(
            f"the index '{index.expr}' runs along no dimension that {x!r} does not have; `pick` takes one row"
        )
    return free[-1]


def _by_row(index: Integer, dim: Dim) -> Expr:
    return substitute(index.expr, {dim.name: ROW})
