"""Passes leave results unchanged: with updates off, losses and gradients are those of the graph before."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amphw.ir.behaviour import MEMBER, StateMap
from amphw.ir.check import infer
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import GraphError
from amphw.ir.expr import Attr, Field, lift, table
from amphw.ir.functions import columns, linear, row_param, sum_cols, sum_rows, take, tanh
from amphw.ir.graph import Graph
from amphw.ir.grouping import Group
from amphw.ir.instance import Instance, Schema, TableType
from amphw.ir.nodes import NPT, PPT, Loss, Source
from amphw.ir.passes import by_name, fold, fold_parameters, fuse, rest
from amphw.ir.primitives import ValueType
from amphw.ir.program import trace
from amphw.ir.reference import ReferenceDevice
from amphw.ir.routing import Bcast
from amphw.ir.serialise import fingerprint, graph_from_json, graph_to_json
from amphw.ir.state import StateType, state_field
from amphw.ir.update import UpdateRule
from amphw.models.classify import classification_loss
from tests.graphs.cases import RESTING, Case
from tests.ir.pass_checks import (
    ALL,
    DIGITS,
    LISTS,
    SMALL_DIGITS,
    SMALL_LISTS,
    assert_same,
    cases,
    drawn,
    graph_of,
    run,
    seeds,
    some,
)


@some
@given(cases, seeds, st.booleans())
def test_fuse(case: Case, seed: int, sinks: bool) -> None:
    before = graph_of(case)
    values = drawn(before, seed)
    losses, gradients = run(before, case, values)
    found, theirs = run(fuse(before, sinks=sinks), case, values)
    assert found == pytest.approx(losses, rel=1e-10)
    assert_same(theirs, gradients)


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_rest(case: Case) -> None:
    before = graph_of(case)
    after = rest(before)
    new = sorted(set(after.nodes) - set(before.nodes))
    assert (after is before) == (not new)
    assert bool(new) == (case.name in RESTING)
    assert rest(after) is after
    if new:
        values = drawn(before, 1)
        losses, gradients = run(before, case, values)
        found, theirs = run(after, case, values)
        assert found == pytest.approx(losses, rel=1e-12)
        assert_same(theirs, gradients)


@cache
def _with_folds() -> list[tuple[Case, bool]]:
    """Cases that have something to fold, as they are written or fused."""
    found = []
    for case, fused in itertools.product(ALL, (False, True)):
        try:
            fold(fuse(graph_of(case)) if fused else graph_of(case))
        except GraphError as error:
            if "nothing to fold" in str(error):
                continue
        found.append((case, fused))
    return found


@some
@given(st.deferred(lambda: st.sampled_from(_with_folds())), seeds)
def test_fold(of: tuple[Case, bool], seed: int) -> None:
    case, fused = of
    before = fuse(graph_of(case)) if fused else graph_of(case)
    after = fold(before)
    assert not any(_multiplies_a_row(n) for n in after.nodes.values() if isinstance(n, PPT))
    values = drawn(before, seed)
    losses, _ = run(before, case, values, Mode.INFER)
    found, _ = run(after, case, fold_parameters(before, values), Mode.INFER)
    assert found == pytest.approx(losses, rel=1e-9)


def _multiplies_a_row(node: PPT) -> bool:
    """Whether a product's left side is a row of a table, or has one in it."""
    first = len(node.program.inputs) + len(node.program.ints)
    made = {first + k: i for k, i in enumerate(node.program.instrs)}

    def rows(v: int) -> bool:
        op = made[v].op if v in made else ""
        return op == "take" or (op == "concat" and any(rows(a) for a in made[v].args))

    return any(i.op == "matmul" and rows(i.args[0]) for i in made.values())


def test_what_arrives_twice_at_a_fused_node_arrives_once() -> None:
    g = Graph("twice", Schema())
    g.add(Source("x", width=0))
    g.add(PPT("own", trace(lambda p, x: row_param(p.w), {"x": 0}, {"w": (4,)})))
    g.add(Bcast("fork", 3))
    halves = ((0, "low"), (2, "high"))
    for start, name in halves:
        g.add(NPT(name, trace(lambda x, at=start: columns(x, at, 2), {"x": 4})))
    g.add(NPT("both", trace(lambda a, b: a * b, {"a": 2, "b": 2})))
    g.add(NPT("rest", trace(lambda a, x: a + sum_cols(x), {"a": 2, "x": 4})))
    g.add(Loss("loss", trace(lambda y: sum_cols(y * y), {"y": 2})))
    g.connect("x", "own", "fork")
    g.connect("fork.out0", "low", "both.a")
    g.connect("fork.out1", "high", "both.b")
    g.connect("both", "rest.a")
    g.connect("fork.out2", "rest.x")
    g.connect("rest", "loss")
    after = fuse(g)
    assert {name: node.ins for name, node in after.nodes.items()} == {"x": (), "own": ("x",), "loss": ("y",)}
    one = Case("twice", lambda: g, lambda rng: [Instance()])
    values = drawn(g, 0)
    losses, gradients = run(g, one, values)
    found, theirs = run(after, one, values)
    assert found == pytest.approx(losses, rel=1e-12)
    assert_same(theirs, gradients)


def test_a_loss_and_its_layer_are_one_node_which_keeps_both_names() -> None:
    g = DIGITS.graph(SMALL_DIGITS)
    after = fuse(g, sinks=True)
    (loss,) = (node for node in after.nodes.values() if isinstance(node, Loss))
    owner = next(name for (name, _), (to, _) in g.edges.items() if to == "loss")
    assert "loss" in fuse(g).nodes and "loss" not in after.nodes
    assert loss.name == owner and loss.params == g.nodes[owner].params and loss.told == "loss"
    assert after.parameterised == g.parameterised
    device = ReferenceDevice()
    device.load(after, {"*": UpdateRule()}, DeviceOptions())
    (instance,) = DIGITS.training(SMALL_DIGITS, 0, 1, 1)
    device.submit(0, 0, instance, Mode.PREDICT)
    (report,) = device.drain()
    assert report.sums.keys() == report.rows.keys() == report.outputs.keys() == {"loss"}
    assert fingerprint(graph_from_json(graph_to_json(after))) == fingerprint(after)
    g.add(Loss("own", trace(lambda p, y: sum_cols(y + p.b), {"y": 3}, {"b": (3,)})))
    g.add(Source("z", width=3, data="z"))
    g.connect("z", "own")
    with pytest.raises(GraphError, match="a Loss cannot own parameters"):
        infer(g)


def test_there_is_something_to_fold() -> None:
    folded = 0
    for case in ALL:
        try:
            folded += bool(fold(graph_of(case)).nodes)
        except GraphError:
            continue
    assert folded >= 5


def test_a_fold_within_a_node_and_one_across() -> None:
    cell = fold(LISTS.graph(SMALL_LISTS["rnn"])).nodes["cell"]
    assert [(p.name, p.shape) for p in cell.params] == [("b", (4,)), ("E_W", (14, 4)), ("W_rest", (4, 4))]
    gru = fold(LISTS.graph(SMALL_LISTS["gru"])).nodes["cell"]
    assert {p.name for p in gru.params} == {"E_Wi", "Wh", "bh"}, "the bias is in the table"
    written = next(c for c in ALL if c.name == "fe-gru")
    after = fold(graph_of(written))
    assert [p.name for p in after.nodes["embed"].params] == ["E_Wi"]
    assert {p.name for p in after.nodes["cell"].params} == {"Wh", "bh"}


def _bag_of_words() -> Graph:
    """A Group whose program owns the layer that its members go through."""
    t, length = Field("t"), Attr("length")
    schema = Schema(
        {"length": 5}, {"word": TableType((length,), lift(4)), "label": TableType((lift(1),), lift(3))}
    )
    g = Graph("bag", schema)
    embed = trace(lambda p, x: take(p.E, table("word")(t)), {"x": 0}, {"E": (4, 2)})
    members = {"in": ValueType("float", "members", 2)}
    total = trace(lambda p, x: sum_rows(tanh(linear(x, p.W))), members, {"W": (2, 3)})
    g.add(Source("start", StateType((state_field("t", length, 5),))))
    g.add(PPT("embed", embed))
    g.add(Group("bag", StateMap(drop={"t": Field(MEMBER)}), t, length, program=total))
    g.add(classification_loss(3))
    g.connect("start", "embed", "bag", "loss")
    return g


def test_a_group_s_layer_is_folded_too() -> None:
    def draw(rng: np.random.Generator) -> list[Instance]:
        tables = [{"word": rng.integers(0, 4, n), "label": rng.integers(0, 3, 1)} for n in (1, 3, 5)]
        return [Instance({"length": len(x["word"])}, x) for x in tables]

    case = Case("bag", _bag_of_words, draw)
    before = case.build()
    after = fold(before)
    assert [(n, [p.shape for p in after.nodes[n].params]) for n in after.parameterised] == [
        ("embed", [(4, 3)])
    ]
    values = drawn(before, 1)
    losses, _ = run(before, case, values, Mode.INFER)
    found, _ = run(after, case, fold_parameters(before, values), Mode.INFER)
    assert found == pytest.approx(losses, rel=1e-10)


def test_nothing_to_fold() -> None:
    with pytest.raises(GraphError, match="nothing to fold"):
        fold(DIGITS.graph(SMALL_DIGITS))


def test_passes_by_name() -> None:
    graph = DIGITS.graph(SMALL_DIGITS)
    assert "relu1" not in by_name("fuse")(graph).nodes
    assert "linear1_1" in by_name("tile=linear1:2")(graph).nodes
    assert "linear2_2" in by_name("replicate=linear2:3")(graph).nodes
    for text in ("tile", "fuse=2", "replicate=2", "tile=a:b", "melt"):
        with pytest.raises(GraphError, match=f"there is no pass '{text}'; there are: fuse, fold, tile=N"):
            by_name(text)
