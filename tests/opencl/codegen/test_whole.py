"""A direction in one launch: forms of products by the tile's height, and when phases are launched apart.

That it computes what its phases do, one by one, is part of every check of a unit (`unit_checks`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from amphw.engine.lowering.lower import Unit, lower
from amphw.engine.tiles.code import Place
from amphw.engine.tiles.tiling import tile
from amphw.ir.passes import fuse
from amphw.ir.primitives import RowContext
from amphw.models.tree_lstm import TreeLSTM, TreeLSTMConfig
from amphw.opencl.codegen.forms import CPU_FORM, GPU_FORM, Form, ProductForm
from amphw.opencl.codegen.prelude import prelude
from amphw.opencl.codegen.unit_program import UnitProgram, unit_program
from amphw.opencl.codegen.variants import Tune, untuned
from amphw.opencl.layout import layouts
from amphw.opencl.tuning import Forms
from tests.engine.tiles.tile_interpreter import Rows, run_code
from tests.opencl.frames import Frame, build
from tests.opencl.unit_checks import close, rounded

SHAPES = [ProductForm(1, 8), ProductForm(2, 1), ProductForm(3, 2), ProductForm(8, 1)]


def branch() -> Unit:
    """The unit of a Tree-LSTM with most phases: products and rows by turns."""
    config = TreeLSTMConfig(hidden=21, embedding=18, vocabulary=30, sample=True)
    units = [u for u in lower(fuse(TreeLSTM().graph(config))).units if u.behaviour.program is not None]
    return max(units, key=lambda u: len(tile(u).backward.phases if tile(u).backward else ()))


def made(unit: Unit, tune: Tune, form: Form = CPU_FORM) -> UnitProgram:
    return unit_program(unit, tile(unit), None, form, tune, "any CPU")


def by_height(apart: tuple[bool, ...] = (False,) * 4) -> Tune:
    """Another form in each class of heights."""
    forms = tuple(replace(CPU_FORM, product=shape) for shape in SHAPES)
    return lambda depth, width: Forms(forms, CPU_FORM, apart)


@pytest.mark.parametrize("messages", [1, 5, 20, 230])
def test_the_height_of_a_tile_chooses_the_form(messages: int) -> None:
    """Of 230 rows there are three tiles."""
    unit = branch()
    tiled, program = tile(unit), unit.behaviour.program
    assert program is not None
    random = np.random.default_rng(4)
    context = RowContext(messages, dict.fromkeys(tiled.spaces, 1))
    operands: Rows = {
        (Place.Operand, k): rounded(random.normal(size=(messages, t.width)))
        for k, (_, t) in enumerate(program.inputs)
    }
    ints = [np.zeros(messages, np.int64) for _ in program.ints]
    params = [rounded(random.normal(size=p.shape)) for p in program.params]
    for f in tiled.folds:
        table = params[f.table] @ params[f.weight][f.first_row : f.first_row + f.width]
        params.append(rounded(table + params[f.bias] if f.bias >= 0 else table))
    (kernel,) = set(made(unit, by_height()).whole["forward"])
    assert kernel is not None
    laid = layouts(tiled, program.params, CPU_FORM)
    frame = Frame(tiled.spaces, tiled.forward, context, operands, ints)
    ran = frame.run([kernel], build(prelude(CPU_FORM) + kernel.text), params, laid, CPU_FORM)
    expected, _ = run_code(tiled.forward, context, tiled.spaces, operands, ints, params)
    for key, values in expected.items():
        close(np.array(ran.rows[key], np.float64), np.array(values), str(key))


def test_phases_are_launched_apart_where_that_is_faster() -> None:
    together, apart = made(branch(), by_height()), made(branch(), by_height((False, False, False, True)))
    assert None not in together.whole["forward"]
    assert [kernel is None for kernel in apart.whole["forward"]] == [False, False, False, True]
    phases = {k.name for variants in apart.frames["forward"] for k in variants}
    assert phases < {k.name for k in apart.kernels}
    assert not phases & {k.name for k in together.kernels}  # what nobody launches is not built


def test_work_groups_of_several_items_have_a_kernel_a_phase() -> None:
    program = made(branch(), untuned(GPU_FORM), GPU_FORM)
    assert all(kernel is None for whole in program.whole.values() for kernel in whole)
