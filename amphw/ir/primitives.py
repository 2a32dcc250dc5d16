"""The primitives: shape rule, numpy meaning and derivative of each; mathematics is defined here alone.

A primitive's derivative is written in primitives, so an executor that lowers the forward direction has
lowered the backward one too. `vjp` receives a `Tape` that hands out the forward values it may use (they
become residuals) and records the gradient terms of parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from amphw.ir import rng
from amphw.ir.errors import ProgramError

if TYPE_CHECKING:
    from amphw.ir.derive import Tape
    from amphw.ir.program import Value

Array = np.ndarray
Attrs = dict[str, Any]
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class ValueType:
    """kind "float" [rows, width] or "int" [rows] (width 1), in a row space."""

    kind: str
    space: str
    width: int

    def to_json(self) -> list[Any]:
        return [self.kind, self.space, self.width]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> ValueType:
        return cls(*data)


class RowContext:
    """How the rows of a frame belong to its messages, by space.

    counts: space -> rows of each message (int64 [n]), or an int where every message has as many.
    """

    def __init__(self, n: int, counts: Mapping[str, int | Array]):
        self.n, self.counts = n, counts
        self._messages: dict[str, Array] = {}

    def total(self, space: str) -> int:
        c = self.counts[space]
        return c * self.n if isinstance(c, int) else int(c.sum())

    def starts(self, space: str) -> Array:
        """First row of each message -> int64 [n]."""
        c = self.counts[space]
        if isinstance(c, int):
            return np.arange(self.n, dtype=np.int64) * c
        return np.concatenate([[0], np.cumsum(c)[:-1]]).astype(np.int64) if self.n else np.zeros(0, np.int64)

    def message_of_row(self, space: str) -> Array:
        """Number of the message that each row belongs to -> int64 [total rows]."""
        if space not in self._messages:
            self._messages[space] = np.repeat(np.arange(self.n, dtype=np.int64), self.counts[space])
        return self._messages[space]

    def row_in_message(self, space: str) -> Array:
        return np.arange(self.total(space), dtype=np.int64) - self.starts(space)[self.message_of_row(space)]


@dataclass(frozen=True)
class Primitive:
    infer: Callable[[Attrs, list[ValueType], Shapes], ValueType]
    evaluate: Callable[[RowContext, Attrs, Mapping[str, Array], list[Array]], Array]
    vjp: Callable[[Tape, Attrs, list[int], int, Value], list[Value | None]] | None = None


PRIMITIVES: dict[str, Primitive] = {}


def _same(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    first = types[0]
    for t in types:
        if t.kind != "float":
            raise ProgramError("an integer operand where a float one is needed; convert it with to_float()")
        if (t.space, t.width) != (first.space, first.width):
            raise ProgramError(
                f"operands do not fit: [{first.space}, {first.width}] and [{t.space}, {t.width}] (rows of "
                "space, width)"
            )
    return first


def _width(
    get: Callable[[Attrs, list[ValueType]], int],
) -> Callable[[Attrs, list[ValueType], Shapes], ValueType]:
    return lambda attrs, types, shapes: ValueType("float", types[0].space, get(attrs, types))


def _sigmoid(x: Array) -> Array:
    # exp of a non-positive number only, so that it never overflows
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + e), e / (1.0 + e)).astype(x.dtype, copy=False)


def _elementwise(
    name: str,
    f: Callable[..., Array],
    vjp: Callable[[Tape, Attrs, list[int], int, Value], list[Value | None]] | None,
) -> None:
    PRIMITIVES[name] = Primitive(_same, lambda ctx, attrs, params, args: f(*args), vjp)


_elementwise("add", np.add, lambda t, at, a, y, d: [d, d])
_elementwise("sub", np.subtract, lambda t, at, a, y, d: [d, -d])
_elementwise("mul", np.multiply, lambda t, at, a, y, d: [d * t.forward(a[1]), d * t.forward(a[0])])
_elementwise(
    "div",
    np.divide,
    lambda t, at, a, y, d: [d / t.forward(a[1]), -(d * t.forward(y) / t.forward(a[1]))],
)
_elementwise("sigmoid", _sigmoid, lambda t, at, a, y, d: [d * (t.forward(y) * (1.0 - t.forward(y)))])
_elementwise("tanh", np.tanh, lambda t, at, a, y, d: [d * (1.0 - t.forward(y) * t.forward(y))])
_elementwise("relu", lambda x: np.maximum(x, 0), lambda t, at, a, y, d: [d * t.emit("step", [t.forward(y)])])
_elementwise("step", lambda x: (x > 0).astype(x.dtype), lambda t, at, a, y, d: [None])
_elementwise("exp", np.exp, lambda t, at, a, y, d: [d * t.forward(y)])
_elementwise("log", np.log, lambda t, at, a, y, d: [d / t.forward(a[0])])
_elementwise("sqrt", np.sqrt, lambda t, at, a, y, d: [d * 0.5 / t.forward(y)])
_elementwise("abs", np.abs, lambda t, at, a, y, d: [d * t.emit("sign", [t.forward(a[0])])])
_elementwise("sign", np.sign, lambda t, at, a, y, d: [None])
_elementwise("equal", lambda a, b: (a == b).astype(a.dtype), lambda t, at, a, y, d: [None, None])
_elementwise("stop_gradient", lambda x: x, lambda t, at, a, y, d: [None])

PRIMITIVES["scale"] = Primitive(
    _same, lambda c, at, p, a: a[0] * a[0].dtype.type(at["factor"]), lambda t, at, a, y, d: [d * at["factor"]]
)
PRIMITIVES["shift"] = Primitive(
    _same, lambda c, at, p, a: a[0] + a[0].dtype.type(at["factor"]), lambda t, at, a, y, d: [d]
)


# --- columns --------------------------------------------------------------------------------------


def _concat_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    for t in types:
        _same(attrs, [ValueType(t.kind, t.space, 1), ValueType("float", types[0].space, 1)], shapes)
    return ValueType("float", types[0].space, sum(t.width for t in types))


def _concat_vjp(t: Tape, attrs: Attrs, args: list[int], y: int, d: Value) -> list[Value | None]:
    out: list[Value | None] = []
    start = 0
    for a in args:
        width = t.type_of(a).width
        out.append(t.emit("slice", [d], start=start, width=width))
        start += width
    return out


PRIMITIVES["concat"] = Primitive(_concat_infer, lambda c, at, p, a: np.concatenate(a, axis=1), _concat_vjp)


def _slice_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    start, width, have = attrs["start"], attrs["width"], types[0].width
    if start < 0 or width < 1 or start + width > have:
        raise ProgramError(f"slice {start}:{start + width} is outside the operand's width {have}")
    return ValueType("float", types[0].space, width)


def _pad(ctx: RowContext, at: Attrs, p: Mapping[str, Array], a: list[Array]) -> Array:
    out = np.zeros((a[0].shape[0], at["width"]), dtype=a[0].dtype)
    out[:, at["start"] : at["start"] + a[0].shape[1]] = a[0]
    return out


PRIMITIVES["slice"] = Primitive(
    _slice_infer,
    lambda c, at, p, a: a[0][:, at["start"] : at["start"] + at["width"]],
    lambda t, at, a, y, d: [t.emit("pad", [d], start=at["start"], width=t.type_of(a[0]).width)],
)
PRIMITIVES["pad"] = Primitive(
    _width(lambda at, ts: at["width"]),
    _pad,
    lambda t, at, a, y, d: [t.emit("slice", [d], start=at["start"], width=t.type_of(a[0]).width)],
)
PRIMITIVES["sum_cols"] = Primitive(
    _width(lambda at, ts: 1),
    lambda c, at, p, a: a[0].sum(axis=1, keepdims=True),
    lambda t, at, a, y, d: [t.emit("spread_cols", [d], width=t.type_of(a[0]).width)],
)
PRIMITIVES["spread_cols"] = Primitive(
    _width(lambda at, ts: at["width"]),
    lambda c, at, p, a: np.repeat(a[0], at["width"], axis=1),
    lambda t, at, a, y, d: [t.emit("sum_cols", [d])],
)
# The maximum is only used to shift a softmax, where its gradient cancels; so it has none.
PRIMITIVES["max_cols"] = Primitive(
    _width(lambda at, ts: 1),
    lambda c, at, p, a: a[0].max(axis=1, keepdims=True),
    lambda t, at, a, y, d: [None],
)


# --- columns chosen by an integer operand ---------------------------------------------------------


def _ints(attrs: Attrs, types: list[ValueType], first: int) -> None:
    for t in types[first:]:
        if t.kind != "int":
            raise ProgramError("a float operand where an integer one is needed")
        if t.space != types[0].space:
            raise ProgramError(
                f"the integer operand lives in space '{t.space}', the payload in '{types[0].space}'"
            )


def _pick_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    _ints(attrs, types, 1)
    return ValueType("float", types[0].space, 1)


def _place_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    _ints(attrs, types, 1)
    return ValueType("float", types[0].space, attrs["width"])


def _checked(index: Array, width: int, what: str) -> Array:
    if index.size and (index.min() < 0 or index.max() >= width):
        bad = int(index[(index < 0) | (index >= width)][0])
        raise ProgramError(f"{what}: index {bad} is outside 0..{width - 1}")
    return index


def _place(ctx: RowContext, at: Attrs, p: Mapping[str, Array], a: list[Array]) -> Array:
    out = np.zeros((a[0].shape[0], at["width"]), dtype=a[0].dtype)
    np.put_along_axis(out, _checked(a[1], at["width"], "place")[:, None], a[0], axis=1)
    return out


PRIMITIVES["pick"] = Primitive(
    _pick_infer,
    lambda c, at, p, a: np.take_along_axis(a[0], _checked(a[1], a[0].shape[1], "pick")[:, None], axis=1),
    lambda t, at, a, y, d: [t.emit("place", [d, t.forward(a[1])], width=t.type_of(a[0]).width), None],
)
PRIMITIVES["place"] = Primitive(
    _place_infer, _place, lambda t, at, a, y, d: [t.emit("pick", [d, t.forward(a[1])]), None]
)


# --- parameters -----------------------------------------------------------------------------------


def _shape(attrs: Attrs, shapes: Shapes, rank: int, op: str) -> tuple[int, ...]:
    name = attrs["param"]
    if name not in shapes:
        raise ProgramError(f"{op}: no parameter '{name}'")
    if len(shapes[name]) != rank:
        raise ProgramError(f"{op}: parameter '{name}' has shape {shapes[name]}, expected {rank} dimension(s)")
    return shapes[name]


def _matmul_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    _same(attrs, types, shapes)
    din, dout = _shape(attrs, shapes, 2, "matmul")
    if types[0].width != din:
        raise ProgramError(
            f"matmul: the operand has width {types[0].width}, parameter '{attrs['param']}' has {din} rows"
        )
    return ValueType("float", types[0].space, dout)


def _matmul_t_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
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


PRIMITIVES["matmul"] = Primitive(_matmul_infer, lambda c, at, p, a: a[0] @ p[at["param"]], _matmul_vjp)
PRIMITIVES["matmul_t"] = Primitive(_matmul_t_infer, lambda c, at, p, a: a[0] @ p[at["param"]].T)


def _take_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    _ints(attrs, types, 0)
    return ValueType("float", types[0].space, _shape(attrs, shapes, 2, "take")[1])


def _take_vjp(t: Tape, attrs: Attrs, args: list[int], y: int, d: Value) -> list[Value | None]:
    t.gradient(attrs["param"], "take", t.forward(args[0]), d)
    return [None]


def _take(ctx: RowContext, at: Attrs, p: Mapping[str, Array], a: list[Array]) -> Array:
    e = p[at["param"]]
    return e[_checked(a[0], e.shape[0], f"take from '{at['param']}'")]


PRIMITIVES["take"] = Primitive(_take_infer, _take, _take_vjp)


def _row_param_vjp(t: Tape, attrs: Attrs, args: list[int], y: int, d: Value) -> list[Value | None]:
    t.gradient(attrs["param"], "sum", None, d)
    return []


PRIMITIVES["row_param"] = Primitive(
    lambda at, ts, shapes: ValueType("float", at["space"], _shape(at, shapes, 1, "row_param")[0]),
    lambda c, at, p, a: np.broadcast_to(p[at["param"]], (c.total(at["space"]), p[at["param"]].shape[0])),
    _row_param_vjp,
)


def _zeros_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    return ValueType("float", attrs["space"], attrs["width"])


PRIMITIVES["zeros"] = Primitive(
    _zeros_infer,
    lambda c, at, p, a: np.zeros((c.total(at["space"]), at["width"]), dtype=np.float32),
    lambda t, at, a, y, d: [],
)


# --- rows: segments, gathers and scatters within a message ----------------------------------------


def _to_space(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    return ValueType("float", attrs["space"], types[0].width)


def _gather_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    if types[1].kind != "int" or types[1].space != attrs["space"]:
        raise ProgramError(f"gather_rows: the index must be an integer operand in space '{attrs['space']}'")
    return _to_space(attrs, types, shapes)


def _scatter_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    _ints(attrs, types, 1)
    return _to_space(attrs, types, shapes)


def _global_rows(ctx: RowContext, index: Array, index_space: str, target: str, what: str) -> Array:
    message = ctx.message_of_row(index_space)
    counts = np.broadcast_to(np.asarray(ctx.counts[target]), (ctx.n,))
    if index.size and ((index < 0) | (index >= counts[message])).any():
        i = int(np.flatnonzero((index < 0) | (index >= counts[message]))[0])
        raise ProgramError(
            f"{what}: row {int(index[i])} is outside the message's 0..{int(counts[message][i]) - 1}"
        )
    return ctx.starts(target)[message] + index


def _gather(ctx: RowContext, at: Attrs, p: Mapping[str, Array], a: list[Array]) -> Array:
    return a[0][_global_rows(ctx, a[1], at["space"], at["source"], "gather_rows")]


def _scatter(ctx: RowContext, at: Attrs, p: Mapping[str, Array], a: list[Array]) -> Array:
    out = np.zeros((ctx.total(at["space"]), a[0].shape[1]), dtype=a[0].dtype)
    np.add.at(out, _global_rows(ctx, a[1], at["source"], at["space"], "scatter_rows"), a[0])
    return out


PRIMITIVES["gather_rows"] = Primitive(
    _gather_infer,
    _gather,
    lambda t, at, a, y, d: [
        t.emit("scatter_rows", [d, t.forward(a[1])], space=at["source"], source=at["space"]),
        None,
    ],
)
PRIMITIVES["scatter_rows"] = Primitive(
    _scatter_infer,
    _scatter,
    lambda t, at, a, y, d: [
        t.emit("gather_rows", [d, t.forward(a[1])], space=at["source"], source=at["space"]),
        None,
    ],
)


def _segments(ctx: RowContext, at: Attrs, a: Array, reduce: np.ufunc) -> Array:
    """Reduce the rows of each message to one; a message without rows gives 0."""
    out = np.zeros((ctx.n, a.shape[1]), dtype=a.dtype)
    counts = np.broadcast_to(np.asarray(ctx.counts[at["source"]]), (ctx.n,))
    full = counts > 0
    if full.any():
        out[full] = reduce.reduceat(a, ctx.starts(at["source"])[full], axis=0)
    return out


PRIMITIVES["sum_rows"] = Primitive(
    _to_space,
    lambda c, at, p, a: _segments(c, at, a[0], np.add),
    lambda t, at, a, y, d: [t.emit("spread_rows", [d], space=at["source"], source=at["space"])],
)
PRIMITIVES["spread_rows"] = Primitive(
    _to_space,
    lambda c, at, p, a: np.repeat(a[0], c.counts[at["space"]], axis=0),
    lambda t, at, a, y, d: [t.emit("sum_rows", [d], space=at["source"], source=at["space"])],
)


def _max_rows_vjp(t: Tape, attrs: Attrs, args: list[int], y: int, d: Value) -> list[Value | None]:
    # Equal maxima share the gradient evenly.
    spread = {"space": attrs["source"], "source": attrs["space"]}
    mask = t.emit("equal", [t.forward(args[0]), t.emit("spread_rows", [t.forward(y)], **spread)])
    ties = t.emit(
        "spread_rows", [t.emit("sum_rows", [mask], space=attrs["space"], source=attrs["source"])], **spread
    )
    return [t.emit("spread_rows", [d], **spread) * mask / ties]


PRIMITIVES["max_rows"] = Primitive(
    _to_space, lambda c, at, p, a: _segments(c, at, a[0], np.maximum), _max_rows_vjp
)


# --- integers and randomness ----------------------------------------------------------------------


def _int_of(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    return ValueType("int", types[0].space, 1)


PRIMITIVES["argmax"] = Primitive(
    _int_of, lambda c, at, p, a: a[0].argmax(axis=1), lambda t, at, a, y, d: [None]
)
PRIMITIVES["above"] = Primitive(
    _int_of,
    lambda c, at, p, a: (a[0][:, 0] > at["threshold"]).astype(np.int64),
    lambda t, at, a, y, d: [None],
)
PRIMITIVES["to_float"] = Primitive(
    lambda at, ts, s: ValueType("float", ts[0].space, 1),
    lambda c, at, p, a: np.asarray(a[0]).astype(np.float32)[:, None],
    lambda t, at, a, y, d: [None],
)
PRIMITIVES["same_int"] = Primitive(
    lambda at, ts, s: ValueType("float", ts[0].space, 1),
    lambda c, at, p, a: (a[0] == a[1]).astype(np.float32)[:, None],
    lambda t, at, a, y, d: [None, None],
)


def _dropout_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    _ints(attrs, types, 1)
    if not 0.0 <= attrs["rate"] < 1.0:
        raise ProgramError(f"dropout: the rate must be in [0, 1), got {attrs['rate']}")
    return types[0]


def _dropout(ctx: RowContext, at: Attrs, p: Mapping[str, Array], a: list[Array]) -> Array:
    x = a[0]
    keep = rng.uniform(a[1:], at["seed"], x.shape[0], x.shape[1]) >= at["rate"]
    return x * keep * x.dtype.type(1.0 / (1.0 - at["rate"]))


# The mask is a function of the state, so the backward direction draws it again instead of keeping it.
PRIMITIVES["dropout"] = Primitive(
    _dropout_infer,
    _dropout,
    lambda t, at, a, y, d: [
        t.emit("dropout", [d, *(t.forward(k) for k in a[1:])], rate=at["rate"], seed=at["seed"]),
        *[None] * (len(a) - 1),
    ],
)
