"""Gradients of a log job against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from amphw.engine.tiles.code import Code, Term, TiledUnit
from amphw.opencl import abi
from amphw.opencl.codegen.forms import Form, ProductForm
from amphw.opencl.codegen.gradient import gradient_kernels
from amphw.opencl.layout import Layout
from tests.opencl.kernels import PANELS, SCALAR, SINGLE, Arena, Machine, padded

NOTHING = Code((), (), (), ())
FORMS = {
    "plain": Form(product=ProductForm(rows=4, vectors=2)),
    "panels": PANELS,
    "single": SINGLE,
    "scalar": SCALAR,
    "lanes": Form(vector=1, lanes=8, product=ProductForm(rows=3)),
}
ROWS = (0, 1, 5, 33, 150)
TABLE_ROWS = 21
# Widths of x and d; buffers 2n and 2n + 1, parameters likewise.
MATRICES = ((1, 1), (5, 17), (17, 5), (33, 150), (150, 33), (64, 100))


def unit() -> TiledUnit:
    """Every matrix with its bias; one matrix a second time, further down; a bias alone; a table."""
    buffers = tuple((width, 0) for pair in MATRICES for width in pair)
    terms = []
    for number in range(len(MATRICES)):
        terms += [
            Term("matmul", 2 * number, 2 * number, 2 * number + 1),
            Term("sum", 2 * number + 1, -1, 2 * number + 1),
        ]
    last = 2 * len(MATRICES)
    buffers += ((7, 1), (23, 1))
    terms += [
        Term("matmul", 2, 2, 3, first_row=5),  # into rows 5.. of parameter 2
        Term("sum", last, -1, last),
        Term("take", last + 1, -1, last + 1, ints=4),
    ]
    return TiledUnit(
        ("rows", "others"), (), NOTHING, NOTHING, None, buffers, log_ints=(2, 4), terms=tuple(terms)
    )


TABLE = 2 * len(MATRICES) + 1


def laid(form: Form) -> dict[int, Layout]:
    """How the matrices' gradients lie, and the table's."""
    found = {2 * n: Layout(i + 5 * (n == 1), o, form.panel) for n, (i, o) in enumerate(MATRICES)}
    return {**found, TABLE: Layout(TABLE_ROWS, 23)}


@pytest.fixture(scope="module", params=FORMS)
def built(request, machine: Machine):
    form = FORMS[request.param]
    kernels = gradient_kernels("gradient", unit(), form, laid(form), {TABLE})
    return machine.build(form, kernels), kernels, form.panel


@pytest.mark.parametrize("rows", ROWS)
def test_gradients_are_numpys(built, machine: Machine, rows: int) -> None:
    program, kernels, panel = built
    rng, found, arena = np.random.default_rng(rows), unit(), Arena()
    counts = [rows, max(rows - 1, 0)]
    logs = [rng.standard_normal((counts[s], width)).astype(np.float32) for width, s in found.log_buffers]
    index = rng.integers(0, TABLE_ROWS, max(counts[1], 1))
    head = np.zeros(64, np.int32)
    head[abi.LOG_ROWS : abi.LOG_ROWS + 2] = counts
    places = [arena.log(log) for log in logs]
    head[abi.LOG_BUFFERS : abi.LOG_BUFFERS + len(places) + 2] = [*places, 0, arena.put(index)]
    job = arena.put(head)

    gradients, expected = {}, {}
    for term in found.terms:
        d = logs[term.d]
        shape = (TABLE_ROWS, d.shape[1]) if term.kind == "take" else (d.shape[1],)
        if term.kind == "matmul":
            shape = (logs[term.x].shape[1] + 5 * (term.param == 2), d.shape[1])
        if term.param not in expected:
            expected[term.param] = rng.standard_normal(shape)
            gradients[f"g{term.param}"] = padded(
                expected[term.param].astype(np.float32), panel if term.kind == "matmul" else 0
            )
        to = expected[term.param]
        if term.kind == "matmul":
            x = logs[term.x].astype(np.float64)
            to[term.first_row : term.first_row + x.shape[1]] += x.T @ d
        elif term.kind == "sum":
            to += d.sum(axis=0, dtype=np.float64)
        else:
            np.add.at(to, index[: len(d)], d)
    arrays = {**gradients, f"touched{TABLE}": np.zeros(TABLE_ROWS, np.int32)}
    for kernel in kernels:
        machine.run(program, kernel, arena.words, job, arrays, np.zeros(16, np.int32), counts)
    for param, wanted in expected.items():
        packed = padded(wanted, 0 if param == TABLE else panel)
        np.testing.assert_allclose(gradients[f"g{param}"], packed, rtol=1e-4, atol=1e-4)
    marked = np.isin(np.arange(TABLE_ROWS), index[: counts[1]])
    np.testing.assert_array_equal(arrays[f"touched{TABLE}"] != 0, marked)


def test_a_bias_is_summed_with_its_matrix(built) -> None:
    """Of all sums only the one without a matrix is a kernel of its own."""
    _, kernels, _ = built
    assert len(kernels) == len(MATRICES) + 3
    assert kernels[0].buffers == ("g0", "g1")


def test_the_same_log_gives_the_same_bits(built, machine: Machine) -> None:
    """Rows of a table meet several times in a job; their order is that of the log."""
    program, kernels, _ = built
    kernel = next(k for k in kernels if f"g{TABLE}" in k.buffers)
    rng, arena = np.random.default_rng(0), Arena()
    d = (rng.standard_normal((150, 23)) * 10.0 ** rng.integers(-4, 5, (150, 1))).astype(np.float32)
    head = np.zeros(64, np.int32)
    head[abi.LOG_ROWS + 1] = 150
    head[abi.LOG_BUFFERS + TABLE] = arena.log(d)
    index = rng.integers(0, 3, 150)
    head[abi.LOG_BUFFERS + len(unit().log_buffers) + 1] = arena.put(index)
    job = arena.put(head)
    expected = np.zeros((TABLE_ROWS, 23), np.float32)
    for row, number in enumerate(index):
        expected[number] += d[row]
    arrays = {f"g{TABLE}": padded(np.zeros((TABLE_ROWS, 23)))}
    arrays[f"touched{TABLE}"] = np.zeros(TABLE_ROWS, np.int32)
    machine.run(program, kernel, arena.words, job, arrays, np.zeros(16, np.int32), [150, 150])
    np.testing.assert_array_equal(arrays[f"g{TABLE}"], padded(expected))
