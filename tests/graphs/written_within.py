"""Trees and graphs within sequences: each begins where the one before it has led."""

from __future__ import annotations

from typing import Any

from amphw import frontend as fe
from tests.graphs.written import C, Rng, V, Written


def _book() -> tuple[Any, fe.Spec]:
    """Sentences with their parse trees, in pages, in a book; from its end to its beginning."""
    embed, branch, read, head = (
        fe.Embedding(V, 3, init="normal:0.4"),
        fe.Linear(3),
        fe.RNN(3),
        fe.Linear(C),
    )

    def model(x: Any) -> None:
        def sentence(carry: Any, tree: Any) -> Any:
            leaf = lambda leaf: fe.tanh(embed(leaf.word) + carry)  # noqa: E731
            nodes = fe.fold_tree(leaf, lambda a, b: fe.tanh(branch(a, b) + carry), tree)
            return read(carry, fe.root(nodes, tree)), fe.reduce(nodes * 0.1, over=tree.nodes)

        def page(carry: Any, sentences: Any) -> Any:
            return fe.scan(sentence, carry, sentences)

        end, told = fe.scan(page, fe.constant(3, 0.1), x.pages, reverse=True)
        fe.classify(head(end + fe.reduce(fe.reduce(told))), x.label)

    sentences = fe.Sequence(fe.Tree({"word": fe.Int(V)}, most=4), most=3, least=0)
    return model, fe.Record(pages=fe.Sequence(sentences, most=3), label=fe.Int(C))


def _scenes() -> tuple[Any, fe.Spec]:
    """A graph at every step, with edges of two types; what came before reaches each node of the next one."""
    embed, update, read, head = (
        fe.Embedding(V, 3, init="normal:0.4"),
        fe.Linear(3),
        fe.GRU(3),
        fe.Linear(C),
    )

    def model(x: Any) -> None:
        def step(carry: Any, scene: Any) -> Any:
            g = scene.graph
            first = fe.tanh(embed(g.kind) + carry)
            h = fe.message_passing(
                first, g, [fe.tanh, lambda h: h * 0.5], lambda h, r: fe.tanh(update(h) + r), steps=2
            )
            h = h + fe.receive(fe.send(h, g) * g.weight, g)
            return read(carry, fe.reduce(h * 0.1, over=g.nodes) + embed(g.where)), None

        alone = x.scenes.graph
        heard = fe.receive(fe.send(embed(alone.kind), alone), alone)
        each = fe.reduce(heard * 0.2, over=alone.nodes)
        end, _ = fe.scan(step, fe.reduce(each), x.scenes)
        fe.classify(head(end), x.label)

    graph = fe.Graph(
        {"kind": fe.Int(V)},
        {"weight": fe.Floats(1)},
        {"where": fe.Int(V)},
        most_nodes=3,
        most_edges=4,
        types=2,
    )
    scenes = fe.Sequence(fe.Record(graph=graph), most=3, least=0)
    return model, fe.Record(scenes=scenes, label=fe.Int(C))


def _trees(rng: Rng) -> list[Any]:
    def tree(leaves: int) -> Any:
        if leaves == 1:
            return int(rng.integers(V))
        left = int(rng.integers(1, leaves))
        return [tree(left), tree(leaves - left)]

    books = ([[1]], [[], [2, 1], []], [[3], [1, 4]], [[1, 1, 1], [2], [3]])
    return [
        {"pages": [[tree(n) for n in page] for page in book], "label": int(rng.integers(C))} for book in books
    ]


def _films(rng: Rng) -> list[Any]:
    def graph(nodes: int, edges: list[tuple[int, int]]) -> Any:
        return {
            "kind": rng.integers(0, V, nodes),
            "edges": edges,
            "type": rng.integers(0, 2, len(edges)),
            "weight": rng.normal(size=(len(edges), 1)),
            "where": int(rng.integers(V)),
        }

    alone, pair, ring = (1, []), (2, [(0, 1), (1, 1)]), (3, [(0, 1), (1, 2), (2, 0), (0, 2)])
    films = ([], [alone], [pair, alone], [ring, pair, ring], [alone, ring])
    return [
        {"scenes": [{"graph": graph(*each)} for each in film], "label": int(rng.integers(C))}
        for film in films
    ]


WRITTEN_WITHIN = (Written("fe-book", _book, _trees), Written("fe-scenes", _scenes, _films))
