"""What the steps of a program are on the values of a row, whose columns are the dimensions that are numbers.

A tensor [n, 2, 3], n a length that differs, is a value of 6 columns for each position. The mathematics is
that of `torch_ops.py`; what is here brings columns to where an operation wants them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np

from amphw.frontend.flow import TURNS, Step, is_same, is_truth, number, order, weight
from amphw.frontend.flow_compare import Comparisons
from amphw.frontend.flow_images import Images
from amphw.frontend.torch_ops import Refused, Weight
from amphw.ir import functions as f
from amphw.ir.expr import Expr
from amphw.ir.program import Value

_PIECES = 512
"""Runs of columns that one step may put together: a program has an instruction for each."""

_FAR = 1e30
"""Stands for infinity where a number is chosen: what nodes send one another is finite."""

ARITHMETIC = {"add", "sub", "mul", "div", "rsub"}
UNARY = {
    *("neg", "exp", "log", "sqrt", "rsqrt", "abs", "square", "reciprocal", "relu", "tanh", "sigmoid", "gelu"),
    *("softplus", "silu", "detach", "dropout", "pow", "leaky_relu", "elu", "clamp", "clamp_min", "clamp_max"),
    *("logical_not", "bitwise_not"),
}
PAIRS = {
    *("maximum", "minimum", "gt", "ge", "lt", "le", "eq", "ne", "logical_and", "logical_or", "__and__"),
    *("__or__", "bitwise_and", "bitwise_or"),
}
CHOICES = {"where", "masked_fill"}
LOGICAL = {"logical_not", "logical_and", "logical_or"}
BITWISE = {"bitwise_not", "bitwise_and", "bitwise_or", "__and__", "__or__"}
"""Of truths they are the logical ones."""


class Rows(Images, Comparisons):
    """Computes steps within one program. known: values of steps that are computed outside of it."""

    known: dict[Step, Any]

    def compute(self, step: Step) -> Any:
        """A value, a weight, a number, a state expression, or a list of values."""
        if step not in self.known:
            self.known[step] = self._computed(step)
        return self.known[step]

    def _computed(self, step: Step) -> Any:
        if (found := weight(step)) is not None:
            return found
        if (constant := number(step)) is not None:
            return constant
        # A matrix of one row or column is turned, too: a product reads it by its dimensions.
        if step.op in TURNS and isinstance(base := self.compute(step.args[0]), Weight):
            return base if order(step) == sorted(order(step)) else self.do_t(base)
        if is_same(step):
            return self.compute(step.args[0])
        if step.op == "getitem":
            return self.compute(step.args[0])[step.args[1]]
        handler = getattr(self, f"row_{step.op}", None)
        self.seed = step.name
        if step.op in ARITHMETIC | UNARY | PAIRS | CHOICES:
            made = self._each(step)
        elif handler is not None:
            made = _called(handler, step, *step.args, **step.kwargs)
        else:
            raise Refused("has no counterpart here")
        return self._filled(made, step) if isinstance(made, Value) else made

    # --- operands -----------------------------------------------------------------------------------

    def row(self, x: Any) -> Value:
        if isinstance(x, Step):
            wide, x = x.width, self.compute(x)
            if isinstance(x, int | float):
                return self._zeros(wide) + float(x)
        if isinstance(x, Weight) and not x.turned:
            return f.row_param(self._parameter(x, x.values.reshape(-1)))
        if isinstance(x, Expr):
            return self.builder.emit("to_float", [self.builder.integer(x, "rows")])
        if isinstance(x, int | float):
            return self.builder.emit("zeros", [], space="rows", width=1) + float(x)
        return super().row(x)

    def matrix(self, weight: Any, turned: bool) -> Any:
        return super().matrix(self.compute(weight) if isinstance(weight, Step) else weight, turned)

    def _zeros(self, width: int) -> Value:
        return self.builder.emit("zeros", [], space="rows", width=width)

    def _filled(self, x: Value, step: Step) -> Value:
        """A value of one column as wide as the step says."""
        if x.width == 1 != step.width:
            return x + self._zeros(step.width)
        if step.shape is not None and x.width != step.width:
            raise Refused(f"gives {x.width} columns, where its shape {step.shape} has {step.width}")
        return x

    def whole(self, x: Any, step: Step) -> Value:
        """The operand with all columns of the step, repeated as PyTorch broadcasts."""
        made = self.row(x)
        if made.width == step.width or not isinstance(x, Step) or x.shape is None:
            return made if made.width == step.width else made + self._zeros(step.width)
        return self._broadcast(made, x, step)

    def _broadcast(self, made: Value, x: Step, step: Step) -> Value:
        if made.width == 1:
            return made + self._zeros(step.width)
        assert x.shape is not None and step.shape is not None
        own = [1] * (len(step.shape) - len(x.shape)) + list(x.shape)
        static = [d if isinstance(d, int) else 1 for d in own]
        full = [d if isinstance(d, int) else 1 for d in step.shape]
        places = np.broadcast_to(np.arange(made.width).reshape(static), full)
        return self.moved([made], places)

    def moved(self, sources: Sequence[Value], places: np.ndarray) -> Value:
        """The columns at these places of all sources side by side."""
        starts = np.cumsum([0, *(s.width for s in sources)])
        pieces, flat = list[Value](), places.reshape(-1).tolist()
        at = 0
        while at < len(flat):
            which = int(np.searchsorted(starts, flat[at], "right")) - 1
            end = at + 1
            while end < len(flat) and flat[end] == flat[end - 1] + 1 and flat[end] < starts[which + 1]:
                end += 1
            source, start = sources[which], flat[at] - int(starts[which])
            whole = start == 0 and end - at == source.width
            pieces.append(source if whole else f.columns(source, start, end - at))
            at = end
            if len(pieces) > _PIECES:
                raise Refused(
                    f"puts more than {_PIECES} runs of columns together; keep columns in their order"
                )
        return f.concat(*pieces)

    # --- number by number ---------------------------------------------------------------------------

    def _each(self, step: Step) -> Any:
        name, args = step.op, list(step.args)
        if name == "rsub":
            name, args[:2] = "sub", [args[1], args[0]]
        if name in BITWISE and not step.truth:
            raise Refused("is of bits; of what holds or does not it is known")
        operation = getattr(self, f"do_{name.strip('_')}")
        if name in LOGICAL:
            values = [self.whole(x, step) for x in args]
            truths = [v if is_truth(x) else self.do_ne(v, v * 0.0) for v, x in zip(values, args, strict=True)]
            return operation(*truths)
        if name in UNARY:
            return _called(operation, self.row(args[0]), *args[1:], **step.kwargs)
        if name in CHOICES:
            if name == "masked_fill":
                args = [args[1], args[2], args[0]]
            c, *both = (self._finite(x, step) for x in args)
            return self.do_where(c, *both)
        found = [self._number_or_value(x, step, name in ARITHMETIC) for x in args]
        if name in PAIRS:
            found = [self.whole(x, step) for x in found]
        return _called(operation, *found, **step.kwargs)

    def _finite(self, x: Any, step: Step) -> Value:
        plain = number(x) if isinstance(x, Step) else x
        if isinstance(plain, int | float) and math.isinf(plain):
            x = math.copysign(_FAR, plain)
        return self.whole(x, step)

    def _number_or_value(self, x: Any, step: Step, narrow: bool) -> Any:
        """Numbers as they are; one column beside others stays one where arithmetic repeats it."""
        plain = self.compute(x) if isinstance(x, Step) else x
        if isinstance(plain, int | float):
            return plain
        made = self.row(plain)
        if narrow and made.width == 1:
            return made
        return self.whole(x, step) if isinstance(x, Step) else made

    # --- of the last dimension ----------------------------------------------------------------------

    def _last(self, step: Step, x: Step, dim: Any, function: Callable[[Value], Value]) -> Value:
        """A function of all columns, for each index of the dimensions before the last one."""
        assert x.shape is not None
        dims = [dim] if isinstance(dim, int) else list(dim)
        rank = len(x.shape)
        after = [d for k, d in enumerate(x.shape) if isinstance(d, int) and k > dims[0] % rank]
        if len(dims) != 1 or any(d != 1 for d in after):
            raise Refused(f"along dimensions {dims} of {list(x.shape)}, behind which there are others")
        made, wide = self.row(x), x.shape[dims[0] % rank]
        assert isinstance(wide, int)
        return f.concat(*(function(part) for part in f.split(made, made.width // wide)))

    def row_softmax(self, step: Step, x: Step, dim: int, dtype: Any = None) -> Value:
        return self._last(step, x, dim, f.softmax)

    def row_log_softmax(self, step: Step, x: Step, dim: int, dtype: Any = None) -> Value:
        return self._last(step, x, dim, f.log_softmax)

    row__softmax, row__log_softmax = row_softmax, row_log_softmax

    def row_layer_norm(
        self,
        step: Step,
        x: Step,
        shape: Any,
        weight: Any = None,
        bias: Any = None,
        eps: float = 1e-5,
        *_: Any,
    ) -> Value:
        w, b = (None if p is None else self.compute(p) for p in (weight, bias))
        parts = f.split(self.row(x), x.width // math.prod(shape))
        return f.concat(*(self.do_layer_norm(p, (p.width,), w, b, eps) for p in parts))

    def row_rms_norm(self, step: Step, x: Step, shape: Any, weight: Any = None, eps: Any = None) -> Value:
        w = None if weight is None else self.compute(weight)
        parts = f.split(self.row(x), x.width // math.prod(shape))
        return f.concat(*(self.do_rms_norm(p, (p.width,), w, eps) for p in parts))

    def row_native_layer_norm(self, step: Step, x: Step, *args: Any) -> list[Value]:
        return [self.row_layer_norm(step, x, *args)]

    def row_linear(self, step: Step, x: Step, weight: Step, bias: Any = None) -> Value:
        w, b = self.compute(weight), None if bias is None else self.compute(bias)
        return self._last(step, x, -1, lambda part: self.do_linear(part, w, b))

    def row_matmul(self, step: Step, x: Step, other: Step) -> Value:
        if isinstance(self.compute(x), Weight):
            raise Refused(
                "multiplies a parameter with a value from the right; x @ weight is known, or linear"
            )
        w = self.compute(other)
        if not isinstance(w, Weight):
            return self._inner(step, x, other)
        return self._last(step, x, -1, lambda part: self.do_matmul(part, w))

    def _inner(self, step: Step, x: Step, other: Step) -> Value:
        a, b = self.row(x), self.row(other)
        if a.width != b.width or step.width != 1:
            raise Refused("multiplies two matrices that are computed")
        return f.sum_cols(a * b)

    row_mm = row_bmm = row_dot = row_matmul

    def row_addmm(
        self, step: Step, input: Step, x: Step, other: Step, *, beta: float = 1, alpha: float = 1
    ) -> Any:
        if isinstance((x.shape or (0,))[-1], str):
            raise Refused("sums over positions and adds; write it as a product and a sum")
        y = self._times(self.row_matmul(step, x, other), alpha)
        return self.do_add(y, self._times(self.whole(input, step), beta))

    def row_embedding(
        self, step: Step, weight: Step, index: Step, padding_idx: int = -1, *rest: Any
    ) -> Value:
        scale, sparse = (*rest, False, False)[:2]
        padding = None if padding_idx < 0 else padding_idx
        if index.width != 1:
            raise Refused("looks up several rows for one position; use one embedding for each")
        w = self.compute(weight)
        return self.do_embedding(self.compute(index), w, padding, None, 2.0, scale, sparse)

    # --- cells --------------------------------------------------------------------------------------

    def _cell(self, cell: Callable[..., Any], x: Any, h: Any, weights: Sequence[Any]) -> Any:
        state = [self.row(part) for part in h] if isinstance(h, list | tuple) else self.row(h)
        return cell(self.row(x), state, *(None if w is None else self.compute(w) for w in weights))

    def row_gru_cell(self, step: Step, x: Any, h: Any, *weights: Any) -> Any:
        return self._cell(self.do_gru_cell, x, h, weights)

    def row_lstm_cell(self, step: Step, x: Any, h: Any, *weights: Any) -> Any:
        return self._cell(self.do_lstm_cell, x, h, weights)

    def row_rnn_tanh_cell(self, step: Step, x: Any, h: Any, *weights: Any) -> Any:
        return self._cell(self.do_rnn_tanh_cell, x, h, weights)

    def row_rnn_relu_cell(self, step: Step, x: Any, h: Any, *weights: Any) -> Any:
        return self._cell(self.do_rnn_relu_cell, x, h, weights)

    # --- columns ------------------------------------------------------------------------------------

    def _grid(self, x: Step) -> np.ndarray:
        """Of each entry of one row of x its column."""
        shape = [d if isinstance(d, int) else 1 for d in x.shape or ()]
        return np.arange(x.width).reshape(shape)

    def row_sum(self, step: Step, x: Step, dim: Any = None, keepdim: bool = False, **_: Any) -> Value:
        grid, made = self._grid(x), self.row(x)
        dims = range(grid.ndim) if not dim and dim != 0 else [dim] if isinstance(dim, int) else dim
        moved = np.moveaxis(grid, [d % grid.ndim for d in dims], list(range(-len(dims), 0)))
        count = math.prod(moved.shape[len(moved.shape) - len(dims) :])
        rows = moved.reshape(-1, count)
        if len(rows) == 1:
            return f.sum_cols(made) if made.width > 1 else made
        if rows.shape[1] <= rows.shape[0] and count <= 32:  # a few blocks that are added up
            total = self.moved([made], rows[:, 0])
            for k in range(1, count):
                total = total + self.moved([made], rows[:, k])
            return total
        return f.concat(*(f.sum_cols(self.moved([made], r)) for r in rows))

    def row_mean(self, step: Step, x: Step, dim: Any = None, keepdim: bool = False, **_: Any) -> Value:
        return self.row_sum(step, x, dim) * (step.width / x.width)

    def row_amax(self, step: Step, x: Step, dim: Any = (), keepdim: bool = False) -> Value:
        made = self.row(x)
        if step.width != 1:
            return self._last(step, x, dim, f.largest)
        return f.largest(made)

    def row_amin(self, step: Step, x: Step, dim: Any = (), keepdim: bool = False) -> Value:
        if step.width != 1:
            return self._last(step, x, dim, lambda part: -f.largest(-part))
        return -f.largest(-self.row(x))

    def row_cat(self, step: Step, parts: Sequence[Step], dim: int = 0) -> Value:
        grids, start = [], 0
        for part in parts:
            grids.append(self._grid(part) + start)
            start += part.width
        return self.moved([self.row(p) for p in parts], np.concatenate(grids, dim))

    def row_stack(self, step: Step, parts: Sequence[Step], dim: int = 0) -> Value:
        grids = [self._grid(part) + k * part.width for k, part in enumerate(parts)]
        return self.moved([self.row(p) for p in parts], np.stack(grids, dim))

    def row_slice(
        self, step: Step, x: Step, dim: int = 0, start: Any = None, end: Any = None, by: int = 1
    ) -> Value:
        index = [slice(None)] * len(x.shape or ())
        index[dim] = slice(start, end, by)
        return self.moved([self.row(x)], self._grid(x)[tuple(index)])

    def row_select(self, step: Step, x: Step, dim: int, index: int) -> Value:
        return self.moved([self.row(x)], np.take(self._grid(x), index, dim))

    def row_split(self, step: Step, x: Step, sizes: Any, dim: int = 0) -> list[Value]:
        grid = self._grid(x)
        whole = grid.shape[dim]
        each = [sizes] * -(-whole // sizes) if isinstance(sizes, int) else sizes
        return [self.moved([self.row(x)], g) for g in np.split(grid, np.cumsum(each)[:-1], dim) if g.size]

    row_split_with_sizes = row_split

    def row_chunk(self, step: Step, x: Step, chunks: int, dim: int = 0) -> list[Value]:
        return self.row_split(step, x, -(-self._grid(x).shape[dim] // chunks), dim)

    def row_unbind(self, step: Step, x: Step, dim: int = 0) -> list[Value]:
        return self.row_split(step, x, 1, dim)

    def row_flip(self, step: Step, x: Step, dims: Sequence[int]) -> Value:
        return self.moved([self.row(x)], np.flip(self._grid(x), tuple(dims)))

    def row_permute(self, step: Step, x: Step, *_: Any) -> Value:
        return self.moved([self.row(x)], self._grid(x).transpose(order(step)))

    row_transpose = row_t = row_movedim = row_permute

    def row_fill(self, step: Step, x: Step, value: Any, *_: Any) -> Value:
        return self.whole(value, step)

    row_copy = row_fill

    def _written(self, x: Step, values: Any, index: tuple[Any, ...]) -> Value:
        """x with other values at an index."""
        grid = self._grid(x).copy()
        grid[index] = x.width + self._grid(values).reshape(grid[index].shape)
        return self.moved([self.row(x), self.row(values)], grid)

    def row_select_scatter(self, step: Step, x: Step, values: Step, dim: int, at: int) -> Value:
        index: list[Any] = [slice(None)] * len(x.shape or ())
        index[dim] = at
        return self._written(x, values, tuple(index))

    def row_slice_scatter(
        self, step: Step, x: Step, values: Step, dim: int = 0, start: Any = None, end: Any = None, by: int = 1
    ) -> Value:
        index: list[Any] = [slice(None)] * len(x.shape or ())
        index[dim] = slice(start, end, by)
        return self._written(x, values, tuple(index))

    def row_parameter(self, step: Step, x: Step) -> Value:
        return self.row(x)

    def row_constants(self, step: Step, values: np.ndarray) -> Value:
        return f.concat(*(self._zeros(1) + float(x) for x in values.reshape(-1)))

    def row_to(self, step: Step, x: Step, *_: Any, **__: Any) -> Value:
        made = self.row(x)
        return self.do_ne(made, made * 0.0) if step.truth and not is_truth(x) else made

    row__to_copy = row_to

    def row_expand(self, step: Step, x: Step, *_: Any, **__: Any) -> Value:
        return self._broadcast(self.row(x), x, step)


def _called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise Refused(f"is called in a way that is not known here: {error}") from None
    return function(*args, **kwargs)


HANDLED = (
    ARITHMETIC
    | UNARY
    | PAIRS
    | CHOICES
    | {name.removeprefix("row_") for name in dir(Rows) if name.startswith("row_")}
)
"""Names of the operations that a row knows."""


def fresh(builder: Any, keys: Sequence[Expr], known: Mapping[Step, Any]) -> Rows:
    made = Rows(builder, keys)
    made.known, made.axes = dict(known), {}
    return made
