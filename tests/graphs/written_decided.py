"""Models whose loops the network ends, and words that it chooses itself: what it says is what it reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from amphw import frontend as fe
from tests.graphs.written import C, Rng, V, Written


def _decoder() -> tuple[Any, fe.Spec]:
    """Says words, and reads what it has said, until it says 0; scores of its choices have the gradient."""
    embed, cell, out = fe.Embedding(V, 4, init="normal:0.7"), fe.GRU(4), fe.Linear(V)

    def model(x: Any) -> None:
        def turn(carry: Any) -> Any:
            h = cell(carry["h"], embed(carry["last"]))
            scores = fe.log_softmax(out(h))
            word = fe.argmax(scores)
            return {"h": h, "last": word, "score": carry["score"] + fe.column(scores, word)}

        h = fe.fold(cell, fe.constant(4, 0.1), embed(x.words))
        start = {"h": h, "last": fe.constant(1, 1.0), "score": fe.constant(1)}
        end = fe.while_loop(lambda c: c["last"] - 0.5, turn, start, most=4)
        fe.loss(end["score"] * -1.0, said=end["last"])

    return model, fe.Record(words=fe.Sequence(fe.Int(V), most=4))


def _sampling() -> tuple[Any, fe.Spec]:
    """A word drawn at every turn from what the network thinks of it, and one for the whole instance."""
    embed, mix, out = fe.Embedding(V, 4, init="normal:0.7"), fe.Linear(4), fe.Linear(V)

    def model(x: Any) -> None:
        def turn(h: Any, word: Any) -> Any:
            scores = out(h)
            drawn = fe.sample(scores)
            h = fe.tanh(mix(h) + embed(word) + embed(drawn))
            return h, fe.column(fe.log_softmax(scores), drawn)

        h, told = fe.scan(turn, embed(x.first), x.words)
        fe.loss(fe.cross_entropy(out(h), fe.sample(out(fe.constant(4, 0.3)), seed=3)), name="again")
        fe.loss(fe.reduce(told) * -0.5)

    return model, fe.Record(words=fe.Sequence(fe.Int(V), most=4), first=fe.Int(V))


def _hops() -> tuple[Any, fe.Spec]:
    """Attention over the words as often as the network wants, from a query that each hop changes."""
    embed, look, halt, head = fe.Embedding(V, 4, init="normal:0.7"), fe.Linear(4), fe.Linear(1), fe.Linear(C)

    def model(x: Any) -> None:
        values = embed(x.words)

        def hop(h: Any) -> Any:
            return fe.tanh(look(h) + fe.attention(h, values, values, over=x.words))

        h = fe.while_loop(lambda h: halt(h) + 0.2, hop, embed(x.asked), most=3)
        fe.classify(head(h * fe.sigmoid(halt(h))), x.label)

    words = fe.Sequence(fe.Int(V), most=4, least=0)
    return model, fe.Record(words=words, asked=fe.Int(V), label=fe.Int(C))


def _wander() -> tuple[Any, fe.Spec]:
    """Nodes that send to one another until the graph as a whole has settled, with a count of the turns; what
    they begin with is read at every turn, and so is a value of the graph."""
    embed, mix, tell, halt, head = (
        fe.Embedding(V, 3, init="normal:0.7"),
        fe.Linear(3),
        fe.Linear(3),
        fe.Linear(1),
        fe.Linear(C),
    )

    def model(x: Any) -> None:
        g, whole = x.graph, embed(x.asked)
        begun = embed(g.kind)

        def turn(carry: Any) -> Any:
            h, turns = carry
            heard = fe.receive(fe.send(h, g, tell) * g.weight, g)
            return fe.tanh(mix(h) + heard + begun * whole), turns + 1.0

        def restless(carry: Any) -> Any:
            h, turns = carry
            return halt(fe.reduce(h, over=g.nodes)) + 0.6 - turns * 0.3

        h, turns = fe.while_loop(restless, turn, (begun, fe.constant(1)), most=3)
        fe.classify(head(fe.reduce(h * fe.sigmoid(halt(h)) * turns, over=g.nodes)), x.label)

    graph = fe.Graph({"kind": fe.Int(V)}, edge={"weight": fe.Floats(1)}, most_nodes=4, most_edges=5)
    return model, fe.Record(graph=graph, asked=fe.Int(V), label=fe.Int(C))


def _words(rng: Rng, n: int) -> list[int]:
    return [int(t) for t in rng.integers(0, V, n)]


def _sentences(rng: Rng) -> list[Any]:
    return [{"words": _words(rng, n)} for n in (1, 2, 4, 3)]


def _begun(rng: Rng) -> list[Any]:
    return [{"words": _words(rng, n), "first": int(rng.integers(V))} for n in (1, 3, 4, 2)]


def _asked(rng: Rng) -> list[Any]:
    return [
        {"words": _words(rng, n), "asked": int(rng.integers(V)), "label": int(rng.integers(C))}
        for n in (0, 1, 3, 4, 2)
    ]


def _graphs(rng: Rng) -> list[Any]:
    def one(nodes: int, edges: list[tuple[int, int]]) -> dict[str, Any]:
        graph = {
            "kind": _words(rng, nodes),
            "edges": edges,
            "weight": rng.normal(size=(len(edges), 1)).astype(np.float32),
        }
        return {"graph": graph, "asked": int(rng.integers(V)), "label": int(rng.integers(C))}

    return [
        one(1, []),
        one(2, [(0, 1)]),
        one(3, [(0, 1), (1, 2), (2, 0), (0, 2)]),
        one(4, [(3, 3), (3, 0), (1, 3)]),
    ]


WRITTEN_DECIDED = (
    Written("fe-decoder", _decoder, _sentences),
    Written("fe-sampling", _sampling, _begun),
    Written("fe-hops", _hops, _asked),
    Written("fe-wander", _wander, _graphs),
)
