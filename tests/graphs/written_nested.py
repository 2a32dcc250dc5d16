"""Models written in the frontend: constructs within one another, and turns that leave a value as it is."""

from __future__ import annotations

from typing import Any

from amphw import frontend as fe
from tests.graphs.written import C, Rng, V, Written


def _nested() -> tuple[Any, fe.Spec]:
    """Letters within words; in a branch that the network chooses, a loop over all words' states and a tree;
    around it a loop that the network ends. What they read comes from several places."""
    embed, spell, read, ask, head = (
        fe.Embedding(V, 4, init="normal:0.7"),
        fe.RNN(4),
        fe.RNN(4),
        fe.Linear(1),
        fe.Linear(C),
    )

    def model(x: Any) -> None:
        def word(carry: Any, letters: Any) -> Any:
            w = fe.fold(lambda h, i: spell(h, embed(i)), fe.constant(4), letters)
            return {"last": w, "all": read(carry["all"], w)}, w

        end, words = fe.scan(word, {"all": fe.constant(4, 0.1), "last": fe.constant(4)}, x.words)
        start = fe.reduce(embed(x.words), "mean")
        start = fe.reduce(start, "mean")

        def again() -> Any:
            h = fe.fold(lambda h, w: fe.tanh(h + w * start), end["all"], words)
            nodes = fe.fold_tree(embed(x.tree.word), lambda a, b: fe.tanh(a + b + start), x.tree)
            return h + fe.root(nodes, x.tree)

        told = fe.cond(ask(end["all"]), again, lambda: fe.constant(4, 0.3))

        def turn(h: Any) -> Any:
            # Both branches read other values, and the second a value from around the loop as well.
            return fe.cond(ask(h) - 0.3, lambda v: fe.tanh(v + told), lambda v: fe.tanh(v - start + told), h)

        h = fe.while_loop(lambda h: ask(h) + 0.4, turn, end["last"] + start, most=3)
        fe.classify(head(h * fe.sigmoid(ask(h))), x.label)

    words = fe.Sequence(fe.Sequence(fe.Int(V), most=3), most=4)
    return model, fe.Record(words=words, tree=fe.Tree({"word": fe.Int(V)}, most=4), label=fe.Int(C))


def _stories(rng: Rng) -> list[Any]:
    def story(*lengths: int) -> Any:
        words = [rng.integers(0, V, n) for n in lengths]
        return {
            "words": words,
            "tree": [0, [1, [5, 2]]] if len(words) % 2 else [3, 4],
            "label": int(rng.integers(C)),
        }

    return [story(*lengths) for lengths in ((1,), (2, 1), (1, 3), (2, 2), (1, 1, 2))]


def _skipping() -> tuple[Any, fe.Spec]:
    """A word may be skipped, and an inner node of the tree may be its left child; attention in between."""
    embed, cell, head = fe.Embedding(V, 4, init="normal:0.7"), fe.GRU(4), fe.Linear(C)
    ask = fe.Linear(1, bias=False)  # a softmax would not notice one

    def model(x: Any) -> None:
        def step(h: Any, i: Any) -> Any:
            h = fe.cond(i > 2, lambda h: cell(h, embed(i)), lambda h: h, h)
            return h, h

        end, states = fe.scan(step, fe.constant(4, 0.2), x.words)
        weights = fe.softmax(ask(states * end), over=x.words)
        seen = fe.reduce(weights * states, over=x.words)

        def branch(a: Any, b: Any) -> Any:
            return fe.cond(x.tree.keep == 0, lambda: fe.tanh(a + b), lambda: a)

        nodes = fe.fold_tree(embed(x.tree.word), branch, x.tree)
        fe.classify(head(seen + fe.root(nodes, x.tree)), x.label)

    tree = fe.Tree({"word": fe.Int(V)}, {"keep": fe.Int(2)}, most=5)
    return model, fe.Record(words=fe.Sequence(fe.Int(V), most=5), tree=tree, label=fe.Int(C))


def _skips(rng: Rng) -> list[Any]:
    def grow(n: int) -> Any:
        keep = int(rng.integers(2))
        if n == 1:
            return {"word": int(rng.integers(V)), "keep": keep}
        return {"children": [grow(1), grow(n - 1)], "keep": keep}

    return [
        {"words": rng.integers(0, V, n), "tree": grow(n), "label": int(rng.integers(C))} for n in (1, 2, 5, 4)
    ]


WRITTEN_NESTED = (
    Written("fe-nested", _nested, _stories),
    Written("fe-skipping", _skipping, _skips),
)
