"""Stored graphs: exact round trips of every family, and errors that name what is damaged."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from amphw.ir.behaviour import StateMap
from amphw.ir.errors import GraphError
from amphw.ir.expr import Attr, Const, Field, table
from amphw.ir.graph import Graph
from amphw.ir.instance import Axiom, Schema, TableType
from amphw.ir.serialise import FAMILIES, FORMAT, fingerprint, graph_from_json, graph_to_json
from amphw.ir.state import StateType, state_field
from tests.graphs.cases import CASES, each_name
from tests.ir.graphs import every_family

GRAPHS = {"every-family": every_family, **{c.name: c.build for c in CASES}}
each = pytest.mark.parametrize("name", each_name(GRAPHS))


def stored(graph: Graph) -> dict[str, Any]:
    """As it comes back from a file."""
    return json.loads(json.dumps(graph_to_json(graph)))


@each
def test_round_trip(name: str) -> None:
    graph = GRAPHS[name]()
    data = stored(graph)
    back = graph_from_json(data)
    assert graph_to_json(back) == data == graph_to_json(graph)
    for part in ("name", "schema", "nodes", "regions", "region_of", "edges", "sources_of", "replicas"):
        assert getattr(back, part) == getattr(graph, part), part
    assert list(back.edges) == list(graph.edges) and list(back.nodes) == list(graph.nodes)
    assert fingerprint(back) == fingerprint(graph)
    assert str(back) == str(graph)


def test_every_family_is_covered() -> None:
    assert {n.family for n in every_family().nodes.values()} == set(FAMILIES)


def test_schemas_with_axioms_and_bounds() -> None:
    n = Field("n")
    axiom = Axiom("twice", (state_field("n", Attr("k"), 9),), table("T")(n, n), n * 2, where=n < 3)
    schema = Schema(
        {"k": 9}, {"T": TableType((Attr("k"), Attr("k")), Attr("k") + 1, low=-1)}, {"x": 4}, (axiom,)
    )
    assert graph_from_json(stored(Graph("g", schema))).schema == schema


def test_the_fingerprint_sees_every_change() -> None:
    graph = every_family()
    before = fingerprint(graph)
    graph.add(FAMILIES["Bcast"]("one_more"))
    assert fingerprint(graph) != before


def _entry(node: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda data: next(e for e in data["nodes"] if e["name"] == node)


def _put(node: str, key: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda data: _entry(node)(data).__setitem__(key, value)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda d: d.update(format=2), "a stored graph of format 2, this version reads 1; store it again"),
        (lambda d: d.pop("format"), "a stored graph of format None, this version reads 1; store it again"),
        (lambda d: d.pop("edges"), "the stored graph is damaged: 'edges' is missing"),
        (lambda d: d.update(nodes=3), "the stored graph is damaged: nodes is 3, expected list"),
        (
            lambda d: d["nodes"].append({"family": "PPT"}),
            "the stored graph is damaged: a node has the name None",
        ),
        (
            _put("fork", "n", "two"),
            "node 'fork': the stored graph is damaged: Bcast.n is 'two', expected int",
        ),
        (
            lambda d: _entry("fork")(d).pop("n"),
            "node 'fork': the stored graph is damaged: Bcast lacks or has too many of ['n']",
        ),
        (
            _put("cond", "index", ["xor", 1, 2]),
            "node 'cond': the stored graph is damaged: not a state expression: ['xor', 1, 2]",
        ),
        (
            _put("isu", "map", {"set": {}, "add": [], "drop": 4, "inverse": {}, "store": []}),
            "node 'isu': the stored graph is damaged: Isu.map.drop is 4, expected dict",
        ),
        (
            _put("fork", "region", "nowhere"),
            "node 'fork': stored in the region 'nowhere', which does not exist",
        ),
        (
            lambda d: d["edges"].append(["fork.out0", "lost.in"]),
            "node 'lost': there is no such node (there are: ",
        ),
        (
            lambda d: d["regions"].append({"name": "r", "kind": "map", "fields": [], "parent": "nowhere"}),
            "the stored region 'r' occurs twice or before its parent",
        ),
        (
            lambda d: d.update(replicas=[["lost"]]),
            "node 'lost': named as a replica, but there is no such node",
        ),
    ],
)
def test_damaged_data(damage: Callable[[dict[str, Any]], object], text: str) -> None:
    data = stored(every_family())
    damage(data)
    with pytest.raises(GraphError) as caught:
        graph_from_json(data)
    assert str(caught.value).startswith(text) if text.endswith(": ") else str(caught.value) == text


def test_an_unknown_family_names_the_known_ones() -> None:
    data = stored(every_family())
    _put("fork", "family", "Fork")(data)
    with pytest.raises(GraphError) as caught:
        graph_from_json(data)
    known = ", ".join(sorted(FAMILIES))
    assert str(caught.value) == f"node 'fork': unknown family 'Fork'; this version knows {known}"


def test_a_damaged_program_names_its_node() -> None:
    data = stored(every_family())
    broken = copy.deepcopy(_entry("ppt")(data)["program"])
    broken["instrs"][0][0] = "convolve"
    _put("ppt", "program", broken)(data)
    with pytest.raises(
        GraphError, match=r"^node 'ppt': the stored graph is damaged: unknown primitive 'convolve'"
    ):
        graph_from_json(data)


def test_not_a_graph_at_all() -> None:
    with pytest.raises(GraphError) as caught:
        graph_from_json([1])  # type: ignore[arg-type]
    assert str(caught.value) == "a stored graph of format 'list', this version reads 1; store it again"
    assert FORMAT == 1


def test_defaults_are_written() -> None:
    graph = Graph("g", Schema())
    graph.add(FAMILIES["Isu"]("isu"))
    graph.add(FAMILIES["Source"]("s", StateType((state_field("t", 3),))))
    isu, source = stored(graph)["nodes"]
    assert set(isu["map"]) >= {"set", "add", "drop", "inverse"} and source["rows"] == 1
    assert graph_from_json(stored(graph)).nodes["isu"].map == StateMap()  # type: ignore[attr-defined]
    assert Const(1) == graph_from_json(stored(graph)).nodes["s"].rows  # type: ignore[attr-defined]
