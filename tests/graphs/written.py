"""Models written in the frontend as users write them, on plain instances: every construct, nested."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from amphw import frontend as fe
from amphw.frontend.compile import Compiled
from amphw.ir.instance import Instance

Rng = np.random.Generator
V, C = 7, 3  # tokens, classes


@dataclass(frozen=True)
class Written:
    """A model, and how to draw plain instances, the degenerate ones first."""

    name: str
    write: Callable[[], tuple[Callable[[Any], None], fe.Spec]]
    plain: Callable[[Rng], list[Any]]

    @cache  # noqa: B019  # a handful, for the whole run
    def compiled(self) -> Compiled:
        model, spec = self.write()
        return fe.compile(model, spec, self.name)

    def draw(self, rng: Rng) -> list[Instance]:
        return [self.compiled().encode(value) for value in self.plain(rng)]


def _label(rng: Rng) -> int:
    return int(rng.integers(C))


def _tokens(rng: Rng, n: int) -> list[int]:
    return [int(t) for t in rng.integers(0, V, n)]


def _init(rows: int = V, width: int = 4) -> fe.Embedding:
    return fe.Embedding(rows, width, init="normal:0.7")


# --- sequences ----------------------------------------------------------------------------------------


def _gru() -> tuple[Any, fe.Spec]:
    embed, cell, head = _init(), fe.GRU(5), fe.Linear(C)

    def model(x: Any) -> None:
        fe.classify(head(fe.fold(cell, fe.constant(5, 0.2), embed(x.tokens))), x.label)

    return model, fe.Record(tokens=fe.Sequence(fe.Int(V), most=6, least=0), label=fe.Int(C))


def _sequences(rng: Rng, *lengths: int) -> list[Any]:
    return [{"tokens": _tokens(rng, n), "label": _label(rng)} for n in lengths]


def _tagger() -> tuple[Any, fe.Spec]:
    """Both directions, a loss for each word, and for the whole sentence from the last state."""
    embed, ahead, back, head, whole = _init(), fe.LSTM(3), fe.LSTM(3), fe.Linear(C), fe.Linear(C)

    def model(x: Any) -> None:
        e = embed(x.words.word)
        _, left = fe.scan(ahead.step, fe.constant(6), e)
        last, right = fe.scan(back.step, fe.constant(6), e, reverse=True)
        fe.classify(head(fe.group(fe.concat(left, right), x.words)), x.words.tag, name="tags")
        fe.classify(whole(back.h(last)), x.label, name="loss")

    words = fe.Sequence(fe.Record(word=fe.Int(V), tag=fe.Int(C)), most=6)
    return model, fe.Record(words=words, label=fe.Int(C))


def _sentences(rng: Rng) -> list[Any]:
    return [
        {"words": {"word": _tokens(rng, n), "tag": [_label(rng) for _ in range(n)]}, "label": _label(rng)}
        for n in (1, 2, 5)
    ]


def _letters() -> tuple[Any, fe.Spec]:
    """Letters make words, words make a sentence; a known word has an embedding instead."""
    embed, letter, spell, read, head = _init(), _init(5, 3), fe.RNN(4), fe.GRU(3), fe.Linear(C)

    def model(x: Any) -> None:
        words = x.words

        def spelled() -> Any:
            return fe.fold(spell, fe.constant(4), letter(words.letters))

        def known() -> Any:
            return embed(words.word)

        e = fe.cond(words.item.word == 0, spelled, known)
        fe.classify(head(fe.fold(read, fe.constant(3), e)), x.label)

    word = fe.Record(word=fe.Int(V), letters=fe.Sequence(fe.Int(5), most=4))
    return model, fe.Record(words=fe.Sequence(word, most=5), label=fe.Int(C))


def _spellings(rng: Rng) -> list[Any]:
    def word(known: bool) -> dict[str, Any]:
        letters = [int(c) for c in rng.integers(0, 5, rng.integers(1, 5))]
        return {"word": int(rng.integers(1, V)) if known else 0, "letters": letters}

    kinds = ([True], [False], [True, False, False], [False, True, True, False])
    return [{"words": [word(k) for k in ks], "label": _label(rng)} for ks in kinds]


def _batch() -> tuple[Any, fe.Spec]:
    """Rows of equal length in one message."""
    time, rows = fe.Axis("length", 5), fe.Axis("batch", 4)
    embed, cell, head = _init(), fe.RNN(5, activation=fe.relu), fe.Linear(C)

    def model(x: Any) -> None:
        h = fe.fold(lambda h, token: cell(h, embed(token.item)), fe.constant(5, 0.1), x.tokens)
        fe.classify(head(h), x.label.item)

    return model, fe.Record(tokens=fe.Along(time, fe.Along(rows, fe.Int(V))), label=fe.Along(rows, fe.Int(C)))


def _batches(rng: Rng) -> list[Any]:
    sizes = ((1, 1), (1, 3), (4, 2), (5, 4))
    return [{"tokens": rng.integers(0, V, (t, b)), "label": rng.integers(0, C, b)} for t, b in sizes]


def _translator() -> tuple[Any, fe.Spec]:
    """One embedding and one cell in an encoder and in a decoder that reads what was encoded at every step.
    A layer with dropout is used within a loop and outside of it."""
    embed, cell, head = _init(), fe.GRU(4), fe.Linear(V)
    drop = fe.Layer(lambda p, h: fe.dropout(h @ p.W, 0.4), lambda width: {"W": (width, 4)})

    def model(x: Any) -> None:
        memory = drop(fe.fold(cell, fe.constant(4), embed(x.source)))

        def step(h: Any, token: Any) -> Any:
            h = cell(h, token)
            return h, head(drop(h) + memory)

        _, logits = fe.scan(step, memory, embed(x.given))
        fe.classify(logits, x.wanted.item)

    out = fe.Axis("out", 4)
    parts = {"given": fe.Along(out, fe.Int(V)), "wanted": fe.Along(out, fe.Int(V))}
    return model, fe.Record(source=fe.Sequence(fe.Int(V), most=5), **parts)


def _translations(rng: Rng) -> list[Any]:
    return [
        {"source": _tokens(rng, a), "given": _tokens(rng, b), "wanted": _tokens(rng, b)}
        for a, b in ((1, 1), (3, 1), (1, 4), (5, 3))
    ]


# --- what the network decides ---------------------------------------------------------------------------


def _experts() -> tuple[Any, fe.Spec]:
    first, gate, experts = fe.Linear(5), fe.Linear(3), [fe.Linear(C) for _ in range(3)]

    def model(x: Any) -> None:
        h = fe.tanh(first(x.x.item))
        p = fe.softmax(gate(h))
        fe.classify(fe.switch(p, experts, h) * fe.largest(p), x.label.item)

    rows = fe.Axis("batch", 6, least=0)
    return model, fe.Record(x=fe.Along(rows, fe.Floats(4)), label=fe.Along(rows, fe.Int(C)))


def _points(rng: Rng) -> list[Any]:
    return [{"x": rng.normal(size=(n, 4)), "label": rng.integers(0, C, n)} for n in (0, 1, 4, 6, 6, 6)]


def _ponder() -> tuple[Any, fe.Spec]:
    """Adaptive computation time (Graves 2016), for each word of a sequence."""
    embed, cell, halt, head = _init(), fe.GRU(4), fe.Linear(1), fe.Linear(C)

    def think(h: Any, word: Any) -> Any:
        def go_on(carry: Any) -> Any:
            return 0.9 - carry[2]

        def turn(carry: Any) -> Any:
            s, answer, spent = carry
            s = cell(s, word)
            p = fe.sigmoid(halt(s))
            p = p + fe.relu(spent + p - 1.0) * -1.0
            return s, answer + s * p, spent + p

        _, answer, _ = fe.while_loop(go_on, turn, (h, fe.constant(4), fe.constant(1)), most=3)
        return answer

    def model(x: Any) -> None:
        fe.classify(head(fe.fold(think, fe.constant(4), embed(x.tokens))), x.label)

    return model, fe.Record(tokens=fe.Sequence(fe.Int(V), most=5), label=fe.Int(C))


def _skip() -> tuple[Any, fe.Spec]:
    """A layer that is skipped where the network says so; inside it, one loop over the instance."""
    embed, ask, cell, head = _init(), fe.Linear(1), fe.RNN(4), fe.Linear(C)

    def model(x: Any) -> None:
        e = embed(x.tokens)
        h = fe.reduce(e, "mean")

        def read(h: Any) -> Any:
            return fe.fold(lambda s: cell(s, h), fe.constant(4), length=2) + h

        sure = ask(h)
        y = fe.cond(sure, read, lambda h: h * 0.5, h)
        fe.classify(head(y * fe.sigmoid(sure)), x.label)

    return model, fe.Record(tokens=fe.Sequence(fe.Int(V), most=5), label=fe.Int(C))


# --- images -------------------------------------------------------------------------------------------


def _convolution() -> tuple[Any, fe.Spec]:
    """Images as the rows of a message: padding, a stride, windows that overlap."""
    first = fe.Conv2d((7, 6, 2), 3, (3, 2), padding=1, activation=fe.tanh)
    pool = fe.MaxPool(first.out, 2)
    second = fe.Conv2d(pool.out, 4, 2, stride=2)
    top, head = fe.MaxPool(second.out, (1, 1), stride=1), fe.Linear(C)

    def model(x: Any) -> None:
        fe.classify(head(fe.tanh(top(second(pool(first(x.image.item)))))), x.label.item)

    rows = fe.Axis("batch", 40, least=0)
    return model, fe.Record(image=fe.Along(rows, fe.Floats(84)), label=fe.Along(rows, fe.Int(C)))


def _images(rng: Rng) -> list[Any]:
    return [{"image": rng.normal(size=(n, 84)), "label": rng.integers(0, C, n)} for n in (0, 1, 3, 5)]


def _film() -> tuple[Any, fe.Spec]:
    """One convolution for the frames of a film and for a picture with more rows than one."""
    look = fe.Conv2d((4, 4, 1), 2, 3, padding=1)
    pool, read, head = fe.MaxPool(look.out, 3, stride=1), fe.GRU(4), fe.Linear(C)

    def model(x: Any) -> None:
        seen = fe.reduce(pool(look(x.pictures.item)), "mean")
        h = fe.fold(lambda h, frame: read(h, pool(look(frame))), fe.constant(4), x.frames)
        fe.classify(head(fe.concat(h, seen)), x.label)

    pictures = fe.Along(fe.Axis("count", 4), fe.Floats(16))
    return model, fe.Record(frames=fe.Sequence(fe.Floats(16), most=4), pictures=pictures, label=fe.Int(C))


def _films(rng: Rng) -> list[Any]:
    return [
        {"frames": rng.normal(size=(n, 16)), "pictures": rng.normal(size=(k, 16)), "label": _label(rng)}
        for n, k in ((1, 1), (2, 4), (4, 2))
    ]


# --- trees and graphs -----------------------------------------------------------------------------------


def _tree() -> tuple[Any, fe.Spec]:
    embed, head = _init(), fe.Linear(C)
    leaf, branch = fe.TreeLSTMLeaf(3, dropout=0.3), fe.TreeLSTMBranch(3, dropout=0.3)

    def model(x: Any) -> None:
        _, h = fe.fold_tree(leaf(embed(x.tree.word)), branch, x.tree)
        fe.classify(head(fe.group(h)), x.tree.label)

    return model, fe.Record(tree=fe.Tree({"word": fe.Int(V)}, {"label": fe.Int(C)}, most=8))


def _trees(rng: Rng) -> list[Any]:
    def grow(n: int) -> Any:
        label = _label(rng)
        if n == 1:
            return {"word": int(rng.integers(V)), "label": label}
        left = int(rng.integers(1, n))
        return {"children": [grow(left), grow(n - left)], "label": label}

    return [{"tree": grow(n)} for n in (1, 2, 5, 8)]


def _any_tree() -> tuple[Any, fe.Spec]:
    """Child-sum Tree-LSTM (Tai et al. 2015, 3.1) without inputs at inner nodes; the root is classified."""
    embed, gates, forget, head = _init(V, 6), fe.Linear(9), fe.Linear(3), fe.Linear(C)

    def branch(children: Any) -> Any:
        h, c = children[:3], children[3:]
        i, o, u = fe.split(gates(fe.reduce(h)), 3)
        kept = fe.reduce(fe.sigmoid(forget(h)) * c)
        c = fe.sigmoid(i) * fe.tanh(u) + kept
        return fe.concat(fe.sigmoid(o) * fe.tanh(c), c)

    def model(x: Any) -> None:
        h = fe.fold_tree(embed(x.tree.word), branch, x.tree)
        fe.classify(head(fe.root(h, x.tree)[:3]), x.label)

    return model, fe.Record(tree=fe.Tree({"word": fe.Int(V)}, most=8, arity=0), label=fe.Int(C))


def _any_trees(rng: Rng) -> list[Any]:
    def grow(n: int, deep: int = 0) -> Any:
        if n == 1 and (deep > 1 or rng.random() < 0.5):
            return int(rng.integers(V))
        parts = int(rng.integers(1, min(n, 3) + 1))
        sizes = [n // parts + (i < n % parts) for i in range(parts)]
        return [grow(k, deep + 1) for k in sizes] if deep < 4 else [int(rng.integers(V)) for _ in range(n)]

    shapes = [3, [3], [[1], 2, [3, 4, 5]], grow(4), grow(7)]
    return [{"tree": t, "label": _label(rng)} for t in shapes]


def _network(form: str, how: str) -> Callable[[], tuple[Any, fe.Spec]]:
    def write() -> tuple[Any, fe.Spec]:
        embed, layers, cell, head = _init(), [fe.Linear(4) for _ in range(2)], fe.GRU(4), fe.Linear(C)

        def model(x: Any) -> None:
            h = fe.message_passing(embed(x.g.kind), x.g, layers, cell, steps=2, how=how, form=form)
            fe.classify(head(fe.reduce(h, over=x.g.nodes)), x.label)

        graph = fe.Graph({"kind": fe.Int(V)}, most_nodes=6, most_edges=14, types=2)
        return model, fe.Record(g=graph, label=fe.Int(C))

    return write


def _networks(rng: Rng) -> list[Any]:
    def network(n: int, edges: list[tuple[int, int]]) -> Any:
        kinds = {"kind": rng.integers(0, V, n), "type": rng.integers(0, 2, len(edges))}
        return {"g": {"edges": edges, **kinds}, "label": _label(rng)}

    some = [(int(a), int(b)) for a, b in rng.integers(0, 6, (9, 2))]
    return [
        network(1, []),
        network(1, [(0, 0), (0, 0)]),
        network(3, []),
        network(5, [(1, 1), (1, 2), (2, 3), (1, 3), (1, 3)]),
        network(6, some),
    ]


def _pointer() -> tuple[Any, fe.Spec]:
    """The answer is one of the nodes: a softmax over the rows of a message, some of it one value for all."""
    embed, layers, cell = _init(), [fe.Linear(4) for _ in range(2)], fe.GRU(4)
    score, ask = fe.Linear(1, bias=False), _init(3, 4)  # a bias cancels out

    def model(x: Any) -> None:
        h = fe.message_passing(embed(x.g.kind), x.g, layers, cell, steps=2, form="rows")
        logits = score(h * ask(x.question))
        high = fe.stop_gradient(fe.reduce(logits, "max", over=x.g.nodes))
        total = fe.reduce(fe.exp(logits - high), over=x.g.nodes)
        found = fe.pick(logits, x.answer, over=x.g.nodes)
        best = 1.0 - fe.above(high - logits)
        last = fe.reduce(best * fe.number(x.g.position), "max", over=x.g.nodes)
        fe.loss(high + fe.log(total) - found, prediction=last)

    graph = fe.Graph({"kind": fe.Int(V)}, most_nodes=6, most_edges=14, types=2)
    return model, fe.Record(g=graph, question=fe.Int(3), answer=fe.Int(6))


def _pointed(rng: Rng) -> list[Any]:
    return [
        {
            "g": value["g"],
            "question": int(rng.integers(3)),
            "answer": int(rng.integers(len(value["g"]["kind"]))),
        }
        for value in _networks(rng)
    ]


WRITTEN = (
    Written("fe-gru", _gru, lambda rng: _sequences(rng, 0, 1, 2, 5)),
    Written("fe-tagger", _tagger, _sentences),
    Written("fe-letters", _letters, _spellings),
    Written("fe-batch", _batch, _batches),
    Written("fe-translator", _translator, _translations),
    Written("fe-experts", _experts, _points),
    Written("fe-ponder", _ponder, lambda rng: _sequences(rng, 1, 2, 4)),
    Written("fe-skip", _skip, lambda rng: _sequences(rng, 1, 2, 4, 5, 5, 3)),
    Written("fe-convolution", _convolution, _images),
    Written("fe-film", _film, _films),
    Written("fe-tree", _tree, _trees),
    Written("fe-any-tree", _any_tree, _any_trees),
    Written("fe-network", _network("messages", "sum"), _networks),
    Written("fe-network-rows", _network("rows", "sum"), _networks),
    Written("fe-network-mean", _network("messages", "mean"), _networks),
    Written("fe-network-max", _network("messages", "max"), _networks),
    Written("fe-pointer", _pointer, _pointed),
)
