"""A softmax over a large vocabulary of which training sees a few words: sampled softmax.

Source: Jean et al. (ACL 2015), arXiv 1412.2007; the correction is TensorFlow's `sampled_softmax_loss`. An
instance brings its candidates, words that are drawn by frequency (`amphw.data.zipf`), and all of its
positions share them. The score of word k is h W_k + b_k, minus the logarithm of how often k is expected among
the candidates; the loss is the cross-entropy of the true word's score among the candidates' and its own. A
candidate that is the true word itself does not count. W and b are read by rows, so an update touches those of
the candidates and of the true words alone.

With every word of the vocabulary as a candidate, and without the correction, the same graph computes the full
softmax: that is how instances to validate on and to predict are made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from amphw import frontend as fe
from amphw.data.zipf import Words, Zipf
from amphw.ir import functions as f
from amphw.ir.device import Report
from amphw.ir.expr import ROW, substitute
from amphw.ir.instance import Instance
from amphw.ir.program import Params, Value
from amphw.models.base import Instances, ModelError, Remembered, limited

TABLE_RULE = {"optimizer": "adagrad", "lr": 0.1}
"""Recommended for tables. Adagrad leaves rows alone that have no gradient, and Adam would move all of them.
In recurrent layers its first steps are too long, because every weight moves by the rate."""

_NEVER = -1e4
"""Added to the score of a candidate that does not count: exp of it is 0."""
_SPACE = "candidates"


class SampledSoftmax(fe.Layer):
    """(h [width], true word, candidates) -> the loss, whether the true word is right, and the best word.

    h has a message for each position. candidates: what `candidates_spec` declares. W [vocabulary, width]
    starts at N(0, 1 / width), the biases b [vocabulary, 1] at 0. "Right" and "best" are about the candidates
    and the true word; they are what they are called where the candidates are the vocabulary.
    """

    def __init__(self, vocabulary: int, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self.vocabulary = vocabulary

    def __call__(self, *operands: Any) -> tuple[fe.Tensor, ...]:
        h, word, candidates = operands
        # Candidates are rows within the program and none of its messages'.
        listed = candidates.words
        self._count = listed.dim.extent
        each = fe.Integer(substitute(listed.item.expr, {listed.dim.name: ROW}))
        loss, right, prediction = super().__call__(h, word, each, candidates.drawn)
        return loss, right, prediction

    def shapes(self, *widths: int) -> dict[str, Any]:
        return {
            "W": fe.parameter((self.vocabulary, widths[0]), f"normal:{widths[0] ** -0.5:.6g}"),
            "b": fe.parameter((self.vocabulary, 1), "zeros"),
        }

    def function(self, p: Params, *operands: Any) -> list[Value]:
        h, word, each, drawn = operands
        h.builder.spaces[_SPACE] = self._count

        def scores(h: Value, k: Any, space: str) -> Value:
            # Word k is expected in proportion to 1 / (k + 1); what all words have in common cancels out.
            correction = f.log(f.number(h, k * drawn) + 1.0)
            return f.sum_cols(h * f.take(p.W, k, space)) + f.take(p.b, k, space) + correction

        true = scores(h, word, h.type.space)
        others = scores(f.spread_rows(h, _SPACE), each, _SPACE)
        others = others + f.same(h.builder.integer(each, _SPACE), h.builder.integer(word, _SPACE)) * _NEVER
        most = f.max_rows(others)
        top = f.stop_gradient(f.maximum(true, most))
        total = f.exp(true - top) + f.sum_rows(f.exp(others - f.spread_rows(top, _SPACE)))
        right = _above(true - most)
        # Scores are compared with a copy of the largest of them, so equal means that it is the one.
        best = _above(others - f.spread_rows(most, _SPACE), -1e-6) * f.number(others, each)
        prediction = right * f.number(h, word) + (right * -1.0 + 1.0) * f.max_rows(best)
        return [f.log(total) + top - true, right, prediction]


def _above(x: Value, threshold: float = 0.0) -> Value:
    return x.builder.emit("to_float", [f.above(x, threshold)])


def candidates_spec(vocabulary: int) -> fe.Record:
    """The candidates of an instance: words, and 1 where they were drawn, 0 where they are the vocabulary."""
    return fe.Record(words=fe.Sequence(fe.Int(vocabulary), vocabulary), drawn=fe.Int(2))


NO_CANDIDATES = {"words": np.zeros(1, np.int32), "drawn": 0}
"""What an instance is encoded with before it gets candidates."""


def with_candidates(instance: Instance, words: Words, drawn: bool) -> Instance:
    """The instance with these candidates; of a specification that calls them `candidates`."""
    attrs = instance.attrs | {"candidates_words_length": len(words)}
    given = {"candidates_words": words, "candidates_drawn": np.array([drawn], np.int32)}
    return replace(instance, attrs=attrs, tables=instance.tables | given)


def with_everything(instance: Instance, vocabulary: int) -> Instance:
    """The instance with the vocabulary as candidates, which makes it the full softmax."""
    return with_candidates(instance, np.arange(vocabulary, dtype=np.int32), False)


class Sampled:
    """Instances that are encoded once, and have other candidates in every epoch.

    The candidates of an instance are a function of the seed, the epoch and the instance's number.
    """

    def __init__(self, encoded: Remembered, vocabulary: int, samples: int) -> None:
        self._encoded, self._vocabulary, self._samples = encoded, vocabulary, samples

    def epoch(self, seed: int, epoch: int, limit: int = 0) -> Instances:
        """All of them, or the first `limit`, in an order that is a function of (seed, epoch)."""
        order = np.random.default_rng([seed, epoch]).permutation(limited(len(self._encoded), limit))
        proposal = Zipf(self._vocabulary)

        def build(i: int) -> Instance:
            number = int(order[i])
            words = proposal.draw(self._samples, np.random.default_rng([seed, epoch, number]))
            return with_candidates(self._encoded[number], words, True)

        return Instances(len(order), build)

    def in_order(self, limit: int = 0) -> Instances:
        """All of them, or the first `limit`, with the vocabulary as candidates."""
        count = limited(len(self._encoded), limit)
        return Instances(count, lambda i: with_everything(self._encoded[i], self._vocabulary))


def numbered_words(text: str, vocabulary: int, least: int, most: int) -> Words:
    """The words of a line; ModelError where it is no sentence."""
    try:
        words = [int(each) for each in text.split()]
    except ValueError:
        words = []
    if not least <= len(words) <= most or not all(0 <= word < vocabulary for word in words):
        raise ModelError(
            f"'{text.strip()}' is no sentence of {least} to {most} words; expected their numbers, "
            f"0 to {vocabulary - 1}, such as '{' '.join(str(k) for k in range(least))}'"
        )
    return np.array(words, np.int32)


def told(report: Report, node: str, true: np.ndarray) -> dict[str, Any]:
    """What a loss node says of an instance whose true words are `true`."""
    outputs = report.outputs[node]
    return {
        "prediction": outputs["prediction"][:, 0].astype(int).tolist(),
        "label": np.asarray(true).tolist(),
        "log_probability": [round(-float(x), 4) for x in outputs["loss"][:, 0]],
    }
