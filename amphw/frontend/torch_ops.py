"""What PyTorch's operations are on the values of a program: for `from_torch`, and without importing torch.

A value stands for a tensor [rows, width], so dimension 1, or -1, are the columns. An operation that would mix
rows, or that has an argument which changes its meaning, is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np

from amphw.frontend.torch_operands import (
    FLOAT,
    ROWS,
    Operands,
    Refused,
    Shape,
    Weight,
    columns_of,
    float_of,
    is_number,
)
from amphw.ir import functions as f
from amphw.ir.expr import Expr
from amphw.ir.program import Builder, Value


class Operations(Operands):
    """Functions and methods by PyTorch's name, as `do_NAME`.

    keys: state expressions that tell one row from another, for dropout; seed: a text that tells one dropout
    from another. taken: names that no part of a parameter may have.
    """

    def __init__(self, builder: Builder, keys: Sequence[Expr], taken: Collection[str] = ()):
        super().__init__(builder, taken)
        self.keys, self.seed = list(keys), ""

    def _binary(self, a: Any, b: Any, function: Callable[[Any, Any], Any]) -> Any:
        if is_number(a) and is_number(b):
            return function(a, b)
        if is_number(a):
            b = self.row(b)
            return function(self.numbers(b, a), b)
        return function(self.row(a), b if is_number(b) else self.row(b))

    def _times(self, x: Any, factor: float) -> Any:
        return x if factor == 1 else self.do_mul(x, factor)

    # --- arithmetic ---------------------------------------------------------------------------------

    def do_add(self, input: Any, other: Any, *, alpha: float = 1) -> Any:
        if isinstance(input, tuple) and isinstance(other, tuple):
            return input + other  # of shapes
        return self._binary(input, self._times(other, alpha), lambda a, b: a + b)

    def do_sub(self, input: Any, other: Any, *, alpha: float = 1) -> Any:
        return self._binary(input, self._times(other, alpha), lambda a, b: a - b)

    def do_mul(self, input: Any, other: Any) -> Any:
        return self._binary(input, other, lambda a, b: a * b)

    def do_div(self, input: Any, other: Any) -> Any:
        return self._binary(input, other, lambda a, b: a / b)

    def do_neg(self, input: Any) -> Any:
        return -input if is_number(input) else -self.row(input)

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

    def do_maximum(self, input: Any, other: Any) -> Value:
        """Of equal numbers each has half of the gradient, as in PyTorch."""
        a, b = self.row(input), self.row(other)
        return (f.maximum(a, b) + f.maximum(b, a)) * 0.5

    def do_minimum(self, input: Any, other: Any) -> Value:
        return -self.do_maximum(-self.row(input), -self.row(other))

    def do_sum(self, input: Any, dim: Any = None, keepdim: bool = False) -> Value:
        columns_of(dim)
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

    def do_elu(self, input: Any, alpha: float = 1.0, inplace: bool = False) -> Value:
        x = self.row(input)
        return f.relu(x) + (f.exp(-f.relu(-x)) - 1.0) * alpha

    def do_leaky_relu(self, input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Value:
        x = self.row(input)
        return f.relu(x) - f.relu(-x) * negative_slope

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
        columns_of(dim)
        float_of(dtype)
        return f.softmax(self.row(input))

    def do_log_softmax(self, input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Value:
        columns_of(dim)
        float_of(dtype)
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

    def do_rms_norm(
        self, input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None
    ) -> Any:
        x = self.row(input)
        if tuple(normalized_shape) != (x.width,):
            raise Refused(f"a norm over {tuple(normalized_shape)} on a value of width {x.width}")
        y = f.rms_norm(x, float(np.finfo(np.float32).eps) if eps is None else eps)
        return y if weight is None else self.do_mul(y, weight)

    # --- cells --------------------------------------------------------------------------------------

    def _gates(self, input: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> tuple[Value, Value]:
        return self.do_linear(input, w_ih, b_ih), self.do_linear(h, w_hh, b_hh)

    def do_rnn_tanh_cell(
        self, input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
    ) -> Value:
        a, b = self._gates(input, hx, w_ih, w_hh, b_ih, b_hh)
        return f.tanh(a + b)

    def do_rnn_relu_cell(
        self, input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
    ) -> Value:
        a, b = self._gates(input, hx, w_ih, w_hh, b_ih, b_hh)
        return f.relu(a + b)

    def do_gru_cell(
        self, input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
    ) -> Value:
        return f.gru(*self._gates(input, hx, w_ih, w_hh, b_ih, b_hh), self.row(hx))

    def do_lstm_cell(
        self, input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
    ) -> list[Value]:
        h, c = (self.row(x) for x in hx)
        a, b = self._gates(input, h, w_ih, w_hh, b_ih, b_hh)
        i, forget, g, o = f.split(a + b, 4)
        return list(f.lstm_gates(i, forget, o, g, c))

    # --- columns ------------------------------------------------------------------------------------

    def do_cat(self, tensors: Sequence[Any], dim: Any = 0) -> Value:
        columns_of(dim)
        return f.concat(*(self.row(x) for x in tensors))

    def do_split(self, tensor: Any, split_size_or_sections: Any, dim: Any = 0) -> list[Value]:
        columns_of(dim)
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
        if isinstance(input, list | tuple | Shape):
            several = input.parts if isinstance(input, Shape) else input
            try:
                return several[index]
            except IndexError:
                raise Refused(f"there are {len(several)}, and none is number {index}") from None
        if isinstance(input, Weight) and isinstance(index, int):
            return self.part(input, index)
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
        if name == "dtype":
            return FLOAT
        raise Refused(f"a tensor's attribute '{name}' is not known here; shape, dtype and T are")

    def do_size(self, input: Any, dim: int | None = None) -> Any:
        shape = Shape(self.row(input).width)
        return shape if dim is None else shape.parts[dim]

    def do_view(self, input: Any, *shape: Any) -> Any:
        parts = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
        if isinstance(input, Weight) and tuple(parts) == (-1,) and not input.turned:
            return replace(input, values=input.values.reshape(-1))
        x = self.row(input)
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

    def do_to(self, input: Any, dtype: Any) -> Any:
        float_of(dtype)
        return input

    def do_type_as(self, input: Any, other: Any) -> Any:
        return input

    def do_detach(self, input: Any) -> Value:
        return f.stop_gradient(self.row(input))

    def do_zeros_like(self, input: Any) -> Value:
        return f.zeros(self.row(input), self.row(input).width)

    def do_ones_like(self, input: Any) -> Value:
        return self.numbers(self.row(input), 1.0)


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
    *("detach", "Identity", "Flatten", "Dropout", "get_attr", "to", "type_as"),
}
"""What may share its memory with its operand in PyTorch: whoever writes into it writes into both."""
