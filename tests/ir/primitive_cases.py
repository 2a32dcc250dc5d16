"""A program for every primitive with a derivative, and frames to run it on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from amphw.ir.expr import Field
from amphw.ir.functions import (
    absolute,
    attend,
    columns,
    concat,
    cross_entropy,
    dropout,
    exp,
    gather_rows,
    gelu,
    images,
    linear,
    log,
    log_softmax,
    lstm,
    max_rows,
    maximum,
    number,
    patches,
    pick,
    relu,
    row_param,
    same,
    scatter_rows,
    sigmoid,
    softmax,
    softplus,
    split,
    spread_rows,
    sqrt,
    squared_error,
    stop_gradient,
    sum_cols,
    sum_rows,
    take,
    tanh,
    to_int,
    uniform,
)
from amphw.ir.primitives import RowContext, ValueType
from amphw.ir.primitives.images import Windows
from amphw.ir.program import Program, Value, trace

INDEX = Field("i")
"""The integer operand of the cases."""


@dataclass
class Frame:
    """Rows of a few messages: space "rows" with `counts` rows, "one" with one, "other" with `others`."""

    rng: np.random.Generator
    counts: np.ndarray
    others: np.ndarray
    width: int
    context: RowContext = field(init=False)
    more: dict[str, int] = field(default_factory=dict)
    """Spaces in proportion to "rows"."""

    def __post_init__(self) -> None:
        spaces = {"rows": self.counts, "one": 1, "other": self.others}
        spaces |= {name: self.counts * n for name, n in self.more.items()}
        self.context = RowContext(len(self.counts), spaces)

    def floats(self, space: str = "rows", width: int | None = None, low: float = 0.2) -> np.ndarray:
        """Values that keep away from 0, where some functions have a kink or a pole."""
        shape = (self.context.total(space), self.width if width is None else width)
        return self.rng.uniform(low, 2.0, shape) * self.rng.choice([-1.0, 1.0], shape)

    def positive(self) -> np.ndarray:
        return np.abs(self.floats())

    def distinct(self) -> np.ndarray:
        """No two values closer than the step of the differences."""
        shape = (self.context.total("rows"), self.width)
        return self.rng.permutation(shape[0] * shape[1]).reshape(shape) * 0.1 - 0.7

    def integers(self, high: int, space: str = "rows") -> np.ndarray:
        return self.rng.integers(0, high, self.context.total(space))

    def rows_within(self, space: str, target: str) -> np.ndarray:
        """For each row of `space`, a row of its message in `target`."""
        here = np.broadcast_to(self.context.counts[target], (self.context.n,))
        return self.rng.integers(0, here[self.context.message_of_row(space)])


@dataclass
class Case:
    program: Program
    inputs: list[np.ndarray]
    ints: dict[str, np.ndarray] = field(default_factory=dict)
    params: dict[str, np.ndarray] = field(default_factory=dict)


def unary(function: Callable[[Value], Value], draw: Callable[[Frame], np.ndarray] = Frame.floats):  # type: ignore[no-untyped-def]
    return lambda f: Case(trace(function, {"x": f.width}), [draw(f)])


def binary(function: Callable[[Value, Value], Value]):  # type: ignore[no-untyped-def]
    return lambda f: Case(trace(function, {"x": f.width, "y": f.width}), [f.floats(), f.floats()])


def _concat(f: Frame) -> Case:
    program = trace(lambda x, y: concat(x, y, x), {"x": f.width, "y": 2})
    return Case(program, [f.floats(), f.floats(width=2)])


def _slice(f: Frame) -> Case:
    return Case(
        trace(lambda x: columns(x, f.width - 1, 2), {"x": f.width + 2}), [f.floats(width=f.width + 2)]
    )


def _pad(f: Frame) -> Case:
    return Case(
        trace(lambda x: x.builder.emit("pad", [x], start=1, width=f.width + 3), {"x": f.width}), [f.floats()]
    )


def _pick(f: Frame) -> Case:
    return Case(trace(lambda x: pick(x, INDEX), {"x": f.width}), [f.floats()], {"i": f.integers(f.width)})


def _place(f: Frame) -> Case:
    program = trace(
        lambda x: x.builder.emit("place", [x, x.builder.integer(INDEX)], width=f.width + 1), {"x": 1}
    )
    return Case(program, [f.floats(width=1)], {"i": f.integers(f.width + 1)})


def _matmul(f: Frame) -> Case:
    program = trace(lambda p, x: x @ p.W, {"x": f.width}, {"W": (f.width, 3)})
    return Case(program, [f.floats()], params={"W": f.rng.normal(size=(f.width, 3))})


def _matmul_t(f: Frame) -> Case:
    program = trace(lambda p, x: x @ p.W.T, {"x": f.width}, {"W": (3, f.width)})
    return Case(program, [f.floats()], params={"W": f.rng.normal(size=(3, f.width))})


def _take(f: Frame) -> Case:
    program = trace(lambda p, x: take(p.E, INDEX) * x, {"x": f.width}, {"E": (4, f.width)})
    return Case(program, [f.floats()], {"i": f.integers(4)}, {"E": f.rng.normal(size=(4, f.width))})


def _row_param(f: Frame) -> Case:
    program = trace(
        lambda p, x: row_param(p.b, "one"), {"x": ValueType("float", "one", 1)}, {"b": (f.width,)}
    )
    return Case(program, [f.floats("one", 1)], params={"b": f.rng.normal(size=f.width)})


def _gather(f: Frame) -> Case:
    f.others[f.counts == 0] = 0
    program = trace(lambda x: gather_rows(x, INDEX, "other"), {"x": f.width}, spaces={"other": 1})
    return Case(program, [f.floats()], {"i": f.rows_within("other", "rows")})


def _scatter(f: Frame) -> Case:
    f.others[f.counts > 0] += 1
    program = trace(lambda x: scatter_rows(x, INDEX, "other"), {"x": f.width}, spaces={"other": 1})
    return Case(program, [f.floats()], {"i": f.rows_within("rows", "other")})


WINDOWS = (
    Windows((3, 4, 2), (2, 3), 1, 1),
    Windows((4, 3, 1), (2, 2), 2, 0),
    Windows((2, 2, 3), (1, 1), 1, 0),
    Windows((5, 4, 1), (3, 2), 2, 1),
)


def in_proportion(f: Frame, windows: Windows) -> Frame:
    """The frame with rows in "other" for the windows of those in "rows"."""
    f.others[:] = f.counts * windows.count
    return f


def _patches(f: Frame) -> Case:
    w = WINDOWS[f.width - 1]
    program = trace(
        lambda x: x.builder.emit("patches", [x], space="other", source="rows", **w.attrs), {"x": w.columns}
    )
    return Case(program, [in_proportion(f, w).floats(width=w.columns)])


def _unpatch(f: Frame) -> Case:
    w = WINDOWS[f.width - 1]
    program = trace(
        lambda x: x.builder.emit("unpatch", [x], space="rows", source="other", **w.attrs),
        {"x": ValueType("float", "other", w.width)},
    )
    rows = int((f.counts * w.count).sum())
    return Case(program, [in_proportion(f, w).rng.normal(size=(rows, w.width))])


def _convolution(f: Frame) -> Case:
    """A convolution, a pool over its result, and another way past the convolution: windows of windows."""
    w = Windows((4, 4, 1), (2, 2), 1, 1)
    pool = Windows((5, 5, 2), (2, 2), 2)

    def both(p, x):  # type: ignore[no-untyped-def]
        y = images(linear(patches(x, w), p.W, p.b), 5, 5)
        four = split(patches(y, pool), 4)
        return images(maximum(maximum(four[0], four[1]), maximum(four[2], four[3])), 2, 2)

    program = trace(both, {"x": w.columns}, {"W": (4, 2), "b": (2,)})
    f.more = {"rows_5x5": 25, "rows_2x2": 4}
    params = {"W": f.rng.normal(size=(4, 2)), "b": f.rng.normal(size=2)}
    return Case(program, [f.floats(width=w.columns)], params=params)


def _spread_rows(f: Frame) -> Case:
    program = trace(lambda x: spread_rows(x, "rows"), {"x": ValueType("float", "one", f.width)})
    return Case(program, [f.floats("one")])


def _reduced(function: Callable[..., Value], draw: Callable[[Frame], np.ndarray] = Frame.floats):  # type: ignore[no-untyped-def]
    return lambda f: Case(trace(lambda x: function(x, "one"), {"x": f.width}, spaces={"one": 1}), [draw(f)])


def _attend(f: Frame) -> Case:
    """Of rows of one space over those of another; queries look at a number of them, at none, or at all."""
    wide, heads = 2 * f.width, 2
    types = {"q": wide, "k": ValueType("float", "other", wide), "v": ValueType("float", "other", 2 * heads)}
    limited = f.rng.integers(2) == 0

    def both(q: Value, k: Value, v: Value) -> Value:
        return attend(q, k, v, heads, q.builder.integer(INDEX) if limited else None)

    program = trace(both, types)
    rows = [f.floats(width=wide), f.floats("other", wide), f.floats("other", 2 * heads)]
    return Case(program, rows, {"i": f.integers(4)} if limited else {})


def _dropout(f: Frame) -> Case:
    program = trace(lambda x: dropout(x, 0.4, [INDEX], seed=3), {"x": f.width})
    return Case(program, [f.floats()], {"i": f.integers(9)})


def _emitted(op: str, **attrs: object) -> Callable[[Value], Value]:
    return lambda x: x.builder.emit(op, [x], **attrs)


DIFFERENTIABLE: dict[str, Callable[[Frame], Case]] = {
    "add": binary(lambda x, y: x + y),
    "sub": binary(lambda x, y: x - y),
    "mul": binary(lambda x, y: x * y),
    "div": binary(lambda x, y: x / y),
    "maximum": binary(maximum),
    "sigmoid": unary(sigmoid),
    "tanh": unary(tanh),
    "relu": unary(relu),
    "exp": unary(exp),
    "log": unary(log, Frame.positive),
    "sqrt": unary(sqrt, Frame.positive),
    "abs": unary(absolute),
    "normal_cdf": unary(gelu),
    "softplus": unary(softplus),
    "scale": unary(lambda x: x * -1.7),
    "shift": unary(lambda x: x + 0.3),
    "concat": _concat,
    "slice": _slice,
    "pad": _pad,
    "sum_cols": unary(sum_cols),
    "spread_cols": lambda f: Case(trace(_emitted("spread_cols", width=4), {"x": 1}), [f.floats(width=1)]),
    "pick": _pick,
    "place": _place,
    "matmul": _matmul,
    "matmul_t": _matmul_t,
    "take": _take,
    "row_param": _row_param,
    "gather_rows": _gather,
    "scatter_rows": _scatter,
    "patches": _patches,
    "unpatch": _unpatch,
    "attend": _attend,
    "sum_rows": _reduced(sum_rows),
    "max_rows": _reduced(max_rows, Frame.distinct),
    "spread_rows": _spread_rows,
    "dropout": _dropout,
}

# Declared to pass no gradient on, whatever their differences say.
CONSTANT: dict[str, Callable[[Frame], Case]] = {
    "step": unary(_emitted("step")),
    "sign": unary(_emitted("sign")),
    "equal": binary(lambda x, y: x.builder.emit("equal", [x, y])),
    "stop_gradient": unary(stop_gradient),
    "max_cols": unary(_emitted("max_cols")),
    "argmax": unary(lambda x: take_one(x, x.builder.emit("argmax", [x]))),
    "above": unary(lambda x: take_one(x, x.builder.emit("above", [x], threshold=0.1))),
    "to_int": unary(lambda x: take_one(x, to_int(number(x, x.builder.emit("argmax", [x]))))),
    "uniform": lambda f: Case(
        trace(lambda x: uniform(x, 3, [INDEX], seed=4), {"x": 1}), [f.floats(width=1)], {"i": f.integers(5)}
    ),
    "to_float": lambda f: Case(
        trace(lambda x: number(x, INDEX), {"x": 1}), [f.floats(width=1)], {"i": f.integers(5)}
    ),
    "same_int": lambda f: Case(
        trace(lambda x: same(x.builder.integer(INDEX), 2), {"x": 1}),
        [f.floats(width=1)],
        {"i": f.integers(5)},
    ),
    "zeros": unary(lambda x: x.builder.emit("zeros", [], space="rows", width=3)),
}

WITHOUT_DERIVATIVE = {"attend_queries", "attend_keys"}
"""Nobody asks for the gradient of a gradient."""

# Compositions that the models lean on: gradients that arrive over several paths, residuals used twice.
COMPOSED: dict[str, Callable[[Frame], Case]] = {
    "softmax": unary(softmax),
    "log_softmax": unary(log_softmax),
    "squared_error": binary(squared_error),
    "cross_entropy": lambda f: Case(
        trace(lambda x: cross_entropy(x, INDEX), {"x": f.width}), [f.floats()], {"i": f.integers(f.width)}
    ),
    "lstm": lambda f: Case(
        trace(lambda z, c: list(lstm(z, c)), {"z": 4 * f.width, "c": f.width}),
        [f.floats(width=4 * f.width), f.floats()],
    ),
    "two layers, one weight": lambda f: Case(
        trace(
            lambda p, x: tanh(linear(tanh(linear(x, p.W, p.b)), p.W, p.b)),
            {"x": f.width},
            {"W": (f.width, f.width), "b": (f.width,)},
        ),
        [f.floats()],
        params={"W": f.rng.normal(size=(f.width, f.width)), "b": f.rng.normal(size=f.width)},
    ),
    "convolution and pool": _convolution,
    "attention over the rows": lambda f: Case(
        trace(
            lambda x: sum_rows(x * spread_rows(max_rows(x, "one"), "rows"), "one"),
            {"x": f.width},
            spaces={"one": 1},
        ),
        [f.distinct()],
    ),
}


def take_one(x: Value, index: Value) -> Value:
    """A float output that hangs on an integer value alone."""
    return same(index, index) * stop_gradient(sum_cols(x))
