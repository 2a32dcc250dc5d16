"""Folded tables on the device: T = E @ W[first_row : first_row + width] (+ b), see `amphw.engine.tiles.fold`.

T's values "p{T}" are made again whenever parameters change; what its gradient "g{T}" contributes to E, W and
b is added before these are updated, and then it is cleared. T counts as a parameter behind the unit's, in the
order of the folds. Kernels run once, like those of an update. Tables have few rows, so that even on a GPU a
work-item computes a tile by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from amphw.engine.tiles.code import Base, Code, Fold, Phase, PhaseKind, Place, Ref, Segment
from amphw.opencl import abi
from amphw.opencl.codegen.forms import Form, ProductForm
from amphw.opencl.codegen.gradient import Gradient, Rows, matmul_body
from amphw.opencl.codegen.product import plain_body
from amphw.opencl.codegen.product_parts import FrameRows
from amphw.opencl.codegen.tiles import column_tiles, indent, load, store, vector_type
from amphw.opencl.codegen.update import Tensor, once_kernel
from amphw.opencl.layout import Layout


class _TableRows(FrameRows):
    """Rows of parameters, one after the other."""

    def pointer(self, ref: Ref, row: str) -> str:
        base = self.code.bases[ref.base]
        return f"p{base.index} + {row} * {abi.stride(base.width)}"


def table_kernels(
    name: str, tensors: Sequence[Tensor], folds: Sequence[Fold], form: Form
) -> list[abi.Kernel]:
    """Make the tables from the parameters. tensors: parameters 0, 1, ... of the node, without the tables."""
    form = _by_items(form)
    kernels = []
    for number, fold in enumerate(folds, len(tensors)):
        e, w = tensors[fold.table], tensors[fold.weight]
        bases = (Base(Place.Param, e.number, fold.width, 0), Base(Place.Param, number, w.columns, 0))
        phase = Phase(
            PhaseKind.Gemm,
            param=w.number,
            bias=fold.bias,
            first_row=fold.first_row,
            a=(Segment(Ref(0), fold.width),),
            d=Ref(1),
            width=w.columns,
        )
        rows = _TableRows(Code(bases, (), (), (phase,)), {w.number: w.layout})
        across = column_tiles(w.columns, form.product.vectors, form.vector)[0]
        down = -(-e.rows // form.product.rows)
        bias = [f"p{fold.bias}"] if fold.bias >= 0 else []
        comment = f"p{number} = p{e.number} @ {_part(fold)}"
        kernels.append(
            once_kernel(
                f"{name}_table{number}",
                [f"p{number}", f"p{e.number}", f"p{w.number}", *bias],
                [f"p{number}"],
                form,
                (across, down),
                [
                    f"const int first = get_global_id(2) * {form.product.rows}, item = get_global_id(1);",
                    f"const int end = LEAST(first + {form.product.rows}, {e.rows});",
                    *plain_body(rows, phase, form, None),
                ],
                " + ".join([comment, *bias]),
            )
        )
    return kernels


def unfold_kernels(
    name: str, tensors: Sequence[Tensor], folds: Sequence[Fold], form: Form
) -> list[abi.Kernel]:
    """Add what the tables' gradients contribute to those of the parameters, then clear them."""
    form = _by_items(form)
    kernels = []
    for number, fold in enumerate(folds, len(tensors)):
        e, w = tensors[fold.table], tensors[fold.weight]
        kernels += [
            _to_table(f"{name}_table{number}", number, fold, e, w, form),
            _to_weight(f"{name}_weight{number}", number, fold, e, w, form),
            _clear(f"{name}_clear{number}", number, e, w, form),
        ]
    return kernels


def _by_items(form: Form) -> Form:
    """The form in which one work-item computes a tile by itself."""
    product = ProductForm(rows=4, vectors=1) if form.product.local else form.product
    return replace(form, lanes=1, product=product)


def _part(fold: Fold) -> str:
    """The rows of W, as comments name them."""
    return f"p{fold.weight}[{fold.first_row}:{fold.first_row + fold.width}]"


def _to_weight(name: str, number: int, fold: Fold, e: Tensor, w: Tensor, form: Form) -> abi.Kernel:
    x = Rows(f"p{e.number}", fold.width, abi.stride(fold.width))
    d = Rows(f"g{number}", w.columns, abi.stride(w.columns))
    bias = f"g{fold.bias}" if fold.bias >= 0 else ""
    gradient = Gradient(f"g{w.number}", w.layout, fold.first_row)
    body, items = matmul_body(x, d, gradient, bias, form)
    written = [gradient.name, *([bias] if bias else [])]
    comment = f"g{_part(fold)[1:]} += p{e.number}' @ g{number}"
    comment += f", {bias} += sum of its rows" if bias else ""
    body = [f"const int rows = {e.rows};", *body]
    return once_kernel(name, [f"p{e.number}", f"g{number}", *written], written, form, items, body, comment)


def _to_table(name: str, number: int, fold: Fold, e: Tensor, w: Tensor, form: Form) -> abi.Kernel:
    """Products of rows with rows, both of which have zeros behind their columns: vectors are whole."""
    vector, kind, across = form.vector, vector_type(form), abi.stride(w.columns)
    lanes = [f".s{k:x}" for k in range(vector)] if vector > 1 else [""]
    part, step = w.layout.place("n"), w.layout.step
    product = f"{load('d + n', vector, vector)} * {load(f'weight + {part}', vector, vector)}"
    total = " + ".join(f"sum{lane}" for lane in lanes)
    body = [
        "const int row = get_global_id(1);",
        f"__global const float* d = g{number} + row * {across};",
        f"__global const float* weight = p{w.number} + {fold.first_row * step};",
        f"for (int c = 0; c < {fold.width}; c++, weight += {step}) {{",
        f"    {kind} sum = 0.0f;",
        f"    for (int n = 0; n < {across}; n += {vector}) sum = {product} + sum;",
        f"    g{e.number}[row * {abi.stride(e.columns)} + c] += {total};",
        "}",
    ]
    buffers = [f"p{w.number}", f"g{number}", f"g{e.number}"]
    comment = f"g{e.number} += g{number} @ {_part(fold)}'"
    return once_kernel(name, buffers, [f"g{e.number}"], form, (e.rows,), body, comment)


def _clear(name: str, number: int, e: Tensor, w: Tensor, form: Form) -> abi.Kernel:
    vector, (rows, columns) = form.vector, Layout(e.rows, w.columns).shape
    zero = store(f"g{number} + at", f"({vector_type(form)})(0.0f)", vector, vector)
    start = f"get_global_id(1) * {columns}"
    body = [
        f"for (int at = {start}; at < {start} + {columns}; at += {vector}) {{",
        *indent(zero),
        "}",
    ]
    return once_kernel(name, [f"g{number}"], [f"g{number}"], form, (rows,), body, f"g{number} = 0")
