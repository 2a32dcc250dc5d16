"""More models written in the frontend: what edges have, rows by number, and numbers to predict."""

from __future__ import annotations

from typing import Any

from amphw import frontend as fe
from tests.graphs.written import Rng, V, Written


def _embedding() -> fe.Embedding:
    return fe.Embedding(V, 4, init="normal:0.7")


def _graph(types: int) -> fe.Graph:
    node, edge = {"kind": fe.Int(V), "depth": fe.Floats(1)}, {"weight": fe.Floats(1)}
    return fe.Graph(node, edge, most_nodes=6, most_edges=14, types=types)


def _networks(rng: Rng, types: int) -> list[Any]:
    def network(n: int, edges: list[tuple[int, int]]) -> Any:
        columns = {
            "kind": rng.integers(0, V, n),
            "depth": rng.normal(size=(n, 1)),
            "weight": rng.normal(size=(len(edges), 1)),
        }
        kinds = {"type": rng.integers(0, types, len(edges))} if types > 1 else {}
        return {"edges": edges, **columns, **kinds}

    return [
        network(1, []),
        network(1, [(0, 0), (0, 0)]),
        network(3, [(0, 1), (2, 1), (2, 1)]),
        network(6, [(0, 5), (5, 0), (3, 3), (1, 2), (2, 4), (4, 1), (0, 2)]),
    ]


def _weighted() -> tuple[Any, fe.Spec]:
    """Each edge has a weight for what it carries; two numbers are predicted for the graph."""
    embed, layers = _embedding(), [fe.Linear(4) for _ in range(2)]
    update, head = fe.Linear(4), fe.Linear(2)

    def model(x: Any) -> None:
        h = embed(x.g.kind)
        for _ in range(2):
            h = fe.tanh(update(h, fe.receive(fe.send(h, x.g, layers) * x.g.weight, x.g)))
        fe.regress(head(fe.reduce(h, "mean", over=x.g.nodes)), x.y)

    return model, fe.Record(g=_graph(2), y=fe.Floats(2))


def _by_number() -> tuple[Any, fe.Spec]:
    """A step along the edges by their ends: what the sources have is taken, and put to the targets. Then a
    loop reads the node that each of its items names. A number is predicted for each node, and for all."""
    embed, message, cell, read = _embedding(), fe.Linear(4), fe.GRU(4), fe.GRU(4)
    each, whole = fe.Linear(1), fe.Linear(1)

    def model(x: Any) -> None:
        h = embed(x.g.kind)
        sent = fe.tanh(message(fe.take(h, x.g.source), x.g.weight))
        h = cell(h, fe.put(sent, x.g.target, x.g.nodes))
        fe.regress(each(h), x.g.depth, name="nodes")
        last = fe.fold(lambda s, i: read(s, fe.pick(h, fe.minimum(i, x.last))), fe.constant(4), x.path)
        fe.regress(whole(last), x.y)

    path = fe.Sequence(fe.Int(6), most=4)
    return model, fe.Record(g=_graph(1), path=path, last=fe.Int(6), y=fe.Floats(1))


def _paths(rng: Rng) -> list[Any]:
    return [
        {
            "g": g,
            "path": rng.integers(0, 6, rng.integers(1, 5)),
            "last": len(g["kind"]) - 1,
            "y": rng.normal(size=1),
        }
        for g in _networks(rng, 1)
    ]


WRITTEN_EDGES = (
    Written(
        "fe-weighted", _weighted, lambda rng: [{"g": g, "y": rng.normal(size=2)} for g in _networks(rng, 2)]
    ),
    Written("fe-by-number", _by_number, _paths),
)
