"""A network with attention between the rows of a message trains on OpenCL devices as on the reference."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from amphw.ir import functions as f
from amphw.ir.expr import ROW, Attr, lift, table
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance, Schema, TableType
from amphw.ir.nodes import NPT, PPT, Loss, Source
from amphw.ir.program import ParamSpec, Value, trace
from amphw.ir.reference import ReferenceDevice
from amphw.opencl import OpenCLDevice
from amphw.opencl.codegen.forms import Form, ProductForm
from tests.conformance.golden import assert_close, trained
from tests.conformance.harness import assert_same, reference, run
from tests.daily import daily
from tests.graphs.cases import Case
from tests.opencl.devices import PTHREAD

WORDS, CLASSES, HIDDEN, HEADS, MOST = 6, 3, 8, 2, 40
FORMS = {
    "vectors": Form(vector=4, product=ProductForm(rows=2, vectors=1)),
    "groups": Form(
        vector=1,
        lanes=8,
        rows_per_item=1,
        product=ProductForm(rows=2, vectors=2, local=True, group=4),
    ),
}
each_form = pytest.mark.parametrize("form", daily(["vectors"], ["groups"]))


def build() -> Graph:
    """Words, embedded; each looks at some of the first ones, or at none; then at all; their sum is judged."""
    n, word, seen, label = Attr("n"), table("word"), table("seen"), table("label")
    tables = {
        "word": TableType((n,), lift(WORDS)),
        "seen": TableType((n,), n + 2),
        "label": TableType((lift(1),), lift(CLASSES)),
    }
    g = Graph("attention", Schema({"n": MOST}, tables))

    def look(x: Value, limited: bool) -> Value:
        q, k, v = f.split(x, 3)
        # One more than there are rows is as good as all, and less than 0 as none.
        return f.attend(q, k, v, HEADS, x.builder.integer(seen(ROW) - 1) if limited else None)

    def three(name: str) -> PPT:
        params: dict[str, tuple[int, ...] | ParamSpec] = {"W": (HIDDEN, 3 * HIDDEN)}
        return PPT(name, trace(lambda p, x: x @ p.W, {"x": HIDDEN}, params))

    def loss(y: Value) -> Value:
        return f.cross_entropy(y, label(0))

    g.add(Source("words", rows=n))
    embedding = {"E": ParamSpec("E", (WORDS, HIDDEN), "normal:1.5")}
    g.add(PPT("embed", trace(lambda p, x: f.take(p.E, word(ROW)), {"x": 0}, embedding)))
    for name, limited in (("some", True), ("all", False)):
        g.add(three(f"project_{name}"))
        g.add(NPT(f"attend_{name}", trace(lambda x, limited=limited: look(x, limited), {"x": 3 * HIDDEN})))
    g.add(NPT("sum", trace(lambda x: f.sum_rows(x, "whole"), {"x": HIDDEN}, spaces={"whole": 1})))
    head = {"W": (HIDDEN, CLASSES)}
    g.add(PPT("head", trace(lambda p, x: x @ p.W, {"x": HIDDEN}, head)))
    g.add(Loss("loss", trace(loss, {"y": CLASSES})))
    g.connect(
        "words", "embed", "project_some", "attend_some", "project_all", "attend_all", "sum", "head", "loss"
    )
    return g


def draw(rng: np.random.Generator) -> list[Instance]:
    """Lengths with rests behind the vectors, and one of two vectors of a GPU's rows."""

    def one(n: int) -> Instance:
        words, seen = rng.integers(0, WORDS, n), rng.integers(0, n + 2, n)
        return Instance({"n": n}, {"word": words, "seen": seen, "label": rng.integers(0, CLASSES, 1)})

    return [one(n) for n in (1, 2, 7, 19, 4, MOST)]


CASE = Case("attention", build, draw)


@cache
def problem() -> tuple[Graph, list[Instance]]:
    return CASE.build(), CASE.instances()


@each_form
@pytest.mark.parametrize("fuse", [True, False])
def test_gradients_are_those_of_the_reference(form: str, fuse: bool) -> None:
    wanted = reference(*problem())
    assert all(g.any() for g in wanted.gradients.values())
    settings: dict[str, Any] = {"frame_cap": 4, "fuse": fuse}
    device = OpenCLDevice(PTHREAD)
    try:
        assert_same(run(device, *problem(), form=FORMS[form], **settings), wanted)
    finally:
        device.close()


@each_form
def test_training_comes_to_the_same_parameters(form: str) -> None:
    device = OpenCLDevice(PTHREAD)
    found = trained(device, CASE, log=True, frame_cap=5, form=FORMS[form])
    assert_close(trained(ReferenceDevice("fifo", np.float64, device.log), CASE), found)
