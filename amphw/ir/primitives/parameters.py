"""The ways in which a parameter enters a program, and the constant zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from amphw.ir.errors import ProgramError
from amphw.ir.primitives.base import (
    PRIMITIVES,
    Array,
    Attrs,
    Primitive,
    Recipe,
    RowContext,
    Shapes,
    ValueType,
    checked,
    need_ints,
    same,
)

if TYPE_CHECKING:
    from amphw.ir.derive import Tape
    from amphw.ir.program import Value


def _shape(attrs: Attrs, shapes: Shapes, rank: int, op: str) -> tuple[int, ...]:
    name = attrs["param"]
    if name not in shapes:
        raise ProgramError(f"{op}: no parameter '{name}'")
    if len(shapes[name]) != rank:
        raise ProgramError(f"{op}: parameter '{name}' has shape {shapes[name]}, expected {rank} dimension(s)")
    return shapes[name]


def _matmul_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    same(attrs, types, shapes)
    din, dout = _shape(attrs, shapes, 2, "matmul")
    if types[0].width != din:
        raise ProgramError(
            f"matmul: the operand has width {types[0].width}, parameter '{attrs['param']}' has {din} rows"
        )
    return ValueType("float", types[0].space, dout)


def _matmul_t_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    same(attrs, types, shapes)
    din, dout = _shape(attrs, shapes, 2, "matmul_t")
    if types[0].width != dout:
        raise ProgramError(
            f"matmul_t: the operand has width {types[0].width}, parameter '{attrs['param']}' has {dout} "
            "columns"
        )
    return ValueType("float", types[0].space, din)


def _matmul_vjp(t: Tape, attrs: Attrs, args: list[int], y: int, d: Value) -> list[Value | None]:
    t.gradient(attrs["param"], "matmul", t.forward(args[0]), d)
    return [t.emit("matmul_t", [d], param=attrs["param"])]


PRIMITIVES["matmul"] = Primitive(
    _matmul_infer,
    lambda c, at, p, a: c.product(a[0], p[at["param"]]),
    _matmul_vjp,
    hardware=Recipe.OWN,
    flops="product",
)


def _matmul_t_vjp(t: Tape, attrs: Attrs, args: list[int], y: int, d: Value) -> list[Value | None]:
    # y = x W', so dW = d' x: the term of a product with the two sides the other way round.
    t.gradient(attrs["param"], "matmul", d, t.forward(args[0]))
    return [t.emit("matmul", [d], param=attrs["param"])]


PRIMITIVES["matmul_t"] = Primitive(
    _matmul_t_infer,
    lambda c, at, p, a: c.product(a[0], p[at["param"]].T),
    _matmul_t_vjp,
    hardware=Recipe.OWN,
    flops="product",
)


def _take_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    need_ints(types, 0)
    return ValueType("float", types[0].space, _shape(attrs, shapes, 2, "take")[1])


def _take_vjp(t: Tape, attrs: Attrs, args: list[int], y: int, d: Value) -> list[Value | None]:
    t.gradient(attrs["param"], "take", t.forward(args[0]), d)
    return [None]


def _take(ctx: RowContext, at: Attrs, p: Mapping[str, Array], a: list[Array]) -> Array:
    e = p[at["param"]]
    return e[checked(a[0], e.shape[0], f"take from '{at['param']}'")]


PRIMITIVES["take"] = Primitive(_take_infer, _take, _take_vjp, hardware=Recipe.OWN, flops="moves")


def _row_param_vjp(t: Tape, attrs: Attrs, args: list[int], y: int, d: Value) -> list[Value | None]:
    t.gradient(attrs["param"], "sum", None, d)
    return []


PRIMITIVES["row_param"] = Primitive(
    lambda at, ts, shapes: ValueType("float", at["space"], _shape(at, shapes, 1, "row_param")[0]),
    lambda c, at, p, a: np.broadcast_to(p[at["param"]], (c.total(at["space"]), p[at["param"]].shape[0])),
    _row_param_vjp,
    hardware=Recipe.OWN,
    flops="moves",
)


def _zeros_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    return ValueType("float", attrs["space"], attrs["width"])


PRIMITIVES["zeros"] = Primitive(
    _zeros_infer,
    lambda c, at, p, a: np.zeros((c.total(at["space"]), at["width"]), dtype=c.dtype),
    lambda t, at, a, y, d: [],
    hardware=Recipe.OWN,
    flops="moves",
)
