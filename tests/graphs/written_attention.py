"""Models with attention, written in the frontend: over positions, over other ones, and over edges."""

from __future__ import annotations

from typing import Any

from amphw import frontend as fe
from tests.graphs.written import C, Rng, V, Written
from tests.graphs.written_edges import _embedding, _graph, _networks


def _transformer() -> tuple[Any, fe.Spec]:
    """Two heads look back along a sentence, one over another sequence that may be empty; both norms."""
    embed, place, other = _embedding(), fe.Embedding(6, 4, init="normal:0.5"), fe.Embedding(V, 4)
    query, value, mix = (fe.Linear(4) for _ in range(3))
    key = fe.Linear(
        4, bias=False
    )  # a bias would change no weight, and its gradient would be 0 but for rounding
    before, after, inner, outer = fe.LayerNorm(), fe.RMSNorm(), fe.Linear(6), fe.Linear(4)
    head, near = fe.Linear(C), fe.Conv1d(4, 3)

    def model(x: Any) -> None:
        h = embed(x.words.word) + place(x.words.position)
        h = h + near(h)
        n = before(h)
        h = h + mix(fe.attention(query(n), key(n), value(n), over=x.words, heads=2, causal=True))
        memory = other(x.memory)
        h = h + fe.attention(h, memory, memory, over=x.memory)
        h = h + outer(fe.leaky_relu(inner(after(h)), 0.1))
        fe.classify(head(h), x.words.tag)

    words = fe.Sequence(fe.Record(word=fe.Int(V), tag=fe.Int(C)), most=6)
    return model, fe.Record(words=words, memory=fe.Sequence(fe.Int(V), most=4, least=0))


def _sentences(rng: Rng) -> list[Any]:
    return [
        {
            "words": {"word": rng.integers(0, V, n), "tag": rng.integers(0, C, n)},
            "memory": rng.integers(0, V, m),
        }
        for n, m in ((1, 0), (1, 1), (2, 4), (6, 3))
    ]


def _graph_attention() -> tuple[Any, fe.Spec]:
    """A node takes in what its neighbours have, by weights that add up to 1 over its edges."""
    embed, project, score, head = _embedding(), fe.Linear(4), fe.Linear(1), fe.Linear(1)

    def model(x: Any) -> None:
        h = embed(x.g.kind)
        for _ in range(2):
            p = project(h)
            sent, there = fe.send(p, x.g), fe.take(p, x.g.target)
            weight = fe.softmax(fe.leaky_relu(score(sent, fe.ungroup(there)), 0.2), over=x.g)
            h = h + fe.tanh(fe.receive(sent * weight, x.g))
        fe.regress(head(h), x.g.depth)
        fe.regress(head(fe.mean_columns(h) + h * 0.0), x.g.depth, name="mean")

    return model, fe.Record(g=_graph(1))


WRITTEN_ATTENTION = (
    Written("fe-transformer", _transformer, _sentences),
    Written("fe-graph-attention", _graph_attention, lambda rng: [{"g": g} for g in _networks(rng, 1)]),
)
