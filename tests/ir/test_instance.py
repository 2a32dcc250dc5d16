"""Schemas: every way in which an instance can break one, with the exact words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amphw.ir.errors import GraphError, InstanceError, StateError
from amphw.ir.expr import Attr, Field, lift, table
from amphw.ir.instance import Axiom, Instance, Schema, TableType, csr_of, inverse_of, permutation
from amphw.ir.instance_check import check_instance
from amphw.ir.state import state_field

nodes, edges = Attr("nodes"), Attr("edges")
v, j, n = Field("v"), Field("j"), Field("n")
V, N = state_field("v", nodes, 8), state_field("n", nodes, 8)
J = state_field("j", table("off")(v + 1) - table("off")(v), 16)

SCHEMA = Schema(
    attrs={"nodes": 8, "edges": 16},
    tables={
        "off": TableType((nodes + 1,), edges + 1),
        "src": TableType((edges,), nodes),
        "rank": TableType((nodes,), nodes),
        "place": TableType((nodes,), nodes),
        "grid": TableType((nodes, lift(2)), lift(10), low=-1),
    },
    data={"x": 3},
    axioms=(csr_of("off", "src", V, J), permutation("rank", "place", N)),
)


def good() -> Instance:
    return Instance(
        {"nodes": 3, "edges": 4},
        {
            "off": np.array([0, 2, 2, 4]),
            "src": np.array([0, 0, 2, 2]),
            "rank": np.array([2, 0, 1]),
            "place": np.array([1, 2, 0]),
            "grid": np.full((3, 2), -1),
        },
        {"x": np.zeros((3, 3), np.float32)},
        number=7,
    )


def test_an_instance_that_keeps_the_schema() -> None:
    check_instance(SCHEMA, good())


def test_an_empty_instance_keeps_it_too() -> None:
    empty = Instance(
        {"nodes": 0, "edges": 0},
        {k: np.zeros(0, np.int64) for k in ("src", "rank", "place")}
        | {"off": np.zeros(1, np.int64), "grid": np.zeros((0, 2), np.int64)},
        {"x": np.zeros((0, 3), np.float32)},
    )
    check_instance(SCHEMA, empty)


def _set(kind: str, name: str, value: object) -> Callable[[Instance], None]:
    return lambda i: getattr(i, kind).__setitem__(name, value)


def _entry(name: str, at: tuple[int, ...], value: int) -> Callable[[Instance], None]:
    return lambda i: i.tables[name].__setitem__(at, value)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda i: i.attrs.pop("edges"), "the attribute 'edges' is missing"),
        (lambda i: i.tables.pop("src"), "the table 'src' is missing"),
        (lambda i: i.data.pop("x"), "the data array 'x' is missing"),
        (_set("attrs", "depth", 1), "the attribute 'depth' is not declared in the schema"),
        (_set("tables", "dst", np.zeros(1)), "the table 'dst' is not declared in the schema"),
        (_set("data", "y", np.zeros((1, 1))), "the data array 'y' is not declared in the schema"),
        (_set("attrs", "edges", 17), "attribute 'edges' = 17, allowed is 0..16"),
        (_set("attrs", "edges", -1), "attribute 'edges' = -1, allowed is 0..16"),
        (_set("data", "x", np.zeros((3, 2))), "data array 'x' has shape (3, 2), expected [rows, 3]"),
        (_set("data", "x", np.zeros(3)), "data array 'x' has shape (3,), expected [rows, 3]"),
        (_set("tables", "src", np.zeros(4)), "table 'src' holds float64, expected integers"),
        (
            _set("tables", "off", np.zeros(3, np.int64)),
            "table 'off' has shape (3,), declared is [nodes + 1] = (4,)",
        ),
        (
            _set("tables", "grid", np.zeros((2, 3), np.int64)),
            "table 'grid' has shape (2, 3), declared is [nodes, 2] = (3, 2)",
        ),
        (_entry("src", (1,), 3), "src[1] = 3, allowed is 0..2"),
        (_entry("grid", (2, 1), -2), "grid[2, 1] = -2, allowed is -1..9"),
        (
            _entry("src", (2,), 1),
            "axiom 'off csr_of src' fails at {'v': 2, 'j': 0}: src[off[v] + j] = 1, v = 2",
        ),
        (
            _entry("rank", (0,), 0),
            "axiom 'place inverse_of rank' fails at {'n': 0}: place[rank[n]] = 1, n = 0",
        ),
        (
            _entry("off", (1,), 4),
            "axiom 'off csr_of src' cannot be read: instance 7: field 'j' has extent "
            "off[v + 1] - off[v] = -2, outside 0..16; raise its bound or mend the instance",
        ),
    ],
)
def test_broken_instances(spoil: Callable[[Instance], object], text: str) -> None:
    instance = good()
    spoil(instance)
    with pytest.raises(InstanceError) as caught:
        check_instance(SCHEMA, instance)
    assert str(caught.value) == f"instance 7: {text}"


def test_an_axiom_that_reads_outside_a_table() -> None:
    beyond = Axiom("beyond", (N,), table("rank")(n + 1), n)
    schema = Schema({"nodes": 8}, {"rank": TableType((nodes,), nodes)}, axioms=(beyond,))
    with pytest.raises(InstanceError) as caught:
        check_instance(schema, Instance({"nodes": 2}, {"rank": np.array([0, 1])}))
    assert str(caught.value) == (
        "instance 0: axiom 'beyond' cannot be read: instance 0: rank[2] is outside the table's shape (2,)"
    )


def test_an_axiom_holds_only_where_it_is_stated() -> None:
    up = table("parent")
    stated = inverse_of("child", ("parent", "side"), N, where=lift(0) <= up(n))
    schema = Schema(
        {"nodes": 8},
        {
            "parent": TableType((nodes,), nodes, low=-1),
            "side": TableType((nodes,), lift(2)),
            "child": TableType((nodes, lift(2)), nodes, low=-1),
        },
        axioms=(stated,),
    )
    tree = Instance(
        {"nodes": 3},
        {
            "parent": np.array([2, 2, -1]),
            "side": np.array([0, 1, 0]),
            "child": np.array([[-1, -1], [-1, -1], [0, 1]]),
        },
    )
    check_instance(schema, tree)
    tree.tables["side"][1] = 0
    with pytest.raises(InstanceError, match=r"^instance 0: axiom 'child inverse_of parent, side' fails at"):
        check_instance(schema, tree)


@given(st.permutations(range(6)), st.integers(0, 5), st.integers(0, 5))
def test_the_permutation_axiom_finds_every_exchange(order: list[int], one: int, other: int) -> None:
    schema = Schema(
        {"nodes": 8},
        {k: TableType((nodes,), nodes) for k in ("rank", "place")},
        axioms=(permutation("rank", "place", N),),
    )
    rank = np.array(order)
    place = np.argsort(rank)
    check_instance(schema, Instance({"nodes": 6}, {"rank": rank, "place": place}))
    place[[one, other]] = place[[other, one]]
    if one == other:
        check_instance(schema, Instance({"nodes": 6}, {"rank": rank, "place": place}))
    else:
        with pytest.raises(InstanceError, match="axiom 'place inverse_of rank' fails"):
            check_instance(schema, Instance({"nodes": 6}, {"rank": rank, "place": place}))


def test_reserved_attribute() -> None:
    with pytest.raises(GraphError) as caught:
        Schema(attrs={"instance": 3})
    assert str(caught.value) == "the attribute 'instance' is the instance's number; give yours another name"


def test_reading_what_is_not_there() -> None:
    instance = good()
    for read, text in (
        (lambda: instance.attr("depth"), "no attribute 'depth' (it has ['edges', 'nodes'])"),
        (
            lambda: instance.lookup("dst", (np.zeros(1, int),)),
            "no table 'dst' (it has ['grid', 'off', 'place', 'rank', 'src'])",
        ),
        (lambda: instance.lookup("grid", (np.zeros(1, int),)), "table 'grid' has 2 dimensions, read with 1"),
    ):
        with pytest.raises(InstanceError) as caught:
            read()
        assert str(caught.value) == f"instance 7: {text}"


def test_lookup_outside() -> None:
    instance, index = good(), (np.array([0, 3, 1]), np.array([1, 0, 2]))
    with pytest.raises(StateError) as caught:
        instance.lookup("grid", index)
    assert str(caught.value) == "instance 7: grid[3, 0] is outside the table's shape (3, 2)"
    assert instance.lookup("grid", index, strict=False).tolist() == [-1, 0, 0]
