"""Graphs as instances have them: how edges are sorted, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.ir.errors import InstanceError
from tests.frontend.running import declared

GRAPH = fe.Graph({"kind": fe.Int(4)}, {"weight": fe.Floats(1)}, most_nodes=4, most_edges=5, types=2)


def graph(edges: Any, kinds: Any = (0, 1, 2), types: Any = None, **more: Any) -> dict[str, Any]:
    count = len(edges)
    types = [0] * count if types is None else types
    return {
        "edges": edges,
        "kind": list(kinds),
        "type": types,
        "weight": [[float(i)] for i in range(count)],
        **more,
    }


def test_edges_are_sorted_by_type_and_source_with_what_belongs_to_them() -> None:
    found = declared(GRAPH).encode(graph([(2, 0), (0, 1), (0, 1), (1, 1)], types=[0, 1, 0, 0]))
    assert found.tables["source"].tolist() == [0, 1, 2, 0]
    assert found.tables["target"].tolist() == [1, 1, 0, 1]
    assert found.data["weight"][:, 0].tolist() == [2, 3, 0, 1]
    assert found.tables["degree"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert found.tables["in_degree"].tolist() == [1, 3, 0]


@pytest.mark.parametrize(
    "value,message",
    [
        (graph([(0, 3)]), r"edges\[0\] is \(0, 3\), but there are 3 nodes"),
        (graph([(0, 1), (-1, 0)]), r"edges\[1\] is \(-1, 0\)"),
        (graph([[0, 1, 2], [1, 2, 0]]), "edges is no list of pairs"),
        (graph([0, 1]), "edges is no list of pairs"),
        (graph([(0, 1)], types=[2]), r"type\[0\] is 2, allowed is 0..1"),
        (graph([(0, 1)], types=[]), "type has 0 values, there are 1 edges"),
        (graph([], kinds=[]), "has no nodes"),
        (graph([], kinds=[0] * 5), "has 5 nodes, allowed are 4"),
        (graph([(0, 1)] * 6), "has 6 edges, allowed are 5"),
        (graph([(0, 1)], kinds=[0, 9]), r"kind\[1\] is 9, allowed is 0..3"),
        (graph([(0, 1)], colour=3), "colour is not declared"),
        ({"edges": []}, "is missing"),
        (7, "the instance is 7, expected a dict"),
    ],
)
def test_a_graph_that_does_not_fit_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        declared(GRAPH).encode(value)


def test_a_graph_without_edges_has_no_types() -> None:
    for none in ([], (), np.zeros(0)):
        found = declared(GRAPH).encode(graph(none, types=none))
        assert found.tables["of_type"].tolist() == [0, 0]


@pytest.mark.parametrize("dtype", (np.uint8, np.uint64, np.int16))
def test_arrays_of_any_integers_are_edges(dtype: Any) -> None:
    edges = np.array([(2, 0), (0, 1)], dtype)
    found = declared(GRAPH).encode(graph(edges, types=np.array([0, 1], dtype)))
    assert found.tables["source"].tolist() == [2, 0]


@pytest.mark.parametrize(
    "value,message",
    [
        (graph([(0, 1)], types=[0.5]), r"type\[0\] is 0.5, expected an integer"),
        (graph([(0, 1)]) | {"type": 0}, "type is 0, expected a sequence"),
        (graph([]) | {"edges": 3}, r"edges is 3, expected pairs \(source, target\)"),
        (graph([]) | {"edges": "ab"}, r"edges is 'ab', expected pairs"),
        (graph([(0, 1), (0, 1, 2)]), "edges is no list of pairs"),
        (graph([(0.0, 1.0)]), "edges is no list of pairs"),
        (graph([], kinds=[0, 1]) | {"kind": 1}, "kind is 1, expected a sequence"),
        (graph([(0, 1)]) | {"weight": 1.0}, "weight is 1.0, expected a sequence"),
        (graph([(0, 1)]) | {"weight": [1.0, 2.0]}, "weight has 2 values, expected 1"),
        (graph([(0, 1)], nodes=3.0), "nodes is 3.0, expected an integer"),
        (graph([(0, 1)], nodes="3"), "nodes is '3', expected an integer"),
        (graph([(0, 1)], nodes=2), "parts of nodes with different lengths"),
        (graph([(1, 0), (0, 1)]) | {"weight": [1.0, "x"]}, r"weight\[1\] is 'x', expected a number"),
    ],
)
def test_what_is_no_graph_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        declared(GRAPH).encode(value)


def test_the_number_of_nodes_is_an_integer() -> None:
    m = declared(fe.Graph(most_nodes=3, most_edges=3))
    assert m.encode({"edges": [], "nodes": np.int64(2)}).attrs["nodes"] == 2
    with pytest.raises(InstanceError, match="nodes is 2.7, expected an integer"):
        m.encode({"edges": [], "nodes": 2.7})


def test_a_part_has_no_name_that_graphs_have_themselves() -> None:
    schema = declared(fe.Graph(most_nodes=3, most_edges=3)).graph.schema
    for name in [*schema.tables, *schema.attrs, "type", "position"]:
        for parts in ({"node": {name: fe.Int(3)}}, {"edge": {name: fe.Int(3)}}, {"whole": {name: fe.Int(3)}}):
            with pytest.raises(fe.FrontendError, match=rf"\['{name}'\] of a graph's .* need other names"):
                fe.Graph(**parts, most_nodes=3, most_edges=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bounds,message",
    [
        ({"most_nodes": 0}, "`most_nodes` is 1 or more, got 0"),
        ({"most_edges": 0}, "`most_edges` is 1 or more, got 0"),
        ({"most_nodes": 2.5}, "`most_nodes` is an integer, got 2.5"),
        ({"types": 0}, "`types`, the number of types of edges, is 1 or more"),
    ],
)
def test_bounds_of_a_graph_are_positive(bounds: Any, message: str) -> None:
    with pytest.raises(fe.FrontendError, match=message):
        fe.Graph({"kind": fe.Int(3)}, **({"most_nodes": 3, "most_edges": 3} | bounds))
