"""Updates and folded tables on the device against `amphw.ir.update`."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from amphw.engine.tiles.code import Fold
from amphw.ir.update import LATELY, NodeParameters, UpdateRule
from amphw.opencl import abi
from amphw.opencl.codegen.folding import table_kernels, unfold_kernels
from amphw.opencl.codegen.forms import Form, ProductForm
from amphw.opencl.codegen.update import Tensor, parts, touched_only, update_kernels, update_scalars
from amphw.opencl.layout import Layout, copy_layout
from tests.daily import daily
from tests.opencl.kernels import LOCAL, PANELS, PLAIN, SINGLE, Arena, Machine, padded

FORMS = {"panels": PANELS, "plain": PLAIN, "single": SINGLE, "lanes": replace(LOCAL, lanes=8)}
RULES = {
    "sgd": UpdateRule(optimizer="sgd", lr=0.3),
    "sgd-decay": UpdateRule(optimizer="sgd", weight_decay=0.05, reduce="sum"),
    "momentum": UpdateRule(optimizer="momentum", momentum=0.8),
    "adagrad-clip": UpdateRule(optimizer="adagrad", clip=0.5, reduce="sum"),
    "adam": UpdateRule(optimizer="adam", lr=0.01, schedule="exponential", schedule_steps=3),
    "nadam": UpdateRule(optimizer="nadam", lr=0.01, weight_decay=0.01),
    "lazy_adam": UpdateRule(optimizer="lazy_adam", lr=0.01),
    "adam-clip-decay": UpdateRule(optimizer="adam", clip=0.1, weight_decay=0.01, warmup=4),
}
SHAPES = ((33, 17), (17,), (150, 100), (1, 1), (5, 150))
TRANSPOSED = {0: (0, 33), 2: (5, 100)}
TABLE = 4  # only looked up
FOLDED = (
    Fold(table=0, weight=1, first_row=3, width=5, bias=2),
    Fold(table=3, weight=1, first_row=0, width=17),
)
FOLDED_SHAPES = ((21, 5), (40, 33), (33,), (7, 17))


def tensors(rule: UpdateRule, form: Form) -> list[Tensor]:
    out = []
    for number, shape in enumerate(SHAPES):
        rows = shape[0] if len(shape) == 2 else 0
        touched = number == TABLE and touched_only(rule)
        layout = Layout(rows, shape[-1], form.panel if rows and number != TABLE else 0)
        out.append(Tensor(number, layout, touched, TRANSPOSED.get(number)))
    return out


FEW = ("adagrad-clip", "adam-clip-decay")  # rules that show what differs between forms
DAILY = [("panels", "sgd"), ("panels", "adam-clip-decay"), ("plain", "momentum"), ("lanes", "adagrad-clip")]
RUNS = [("panels", name) for name in RULES] + [
    (form, name) for form in FORMS if form != "panels" for name in (*FEW, "momentum")
]
each_run = pytest.mark.parametrize("form, name", daily(DAILY, [run for run in RUNS if run not in DAILY]))


@pytest.fixture(scope="module")
def built(machine: Machine):
    """Of a form, its rules' kernels in one program, when one is asked for -> by (form, rule), the program and
    the kernels."""

    @cache
    def of_form(name: str):
        rules, form = [rule for of, rule in RUNS if of == name], FORMS[name]
        kernels = {
            r: update_kernels(r.replace("-", "_"), tensors(RULES[r], form), RULES[r], form) for r in rules
        }
        return machine.build(form, [k for of in kernels.values() for k in of]), kernels

    def of_rule(form: str, rule: str):
        program, kernels = of_form(form)
        return program, kernels[rule]

    return of_rule


class Node:
    """Parameters of SHAPES on the device and, in `values` and `slots`, as the definition has them."""

    def __init__(self, rule: UpdateRule, seed: int, form: str):
        self.tensors = tensors(rule, FORMS[form])
        self.rule, self.rng, self.state = rule, np.random.default_rng(seed), dict(rule.row.state)
        self.values = [self.random(shape) for shape in SHAPES]
        self.slots = [[np.zeros(s, np.float32) for _ in range(rule.slots())] for s in SHAPES]
        self.largest = np.zeros(abi.TURNS, np.float32)
        self.copies: dict[int, Layout] = {}
        self.arrays: dict[str, np.ndarray] = {f"touched{TABLE}": np.zeros(SHAPES[TABLE][0], np.int32)}
        for tensor, value in zip(self.tensors, self.values, strict=True):
            n = tensor.number
            self.arrays |= {f"p{n}": self.laid(n, value), f"squares{n}": np.zeros(parts(tensor), np.float32)}
            self.arrays |= {f"p{n}s{k}": self.laid(n, np.zeros_like(value)) for k in range(rule.slots())}
            if tensor.transposed:
                copy = copy_layout(tensor.columns, tensor.transposed[1], FORMS[form])
                self.copies[n] = copy
                self.arrays[f"p{n}t"] = np.full(copy.shape, np.nan, np.float32)

    def laid(self, n: int, value: np.ndarray) -> np.ndarray:
        """As parameter n lies."""
        return self.tensors[n].layout.packed(value)

    def random(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)

    def gradients(self) -> list[np.ndarray]:
        """New ones, also on the device. The table's are 0 in most rows."""
        out = [self.random(shape) for shape in SHAPES]
        untouched = np.array([True, False, True, False, True])
        out[TABLE][untouched] = 0
        self.arrays[f"touched{TABLE}"][:] = ~untouched
        self.arrays |= {f"g{n}": self.laid(n, g) for n, g in enumerate(out)}
        return out

    def run(self, machine: Machine, program, kernels, rows: int, updates: int) -> np.ndarray:
        """The words of faults, without those of largest gradients, which stay in `largest`."""
        arena = Arena(1 << 12)
        faults = np.zeros(abi.BAD_GRADIENT + len(SHAPES) + abi.TURNS, np.int32)
        faults[-abi.TURNS :] = self.largest.view(np.int32)
        job = arena.put(update_scalars(self.rule, rows, updates, self.state, updates))
        for kernel in kernels:
            machine.run(program, kernel, arena.words, job, self.arrays, faults, ())
        self.largest = faults[-abi.TURNS :].view(np.float32).copy()
        return faults[: -abi.TURNS]


@each_run
def test_updates_are_those_of_the_rule(built, machine: Machine, form: str, name: str) -> None:
    program, kernels = built(form, name)
    node = Node(RULES[name], 1, form)
    state = dict(node.rule.row.state)
    for updates in range(3):
        rows = 7 + updates
        scalars = node.rule.scalars(updates, state)
        for n, g in enumerate(node.gradients()):
            node.values[n] = node.rule.step(node.values[n], g, node.slots[n], rows, scalars)
        faults = node.run(machine, program, kernels, rows, updates)
        assert not faults.any()
        for n, value in enumerate(node.values):
            np.testing.assert_allclose(node.arrays[f"p{n}"], node.laid(n, value), rtol=1e-5, atol=1e-6)
            assert not node.arrays[f"g{n}"].any()
            for k, slot in enumerate(node.slots[n]):
                np.testing.assert_allclose(node.arrays[f"p{n}s{k}"], node.laid(n, slot), rtol=1e-5, atol=1e-6)
        for n, (first, count) in TRANSPOSED.items():
            here = node.tensors[n].layout.unpacked(node.arrays[f"p{n}"])[first : first + count]
            copy = node.copies[n]
            np.testing.assert_array_equal(copy.unpacked(node.arrays[f"p{n}t"]), here.T)
        if touched_only(node.rule):
            assert not node.arrays[f"touched{TABLE}"].any()


@pytest.mark.parametrize("form, name", [("panels", "momentum"), ("lanes", "adagrad-clip")])
@pytest.mark.parametrize("where, bad", [(1, np.nan), (2, np.inf), (TABLE, -np.inf)])
def test_a_bad_gradient_changes_nothing(
    built, machine: Machine, form: str, name: str, where: int, bad: float
) -> None:
    program, kernels = built(form, name)
    node = Node(RULES[name], 2, form)
    node.gradients()
    # The fourth number of the first row lies there in any layout; of the table's rows the second is touched.
    node.arrays[f"g{where}"].reshape(-1, node.tensors[where].layout.step)[int(where == TABLE), 3] = bad
    before = {n: a.copy() for n, a in node.arrays.items() if not n.startswith("squares") and n[-1] != "t"}
    faults = node.run(machine, program, kernels, 5, 0)
    assert np.flatnonzero(faults).tolist() == [abi.BAD_GRADIENT + where]
    for n, array in before.items():
        np.testing.assert_array_equal(node.arrays[n], array)
    assert node.largest[0] == np.inf


@each_run
def test_the_largest_gradients_are_those_that_the_definition_notes(
    built, machine: Machine, form: str, name: str
) -> None:
    """Of the last updates; more are made than there are words."""
    program, kernels = built(form, name)
    node, expected = Node(RULES[name], 5, form), []
    for updates in range(abi.TURNS + 3):
        given, rows = node.gradients(), 3 + updates
        found = NodeParameters((), node.rule, {}, rows=rows, gradients=dict(enumerate(given)))
        found.note()
        expected += found.lately
        node.run(machine, program, kernels, rows, updates)
    turns = np.arange(updates + 1 - LATELY, updates + 1)
    np.testing.assert_allclose(node.largest[turns % abi.TURNS], expected[-LATELY:], rtol=1e-6)


def test_which_rules_leave_untouched_rows_alone() -> None:
    assert {name for name, rule in RULES.items() if touched_only(rule)} == {
        "sgd",
        "adagrad-clip",
        "lazy_adam",
    }


def test_only_touched_rows_are_changed(built, machine: Machine) -> None:
    """A gradient in a row that is not marked stays where it is."""
    program, kernels = built("panels", "adagrad-clip")
    node = Node(RULES["adagrad-clip"], 3, "panels")
    node.gradients()
    node.arrays[f"g{TABLE}"][0] = 1.0
    before = node.arrays[f"p{TABLE}"].copy()
    node.run(machine, program, kernels, 1, 0)
    after = node.arrays[f"p{TABLE}"]
    np.testing.assert_array_equal(after[[0, 2, 4]], before[[0, 2, 4]])
    assert (after[[1, 3], :150] != before[[1, 3], :150]).all()
    assert (node.arrays[f"g{TABLE}"][0] == 1.0).all()


# --- folded tables ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["panels", "plain", "lanes", "tall"])
def folding(request, machine: Machine):
    form = {**FORMS, "tall": Form(product=ProductForm(rows=8, vectors=3))}[request.param]
    of = folded_tensors(form)
    made, unmade = table_kernels("make", of, FOLDED, form), unfold_kernels("unfold", of, FOLDED, form)
    return machine.build(form, [*made, *unmade]), made, unmade, [t.layout for t in of]


def folded_tensors(form: Form) -> list[Tensor]:
    """Of FOLDED_SHAPES; number 1 is multiplied."""
    panels = {1: form.panel}
    return [
        Tensor(n, Layout(s[0] if len(s) == 2 else 0, s[-1], panels.get(n, 0)))
        for n, s in enumerate(FOLDED_SHAPES)
    ]


def test_folded_tables(folding, machine: Machine) -> None:
    program, made, unmade, laid = folding
    rng = np.random.default_rng(4)
    values = [rng.standard_normal(shape).astype(np.float32) for shape in FOLDED_SHAPES]
    gradients = [rng.standard_normal(shape).astype(np.float32) for shape in FOLDED_SHAPES]
    arrays = {f"p{n}": laid[n].packed(v) for n, v in enumerate(values)}
    arrays |= {f"g{n}": laid[n].packed(g) for n, g in enumerate(gradients)}
    tables = []
    for number, fold in enumerate(FOLDED, len(FOLDED_SHAPES)):
        shape = (FOLDED_SHAPES[fold.table][0], FOLDED_SHAPES[fold.weight][1])
        tables.append(rng.standard_normal(shape).astype(np.float32))
        arrays |= {f"p{number}": padded(np.zeros(shape)), f"g{number}": padded(tables[-1])}
    for kernel in [*made, *unmade]:
        machine.run(program, kernel, Arena(128).words, 0, arrays, np.zeros(16, np.int32), ())

    close = {"rtol": 1e-4, "atol": 1e-4}
    for number, (fold, d) in enumerate(zip(FOLDED, tables, strict=True), len(FOLDED_SHAPES)):
        part = values[fold.weight][fold.first_row : fold.first_row + fold.width]
        table = values[fold.table] @ part + (values[fold.bias] if fold.bias >= 0 else 0)
        np.testing.assert_allclose(arrays[f"p{number}"], padded(table), **close)
        gradients[fold.table] = gradients[fold.table] + d @ part.T
        gradients[fold.weight][fold.first_row : fold.first_row + fold.width] += values[fold.table].T @ d
        if fold.bias >= 0:
            gradients[fold.bias] = gradients[fold.bias] + d.sum(axis=0)
        assert not arrays[f"g{number}"].any()
    for n, gradient in enumerate(gradients):
        np.testing.assert_allclose(arrays[f"g{n}"], laid[n].packed(gradient), **close)
