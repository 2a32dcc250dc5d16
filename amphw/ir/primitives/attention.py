"""Attention between rows of a message: scaled dot products, a softmax by query, and the mean of values.

Of one head, with d columns of q and k: score_ij = q_i k_j / sqrt(d), p_ij = exp(score_ij - log_i), where
log_i makes the weights of a query add up to 1, and out_i = sum_j p_ij v_j (Vaswani et al., NIPS 2017). The
scores exist within an executor alone. What the backward direction needs of them is one number a query and
head, log_i, from which it computes them again (Dao et al., NeurIPS 2022). A query that looks at one row has a
weight of 1 whatever the score, whose gradient is 0 and not what rounding leaves of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from amphw.ir.errors import ProgramError
from amphw.ir.primitives.base import PRIMITIVES, Array, Attrs, Primitive, RowContext, Shapes, ValueType

if TYPE_CHECKING:
    from amphw.ir.derive import Tape
    from amphw.ir.program import Value

OPERANDS: Mapping[str, tuple[bool, ...]] = {
    "attend": (True, False, False),
    "attend_queries": (True, False, False, True, True),
    "attend_keys": (False, True, True, False, False),
}
"""By primitive, for each operand (q, k, v, then d and the numbers of each query), whether it lies in the
result's space; the others lie in the attribute `source`. The integer operand that may follow lies where q
does."""


def _check(op: str, attrs: Attrs, types: list[ValueType]) -> int:
    """The columns of v; ProgramError where operands do not fit."""
    here = OPERANDS[op]
    if len(types) not in (len(here), len(here) + 1):
        raise ProgramError(f"{op} has {len(types)} operands, expected {len(here)}, or one more")
    heads, (q, k, v, *others) = attrs["heads"], types[: len(here)]
    for t, inside in zip(types, here, strict=False):
        if t.kind != "float" or t.space != attrs["space" if inside else "source"]:
            raise ProgramError(f"{op}: an operand lies in '{t.space}' that belongs into the other space")
    if q.width != k.width or not 1 <= heads <= min(k.width, v.width) or k.width % heads or v.width % heads:
        raise ProgramError(
            f"{op}: {heads} heads of queries of {q.width} columns, keys of {k.width} and values of {v.width}"
        )
    if others and (others[0].width, others[1].width) != (v.width, 2 * heads):
        raise ProgramError(f"{op}: gradients of {others[0].width} columns, and {others[1].width} numbers")
    for t in types[len(here) :]:
        if t.kind != "int" or t.space != q.space:
            raise ProgramError(f"{op}: how many rows a query looks at is an integer in '{q.space}'")
    return v.width


def _attend_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    return ValueType("float", attrs["space"], _check("attend", attrs, types) + attrs["heads"])


def _queries_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    _check("attend_queries", attrs, types)
    return ValueType("float", attrs["space"], types[0].width)


def _keys_infer(attrs: Attrs, types: list[ValueType], shapes: Shapes) -> ValueType:
    return ValueType("float", attrs["space"], types[1].width + _check("attend_keys", attrs, types))


def _messages(
    ctx: RowContext, queries: str, keys: str, seen: list[Array]
) -> Iterator[tuple[slice, slice, Array]]:
    """For each message the rows of its queries and of its keys, and which of them meet [queries, keys]."""

    def rows(space: str) -> tuple[Array, Array]:
        return ctx.starts(space), np.broadcast_to(np.asarray(ctx.counts[space]), (ctx.n,))

    (q0, qn), (k0, kn) = rows(queries), rows(keys)
    for m in range(ctx.n):
        q, k = slice(q0[m], q0[m] + qn[m]), slice(k0[m], k0[m] + kn[m])
        meets = np.ones((qn[m], kn[m]), bool)
        if seen:
            meets &= np.arange(kn[m]) < seen[0][q, None]
        yield q, k, meets


def _heads(x: Array, heads: int) -> Array:
    """[rows, width] -> [heads, rows, width / heads]."""
    return np.moveaxis(x.reshape(len(x), heads, x.shape[1] // heads), 1, 0)


def _side_by_side(x: Array) -> Array:
    heads, rows, width = x.shape
    return np.moveaxis(x, 0, 1).reshape(rows, heads * width)


def _attend(ctx: RowContext, at: Attrs, p: Mapping[str, Array], a: list[Array]) -> Array:
    heads, (q, k, v, *seen) = at["heads"], a
    out = np.zeros((len(q), v.shape[1] + heads), q.dtype)
    scale = q.dtype.type(1.0 / math.sqrt(q.shape[1] // heads))
    for rows, columns, meets in _messages(ctx, at["space"], at["source"], seen):
        some = meets.any(axis=1)
        if not some.any():
            continue
        qh, kh, vh = _heads(q[rows][some], heads), _heads(k[columns], heads), _heads(v[columns], heads)
        scores = np.where(meets[some], qh @ kh.swapaxes(1, 2) * scale, -np.inf)
        most = scores.max(axis=2, keepdims=True)
        powers = np.exp(scores - most)
        total = powers.sum(axis=2, keepdims=True)
        mixed = _side_by_side(powers @ vh / total)
        out[rows][some] = np.concatenate([mixed, (most + np.log(total))[..., 0].T], axis=1)
    return out


def _gradients(
    ctx: RowContext, queries: str, keys: str, heads: int, a: list[Array]
) -> Iterator[tuple[slice, slice, Array, Array]]:
    """For each message its rows, its weights and the gradients of its scores [heads, queries, keys]."""
    q, k, v, d, numbers, *seen = a
    scale = q.dtype.type(1.0 / math.sqrt(q.shape[1] // heads))
    for rows, columns, meets in _messages(ctx, queries, keys, seen):
        logs, offsets = np.split(numbers[rows].T[..., None], 2)
        scores = _heads(q[rows], heads) @ _heads(k[columns], heads).swapaxes(1, 2) * scale
        # What is not looked at may have any score.
        weights = np.exp(np.where(meets, scores - logs, -np.inf))
        back = _heads(d[rows], heads) @ _heads(v[columns], heads).swapaxes(1, 2)
        of_scores = weights * (back - offsets) * scale
        of_scores[:, meets.sum(axis=1) == 1] = 0.0
        yield rows, columns, weights, of_scores


def _queries(ctx: RowContext, at: Attrs, p: Mapping[str, Array], a: list[Array]) -> Array:
    heads, out = at["heads"], np.zeros_like(a[0])
    for rows, columns, _, scores in _gradients(ctx, at["space"], at["source"], heads, a):
        out[rows] = _side_by_side(scores @ _heads(a[1][columns], heads))
    return out


def _keys(ctx: RowContext, at: Attrs, p: Mapping[str, Array], a: list[Array]) -> Array:
    heads, (q, k, v, d) = at["heads"], a[:4]
    out = np.zeros((len(k), k.shape[1] + v.shape[1]), k.dtype)
    for rows, columns, weights, scores in _gradients(ctx, at["source"], at["space"], heads, a):
        of_keys = _side_by_side(scores.swapaxes(1, 2) @ _heads(q[rows], heads))
        of_values = _side_by_side(weights.swapaxes(1, 2) @ _heads(d[rows], heads))
        out[columns] = np.concatenate([of_keys, of_values], axis=1)
    return out


def _vjp(t: Tape, at: Attrs, a: list[int], y: int, d: Value) -> list[Value | None]:
    """dscore_ij = p_ij (d_i v_j - d_i out_i). Logarithms, which this direction alone reads, have none."""
    heads, width, value = at["heads"], t.type_of(a[1]).width, t.type_of(a[2]).width

    def columns(x: Value, start: int, width: int) -> Value:
        return t.emit("slice", [x], start=start, width=width)

    out = t.forward(y)
    mixed, logs = columns(out, 0, value), columns(out, value, heads)
    back, each = columns(d, 0, value), value // heads
    both = mixed * back
    offsets = [t.emit("sum_cols", [columns(both, h * each, each)]) for h in range(heads)]
    numbers = t.emit("concat", [logs, *offsets])
    operands = [*(t.forward(x) for x in a[:3]), back, numbers, *(t.forward(x) for x in a[3:])]
    there = {"space": at["source"], "source": at["space"], "heads": heads}
    of_keys = t.emit("attend_keys", operands, **there)
    return [
        t.emit("attend_queries", operands, **at),
        columns(of_keys, 0, width),
        columns(of_keys, width, value),
        *(None for _ in a[3:]),
    ]


def _no_vjp(t: Tape, at: Attrs, a: list[int], y: int, d: Value) -> list[Value | None]:
    raise ProgramError("gradients of attention have no derivative here")


def pair_operations(op: str, widths: list[int]) -> int:
    """Of a query and one row, in the products; widths: of q, k and v."""
    _, key, value = widths[:3]
    return (
        2 * {"attend": key + value, "attend_queries": 2 * key + value, "attend_keys": 2 * key + 2 * value}[op]
    )


NO_ATTENTION = (
    "it has no attention, whose softmax takes exponentials and a division; place it on a CPU or an OpenCL "
    "device, or take a sum or a maximum over the positions"
)

PRIMITIVES["attend"] = Primitive(_attend_infer, _attend, _vjp, hardware=NO_ATTENTION, flops="pairs")
PRIMITIVES["attend_queries"] = Primitive(
    _queries_infer, _queries, _no_vjp, hardware=NO_ATTENTION, flops="pairs"
)
PRIMITIVES["attend_keys"] = Primitive(_keys_infer, _keys, _no_vjp, hardware=NO_ATTENTION, flops="pairs")
