"""Functions to write programs with: primitives under their usual names, and common compositions.

>>> from amphw.ir.program import trace
>>> shapes = {"W": (5, 3), "b": (3,)}
>>> cell = trace(lambda p, x, h: relu(linear(concat(x, h), p.W, p.b)), {"x": 2, "h": 3}, shapes)
>>> [t.width for t in cell.outputs_types]
[3]
"""

from __future__ import annotations

from amphw.ir.errors import ProgramError
from amphw.ir.expr import ROW, ROWS, Expr, lift
from amphw.ir.primitives.images import Windows
from amphw.ir.program import ParamRef, Value


def sigmoid(x: Value) -> Value:
    return x.builder.emit("sigmoid", [x])


def tanh(x: Value) -> Value:
    return x.builder.emit("tanh", [x])


def relu(x: Value) -> Value:
    return x.builder.emit("relu", [x])


def exp(x: Value) -> Value:
    return x.builder.emit("exp", [x])


def log(x: Value) -> Value:
    return x.builder.emit("log", [x])


def softplus(x: Value) -> Value:
    """log(1 + exp(x)), a smooth relu."""
    return x.builder.emit("softplus", [x])


def gelu(x: Value) -> Value:
    """x times the probability that a number from a standard normal distribution is smaller.

    Source: Hendrycks and Gimpel, arXiv 1606.08415; the exact form, not the one with tanh.
    """
    return x * x.builder.emit("normal_cdf", [x])


def sqrt(x: Value) -> Value:
    return x.builder.emit("sqrt", [x])


def absolute(x: Value) -> Value:
    return x.builder.emit("abs", [x])


def stop_gradient(x: Value) -> Value:
    return x.builder.emit("stop_gradient", [x])


def maximum(a: Value, b: Value) -> Value:
    """The larger of both, number by number; of equals the gradient goes to b."""
    return a.builder.emit("maximum", [a, b])


def concat(*xs: Value) -> Value:
    """Columns side by side."""
    return xs[0].builder.emit("concat", xs) if len(xs) > 1 else xs[0]


def columns(x: Value, start: int, width: int) -> Value:
    """Columns start .. start + width - 1."""
    return x.builder.emit("slice", [x], start=start, width=width)


def split(x: Value, parts: int) -> list[Value]:
    """`parts` equal blocks of columns."""
    width = x.width // parts
    return [columns(x, i * width, width) for i in range(parts)]


def sum_cols(x: Value) -> Value:
    return x.builder.emit("sum_cols", [x])


def max_cols(x: Value) -> Value:
    """The largest number of each row -> width 1. It has no gradient; `largest` has one."""
    return x.builder.emit("max_cols", [x])


def layer_norm(x: Value, eps: float) -> Value:
    """Each row less its mean, over its standard deviation; eps is added to the variance."""
    centred = x - sum_cols(x) * (1.0 / x.width)
    return centred * (1.0 / sqrt(sum_cols(centred * centred) * (1.0 / x.width) + eps))


def rms_norm(x: Value, eps: float) -> Value:
    """Each row over the root of its mean square; eps is added to that mean."""
    return x * (1.0 / sqrt(sum_cols(x * x) * (1.0 / x.width) + eps))


def linear(x: Value, weight: ParamRef, bias: ParamRef | None = None) -> Value:
    """x @ weight (+ bias)."""
    y = x @ weight
    return y if bias is None else y + row_param(bias, y.type.space)


def row_param(bias: ParamRef, space: str = "rows") -> Value:
    """A vector parameter on every row of a space."""
    name = bias.read(bias.builder, "for rows")
    return bias.builder.emit("row_param", [], param=name, space=space)


def take(weight: ParamRef, index: Expr | Value, space: str = "rows") -> Value:
    """Row `index` of a table parameter: an embedding."""
    name = weight.read(weight.builder, "for rows")
    i = index if isinstance(index, Value) else weight.builder.integer(index, space)
    return weight.builder.emit("take", [i], param=name)


def pick(x: Value, index: Expr | Value | int) -> Value:
    """Column `index` of each row -> width 1."""
    return x.builder.emit("pick", [x, _integer(x, index)])


def argmax(x: Value) -> Value:
    """Column of the maximum (the first of equals) -> integer."""
    return x.builder.emit("argmax", [x])


def to_int(x: Value) -> Value:
    """A column that holds whole numbers, such as the number of an argmax, as an integer. It has no gradient.

    A number that is not whole, or beyond what 32 bits hold exactly, is an error when the program runs.
    """
    return x.builder.emit("to_int", [x])


def largest(x: Value) -> Value:
    """The largest number of each row -> width 1; the gradient goes to the first of equals."""
    return pick(x, argmax(x))


def above(x: Value, threshold: float) -> Value:
    """1 where the first column exceeds the threshold -> integer."""
    return x.builder.emit("above", [x], threshold=float(threshold))


def same(a: Value, b: Value | Expr | int) -> Value:
    """1.0 where two integers agree."""
    return a.builder.emit("same_int", [a, _integer(a, b)])


def zeros(x: Value, width: int) -> Value:
    """Zeros of the given width on every row of x."""
    return x.builder.emit("zeros", [], space=x.type.space, width=width)


def number(x: Value, e: Expr | Value | int) -> Value:
    """A state expression, or an integer that the program computes, as a float column beside x."""
    return x.builder.emit("to_float", [_integer(x, e)])


def sum_rows(x: Value, space: str = "rows") -> Value:
    """Sum over the rows of each message, into a space of one row a message (0 where there are none)."""
    return x.builder.emit("sum_rows", [x], space=space, source=x.type.space)


def max_rows(x: Value, space: str = "rows") -> Value:
    """Maximum over the rows of each message, into a space of one row a message (0 where there are none)."""
    return x.builder.emit("max_rows", [x], space=space, source=x.type.space)


def spread_rows(x: Value, space: str) -> Value:
    """The message's one row, repeated for every row that it has in `space`."""
    return x.builder.emit("spread_rows", [x], space=space, source=x.type.space)


def gather_rows(x: Value, index: Expr, space: str) -> Value:
    """Row `index` (over the state and `$row` of `space`) of the message, for every row of `space`."""
    return x.builder.emit(
        "gather_rows", [x, x.builder.integer(index, space)], space=space, source=x.type.space
    )


def scatter_rows(x: Value, index: Expr, space: str) -> Value:
    """Add every row of the message to row `index` of `space`."""
    i = x.builder.integer(index, x.type.space)
    return x.builder.emit("scatter_rows", [x, i], space=space, source=x.type.space)


def attend(q: Value, k: Value, v: Value, heads: int = 1, seen: Value | None = None) -> Value:
    """Scaled dot-product attention of the rows of q over the message's rows of k and v, head by head.

    q [space, w], k [source, w], v [source, any width]; heads: equal blocks of columns. seen: an integer
    beside each query, how many of the first rows it looks at; all where it is None. 0 where it looks at none.
    """
    operands = [q, k, v] if seen is None else [q, k, v, seen]
    both = q.builder.emit("attend", operands, space=q.type.space, source=k.type.space, heads=heads)
    return columns(both, 0, v.width)


def patches(x: Value, windows: Windows) -> Value:
    """A row for each window of each row's image, in a space that is opened for as many."""
    spaces, source = x.builder.spaces, x.type.space
    rows = ROWS if source == "rows" else spaces.get(source)
    if rows is None:
        raise ProgramError(
            f"patches: images lie in 'rows' or in a space that the program opens, not '{source}'"
        )
    space = f"{source}_{windows.down}x{windows.across}"
    spaces.setdefault(space, rows * windows.count)
    return x.builder.emit("patches", [x], space=space, source=source, **windows.attrs)


def images(x: Value, height: int, width: int, space: str = "rows") -> Value:
    """The results of `height` x `width` windows as one image in one row of `space`: undoes that part of
    `patches`."""
    pixels = Windows((height, width, x.width), (1, 1))
    return x.builder.emit("unpatch", [x], space=space, source=x.type.space, **pixels.attrs)


def dropout(x: Value, rate: float, keys: list[Expr], seed: int = 0, per_row: bool = True) -> Value:
    """Zero columns with probability `rate`, the rest scaled by 1/(1-rate).

    The mask is a function of the `keys` (state expressions; put the instance's number among them), the seed,
    the row of the message and the column alone. Recurrent dropout leaves the loop counter out of the keys.
    Inference turns it off.
    """
    wanted = [*keys, *([ROW] if per_row else [])]
    return x.builder.emit("dropout", [x, *(_integer(x, k) for k in wanted)], rate=float(rate), seed=int(seed))


def uniform(x: Value, width: int, keys: list[Expr], seed: int = 0) -> Value:
    """Uniform numbers from 0 to below 1, `width` on every row of x; in inference too.

    They are a function of the `keys`, the seed and the column, as the mask of `dropout` is.
    """
    space = x.type.space
    ints = [_integer(x, k) for k in keys]
    return x.builder.emit("uniform", ints, space=space, width=width, seed=int(seed))


def sampled(x: Value, keys: list[Expr], seed: int = 0) -> Value:
    """A column of each row, drawn with the probabilities softmax(x) -> integer. Keys as of `uniform`.

    The largest of x + g is drawn so, where g are independent Gumbel numbers, -log(-log(u)).
    """
    # No number that is drawn is 0 then, and none comes to be 1.
    u = uniform(x, x.width, keys, seed) + 2.0**-26
    return argmax(x - log(-log(u)))


def log_softmax(x: Value) -> Value:
    shifted = x - max_cols(x)
    return shifted - log(sum_cols(exp(shifted)))


def softmax(x: Value) -> Value:
    e = exp(x - max_cols(x))
    return e / sum_cols(e)


def cross_entropy(logits: Value, label: Expr | Value) -> Value:
    """-log softmax(logits)[label] of each row -> width 1."""
    return -pick(log_softmax(logits), label)


def squared_error(x: Value, target: Value) -> Value:
    """Sum of squared differences of each row -> width 1."""
    difference = x - target
    square = difference * difference
    return sum_cols(square) if square.width > 1 else square


def lstm(z: Value, c: Value) -> tuple[Value, Value]:
    """LSTM from pre-activations z [i f o u] and the cell c -> (h, c')."""
    i, f, o, u = split(z, 4)
    return lstm_gates(i, f, o, u, c)


def lstm_gates(i: Value, f: Value, o: Value, u: Value, c: Value) -> tuple[Value, Value]:
    """LSTM from the pre-activations of its gates, of the candidate u, and the cell c -> (h, c')."""
    new = sigmoid(i) * tanh(u) + sigmoid(f) * c
    return sigmoid(o) * tanh(new), new


def gru(gi: Value, gh: Value, h: Value) -> Value:
    """GRU from the pre-activations [r z n] of the input and of the state h -> h'.

    Cho et al. 2014 with the reset gate behind the product, as PyTorch's GRUCell.
    """
    both = 2 * h.width
    reset, keep = split(sigmoid(columns(gi, 0, both) + columns(gh, 0, both)), 2)
    new = tanh(columns(gi, both, h.width) + reset * columns(gh, both, h.width))
    return new + keep * (h - new)


def _integer(x: Value, e: Expr | Value | int) -> Value:
    return e if isinstance(e, Value) else x.builder.integer(lift(e), x.type.space)
