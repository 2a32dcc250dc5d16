"""What PyTorch's operations are on the values of a program: for `from_torch`, and without importing torch.

A value stands for a tensor [rows, width], so dimension 1, or -1, are the columns. An operation that would mix
rows, or that has an argument which changes its meaning, is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np

from amphw.ir import functions as f
from amphw.ir.expr import Expr
from amphw.ir.program import Builder, ParamRef, ParamSpec, Value


class Refused(Exception):
    """An operation, or the way in which it is used, has no counterpart; the message says what and why."""


@dataclass(frozen=True, eq=False)
class Weight:
    """A parameter of the module under its name here, laid out as there; turned: its transpose is meant."""

    name: str
    values: np.ndarray
    turned: bool = False


ROWS = object()
"""What a tensor's `size(0)` is."""


class Shape:
    """What a tensor's `shape` is."""

    def __init__(self, width: int) -> None:
        self.parts = (ROWS, width)


class Operations:
    """Functions and methods by PyTorch's name, as `do_NAME`.

    keys: state expressions that tell one row from another, for dropout; seed: a text that tells one dropout
    from another.
    """

    def __init__(self, builder: Builder, keys: Sequence[Expr]):
        self.builder, self.keys, self.seed = builder, list(keys), ""
        self.turned = dict[str, bool]()

    # --- operands -----------------------------------------------------------------------------------

    def matrix(self, weight: Any, turned: bool) -> ParamRef:
        """A weight of two dimensions as a program multiplies with it: [inputs, outputs]."""
        if not isinstance(weight, Weight) or weight.values.ndim != 2:
            raise Refused("a matrix of two dimensions must be a parameter of the module")
        turned = weight.turned != turned
        if self.turned.setdefault(weight.name, turned) != turned:
            raise Refused(f"the parameter '{weight.name}' is used as it is and transposed; that takes two")
        return self._parameter(weight.name, weight.values.T if turned else weight.values)

    def _parameter(self, name: str, values: np.ndarray) -> ParamRef:
        if self.builder.params.setdefault(name, ParamSpec.given(name, values)).shape != values.shape:
            raise Refused(f"the parameter '{name}' is used as a matrix and as a row; that takes two")
        return ParamRef(name, self.builder)

    def row(self, x: Any) -> Value:
        """An operand as a value: a parameter is on every row."""
        if isinstance(x, Value) and x.type.kind == "float":
            return x
        if isinstance(x, Weight):
            if x.turned or x.values.size != (x.values.shape or (1,))[-1]:
                raise Refused(f"the parameter '{x.name}' of shape {x.values.shape} is no row of numbers")
            return f.row_param(self._parameter(x.name, x.values.reshape(-1)))
        if isinstance(x, Expr):
            raise Refused("an Integer may only be the index of an embedding here; fe.number makes it a value")
        raise Refused(f"a value was expected, got {'no operand' if x is None else repr(x)}")

    def _numbers(self, x: Value, c: float) -> Value:
        return f.zeros(x, x.width) + c

    def _binary(self, a: Any, b: Any, function: Callable[[Any, Any], Any]) -> Any:
        if _is_number(a) and _is_number(b):
            return function(a, b)
        if _is_number(a):
            b = self.row(b)
            return function(self._numbers(b, a), b)
        return function(self.row(a), b if _is_number(b) else self.row(b))

    def _times(self, x: Any, factor: float) -> Any:
        return x if factor == 1 else self.do_mul(x, factor)

    # --- arithmetic ---------------------------------------------------------------------------------

    def do_add(self, input: Any, other: Any, *, alpha: float = 1) -> Any:
        return self._binary(input, self._times(other, alpha), lambda a, b: a + b)

    def do_sub(self, input: Any, other: Any, *, alpha: float = 1) -> Any:
        return self._binary(input, self._times(other, alpha), lambda a, b: a - b)

    def do_mul(self, input: Any, other: Any) -> Any:
        return self._binary(input, other, lambda a, b: a * b)

    def do_div(self, input: Any, other: Any) -> Any:
        return self._binary(input, other, lambda a, b: a / b)

    def do_neg(self, input: Any) -> Any:
        return -input if _is_number(input) else -self.row(input)

    def do_pow(self, input: Any, exponent: Any) -> Any:
        x, y = self.row(input), None
        if exponent == 0.5:
            return f.sqrt(x)
        if exponent not in (1, 2, 3, 4):
            raise Refused(f"a power is 0.5, 1, 2, 3 or 4, got {exponent!r}")
        for _ in range(int(exponent)):
            y = x if y is None else y * x
        return y

    def do_square(self, input: Any) -> Value:
        return self.row(input) * self.row(input)

    def do_reciprocal(self, input: Any) -> Any:
        return self.do_div(1.0, input)

    def do_rsqrt(self, input: Any) -> Any:
        return self.do_div(1.0, f.sqrt(self.row(input)))

    def do_exp(self, input: Any) -> Value:
        return f.exp(self.row(input))

    def do_log(self, input: Any) -> Value:
        return f.log(self.row(input))

    def do_sqrt(self, input: Any) -> Value:
        return f.sqrt(self.row(input))

    def do_abs(self, input: Any) -> Value:
        return f.absolute(self.row(input))

    def do_sum(self, input: Any, dim: Any = None, keepdim: bool = False) -> Value:
        _columns(dim)
        if not keepdim:
            raise Refused("without keepdim=True no columns are left; rows have one or more")
        return f.sum_cols(self.row(input))

    def do_mean(self, input: Any, dim: Any = None, keepdim: bool = False) -> Value:
        return self.do_sum(input, dim, keepdim) * (1.0 / self.row(input).width)

    # --- products with weights ----------------------------------------------------------------------

    def do_matmul(self, input: Any, other: Any) -> Value:
        return self.row(input) @ self.matrix(other, turned=False)

    def do_linear(self, input: Any, weight: Any, bias: Any = None) -> Value:
        y = self.row(input) @ self.matrix(weight, turned=True)
        return y if bias is None else self.do_add(y, bias)

    def do_addmm(self, input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
        return self.do_add(self._times(self.do_matmul(mat1, mat2), alpha), self._times(input, beta))

    def do_t(self, input: Any) -> Weight:
        if not isinstance(input, Weight) or input.values.ndim != 2:
            raise Refused("only a matrix that is a parameter is transposed; a value's rows stay rows")
        return replace(input, turned=not input.turned)

    def do_transpose(self, input: Any, dim0: int, dim1: int) -> Weight:
        if {dim0 % 2, dim1 % 2} != {0, 1}:
            raise Refused(f"dimensions {dim0} and {dim1} of a matrix are not exchanged")
        return self.do_t(input)

    def do_embedding(
        self,
        input: Any,
        weight: Any,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Value:
        if max_norm is not None or scale_grad_by_freq:
            raise Refused("an embedding with max_norm or scale_grad_by_freq changes its weights by itself")
        if not isinstance(input, Expr):
            raise Refused("the index of an embedding must be an operand of the module, an Integer")
        e = f.take(self.matrix(weight, turned=False), input)
        if padding_idx is None:
            return e
        # PyTorch keeps the padding's row as it is.
        padding = padding_idx % weight.values.shape[0]
        at = f.same(self.builder.integer(input, e.type.space), padding)
        return e * (1.0 + -at) + f.stop_gradient(e) * at

    # --- activations --------------------------------------------------------------------------------

    def do_relu(self, input: Any, inplace: bool = False) -> Value:
        return f.relu(self.row(input))

    def do_tanh(self, input: Any) -> Value:
        return f.tanh(self.row(input))

    def do_sigmoid(self, input: Any) -> Value:
        return f.sigmoid(self.row(input))

    def do_gelu(self, input: Any, *, approximate: str = "none") -> Value:
        x = self.row(input)
        if approximate == "none":
            return f.gelu(x)
        return x * (f.tanh((x + x * x * x * 0.044715) * (2 / math.pi) ** 0.5) * 0.5 + 0.5)

    def do_softplus(self, input: Any, beta: float = 1.0, threshold: float = 20.0) -> Value:
        if threshold < 15:  # beyond it PyTorch returns x, where from 15 on float32 cannot show the difference
            raise Refused(f"softplus bends at its threshold, which is 15 or more here, got {threshold:g}")
        return f.softplus(self.row(input) * beta) * (1.0 / beta)

    def do_silu(self, input: Any, inplace: bool = False) -> Value:
        return self.row(input) * f.sigmoid(self.row(input))

    def do_softmax(self, input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Value:
        _columns(dim)
        _float(dtype)
        return f.softmax(self.row(input))

    def do_log_softmax(self, input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Value:
        _columns(dim)
        _float(dtype)
        return f.log_softmax(self.row(input))

    def do_dropout(self, input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Value:
        if not training or p == 0:
            return self.row(input)
        if not 0 < p < 1:
            raise Refused(f"a rate of dropout is from 0 to below 1, got {p}")
        return f.dropout(self.row(input), p, self.keys, crc32(self.seed.encode()), per_row=False)

    def do_layer_norm(
        self, input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
    ) -> Any:
        x = self.row(input)
        if tuple(normalized_shape) != (x.width,):
            raise Refused(f"a layer norm over {tuple(normalized_shape)} on a value of width {x.width}")
        y: Any = f.layer_norm(x, eps)
        y = y if weight is None else self.do_mul(y, weight)
        return y if bias is None else self.do_add(y, bias)

    # --- columns ------------------------------------------------------------------------------------

    def do_cat(self, tensors: Sequence[Any], dim: Any = 0) -> Value:
        _columns(dim)
        return f.concat(*(self.row(x) for x in tensors))

    def do_split(self, tensor: Any, split_size_or_sections: Any, dim: Any = 0) -> list[Value]:
        _columns(dim)
        x, sizes = self.row(tensor), split_size_or_sections
        if isinstance(sizes, int):
            whole, rest = divmod(x.width, sizes)
            sizes = [sizes] * whole + [rest] * (rest > 0)
        if sum(sizes) != x.width:
            raise Refused(f"parts of {list(sizes)} columns are not the {x.width} of the value")
        starts = np.cumsum([0, *sizes]).tolist()
        return [f.columns(x, start, size) for start, size in zip(starts, sizes, strict=False)]

    def do_chunk(self, input: Any, chunks: int, dim: Any = 0) -> list[Value]:
        return self.do_split(input, -(-self.row(input).width // chunks), dim)

    def do_getitem(self, input: Any, index: Any) -> Any:
        if isinstance(input, list | tuple):
            return input[index]
        if isinstance(input, Shape):
            return input.parts[index]
        x = self.row(input)
        parts = index if isinstance(index, tuple) else (index,)
        if all(p is Ellipsis or p == slice(None) for p in parts) and len(parts) <= 2:
            return x
        rows, columns = parts if len(parts) == 2 else (parts[0], None)
        if (rows is not Ellipsis and rows != slice(None)) or not isinstance(columns, slice):
            raise Refused("a value is read by columns, as x[:, 2:5] or x[..., 2:5]; they stay a dimension")
        start, stop, step = columns.indices(x.width)
        if step != 1 or stop <= start:
            raise Refused(f"no columns {columns.start}:{columns.stop}:{columns.step} in a width of {x.width}")
        return f.columns(x, start, stop - start)

    # --- shapes -------------------------------------------------------------------------------------

    def do_getattr(self, input: Any, name: str) -> Any:
        if name == "shape":
            return Shape(self.row(input).width)
        if name in ("T", "mT"):
            return self.do_t(input)
        raise Refused(f"a tensor's attribute '{name}' is not known here; shape and T are")

    def do_size(self, input: Any, dim: int | None = None) -> Any:
        shape = Shape(self.row(input).width)
        return shape if dim is None else shape.parts[dim]

    def do_view(self, input: Any, *shape: Any) -> Value:
        x = self.row(input)
        parts = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
        same = len(parts) == 2 and (
            (parts[0] is ROWS and parts[1] in (-1, x.width)) or (parts[0] == -1 and parts[1] == x.width)
        )
        if not same:
            named = ", ".join("rows" if p is ROWS else str(p) for p in parts)
            raise Refused(f"[rows, {x.width}] cannot become [{named}]; rows stay rows, and columns columns")
        return x

    def do_flatten(self, input: Any, start_dim: int = 0, end_dim: int = -1) -> Value:
        if start_dim not in (1, -1) or end_dim not in (1, -1):
            raise Refused(f"dimensions {start_dim} to {end_dim} cannot become one; rows stay rows")
        return self.row(input)

    def do_contiguous(self, input: Any) -> Any:
        return input

    def do_detach(self, input: Any) -> Value:
        return f.stop_gradient(self.row(input))

    def do_zeros_like(self, input: Any) -> Value:
        return f.zeros(self.row(input), self.row(input).width)

    def do_ones_like(self, input: Any) -> Value:
        return self._numbers(self.row(input), 1.0)


ALIASES = {
    "absolute": "abs",
    "concat": "cat",
    "concatenate": "cat",
    "clone": "contiguous",
    "divide": "div",
    "float": "contiguous",
    "iadd": "add",
    "imul": "mul",
    "ipow": "pow",
    "isub": "sub",
    "itruediv": "div",
    "mm": "matmul",
    "multiply": "mul",
    "negative": "neg",
    "reshape": "view",
    "subtract": "sub",
    "true_divide": "div",
    "truediv": "div",
}
"""Other names of the same."""

IN_PLACE = ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor")
"""Python's operators that change a tensor: `x += 1` is seen by all who have x."""

VIEWS = {
    *("getitem", "chunk", "split", "view", "flatten", "contiguous", "t", "transpose", "getattr", "dropout"),
    *("detach", "Identity", "Flatten", "Dropout", "get_attr"),
}
"""What may share its memory with its operand in PyTorch: whoever writes into it writes into both."""


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool)


def _columns(dim: Any) -> None:
    if dim in ((-1,), [-1], (1,), [1]):
        (dim,) = dim
    if dim not in (-1, 1):
        raise Refused(
            f"along dimension {dim}; a value is [rows, width], and only its columns, -1, are together"
        )


def _float(dtype: Any) -> None:
    if dtype is not None and str(dtype) != "torch.float32":
        raise Refused(f"dtype {dtype}; values are float32")
