"""Tile code computes what the programs say, and the peepholes leave what they should."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import amphw.cpu_runtime.tile_code as tile_code
from amphw.cpu_runtime.lower import lower
from amphw.cpu_runtime.tile_code import MAX_INT_ARGS, Op, PhaseKind, Place, TiledUnit
from amphw.cpu_runtime.tiling import tile, tile_programs
from amphw.ir.derive import Derivative, accumulate, differentiate, inference
from amphw.ir.graph import Graph
from amphw.ir.passes import fuse
from amphw.ir.primitives import RowContext
from amphw.ir.program import Program
from amphw.models.list_reduction import ListReductionConfig, ListReductionRNN
from amphw.models.mnist import MnistConfig, MnistMLP
from tests.cpu_runtime.tile_interpreter import Rows, run_code
from tests.cpu_runtime.tile_programs import SPACES, counts, operands, programs
from tests.graphs.cases import CASES

HEADER = Path(tile_code.__file__).parent / "native" / "code.hpp"

MODELS: dict[str, Callable[[], Graph]] = {
    **{case.name: case.build for case in CASES},
    "list-reduction": lambda: ListReductionRNN().graph(ListReductionConfig(hidden=6, embedding=4, batch=5)),
    "mnist": lambda: MnistMLP().graph(MnistConfig(width=7, batch=3)),
}

CLOSE = {"rtol": 1e-9, "atol": 1e-9}


# --- the contract -------------------------------------------------------------------------------


@pytest.mark.parametrize("enum", [Place, Op, PhaseKind])
def test_enumerators_are_those_of_the_header(enum: type[IntEnum]) -> None:
    found = re.search(rf"enum class {enum.__name__} : int32_t {{(.*?)}};", HEADER.read_text(), re.DOTALL)
    assert found is not None
    names = [re.sub(r"//.*", "", line).strip(" ,") for line in found[1].splitlines()]
    assert [n for n in names if n] == [e.name for e in enum]
    assert [e.value for e in enum] == list(range(len(enum)))


def test_the_number_of_integer_arguments_is_that_of_the_header() -> None:
    assert f"MAX_INT_ARGS = {MAX_INT_ARGS};" in HEADER.read_text()


# --- the mathematics ----------------------------------------------------------------------------


class Checked:
    """Both ways of running a unit, side by side, over one frame."""

    def __init__(
        self,
        program: Program,
        derivative: Derivative,
        tiled: TiledUnit,
        context: RowContext,
        inputs: Sequence[np.ndarray],
        ints: Sequence[np.ndarray],
        params: Sequence[np.ndarray],
    ):
        self.program, self.derivative, self.tiled, self.context = program, derivative, tiled, context
        self.inputs, self.ints, self.params = inputs, ints, params
        self.operands: Rows = {(Place.Operand, k): x for k, x in enumerate(inputs)}

    def named(self, params: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        return {p.name: v for p, v in zip(self.program.params, params, strict=True)}

    def inference(self) -> None:
        quiet = inference(self.program)
        expected = quiet.run(self.context, self.inputs, self.ints, self.named(self.params))
        self._forward(self.tiled.inference, expected)

    def training(self, seed: int = 0) -> None:
        """Forward, then backward with other parameters than forward."""
        rng = np.random.default_rng(seed)
        d = self.derivative
        got = d.forward.run(self.context, self.inputs, self.ints, self.named(self.params))
        n = len(self.program.outputs)
        rows = self._forward(self.tiled.forward, got[:n])
        for k, (width, space) in enumerate(self.tiled.saved):
            assert rows[Place.Saved, k].shape == (self.context.total(self.tiled.spaces[space]), width)
        if self.tiled.backward is None:
            assert not d.backward.outputs
            return
        kept = {"input": self.inputs, "output": got[:n], "value": got[n:]}
        residuals = [kept[kind][i] for kind, i in d.residuals]
        dy = [rng.normal(size=got[k].shape) for k in d.float_outputs]
        newer = [p + rng.normal(size=p.shape) for p in self.params]
        by_key = dict(zip(self.program.ints, self.ints, strict=True))
        ints = [by_key[key] for key in d.backward.ints]
        expected = d.backward.run(self.context, [*dy, *residuals], ints, self.named(newer))
        gradients: Rows = {(Place.OutputGradient, k): g for k, g in zip(d.float_outputs, dy, strict=True)}
        start = {k: v for k, v in rows.items() if k[0] != Place.Scratch}
        rows, slots = run_code(
            self.tiled.backward, self.context, self.tiled.spaces, {**start, **gradients}, self.ints, newer
        )
        self._gradients(rows, slots, expected)

    def _forward(self, code: tile_code.Code, expected: Sequence[np.ndarray]) -> Rows:
        rows, slots = run_code(code, self.context, self.tiled.spaces, self.operands, self.ints, self.params)
        assert len(code.int_outputs) == len(expected)
        for k, (slot, y) in enumerate(zip(code.int_outputs, expected, strict=True)):
            if slot >= 0:
                np.testing.assert_array_equal(slots[slot], y)
            elif y.shape[1]:
                np.testing.assert_allclose(rows[Place.Output, k], y, **CLOSE)
        for place, _ in rows:
            assert place in (Place.Operand, Place.Output, Place.Saved)
        return rows

    def _gradients(self, rows: Rows, slots: list[np.ndarray], expected: Sequence[np.ndarray]) -> None:
        d, tiled = self.derivative, self.tiled
        for g, i in zip(expected, d.wrt, strict=False):
            if g.shape[1]:
                np.testing.assert_allclose(rows[Place.InputGradient, i], g, **CLOSE)
        assert len(tiled.terms) == len(d.terms)
        for k, (width, space) in enumerate(tiled.log_buffers):
            assert rows[Place.Log, k].shape == (self.context.total(tiled.spaces[space]), width)
        used = {t.x for t in tiled.terms} | {t.d for t in tiled.terms}
        assert used - {-1} == set(range(len(tiled.log_buffers)))
        for mine, term in zip(tiled.terms, d.terms, strict=True):
            assert self.program.params[mine.param].name == term.param and mine.kind == term.kind
            dz = rows[Place.Log, mine.d]
            np.testing.assert_allclose(dz, expected[term.dz], **CLOSE)
            a = None
            assert (mine.x >= 0) == (term.kind == "matmul") and (mine.ints >= 0) == (term.kind == "take")
            if mine.x >= 0:
                assert term.a is not None
                a = rows[Place.Log, mine.x]
                np.testing.assert_allclose(a, expected[term.a], **CLOSE)
            if mine.ints >= 0:
                assert term.a is not None and mine.ints in tiled.log_ints
                a = slots[mine.ints]
                np.testing.assert_array_equal(a, expected[term.a])
            shape = self.params[mine.param].shape
            found, wanted = np.zeros(shape), np.zeros(shape)
            accumulate(mine.kind, found, a, dz)
            accumulate(term.kind, wanted, None if term.a is None else expected[term.a], expected[term.dz])
            np.testing.assert_allclose(found, wanted, **CLOSE)


@pytest.mark.parametrize("fused", [False, True], ids=["fine", "fused"])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_unit_of_the_graphs(name: str, fused: bool) -> None:
    graph = MODELS[name]()
    rng = np.random.default_rng(3)
    for unit in lower(fuse(graph) if fused else graph).units:
        program, derivative = unit.behaviour.program, unit.derivative
        if program is None or derivative is None:
            continue
        # One row a message everywhere: index 0 is then right for every table, column and row.
        context = RowContext(5, {space: 1 for space, _ in unit.behaviour.spaces})
        inputs = [rng.normal(size=(5, t.width)) for _, t in program.inputs]
        ints = [np.zeros(5, np.int64) for _ in program.ints]
        params = [rng.normal(size=p.shape) for p in program.params]
        checked = Checked(program, derivative, tile(unit), context, inputs, ints, params)
        checked.inference()
        checked.training()


def _with_wanted(program: Program) -> st.SearchStrategy[tuple[Program, list[int]]]:
    wanted = st.lists(st.sampled_from(range(len(program.inputs))), unique=True).map(sorted)
    return st.tuples(st.just(program), wanted)


@settings(max_examples=300, deadline=None)
@given(programs().flatmap(_with_wanted), counts, st.integers(0, 2**32 - 1))
def test_random_programs(drawn: tuple[Program, list[int]], counts: list[tuple[int, int]], seed: int) -> None:
    program, wanted = drawn
    frame = operands(program, counts, seed)
    derivative = differentiate(program, wanted)
    tiled = tile_programs(program, derivative, inference(program), SPACES)
    checked = Checked(program, derivative, tiled, frame.context, frame.inputs, frame.ints, frame.params)
    checked.inference()
    checked.training(seed)
