"""Units to compile, and a run of their microprograms beside the fixed-point programs they are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np

from amphw.engine.lowering.lower import Unit as GraphUnit
from amphw.engine.lowering.lower import lower
from amphw.host.config import resolve
from amphw.ir.derive import differentiate, inference
from amphw.ir.errors import GraphError
from amphw.ir.expr import Attr, Const, Expr
from amphw.ir.graph import Graph
from amphw.ir.instance import Schema
from amphw.ir.primitives import RowContext
from amphw.ir.program import Program
from amphw.ir.state import FieldType
from amphw.models import get_model
from amphw.rtl.fixed.kernel import FixedKernel
from amphw.rtl.fixed.lowering import FixedDerivative, lower_unit
from amphw.rtl.fixed.program import FixedProgram
from amphw.rtl.fixed.sums import accumulate
from amphw.rtl.isa.commands import Unit
from amphw.rtl.microcode import UnitCode, compile_unit
from amphw.rtl.microcode.compile import Microprogram
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.plan.stack import Stack
from sim.models.emulator import Emulator
from tests.graphs.cases import CASES

FORMATS = Formats.parse("q4.12,w=q3.13,g=q2.14")
"""All three differ, so that none can stand for another."""

MODELS = {
    "list-reduction": ["hidden=6", "embedding=5", "batch=4"],
    "tree-lstm": ["hidden=6", "embedding=5", "vocabulary=30"],
    "ggnn": ["hidden=6"],
    "bilstm": ["hidden=6", "embedding=8", "letter=3", "spelling=4", "perceptron=7", "vocabulary=30"],
    "mnist": ["width=9", "batch=4"],
}


def graphs() -> Iterator[tuple[str, Callable[[], Graph]]]:
    for case in CASES:
        yield case.name, case.build
    for name in MODELS:
        yield name, partial(_of_model, name)


def _of_model(name: str) -> Graph:
    model = get_model(name)
    config = resolve(model.config, model.defaults, None, [f"model.{o}" for o in MODELS[name]])
    return model.graph(config.model)


@dataclass(frozen=True)
class Subject:
    """A unit that the hardware can compute."""

    name: str
    derivative: FixedDerivative
    spaces: Sequence[tuple[str, Expr]]
    schema: Schema
    fields: Sequence[FieldType]
    groups: Sequence[int]

    @classmethod
    def of(cls, graph: Graph, unit: GraphUnit) -> Subject:
        """GraphError for a unit that the hardware cannot compute."""
        assert unit.derivative is not None and unit.inference is not None
        d = lower_unit(unit.name, unit.derivative, unit.inference, FORMATS)
        groups = [i for i, o in enumerate(unit.operands) if o.count is not None]
        b = unit.behaviour
        return cls(unit.name, d, b.spaces, graph.schema, b.state.fields, groups)

    @classmethod
    def traced(cls, program: Program, rows: Mapping[str, int | None], groups: Sequence[int] = ()) -> Subject:
        """A program alone. rows: of each space; None for as many as an attribute of that name says."""
        d = lower_unit("traced", differentiate(program), inference(program), FORMATS)
        spaces = [(s, Attr(s) if n is None else Const(n)) for s, n in rows.items()]
        return cls("traced", d, spaces, Schema(dict.fromkeys(rows, 9)), (), groups)

    def compile(self, lanes: int) -> tuple[UnitCode, Stack]:
        stack = Stack.of([(self.name, self.derivative.forward)], lanes)
        code = compile_unit(
            self.name,
            self.derivative,
            stack.places[self.name],
            self.spaces,
            self.schema,
            self.fields,
            self.groups,
        )
        return code, stack


def subjects(graph: Graph) -> Iterator[Subject]:
    """The units of a graph that the hardware can compute."""
    for unit in lower(graph).units:
        if unit.derivative is not None and not unit.behaviour.report:
            with suppress(GraphError):
                yield Subject.of(graph, unit)


def words(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of all sizes, extremes among them."""
    numbers = rng.normal(0, 1, shape) * 2.0 ** rng.integers(0, 16, shape)
    extreme = rng.choice([-(2**15), 2**15 - 1, 0], shape)
    chosen = np.where(rng.random(shape) < 0.2, extreme, np.rint(numbers))
    return np.clip(chosen, -(2**15), 2**15 - 1).astype(np.int64)


class Bench:
    """One firing of a unit in a payload memory of its own."""

    def __init__(self, subject: Subject, rng: np.random.Generator, late: Unit, lanes: int = 4):
        self.d, self.rng = subject.derivative, rng
        self.code, stack = subject.compile(lanes)
        self.places = stack.places[subject.name]
        self.rows = [int(rng.integers(self._fewest(), 5)) for _ in self.code.rows]
        self.counts = {
            **self.code.spaces.constant,
            **{s: self.rows[r] for s, r in self.code.spaces.register.items()},
        }
        self.ctx = RowContext(1, self.counts)
        self.params = {p.name: words(rng, p.shape) for p in self.d.forward.params}
        beats = (stack.beats, lanes)
        weights, self.sums = np.zeros(beats, np.int64), np.zeros(beats, np.int64)
        for name, value in self.params.items():
            self._rows_of(weights, name)[:] = value
            first = rng.integers(-(2**35), 2**35, value.shape)
            self._rows_of(self.sums, name)[:] = np.where(rng.random(value.shape) < 0.5, first, 0)
        self.memory = words(rng, (1 << 16,))
        self.emulator = Emulator(FORMATS, self.memory, weights, self.sums, late=late)
        self._end = 0
        self.record = self._reserve(self.code.record.size.of(self.rows))
        self.scratch = self._reserve(self.code.scratch.of(self.rows))
        self.ints = [self._draw_int(i, s) for i, (_, s) in enumerate(self.d.forward.ints)]
        self.operands = []
        self.pointers = []
        groups = {i.index for i in self.code.record.items if i.kind == "members"}
        for i, t in enumerate(self.d.forward.types[: len(self.d.forward.inputs)]):
            value = words(rng, (self.counts[t.space], t.width))
            self.operands.append(value if t.kind != "int" else value[:, 0])
            self.pointers.append(self._item("members", i) if i in groups else self._reserve(value.size))
            self.memory[self.pointers[-1] : self.pointers[-1] + value.size] = value.ravel()
        for i, value in enumerate(self.ints):
            at = self._item("int", i)
            self.memory[at : at + len(value)] = value

    def _fewest(self) -> int:
        indexed = {"gather_rows", "scatter_rows"}
        return 1 if any(o.op in indexed for o in self.d.forward.operations) else 0

    def _rows_of(self, beats: np.ndarray, name: str) -> np.ndarray:
        """A parameter's words in a memory of beats, as a view in its shape."""
        p = self.places[name]
        rows = p.rows or 1
        found = beats[p.base : p.base + rows * p.blocks].reshape(rows, -1)[:, : p.columns]
        return found if p.rows else found[0]

    def _reserve(self, size: int) -> int:
        start = self._end + int(self.rng.integers(1, 9))
        self._end = start + size
        return start

    def _item(self, kind: str, index: int) -> int:
        return self.record + self.code.record.offset(kind, index).of(self.rows)  # type: ignore[arg-type]

    def _draw_int(self, index: int, space: str) -> np.ndarray:
        """Integers that every operation which is steered by them takes."""
        most = 1 << 15
        for program in (self.d.forward, self.d.backward):
            if self.d.forward.ints[index] not in program.ints:
                continue
            v = len(program.inputs) + program.ints.index(self.d.forward.ints[index])
            for o in program.operations:
                if v in o.args[:1] and o.op == "take":
                    most = min(most, program.param(o.attr()["param"]).shape[0])
                elif v in o.args[1:] and o.op == "gather_rows":
                    most = min(most, self.counts[o.attr()["source"]])
                elif v in o.args[1:] and o.op == "scatter_rows":
                    most = min(most, self.counts[o.attr()["space"]])
                elif v in o.args[1:] and o.op in ("pick", "place"):
                    most = min(most, o.attr().get("width", program.types[o.args[0]].width))
        return self.rng.integers(0, most, self.counts[space])

    # --- runs -------------------------------------------------------------------------------------

    def _evaluate(self, program: FixedProgram, inputs: list[np.ndarray]) -> list[np.ndarray]:
        ints = [self.ints[self.d.forward.ints.index(i)] for i in program.ints]
        return FixedKernel(program).run(self.ctx, inputs, ints, self.params)

    def _run(self, program: Microprogram, pointers: list[int]) -> None:
        """In scratch, a program finds what others have left there."""
        room = program.scratch.of(self.rows)
        self.memory[self.scratch : self.scratch + room] = words(self.rng, (room,))
        loaded = [self.record, *pointers, self.scratch]
        assert program.pointers == len(loaded)
        self.before = self.memory.copy()
        self.emulator.run(program.words, self.rows, loaded)

    def _check(self, kind: str, index: int, expected: np.ndarray) -> None:
        at = self._item(kind, index)
        found = self.memory[at : at + expected.size]
        assert found.tolist() == np.asarray(expected).ravel().tolist(), (self.code.node, kind, index)

    def _check_rest(self, programs: str) -> None:
        """Nothing outside of the record and scratch has changed."""
        changed = np.flatnonzero(self.before != self.memory)
        room = self.code.scratch.of(self.rows), self.code.record.size.of(self.rows)
        inside = (self.scratch <= changed) & (changed < self.scratch + room[0])
        inside |= (self.record <= changed) & (changed < self.record + room[1])
        assert inside.all(), (self.code.node, programs)

    def inference(self) -> None:
        expected = self._evaluate(self.d.inference, self.operands)
        self._run(self.code.inference, self.pointers)
        for i, value in enumerate(expected):
            self._check("output", i, value)
        self._check_rest("inference")

    def training(self) -> None:
        d = self.d
        found = self._evaluate(d.forward, self.operands)
        self._run(self.code.forward, self.pointers)
        own = len(found) - sum(kind == "value" for kind, _ in d.residuals)
        for i, value in enumerate(found[:own]):
            self._check("output", i, value)
        self._check_rest("forward")
        of = {"input": self.operands, "output": found, "value": found[own:]}
        residuals = [of[kind][i] for kind, i in d.residuals]
        dys, pointers = [], []
        for t in d.backward.types[: len(d.backward.inputs) - len(residuals)]:
            dys.append(words(self.rng, (self.counts[t.space], t.width)))
            pointers.append(self._reserve(dys[-1].size))
            self.memory[pointers[-1] : pointers[-1] + dys[-1].size] = dys[-1].ravel()
        made = self._evaluate(d.backward, [*dys, *residuals])
        sums = {name: self._rows_of(self.sums, name).copy() for name in self.params}
        for term in d.terms:
            a = None if term.a is None else made[term.a]
            terms = [(term.kind, a, made[term.dz])]
            sums[term.param], _ = accumulate(sums[term.param], terms, FORMATS)
        self._run(self.code.backward, [*self.pointers, *pointers])
        for k, i in enumerate(d.wrt):
            self._check("gradient", i, made[k])
        for name, value in sums.items():
            assert (self._rows_of(self.sums, name) == value).all(), (self.code.node, name)
        self._check_rest("backward")
