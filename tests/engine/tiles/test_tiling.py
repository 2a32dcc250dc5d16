"""Tile code computes what the programs say: every unit of every graph, and random programs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amphw.engine.lowering.lower import lower
from amphw.engine.tiles.code import TiledUnit
from amphw.engine.tiles.tiling import tile, tile_programs
from amphw.ir.derive import differentiate, inference
from amphw.ir.graph import Graph
from amphw.ir.passes import fuse
from amphw.ir.primitives import RowContext
from amphw.ir.program import Program
from amphw.models.list_reduction import ListReductionConfig, ListReductionRNN
from amphw.models.mnist import MnistConfig, MnistMLP
from tests.engine.tiles.tile_checks import Checked
from tests.engine.tiles.tile_programs import SPACES, counts, operands, programs
from tests.graphs.cases import CASES, each_name

MODELS: dict[str, Callable[[], Graph]] = {
    **{case.name: case.build for case in CASES},
    "list-reduction": lambda: ListReductionRNN().graph(ListReductionConfig(hidden=6, embedding=4, batch=5)),
    "mnist": lambda: MnistMLP().graph(MnistConfig(width=7, batch=3)),
}


@pytest.mark.parametrize("fused", [False, True], ids=["fine", "fused"])
@pytest.mark.parametrize("name", each_name(MODELS))
def test_every_unit_of_the_graphs(name: str, fused: bool) -> None:
    graph = MODELS[name]()
    rng = np.random.default_rng(3)
    for unit in lower(fuse(graph) if fused else graph).units:
        program, derivative = unit.behaviour.program, unit.derivative
        if program is None or derivative is None:
            continue
        # One row a message, but for windows: index 0 is then right for every table, column and row.
        unit_tiled, spaces = tile(unit), [space for space, _ in unit.behaviour.spaces]
        factors = unit_tiled.forward.factors or (1,) * len(spaces)
        context = RowContext(5, dict(zip(spaces, factors, strict=True)))
        inputs = [rng.normal(size=(5, t.width)) for _, t in program.inputs]
        if any(i.op in ("log", "sqrt") for i in program.instrs):
            inputs = [np.abs(x) + 0.5 for x in inputs]
        if any(i.op == "to_int" for i in program.instrs):
            # Some column is an index, of a table of 3 rows or more.
            inputs = [rng.integers(0, 3, x.shape).astype(float) for x in inputs]
        ints = [np.full(5, _divided_by(program, k)) for k in range(len(program.ints))]
        params = [rng.normal(size=p.shape) for p in program.params]
        checked = Checked(program, derivative, unit_tiled, context, inputs, ints, params)
        checked.inference()
        checked.training()


def _divided_by(program: Program, k: int) -> int:
    """1 for an integer operand that is only read as a number, by which a mean divides; else 0."""
    readers = {i.op for i in program.instrs if len(program.inputs) + k in i.args}
    return int(readers == {"to_float"})


def _with_wanted(program: Program) -> st.SearchStrategy[tuple[Program, list[int]]]:
    wanted = st.lists(st.sampled_from(range(len(program.inputs))), unique=True).map(sorted)
    return st.tuples(st.just(program), wanted)


@settings(max_examples=300)
@given(programs().flatmap(_with_wanted), counts, st.integers(0, 2**32 - 1))
def test_random_programs(drawn: tuple[Program, list[int]], counts: list[tuple[int, int]], seed: int) -> None:
    program, wanted = drawn
    frame = operands(program, counts, seed)
    derivative = differentiate(program, wanted)
    tiled = tile_programs(program, derivative, inference(program), SPACES)
    checked = Checked(program, derivative, tiled, frame.context, frame.inputs, frame.ints, frame.params)
    checked.inference()
    checked.training(seed)


def test_a_folded_bias_has_a_gradient_of_its_own_where_products_round() -> None:
    """With bfloat16: what is added to the table's gradient is rounded, a bias's is a sum of what is not."""
    unit = {u.name: u for u in lower(fuse(MODELS["list-reduction"]())).units}["cell"]
    exact, rounded = tile(unit), tile(unit, rounded=True)
    (fold,) = exact.folds
    assert rounded.folds == exact.folds and fold.bias >= 0

    def summed(tiled: TiledUnit) -> set[int]:
        return {term.param for term in tiled.terms}

    assert summed(rounded) - summed(exact) == {fold.bias}
