"""Static bounds of expressions: what memories and counters are sized by before any instance is known."""

from __future__ import annotations

from collections.abc import Mapping

from amphw.ir.errors import GraphError
from amphw.ir.expr import Attr, Const, Expr, Field, Op, Table
from amphw.ir.instance import Schema

Interval = tuple[int, int]


def bound_of(e: Expr, schema: Schema, fields: Mapping[str, int] | None = None) -> int:
    """The largest value of an expression; fields: bound (exclusive) of each state field that it reads.

    GraphError where the schema does not say enough.
    """
    return _interval(e, schema, fields or {})[1]


def _interval(e: Expr, schema: Schema, fields: Mapping[str, int]) -> Interval:
    if isinstance(e, Const):
        return e.value, e.value
    if isinstance(e, Attr):
        if e.name not in schema.attrs:
            raise GraphError(f"the attribute '{e.name}' has no declared bound")
        return 0, int(schema.attrs[e.name])
    if isinstance(e, Field):
        if e.name not in fields:
            raise GraphError("the field has no declared bound", field=e.name)
        return 0, fields[e.name] - 1
    if isinstance(e, Table):
        if e.name not in schema.tables:
            raise GraphError(f"the table '{e.name}' is not declared in the schema")
        table = schema.tables[e.name]
        return table.low, _interval(table.high, schema, fields)[1] - 1
    assert isinstance(e, Op)
    return _combined(e.op, [_interval(a, schema, fields) for a in e.args])


def _combined(op: str, parts: list[Interval]) -> Interval:
    if op in {"==", "!=", "<", "<="}:
        return 0, 1
    if op == "where":
        return min(parts[1][0], parts[2][0]), max(parts[1][1], parts[2][1])
    if op == "hash":
        return 0, 0xFFFFFFFF
    (a, b), (c, d) = parts
    if op == "+":
        return a + c, b + d
    if op == "-":
        return a - d, b - c
    if op == "*":
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if op in {"min", "max"}:
        f = min if op == "min" else max
        return f(a, c), f(b, d)
    if op == "%":
        return (0, d - 1) if c > 0 else (-(max(abs(c), abs(d))), max(abs(c), abs(d)))
    # a // b: not larger in magnitude than a
    most = max(abs(a), abs(b))
    return (0, b) if a >= 0 and c > 0 else (-most, most)
