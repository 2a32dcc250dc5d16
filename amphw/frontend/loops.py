"""Loops over sequences: `scan` and `fold`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amphw.frontend.index import Context, Dim, dims_of, union, without
from amphw.frontend.integer import Integer
from amphw.frontend.source import FrontendError, called
from amphw.frontend.spec import SequenceValue
from amphw.frontend.states import reordered
from amphw.frontend.tensor import Constant, Tensor, spread, ungroup
from amphw.frontend.trace import current, trials
from amphw.frontend.values import Rename, at_position, leaves, like, renamed, shape
from amphw.ir.expr import Const, Expr
from amphw.ir.graph import PortRef
from amphw.ir.routing import Cond, Isu, Phi

Body = Callable[..., Any]


def fold(
    body: Body,
    init: Any,
    over: Any = None,
    *,
    length: int | Integer | None = None,
    most: int | None = None,
    reverse: bool = False,
) -> Any:
    """`scan` without anything but the end: `body(carry, item) -> carry`, such as a recurrent layer."""

    def with_nothing(*args: Any) -> tuple[Any, None]:
        return called("the body of a fold", body, *args), None

    return scan(with_nothing, init, over, length=length, most=most, reverse=reverse)[0]


def scan(
    body: Body,
    init: Any,
    over: Any = None,
    *,
    length: int | Integer | None = None,
    most: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """`body(carry, item) -> (carry, y)` for each item, as `jax.lax.scan` -> (last carry, all y).

    over: a sequence of the instance, a value that depends on a position, or a tuple or dict of those with the
    same positions. Without it the body is called with the carry alone, `length` times (an Integer has at most
    `most`). The y of all positions depend on the position. An empty sequence gives the carry that it began
    with.
    """
    trace = current()
    outer, extent, bound, least, needs = _positions(over, length, most)
    # What an Integer of a position gives is computed where the network has decided to, not before.
    needs = union(needs, *(c.entered for c in trace.captures))
    t = trace.dim("t", extent, bound, "the turn of a loop", least=least, needs=needs)
    if outer is None:
        outer = trace.dim(
            "step", extent, bound, "the turn of a loop that gave a value", least=least, needs=needs
        )
    turned: Callable[[Expr], Expr] = (lambda e: extent - 1 - e) if reverse else (lambda e: e)
    along = Rename(outer, t, turned(outer.at), turned(t.at))
    items = [] if over is None else [at_position(over, along)]

    with trace.region("loop", "loop", t.name), trace.turning(t):
        carried = _Carry(init, t)
        for _ in trials(len(carried.init) + 1):
            with trace.trial():
                result, _ = _turn(body, carried.stand_in(), items, t)
                settled = carried.settle(result)
            if settled:
                break
        result, ys = _turn(body, carried.enter(), items, t)
        end = carried.leave(result)
        collected = None if ys is None else like(ys, [_collect(y, along) for y in leaves(ys)])
    t.closed = True
    return end, collected


def _turn(body: Body, carry: Any, items: list[Any], t: Dim) -> tuple[Any, Any]:
    """What a body returns; a value that has a row for each turn of this very loop is taken apart."""
    result = called("the body of a loop", body, carry, *items)
    if not isinstance(result, tuple) or len(result) != 2:
        hint = "; of a recurrent layer it is `cell.step`" if isinstance(result, Tensor) else ""
        raise FrontendError(
            f"the body of a scan returns (carry, y); y may be None, and `fold` has none{hint}"
        )
    carry, ys = (
        part if part is None else like(part, [ungroup(x) if x.rows is t else x for x in leaves(part)])
        for part in result
    )
    return carry, ys


def _positions(
    over: Any, length: int | Integer | None, most: int | None
) -> tuple[Dim | None, Expr, int, int, Context]:
    if over is not None:
        if length is not None or most is not None:
            raise FrontendError("a loop has either something to go over or a length with a bound, not both")
        dim = position_of(over)
        return dim, dim.extent, dim.bound, dim.least, dim.needs
    if isinstance(length, int) and length >= 1:
        return None, Const(length), length, length, ()
    if isinstance(length, Integer):
        if most is None and isinstance(length.high, Const):
            most = length.high.value - 1
        if most is None:
            raise FrontendError("a loop whose length differs needs a bound: most=...")
        return None, length.expr, most, 0, length.context
    raise FrontendError(f"a loop goes over something, or has a length of 1 or more; got length={length!r}")


def position_of(over: Any) -> Dim:
    """The dimension along which something is gone over."""
    found: list[Dim] = []
    parts = over.values() if isinstance(over, dict) else over if isinstance(over, tuple | list) else [over]
    for part in parts:
        if isinstance(part, SequenceValue):
            found.append(part.dim)
        elif isinstance(part, Tensor | Integer):
            rows = part.rows if isinstance(part, Tensor) else None
            dims = dims_of(part.context)
            if rows is None and not dims:
                raise FrontendError(f"a loop goes over positions, and {part!r} has none")
            found.append(rows or dims[-1])
        else:
            raise FrontendError(f"a loop goes over sequences and values of the model, got {part!r}")
    if len(set(found)) != 1:
        places = ", ".join(f"{d.name} ({d.why})" for d in found)
        raise FrontendError(f"a loop goes over parts with different positions: {places}")
    return found[0]


def _collect(y: Tensor, along: Rename) -> Tensor:
    if along.old in (y.rows, *y.context):
        raise FrontendError(
            f"what a scan gives for each {along.old.name} depends on all of them; reduce it to one value"
        )
    if along.new not in y.context:
        y = spread(y, union(y.context, (along.new,)), y.rows)
    return renamed(y, Rename(along.new, along.old, along.old_of_new, along.new_of_old))


class _Carry:
    """What a loop over t carries: in which contexts, and the nodes around its body."""

    def __init__(self, init: Any, t: Dim) -> None:
        self.structure, self.t = init, t
        self.init = leaves(init)
        surroundings = union(t.needs, current().surroundings)
        self.contexts = [union(x.context, surroundings) for x in self.init]
        self.rows = [x.rows for x in self.init]
        self.phis: list[str] = []
        self.ends: list[PortRef] = []

    def stand_in(self) -> Any:
        return like(
            self.structure,
            [
                Tensor(("stand-in", f"{self.t.name}.{i}"), x.width, union(c, (self.t,)), r)
                for i, (x, c, r) in enumerate(zip(self.init, self.contexts, self.rows, strict=True))
            ],
        )

    def settle(self, result: Any) -> bool:
        """Whether the body returns what it got; else widen what it gets next time."""
        self._same_shape(result)
        settled = True
        for i, (before, after) in enumerate(zip(self.init, leaves(result), strict=True)):
            context, rows = without(after.context, self.t), self.rows[i]
            for e in context:
                if self.t in e.needs:
                    raise FrontendError(
                        f"what this loop carries would have a value for each {e.name} of its item, and the "
                        "next item has others; carry their sum, or the root of a tree, and return them as y "
                        "of a scan"
                    )
            if isinstance(after, Constant) or (after.rows is rows and set(context) <= set(self.contexts[i])):
                continue
            settled = False
            if rows is None and isinstance(before, Constant) and after.rows not in self.contexts[i]:
                self.rows[i] = after.rows
            elif after.rows is not rows:
                self.rows[i] = None
                context = union(context, tuple(r for r in (rows, after.rows) if r))
            self.contexts[i] = union(self.contexts[i], context)
        return settled

    def _same_shape(self, result: Any) -> None:
        if shape(result) != shape(self.structure):
            raise FrontendError(
                f"a loop begins with widths {shape(self.structure)}, and its body returns {shape(result)}"
            )

    def enter(self) -> Any:
        trace, t = current(), self.t
        inside = []
        for x, context, rows in zip(self.init, self.contexts, self.rows, strict=True):
            if x.rows is not None and rows is None:
                x = ungroup(x)
            start = spread(x, context, rows).port
            if t.least == 0:
                empty = trace.emit(Cond(trace.name("empty?"), t.extent.eq(0)), {"in": start})
                start = (empty, "no")
                self.ends.append((empty, "yes"))
            to_first = reordered(dims_of(context), add={t: Const(0)})
            first = trace.emit(Isu(trace.name("first"), to_first), {"in": start})
            phi = trace.emit(Phi(trace.name("turn"), ("first", "next")), {"first": (first, "out")})
            self.phis.append(phi)
            inside.append(Tensor((phi, "out"), x.width, union(context, (t,)), rows))
        return like(self.structure, inside)

    def leave(self, result: Any) -> Any:
        self._same_shape(result)
        trace, t = current(), self.t
        outside = []
        for i, x in enumerate(leaves(result)):
            inner = union(self.contexts[i], (t,))
            if x.rows is not None and self.rows[i] is None:
                x = ungroup(x)
            at = spread(x, inner, self.rows[i]).port
            dims = dims_of(inner)
            last = trace.emit(Cond(trace.name("last?"), t.at.eq(t.extent - 1)), {"in": at})
            step = trace.emit(
                Isu(trace.name("next"), reordered(dims, set={t: t.at + 1})), {"in": (last, "no")}
            )
            trace.net.inputs[(self.phis[i], "next")] = (step, "out")
            drop = reordered(dims, drop={t: None})
            end = (trace.emit(Isu(trace.name("end"), drop), {"in": (last, "yes")}), "out")
            if self.ends:
                both = Phi(trace.name("ended"), ("empty", "end"))
                end = (trace.emit(both, {"empty": self.ends[i], "end": end}), "out")
            outside.append(Tensor(end, x.width, self.contexts[i], self.rows[i]))
        return like(self.structure, outside)
