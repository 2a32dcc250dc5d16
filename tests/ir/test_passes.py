"""Passes leave results unchanged: with updates off, losses and gradients are those of the graph before."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from amphw.ir.behaviour import MEMBER, StateMap
from amphw.ir.check import infer
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import GraphError
from amphw.ir.expr import Attr, Field, evaluate, lift, table
from amphw.ir.functions import columns, concat, linear, relu, row_param, sum_cols, sum_rows, take, tanh
from amphw.ir.graph import Graph
from amphw.ir.grouping import Group
from amphw.ir.instance import Instance, Schema, TableType
from amphw.ir.nodes import NPT, PPT, Concat, Loss, Source
from amphw.ir.passes import RULES, by_name, fold, fold_parameters, fuse, join, replicate, rest, split, tile
from amphw.ir.primitives import ValueType
from amphw.ir.program import Program, trace
from amphw.ir.reference import ReferenceDevice
from amphw.ir.routing import Bcast
from amphw.ir.serialise import fingerprint, graph_from_json, graph_to_json
from amphw.ir.state import KeySpace, StateType, state_field
from amphw.ir.update import UpdateRule
from amphw.models.classify import classification_loss
from amphw.models.ggnn import GGNN, GGNNConfig
from amphw.models.list_reduction import ListReductionConfig, ListReductionRNN
from amphw.models.mnist import MnistConfig, MnistMLP
from tests.graphs.cases import CASES, RESTING, Case

Values = Mapping[str, Mapping[str, np.ndarray]]


LISTS, DIGITS = ListReductionRNN(), MnistMLP()
SMALL_LISTS = {
    cell: ListReductionConfig(hidden=4, embedding=3, batch=5, cell=cell)  # type: ignore[arg-type]
    for cell in ("rnn", "gru")
}
SMALL_DIGITS = MnistConfig(width=6, batch=3, sample=True)
SMALL_MOLECULES = GGNNConfig(hidden=4, steps=2, sample=True)
ALL = (
    *CASES,
    *(
        Case(
            f"list-reduction-{cell}",
            lambda cfg=cfg: LISTS.graph(cfg),  # type: ignore[misc]
            lambda rng, cfg=cfg: list(LISTS.training(cfg, 0, 1, 30)),  # type: ignore[misc]
        )
        for cell, cfg in SMALL_LISTS.items()
    ),
    Case(
        "mnist", lambda: DIGITS.graph(SMALL_DIGITS), lambda rng: list(DIGITS.training(SMALL_DIGITS, 0, 1, 9))
    ),
    Case(
        "ggnn",
        lambda: GGNN().graph(SMALL_MOLECULES),
        lambda rng: list(GGNN().training(SMALL_MOLECULES, 0, 1, 3)),
    ),
)
cases = st.sampled_from(ALL)
seeds = st.integers(0, 2**16)
some = settings(max_examples=30)


@cache
def graph_of(case: Case) -> Graph:
    return case.build()


def drawn(graph: Graph, seed: int) -> dict[str, dict[str, np.ndarray]]:
    """Parameters unlike those that a device begins with, none of them 0."""
    rng = np.random.default_rng(seed)
    return {
        node: {p.name: rng.normal(0.0, 0.5, p.shape) for p in graph.nodes[node].params}
        for node in graph.parameterised
    }


def run(
    graph: Graph, case: Case, values: Values, mode: Mode = Mode.TRAIN
) -> tuple[dict[int, float], dict[str, dict[str, np.ndarray]]]:
    """Losses by instance, and gradients."""
    device = ReferenceDevice("fifo", np.float64)
    device.load(graph, {"*": UpdateRule()}, DeviceOptions(updates="off", seed=3))
    parameters = device.parameters()
    assert {n: set(p.values) for n, p in parameters.items()} == {n: set(v) for n, v in values.items()}
    for node, arrays in values.items():
        for name, array in arrays.items():
            assert parameters[node].values[name].shape == array.shape
            parameters[node].values[name] = array
    instances = case.instances()
    for number, instance in enumerate(instances):
        instance.number = number
        device.submit(number, 0, instance, mode)
    losses = {r.number: sum(s["loss"] for s in r.sums.values()) for r in device.drain()}
    return losses, {n: dict(p.gradients) for n, p in device.parameters().items()}


def assert_same(found: Values, expected: Values) -> None:
    assert found.keys() == expected.keys()
    for node, arrays in expected.items():
        for name, array in arrays.items():
            np.testing.assert_allclose(
                found[node][name], array, rtol=1e-8, atol=1e-11, err_msg=f"{node}.{name}"
            )


# --- results are unchanged ------------------------------------------------------------------------


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


def tileable(case: Case) -> list[str]:
    out = []
    for name in graph_of(case).parameterised:
        try:
            tile(graph_of(case), 2, [name])
        except GraphError:
            continue
        out.append(name)
    return out


@some
@given(cases, seeds, st.integers(2, 3), st.data())
def test_tile(case: Case, seed: int, n: int, data: st.DataObject) -> None:
    before = graph_of(case)
    names = [
        name
        for name in tileable(case)
        if all(p.shape[-1] >= n for p in before.nodes[name].params) and not before.replicas
    ]
    assume(names)
    chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    after = tile(before, n, chosen)
    values = drawn(before, seed)
    tiled = split(before, after, values)
    assert_same(join(before, after, tiled), values)
    losses, gradients = run(before, case, values)
    found, theirs = run(after, case, tiled)
    assert found == pytest.approx(losses, rel=1e-10)
    assert_same(join(before, after, theirs), gradients)


@some
@given(cases, seeds, st.integers(2, 3), st.sampled_from(sorted(RULES)), st.data())
def test_replicate(case: Case, seed: int, n: int, rule: str, data: st.DataObject) -> None:
    """Also of several in-ports: a firing whose messages met at different copies would never be complete."""
    before = graph_of(case)
    names = _replicable(before, rule)
    assume(names)
    chosen = data.draw(st.sampled_from(names))
    after = replicate(before, chosen, n, rule, seed)
    values = drawn(before, seed)
    copies = [f"{chosen}_{k}" for k in range(n)]
    losses, gradients = run(before, case, values)
    rest = {k: v for k, v in values.items() if k != chosen}
    found, theirs = run(after, case, rest | dict.fromkeys(copies, values[chosen]))
    assert found == pytest.approx(losses, rel=1e-10)
    summed = {p: np.sum([theirs[c][p] for c in copies], axis=0) for p in values[chosen]}
    assert_same({k: v for k, v in theirs.items() if k not in copies} | {chosen: summed}, gradients)


@some
@given(seeds, st.integers(2, 8), st.sampled_from(["hash", "random"]))
def test_each_replica_gets_its_share(seed: int, n: int, rule: str) -> None:
    """Of 4,000 states a share within 5 standard deviations; and all of it is a matter of the seed."""
    state = StateType((state_field("a", 40), state_field("b", 100)))
    instance = Instance(number=seed % 11)
    env = KeySpace(state, instance).env()
    chosen = evaluate(RULES[rule](state, n, seed), env)
    assert (chosen == evaluate(RULES[rule](state, n, seed), env)).all()
    shares = np.bincount(chosen, minlength=n)
    assert len(shares) == n
    assert np.abs(shares - 4000 / n).max() < 5 * np.sqrt(4000 / n)


def test_least_loaded_takes_instances_in_turn() -> None:
    state = StateType((state_field("a", 3),))
    spaces = [KeySpace(state, Instance(number=k)) for k in range(8)]
    chosen = [set(evaluate(RULES["least-loaded"](state, 4, 0), s.env()).tolist()) for s in spaces]
    assert chosen == [{k % 4} for k in range(8)]


def test_a_random_replica_depends_on_the_instance_and_the_seed_and_a_hash_does_not() -> None:
    state = StateType((state_field("a", 50),))

    def chosen(rule: str, number: int, seed: int) -> list[int]:
        env = KeySpace(state, Instance(number=number)).env()
        return evaluate(RULES[rule](state, 4, seed), env).tolist()

    assert len({tuple(chosen("random", number, 1)) for number in range(20)}) == 4
    assert chosen("random", 1, 1) != chosen("random", 1, 2)
    assert chosen("hash", 1, 1) == chosen("hash", 2, 2)


@pytest.mark.parametrize(
    ("node", "n", "rule", "message"),
    [
        ("linear9", 2, "random", "there is no such node to replicate"),
        ("linear2", 0, "random", "0 replicas; take 1 or more"),
        ("loss", 2, "random", "a Loss cannot be replicated"),
        ("image", 2, "random", "a Source cannot be replicated"),
        ("linear2", 2, "hash", "linear2': its state has no fields"),
    ],
)
def test_what_cannot_be_replicated_says_why(node: str, n: int, rule: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        replicate(DIGITS.graph(SMALL_DIGITS), node, n, rule)


def test_two_replicated_nodes_are_both_remembered() -> None:
    case = next(c for c in ALL if len(_replicable(graph_of(c))) > 1)
    first, second = _replicable(graph_of(case))[:2]
    after = replicate(replicate(graph_of(case), first, 2), second, 3)
    assert after.replicas == [
        (f"{first}_0", f"{first}_1"),
        (f"{second}_0", f"{second}_1", f"{second}_2"),
    ]


def _replicable(graph: Graph, rule: str = "least-loaded") -> list[str]:
    """Nodes with parameters that are no copies; a hash wants some state."""
    behaviours = infer(graph).behaviours
    names = [n for n in graph.parameterised if not any(n in group for group in graph.replicas)]
    return [n for n in names if rule != "hash" or behaviours[n].state.fields]


# --- what they do ---------------------------------------------------------------------------------


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


def test_the_cases_have_something_for_every_pass() -> None:
    folded = 0
    for case in ALL:
        try:
            folded += bool(fold(graph_of(case)).nodes)
        except GraphError:
            continue
    assert folded >= 5 and sum(bool(tileable(case)) for case in ALL) >= 15


def test_wide_layers_are_tiled_and_narrow_ones_left() -> None:
    graph = DIGITS.graph(MnistConfig(width=70, batch=2))
    after = tile(graph, 4)
    widths = [after.nodes[f"linear1_{k}"].params[0].shape for k in range(4)]
    assert widths == [(784, 17), (784, 18), (784, 17), (784, 18)]
    assert "linear4" in after.nodes and isinstance(after.nodes["linear3_joined"], Concat)
    infer(after)
    assert fingerprint(graph_from_json(graph_to_json(after))) == fingerprint(after)


def test_a_tile_does_what_follows_column_by_column() -> None:
    graph = tile(fuse(DIGITS.graph(SMALL_DIGITS)), 2, ["linear1"])
    program = graph.nodes["linear1_1"].program  # type: ignore[attr-defined]
    assert [i.op for i in program.instrs] == ["matmul", "row_param", "add", "relu"]


def test_copies_of_a_node_are_tiled_together() -> None:
    graph = replicate(DIGITS.graph(SMALL_DIGITS), "linear2", 2)
    after = tile(graph, 2, ["linear2_0", "linear2_1"])
    assert after.replicas == [("linear2_0_0", "linear2_1_0"), ("linear2_0_1", "linear2_1_1")]
    with pytest.raises(GraphError, match="linear2_1: copies of a node are tiled together"):
        tile(graph, 2, ["linear2_0"])


@pytest.mark.parametrize(
    ("n", "nodes", "message"),
    [
        (1, None, "1 tiles: a layer is cut into 2 or more"),
        (2, ["linear9"], "linear9: there is no such node"),
        (2, ["relu1"], "relu1: only a node that computes one output can be tiled"),
        (11, ["linear4"], "linear4: it has 10 columns, too few for 11 tiles"),
        (2, None, "linear1: it has 6 columns; a layer counts as wide from 64 on"),
    ],
)
def test_what_cannot_be_tiled_says_why(n: int, nodes: list[str] | None, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        tile(DIGITS.graph(SMALL_DIGITS), n, nodes)


def _alone(program: Program) -> Graph:
    """A graph of one such node, `cell`, between a source and a loss."""
    width = program.inputs[0][1].width
    g = Graph("alone", Schema(data={"x": width}))
    g.add(Source("x", width=width, data="x"))
    g.add(PPT("cell", program))
    g.add(Loss("loss", trace(sum_cols, {"y": program.outputs_types[0].width})))
    g.connect("x", "cell", "loss")
    return g


def test_a_program_that_mixes_columns_is_not_tiled() -> None:
    looked_up = trace(
        lambda p, h: relu(linear(concat(take(p.E, 0), h), p.W)), {"h": 4}, {"E": (3, 4), "W": (8, 6)}
    )
    with pytest.raises(GraphError, match="cell: every tile would need all of its parameter E"):
        tile(_alone(looked_up), 2, ["cell"])
    with pytest.raises(GraphError, match="cell: behind its parameters .*|cell: the columns of its parameter"):
        tile(LISTS.graph(SMALL_LISTS["gru"]), 2, ["cell"])


def test_a_layer_that_looks_a_table_up_is_tiled_by_its_rows() -> None:
    """A tile is sent its columns of h alone, and begins with numbers as large as those of the whole."""
    graph = LISTS.graph(ListReductionConfig(hidden=9, embedding=6, batch=1))
    after = tile(graph, 2, ["cell"])
    infer(after)
    shapes = [{p.name: p.shape for p in after.nodes[f"cell_{k}"].params} for k in range(2)]
    assert shapes == [
        {"E": (graph.nodes["cell"].params[0].shape[0], 3), "W": (7, 9), "b": (9,)},
        {"E": (graph.nodes["cell"].params[0].shape[0], 3), "W": (8, 9)},
    ]
    assert [after.nodes[f"cell_{k}"].program.inputs[0][1].width for k in range(2)] == [4, 5]  # type: ignore[attr-defined]
    (whole,) = (p for p in graph.nodes["cell"].params if p.name == "W")
    (part,) = (p for p in after.nodes["cell_1"].params if p.name == "W")
    rng = np.random.default_rng(1)
    limit = np.abs(whole.initial(rng)).max()
    assert 0.9 * limit < np.abs(part.initial(rng)).max() <= np.sqrt(6 / sum(whole.shape))
    with pytest.raises(GraphError, match="cell: every tile would need"):
        tile(graph, 7, ["cell"])  # the table has 6 columns


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
