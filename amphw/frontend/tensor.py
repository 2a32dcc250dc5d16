"""Values of a model: what they depend on is tracked, and they are brought together where they meet.

A tensor is a float vector of `width` numbers for every state of its context. Some of it may lie side by side:
`rows` is the dimension whose values are the rows of one message. Row or message is a matter of cost and not
of meaning: what meets is made alike (`align`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amphw.frontend.index import Captures, Choice, Context, Dim, Entry, choices_of, dims_of, union, without
from amphw.frontend.integer import Integer, items_of
from amphw.frontend.refusals import NoArray
from amphw.frontend.source import FrontendError
from amphw.frontend.states import reordered, state_type
from amphw.frontend.trace import current
from amphw.ir import functions as f
from amphw.ir.behaviour import MEMBER
from amphw.ir.expr import ROW, Const, Expr, Field, both, substitute
from amphw.ir.graph import PortRef
from amphw.ir.grouping import Group
from amphw.ir.nodes import NPT, Source
from amphw.ir.program import Program, Value, ValueType, trace
from amphw.ir.routing import Cond, Flatmap, Ungroup

_REFLECTED = {"add": "__radd__", "subtract": "__rsub__", "multiply": "__rmul__", "divide": "__rtruediv__"}


class Tensor(NoArray):
    """A float vector of `width` numbers for every state of `context`."""

    def __init__(self, port: PortRef, width: int, context: Context, rows: Dim | None = None) -> None:
        self.port, self.width, self.context, self.rows = port, width, context, rows

    def __add__(self, other: Tensor | float) -> Tensor:
        return _binary("add", lambda a, b: a + b, self, other)

    def __radd__(self, other: float) -> Tensor:
        return self + other

    def __sub__(self, other: Tensor | float) -> Tensor:
        return _binary("subtract", lambda a, b: a - b, self, other)

    def __rsub__(self, other: float) -> Tensor:
        return -self + other

    def __mul__(self, other: Tensor | float) -> Tensor:
        return _binary("multiply", lambda a, b: a * b, self, other)

    def __rmul__(self, other: float) -> Tensor:
        return self * other

    def __truediv__(self, other: Tensor | float) -> Tensor:
        if isinstance(other, int | float) and other == 0:
            raise FrontendError("a value is divided by 0")
        return _binary("divide", lambda a, b: a / b, self, other)

    def __rtruediv__(self, other: float) -> Tensor:
        return _binary("divide", lambda a, b: b / a, self, other)

    def __neg__(self) -> Tensor:
        return self * -1.0

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **_: Any) -> Tensor:
        """Arithmetic with a number of numpy; its functions do not apply, those of the frontend do."""
        left = operands[0]
        if not isinstance(left, Tensor) and np.ndim(left) == 0 and ufunc.__name__ in _REFLECTED:
            reflected: Tensor = getattr(self, _REFLECTED[ufunc.__name__])(left.item())
            return reflected
        raise FrontendError(
            f"numpy's {ufunc.__name__} is of arrays, not of values of a model; the functions of "
            "amphw.frontend are, such as tanh and concat"
        )

    def __getitem__(self, columns: Any) -> Tensor:
        """`x[a:b]`: columns a .. b - 1."""
        if not isinstance(columns, slice) or columns.step not in (None, 1):
            hint = ""
            if isinstance(columns, int | Integer):
                at = "length - 1" if isinstance(columns, int) and columns < 0 else "position"
                hint = f"; `pick(x, {at})` is that of one position, `column(x, i)` one number of each row"
            raise FrontendError(f"a value is read by columns, as x[2:5]; got [{columns}]{hint}")
        start, stop, _ = columns.indices(self.width)
        if stop <= start or (columns.stop or 0) > self.width:
            raise FrontendError(f"a width of {self.width} has no columns {columns.start}:{columns.stop}")
        return compute(lambda x: f.columns(x, start, stop - start), self, stem="columns")

    def __repr__(self) -> str:
        names = ", ".join(e.name for e in self.context)
        return f"Tensor({names or 'one an instance'}; {self.rows.name if self.rows else 1} x {self.width})"


class Constant(Tensor):
    """The same number everywhere; it gets a node of its own only where nothing else takes it in."""

    def __init__(self, width: int, value: float) -> None:
        super().__init__(("", ""), width, ())
        self.value = value


def constant(width: int, value: float = 0.0) -> Tensor:
    """`width` times the same number, such as the state that a loop begins with."""
    if not isinstance(width, int) or width < 1:
        raise FrontendError(f"a constant has a width of 1 or more, got {width!r}")
    return Constant(width, float(value))


def _binary(stem: str, function: Callable[[Value, Any], Value], a: Tensor, b: Any) -> Tensor:
    b = items_of(b)
    if isinstance(b, Integer):
        raise FrontendError("an Integer is not a value to compute with; `number(i)` makes one of it")
    if not isinstance(b, Tensor | int | float):
        raise FrontendError(f"cannot {stem} a value and {b!r}")
    if not isinstance(b, Tensor):
        return compute(lambda x: function(x, float(b)), a, stem=stem)
    if a.width != b.width and 1 not in (a.width, b.width):
        raise FrontendError(f"cannot {stem} widths {a.width} and {b.width}; one must be 1, or both the same")
    here, there = set(dims_of(messages(a))), set(dims_of(messages(b)))
    if here - there and there - here and not current().inside:  # a loop may well bring in its turns
        pairs = [", ".join(sorted(d.name for d in each)) for each in (here - there, there - here)]
        current().note(
            f"{stem} of values with different positions ({pairs[0]} and {pairs[1]}) is of every pair; "
            "if that is not meant, bring both to the same positions with pick, take or reduce"
        )
    return compute(function, a, b, stem=stem)


# --- programs on values -----------------------------------------------------------------------------


def compute(
    function: Callable[..., Value],
    *tensors: Tensor,
    ints: Sequence[Integer] = (),
    least: Context = (),
    stem: str = "compute",
) -> Tensor:
    """A node without parameters: `function(*values, *state expressions)` on what the tensors are together.

    least: what it depends on, whatever the tensors do.
    """
    aligned, context, rows = align(tensors, ints, least)
    program = traced(function, tensors, aligned, expressions(ints, rows))
    name = current().name(stem)
    (t,) = program.outputs_types
    current().emit(NPT(name, program), ports(program, aligned))
    return Tensor((name, "out"), t.width, context, rows)


def traced(
    function: Callable[..., Value | Sequence[Value]],
    given: Sequence[Tensor],
    aligned: Sequence[Tensor],
    exprs: Sequence[Expr],
    params: Any = None,
    all_read: bool = True,
) -> Program:
    """The program of a node on the tensors: operands x0, x1, ... without the constants, which it has inside.

    aligned: the tensors as they arrive; one more than given is a trigger, which it does not read. all_read:
    as of `trace`.
    """
    widths = {f"x{i}": x.width for i, x in enumerate(aligned) if not isinstance(x, Constant)}

    def whole(*args: Any) -> Value | Sequence[Value]:
        p, values = args[: bool(params)], iter(args[bool(params) :])
        space = args[bool(params)]
        full = []
        for x in given:
            if isinstance(x, Constant):
                full.append(f.zeros(space, x.width) + x.value if x.value else f.zeros(space, x.width))
            else:
                full.append(next(values))
        return function(*p, *full, *exprs)

    return trace(whole, widths, params, all_read=all_read)


def ports(program: Program, aligned: Sequence[Tensor]) -> dict[str, PortRef]:
    real = [x for x in aligned if not isinstance(x, Constant)]
    return {name: x.port for (name, _), x in zip(program.inputs, real, strict=True)}


def expressions(ints: Sequence[Integer], rows: Dim | None) -> list[Expr]:
    """As a program reads them: the dimension of the rows is `$row` there."""
    return [substitute(i.expr, {rows.name: ROW}) if rows else i.expr for i in ints]


def align(
    tensors: Sequence[Tensor], ints: Sequence[Integer] = (), least: Context = ()
) -> tuple[list[Tensor], Context, Dim | None]:
    """The tensors in one common context, with the same rows -> they, the context, the rows.

    Without a tensor that is not constant, a trigger is appended. least: entries that the context must have.
    """
    real = [x for x in tensors if not isinstance(x, Constant)]
    read = union(least, tuple(current().active), *(i.context for i in ints))
    if not real:
        rows = _rows_of(read)
        context = without(read, rows) if rows else read
        return [*tensors, unit(context, rows)], context, rows
    kinds = {x.rows for x in real if x.rows}
    rows = kinds.pop() if len(kinds) == 1 else None
    if rows is not None and any(rows in x.context for x in real):
        rows = None
    context = union(read, *(x.context for x in real))
    context = without(context, rows) if rows else union(context, tuple(x.rows for x in real if x.rows))
    if rows is not None and any(rows in e.needs for e in context):
        context, rows = union(context, (rows,)), None
    aligned = [x if isinstance(x, Constant) else spread(x, context, rows) for x in tensors]
    return aligned, context, rows


def _rows_of(context: Context) -> Dim | None:
    """The dimension to lay out as rows where nothing else says it: the last one, if nothing hangs on it."""
    if not context or choices_of(context) or any(d.capture for d in dims_of(context)):
        return None
    return dims_of(context)[-1]


# --- bringing values to other contexts --------------------------------------------------------------


def spread(x: Tensor, context: Context, rows: Dim | None = None) -> Tensor:
    """x in the given context, which has all of its own; copied along the dimensions that it lacks."""
    if isinstance(x, Constant):
        return filled(x, context, rows)
    if x.rows is not None and x.rows in context and rows is not x.rows:
        x = _enter(x, x.rows)
    # Where the network decides comes first: what gets there as one value needs no decision for each copy.
    for entry in sorted(context, key=lambda e: e.capture is None):
        if entry not in x.context:
            x = _enter(x, entry)
    if x.rows is None and rows is not None:
        x = _repeated(x, rows)
    if x.rows is not rows:
        raise AssertionError((x, context, rows))
    return x


def _repeated(x: Tensor, rows: Dim) -> Tensor:
    """The one value of each message on all of its rows."""
    known = current().net.made
    key = ("rows", x.port, rows)
    if key not in known:
        spaces = {rows.name: rows.extent}
        program = trace(lambda v: f.spread_rows(v, rows.name), {"x0": x.width}, spaces=spaces)
        name = current().name(f"every_{rows.name}")
        current().emit(NPT(name, program), {"x0": x.port})
        known[key] = Tensor((name, "out"), x.width, x.context, rows)
    made: Tensor = known[key]
    return made


def filled(x: Constant, context: Context, rows: Dim | None = None) -> Tensor:
    """A constant with a node of its own."""
    trigger = unit(context, rows)
    program = trace(lambda u: f.zeros(u, x.width) + x.value, {"x0": trigger.width})
    name = current().name("constant")
    current().emit(NPT(name, program), {"x0": trigger.port})
    return Tensor((name, "out"), x.width, context, rows)


def _enter(x: Tensor, entry: Entry) -> Tensor:
    """x for every value of one more dimension, or in one branch of a choice."""
    if entry.capture is not None:
        return _capture(x, entry, entry.capture)
    known = current().net.made
    key = (x.port, entry)
    if key not in known:
        if isinstance(entry, Choice):
            known[key] = _choose(x, entry)
        else:
            known[key] = ungroup(x) if entry is x.rows else _copies(x, entry)
    made: Tensor = known[key]
    return made


def _copies(x: Tensor, dim: Dim) -> Tensor:
    context = union(x.context, (dim,))
    name = current().name(f"to_{dim.name}")
    node = Flatmap(name, dim.field, reordered((*dims_of(x.context), dim)))
    current().emit(node, {"in": x.port})
    return Tensor((name, "out"), x.width, context, x.rows)


def _choose(x: Tensor, choice: Choice) -> Tensor:
    known = current().net.made
    key = (x.port, choice.decision)
    if key not in known:
        branches = tuple(f"case{k}" for k in range(choice.branches))
        known[key] = current().emit(Cond(current().name(choice.name), choice.index, branches), {"in": x.port})
    context = union(x.context, (choice,))
    return Tensor((known[key], f"case{choice.branch}"), x.width, context, x.rows)


def _capture(x: Tensor, entry: Entry, captures: Captures) -> Tensor:
    wide = x.rows is not None or not set(dims_of(x.context)) <= set(captures.around)
    if wide and captures.route is not None and isinstance(entry, Choice):
        return captures.route(x, entry)
    if x.rows in captures.around:
        raise of_each(entry, x.rows)
    for e in x.context:
        if e.capture is captures:
            raise FrontendError(
                "what is computed before the network decides is not there behind the decision; put it into "
                "what the loop carries"
            )
    captures.found.setdefault(x.port, x)
    if captures.inside is not None:
        return captures.inside[list(captures.found).index(x.port)]
    return Tensor(("stand-in", f"{entry.name}.{x.port}"), x.width, union(x.context, captures.entered), x.rows)


def of_each(entry: Entry, dim: Dim) -> FrontendError:
    """What the network decides at each position, with something over all positions inside."""
    what = "the loop" if isinstance(entry, Dim) else "the choice"
    return FrontendError(
        f"{what} at {entry.place}, which the network decides, is one for each of {dim.name} ({dim.why}), and "
        f"inside all of them are gone over; put it into the body of a scan over {dim.name}"
    )


def unit(context: Context, rows: Dim | None = None) -> Tensor:
    """Something that exists for every state of the context: what sets off a node that reads no value."""
    known = current().net.made
    key = ("unit", context, rows)
    if key not in known:
        decided = [e.capture for e in context if e.capture is not None]
        open_ended = [c for c in choices_of(context) if not c.proven]
        if decided:
            assert decided[-1].trigger is not None
            known[key] = _nothing(spread(decided[-1].trigger, context), rows)
        elif open_ended:
            # A Cond refuses an index that no branch has, where sources would all be silent.
            known[key] = spread(unit(without(context, *open_ended), rows), context, rows)
        else:
            known[key] = _source(context, rows)
    return known[key]


def _nothing(x: Tensor, rows: Dim | None) -> Tensor:
    """A message without numbers for each of x: a layer is set off by the same wherever it is used."""
    name, space = current().name("start"), rows.name if rows else "rows"
    program = trace(
        lambda v: v.builder.emit("zeros", [], space=space, width=0),
        {"x0": x.width},
        spaces={rows.name: rows.extent} if rows else None,
    )
    current().emit(NPT(name, program), {"x0": x.port})
    return Tensor((name, "out"), 0, x.context, rows)


def _source(context: Context, rows: Dim | None) -> Tensor:
    where: Expr | None = None
    for choice in choices_of(context):
        here = choice.index.eq(choice.branch)
        where = here if where is None else both(where, here)
    name = current().name("start")
    extent = rows.extent if rows else Const(1)
    current().emit(Source(name, state_type(context), rows=extent, where=where), {})
    return Tensor((name, "out"), 0, context, rows)


# --- rows and messages ------------------------------------------------------------------------------


def messages(x: Tensor) -> Context:
    """The context of x with a message for each of its rows."""
    return union(x.context, (x.rows,) if x.rows else ())


def ungroup(x: Tensor) -> Tensor:
    """A message for each row."""
    if x.rows is None:
        raise FrontendError("ungroup takes a value apart that has rows; this one has a message for each")
    context = union(x.context, (x.rows,))
    name = current().name(f"ungroup_{x.rows.name}")
    node = Ungroup(name, x.rows.field, reordered((*dims_of(x.context), x.rows)))
    current().emit(node, {"in": x.port})
    return Tensor((name, "out"), x.width, context)


def group(x: Tensor, dim: Dim) -> Tensor:
    """The messages of one dimension as the rows of one."""
    if x.rows is dim:
        return x
    return gathered(x, dim, lambda members: members, f"group_{dim.name}", rows=dim)


def gathered(
    x: Tensor, dim: Dim, function: Callable[[Value], Value], stem: str, rows: Dim | None = None
) -> Tensor:
    """A Group over the messages of `dim`, and `function` of all its members, in the space "members"."""
    if isinstance(x, Constant):
        x = filled(x, union((dim,)))
    if x.rows is not None:
        x = ungroup(x)
    if dim not in x.context:
        raise FrontendError(f"{x!r} does not depend on {dim.name}, so there is nothing to gather")
    for e in x.context:
        if dim in e.needs:
            if e.capture is not None:
                raise of_each(e, dim)
            what = (
                f"to {e.name} ({e.why})"
                if isinstance(e, Dim)
                else f"to one branch of the choice at {e.place}"
            )
            raise FrontendError(f"the value is not gathered over {dim.name} while it is bound {what}")
    context = without(x.context, dim)
    name = current().name(stem)
    inputs = {"in": x.port}
    types: dict[str, int | ValueType] = {"in": ValueType("float", "members", x.width)}
    if dim.least == 0:
        trigger = unit(context)
        inputs["init"] = trigger.port
        program = trace(lambda _, m: function(m), {"init": trigger.width, **types})
    else:
        program = trace(function, types)
    map = reordered(dims_of(x.context), drop={dim: Field(MEMBER)})
    node = Group(name, map, dim.at, dim.extent, init=dim.least == 0, program=program)
    current().emit(node, inputs)
    return Tensor((name, "out"), program.outputs_types[0].width, context, rows)
