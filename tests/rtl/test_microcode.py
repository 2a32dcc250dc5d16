from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from amphw.ir.errors import GraphError
from amphw.ir.expr import Field
from amphw.ir.functions import (
    above,
    absolute,
    argmax,
    columns,
    concat,
    gather_rows,
    linear,
    max_cols,
    max_rows,
    maximum,
    number,
    pick,
    relu,
    same,
    scatter_rows,
    sigmoid,
    split,
    spread_rows,
    stop_gradient,
    sum_cols,
    sum_rows,
    take,
    tanh,
)
from amphw.ir.primitives import ValueType
from amphw.ir.program import Builder, Params, ParamSpec, Program, Value, trace
from amphw.rtl.isa.commands import POINTERS, Code, Unit, decode
from amphw.rtl.microcode import UnitCode
from tests.graphs.cases import each_name
from tests.rtl.microprograms import Bench, Subject, graphs, subjects

GRAPHS = dict(graphs())
INDEX = Field("i")
MEMBERS = ValueType("float", "members", 4)
MATRICES = {"W": (4, 6), "b": (6,), "U": (6, 4), "c": (4,)}


@pytest.mark.parametrize("name", each_name(GRAPHS))
@pytest.mark.parametrize("late", Unit, ids=lambda u: u.name.lower())
def test_units_compute_what_their_programs_say(name: str, late: Unit) -> None:
    compiled = 0
    for seed, subject in enumerate(subjects(GRAPHS[name]())):
        check(subject, seed, late)
        compiled += 1
    assert compiled


def check(subject: Subject, seed: int, late: Unit) -> None:
    bench = Bench(subject, np.random.default_rng(seed), late)
    bench.inference()
    bench.training()


def emit(op: str, *args: Value, **attrs: object) -> Value:
    return args[0].builder.emit(op, args, **attrs)


PROGRAMS = {
    "identity": trace(lambda x: x, {"x": 3}),
    "twice": trace(lambda x, y: [x + y, x + y, y], {"x": 3, "y": 3}),
    "elementwise": trace(
        lambda x, y: [maximum(x, y) * y, absolute(x - y), relu(x) + 0.5 * y, tanh(sigmoid(x)), -(x - 0.25)],
        {"x": 3, "y": 3},
    ),
    "columns": trace(
        lambda x, y: [concat(columns(x, 1, 2) * columns(y, 0, 2), y, x), columns(concat(x, y), 2, 3)],
        {"x": 4, "y": 3},
    ),
    "among zeros": trace(
        lambda x: emit("pad", x, start=1, width=6) * emit("pad", x * x, start=2, width=6), {"x": 3}
    ),
    "over columns": trace(
        lambda x, y: [sum_cols(concat(x, y)) * x, stop_gradient(max_cols(concat(y, x))) + y], {"x": 3, "y": 2}
    ),
    "integers": trace(
        lambda x: [argmax(x), number(x, INDEX), same(argmax(x), INDEX) * x],
        {"x": 4},
    ),
    "threshold": trace(lambda x: [above(columns(x, 2, 1), 0.25), x], {"x": 4}),
    "pick": trace(
        lambda x: [pick(x, INDEX), pick(x, argmax(x)), pick(concat(x + x, tanh(x)), INDEX)], {"x": 4}
    ),
    "place": trace(lambda x: emit("place", columns(x, 1, 1), x.builder.integer(INDEX), width=5), {"x": 2}),
    "product": trace(lambda p, x: linear(x, p.W, p.b), {"x": 4}, {"W": (4, 6), "b": (6,)}),
    "products behind each other": trace(
        lambda p, x: linear(linear(x, p.W, p.b), p.U, p.c), {"x": 4}, MATRICES
    ),
    "a matrix often": trace(
        lambda p, x, y: [linear(x, p.W, p.b), linear(y, p.W, p.b), linear(x, p.W)],
        {"x": 4, "y": 4},
        {"W": (4, 6), "b": (6,)},
    ),
    "a bias alone": trace(
        lambda p, x, y: [linear(x, p.W, p.b), y * p.b, y + p.b], {"x": 4, "y": 6}, {"W": (4, 6), "b": (6,)}
    ),
    "a product of columns": trace(
        lambda p, x, y: concat(linear(columns(concat(tanh(x), y), 2, 4), p.W, p.b), x),
        {"x": 4, "y": 3},
        {"W": (4, 6), "b": (6,)},
    ),
    "columns of a product": trace(
        lambda p, x: [a * b for a, b in [split(linear(x, p.W, p.b), 2)]], {"x": 4}, {"W": (4, 6), "b": (6,)}
    ),
    "a table": trace(
        lambda p, x: [take(p.E, INDEX) * x, take(p.E, argmax(x)), x @ p.E], {"x": 5}, {"E": (5, 5)}
    ),
    "over rows": trace(
        lambda x, y: [
            concat(sum_rows(y, "one"), x, sum_rows(y * spread_rows(x, "members"), "one")),
            stop_gradient(max_rows(y, "one")) * x,
        ],
        {"x": ValueType("float", "one", 4), "y": MEMBERS},
    ),
    "rows and back": trace(
        lambda p, x, y: linear(concat(spread_rows(x, "members"), tanh(y)), p.W, p.b) + p.b,
        {"x": ValueType("float", "one", 4), "y": MEMBERS},
        {"W": (8, 6), "b": (6,)},
    ),
    "gather": trace(
        lambda x, y: gather_rows(concat(x, x * x), INDEX, "members") * concat(y, y),
        {"x": 4, "y": MEMBERS},
    ),
    "scatter": trace(
        lambda x, y: scatter_rows(concat(columns(y, 2, 2), y), INDEX, "rows") * concat(columns(x, 0, 2), x),
        {"x": 4, "y": MEMBERS},
    ),
}


@pytest.mark.parametrize("rows", [1, 3, None])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_programs_whatever_the_number_of_rows(program: Program, rows: int | None) -> None:
    spaces = {"rows": rows, "one": 1, "members": rows and rows + 1}
    for seed in range(3):
        for late in Unit:
            check(Subject.traced(program, spaces), seed, late)


class Drawing:
    """A program of random operations, of which those of one parameter or width are likely to meet."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        shapes = {**MATRICES, "V": (4, 4), "w": (4,), "E": (7, 4)}
        self.builder = Builder([ParamSpec(n, s) for n, s in shapes.items()])
        self.p = Params(self.builder)
        inputs = {"x": 4, "y": 6, "z": 1}
        self.values = [self.builder.input(n, ValueType("float", "rows", w)) for n, w in inputs.items()]

    def program(self) -> Program:
        for _ in range(int(self.rng.integers(3, 14))):
            made = self.step()
            if made.width <= 12:
                self.values.append(made)
        chosen = self.rng.integers(len(self.values), size=2)
        return self.builder.build([self.values[-1], *(self.values[i] for i in chosen)])

    def any(self) -> Value:
        return self.values[self.rng.integers(len(self.values))]

    def of(self, width: int) -> Value:
        found = [v for v in self.values if v.width == width]
        return found[self.rng.integers(len(found))]

    def step(self) -> Value:
        p, a = self.p, self.any()
        start = int(self.rng.integers(0, a.width))
        width = int(self.rng.integers(1, a.width - start + 1))
        index = self.builder.integer(INDEX)
        steps = [
            lambda: a + self.of(a.width),
            lambda: a * self.of(a.width),
            lambda: a - self.of(a.width),
            lambda: relu(a),
            lambda: tanh(a),
            lambda: columns(a, start, width),
            lambda: emit("pad", a, start=start, width=a.width + start),
            lambda: concat(a, self.any()),
            lambda: emit("spread_cols", self.of(1), width=width + 1),
            lambda: sum_cols(a),
            lambda: linear(self.of(4), p.W, p.b),
            lambda: linear(self.of(6), p.U, p.c),
            lambda: self.of(4) @ p.V,
            lambda: self.of(4) * p.w,
            lambda: take(p.E, index),
            lambda: emit("place", self.of(1), index, width=width + 2),
        ]
        return steps[self.rng.integers(len(steps))]()


@pytest.mark.parametrize("rows", [1, 2, None])
def test_programs_drawn_at_random(rows: int | None) -> None:
    for seed in range(60):
        program = Drawing(np.random.default_rng(seed)).program()
        for late in Unit:
            check(Subject.traced(program, {"rows": rows}), seed, late)


def compiled(program: Program, rows: int | None = 1, lanes: int = 4) -> UnitCode:
    return Subject.traced(program, {"rows": rows}).compile(lanes)[0]


def commands(words: Sequence[int]) -> list[str]:
    return [str(i) for i in decode(words) if i.code in (Code.ISSUE, Code.WAIT)]


LAYER = trace(lambda p, x: relu(linear(x, p.W, p.b)), {"x": 4}, {"W": (4, 6), "b": (6,)})


def test_a_layer_is_one_command_forward_and_one_backward_beside_its_nonlinearity() -> None:
    code = compiled(LAYER)

    assert commands(code.forward.words) == ["lanes.forward bias", "wait", "vector.relu overlap"]
    assert commands(code.backward.words) == [
        "vector.gate overlap",
        "wait",
        "lanes.backward bias want_dx want_dw",
    ]


def test_what_only_rearranges_is_no_command() -> None:
    # Gradients of columns are zeros elsewhere: their sum puts them side by side.
    program = trace(
        lambda p, x: [tanh(c) for c in split(linear(x, p.W, p.b), 3)], {"x": 4}, {"W": (4, 6), "b": (6,)}
    )

    found = commands(compiled(program).backward.words)

    assert sum("vector" in c for c in found) == 3 * 4  # dy * (1 - y * y), thrice
    assert found[-1] == "lanes.backward bias want_dx want_dw"


def test_only_the_first_use_of_a_result_waits() -> None:
    code = compiled(trace(lambda p, x: [tanh(x @ p.W), relu(x @ p.W)], {"x": 4}, {"W": (4, 6)}))

    assert commands(code.forward.words) == [
        "lanes.forward",
        "wait",
        "vector.lines table=1 overlap",
        "vector.relu overlap",
    ]


def test_messages_of_many_rows_are_one_loop_if_their_rows_have_no_gaps() -> None:
    for rows, inner in ((1, "v_inner = 3"), (5, "v_inner = 15"), (None, "v_inner = rows0 * 3")):
        listed = str(compiled(trace(relu, {"x": 3}), rows).forward)

        assert inner in listed and "v_outer" not in listed


def test_many_addresses_share_few_pointers() -> None:
    program = trace(lambda *xs: [tanh(x) for x in xs], {f"x{i}": i + 1 for i in range(10)})
    subject = Subject.traced(program, {"rows": None})
    code, _ = subject.compile(4)

    made = {(i["p"], i["imm"]) for i in decode(code.backward.words) if i.code == Code.PTR}

    assert code.backward.pointers + len(made) > POINTERS
    check(subject, 0, Unit.LANES)


def test_too_many_operands_name_the_node() -> None:
    program = trace(lambda *xs: concat(*xs), {f"x{i}": 1 for i in range(27)})

    with pytest.raises(GraphError, match="node 'traced': its operands and gradients take 29 pointers"):
        compiled(program)


def test_addresses_out_of_reach_name_the_node() -> None:
    program = trace(lambda x: [concat(x, x), x], {"x": 1 << 16})

    with pytest.raises(
        GraphError, match="node 'traced': a message, or the record .* takes 131,072 words; .* 131,071"
    ):
        compiled(program)


def test_messages_of_too_many_rows_name_the_node() -> None:
    program = trace(lambda x: sum_cols(x), {"x": 3})

    with pytest.raises(
        GraphError, match="node 'traced': its messages may have 40000 rows in the space 'rows'"
    ):
        compiled(program, rows=40000)


def test_a_missing_wait_is_seen() -> None:
    bench = Bench(Subject.traced(LAYER, {"rows": 2}), np.random.default_rng(0), Unit.LANES)
    hasty = tuple(w for w in bench.code.inference.words if w & 7 != Code.WAIT)
    bench.code = replace(bench.code, inference=replace(bench.code.inference, words=hasty))

    with pytest.raises(AssertionError, match="output"):
        bench.inference()
