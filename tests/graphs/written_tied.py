"""Parameters that several functions share: a tied table, and a layer that is called in three ways."""

from __future__ import annotations

from typing import Any

import numpy as np

from amphw import frontend as fe
from amphw.ir import functions as f
from tests.graphs.written import Written

V = 7


def _tied() -> tuple[Any, fe.Spec]:
    """A table that is read by rows at every word, and multiplied with behind every word and at the end."""
    embed, cell = fe.Embedding(V, 4, init="normal:0.7"), fe.GRU(4)

    def model(x: Any) -> None:
        _, h = fe.scan(cell.step, fe.constant(4), embed(x.words.word))
        fe.classify(embed.attend(h), x.words.next)
        fe.classify(embed.attend(fe.reduce(h) + embed(x.first)), x.first, name="again")

    words = fe.Sequence(fe.Record(word=fe.Int(V), next=fe.Int(V)), most=5)
    return model, fe.Record(words=words, first=fe.Int(V))


def _functions() -> tuple[Any, fe.Spec]:
    """Other operands and results for each function; rows of one message, and messages; a loop; a mask."""
    layer = fe.Layer(
        lambda p, x, i: fe.tanh(x @ p.W + p.b) * f.take(p.T, i),
        {"W": (5, 3), "T": fe.parameter((4, 3), "normal:0.7"), "b": fe.parameter((3,), "normal:0.3")},
        back=lambda p, h, x: [fe.dropout(h @ p.W.T, 0.3) + x, fe.softmax(h)],
        place=lambda p, i: f.take(p.T, i) @ p.W.T,
    )

    def model(x: Any) -> None:
        rows = layer(x.points.item, x.kind)
        again, share = layer.back(rows, x.points.item)
        fe.classify(again, x.kinds.item, name="rows")

        def step(carry: Any, word: Any) -> Any:
            return layer(layer.place(word) + x.whole, word) + carry

        h = fe.fold(step, fe.constant(3, 0.1), x.words)
        ends, parts = layer.back(h, fe.reduce(layer.place(x.words), "max"))
        fe.classify(fe.concat(ends, parts * fe.reduce(share)), x.kind, name="ends")

    along = fe.Axis("along", most=4)
    points, kinds = fe.Along(along, fe.Floats(5)), fe.Along(along, fe.Int(4))
    words = fe.Sequence(fe.Int(4), most=4)
    return model, fe.Record(points=points, kinds=kinds, words=words, whole=fe.Floats(5), kind=fe.Int(4))


def _points(rng: np.random.Generator) -> list[Any]:
    def one(points: int, words: int) -> dict[str, Any]:
        return {
            "points": rng.normal(size=(points, 5)),
            "kinds": rng.integers(0, 4, points),
            "words": rng.integers(0, 4, words),
            "whole": rng.normal(size=5),
            "kind": int(rng.integers(4)),
        }

    return [one(1, 1), one(4, 1), one(1, 4), *(one(*map(int, rng.integers(1, 5, 2))) for _ in range(4))]


def _ways() -> tuple[Any, fe.Spec]:
    """A table and a matrix, read in three ways at positions and at the end, as circuits do, too."""
    layer = fe.Layer(
        shapes={"E": fe.parameter((V, 4), "normal:0.7"), "W": (4, 4), "b": fe.parameter((4,), "zeros")},
        look=lambda p, i: f.take(p.E, i),
        turn=lambda p, h, x: fe.tanh(h @ p.W + x + p.b),
        both=lambda p, h, i: fe.relu(h @ p.W) * f.take(p.E, i),
    )
    head = fe.Linear(3)

    def model(x: Any) -> None:
        h = fe.fold(layer.turn, fe.constant(4), layer.look(x.words))
        fe.regress(head(layer.both(h, x.first) + layer.look(x.first)), x.target)

    words = fe.Sequence(fe.Int(V), most=4)
    return model, fe.Record(words=words, first=fe.Int(V), target=fe.Floats(3))


def _targets(rng: np.random.Generator) -> list[Any]:
    def one(length: int) -> dict[str, Any]:
        words = rng.integers(0, V, length)
        return {"words": words, "first": words[0], "target": rng.normal(size=3) * 0.5}

    return [one(1), one(2), *(one(int(n)) for n in rng.integers(1, 5, 3))]


def _autoencoder() -> tuple[Any, fe.Spec]:
    """A layer of one function that multiplies with a matrix as it is, and transposed."""
    layer = fe.Layer(
        lambda p, x: fe.tanh(x @ p.W + p.b) @ p.W.T, {"W": (6, 3), "b": fe.parameter((3,), "normal:0.3")}
    )

    def model(x: Any) -> None:
        fe.regress(layer(layer(x.point)) * 0.5, x.point)

    return model, fe.Record(point=fe.Floats(6))


def _single(rng: np.random.Generator) -> list[Any]:
    return [{"point": rng.normal(size=6) * 0.4} for _ in range(5)]


def _sequences(rng: np.random.Generator) -> list[Any]:
    def one(length: int) -> dict[str, Any]:
        words = rng.integers(0, V, length + 1)
        return {"words": {"word": words[:-1], "next": words[1:]}, "first": words[0]}

    return [one(1), one(2), one(5), *(one(int(n)) for n in rng.integers(1, 6, 4))]


WRITTEN_TIED = (
    Written("fe-tied", _tied, _sequences),
    Written("fe-ways", _ways, _targets),
    Written("fe-functions", _functions, _points),
    Written("fe-autoencoder", _autoencoder, _single),
)
