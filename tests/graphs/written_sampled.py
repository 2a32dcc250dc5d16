"""A sampled softmax: rows of a table that the instance names, in a space of the program's own."""

from __future__ import annotations

from typing import Any

import numpy as np

from amphw import frontend as fe
from amphw.models.sampled_softmax import SampledSoftmax, candidates_spec
from tests.graphs.written import Written

V = 7


def _sampled() -> tuple[Any, fe.Spec]:
    embed, cell, output = fe.Embedding(V, 4, init="normal:0.7"), fe.LSTM(3), SampledSoftmax(V)

    def model(x: Any) -> None:
        last, h = fe.scan(cell.step, fe.constant(6), embed(x.words.word))
        for name, state, word in (("loss", h, x.words.next), ("again", cell.h(last), x.first)):
            value, right, best = output(state, word, x.candidates)
            fe.loss(value, name=name, accuracy=right, prediction=best)

    words = fe.Sequence(fe.Record(word=fe.Int(V), next=fe.Int(V)), most=5)
    return model, fe.Record(words=words, first=fe.Int(V), candidates=candidates_spec(V))


def _sentences(rng: np.random.Generator) -> list[Any]:
    def one(length: int, candidates: Any, drawn: int) -> dict[str, Any]:
        words = rng.integers(0, V, length + 1)
        return {
            "words": {"word": words[:-1], "next": words[1:]},
            "first": words[0],
            "candidates": {"words": candidates, "drawn": drawn},
        }

    return [
        one(1, [3], 1),
        one(2, [0, 0, 0, 0, 0], 1),
        one(3, np.arange(V), 0),
        *(one(int(n), rng.integers(0, V, rng.integers(1, V + 1)), 1) for n in rng.integers(1, 6, 4)),
    ]


WRITTEN_SAMPLED = (Written("fe-sampled", _sampled, _sentences),)
