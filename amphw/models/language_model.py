"""A language model over words: an embedding, a recurrent cell, and a softmax over a large vocabulary.

After every word of a sentence but the last, it says what comes next. With `softmax=sampled` the output's
table is read by rows, as the embedding is, so that an update touches few rows of either: both are *sparse*.
The sentences are generated (`amphw.data.zipf`), and the process behind them says how good a model can be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from amphw import frontend as fe
from amphw.data.zipf import Language, Words
from amphw.ir.device import Report
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.models.base import Instances, Model, Remembered, at_least, knob
from amphw.models.sampled_softmax import (
    NO_CANDIDATES,
    TABLE_RULE,
    Sampled,
    SampledSoftmax,
    candidates_spec,
    numbered_words,
    told,
    with_everything,
)

LEAST, MOST = 4, 20  # words of a sentence
_VALID = 500  # sentences to validate on; `train.valid_instances` says how many of them


@dataclass(frozen=True)
class LanguageModelConfig:
    """Section [model] of the language model."""

    vocabulary: int = knob(50_000, "words, numbered by frequency")
    embedding: int = knob(64, "width of a word's embedding")
    hidden: int = knob(64, "width of the recurrent state and of the output's table")
    cell: Literal["lstm", "gru"] = knob("lstm", "the recurrent cell")
    softmax: Literal["sampled", "full"] = knob(
        "sampled", "what training takes the loss over: candidates of each sentence, or the vocabulary"
    )
    samples: int = knob(64, "candidates of a sentence in training, of softmax=sampled")
    sentences: int = knob(40_000, "generated sentences to train on")

    def __post_init__(self) -> None:
        at_least(2, vocabulary=self.vocabulary)
        names = ("embedding", "hidden", "samples", "sentences")
        at_least(1, **{name: getattr(self, name) for name in names})


class LanguageModel(Model[LanguageModelConfig]):
    """The language model; throughput counts sentences, the loss is a mean over words, in nats."""

    name = "language-model"
    summary = "a recurrent language model over 50,000 words, with sparse tables and a sampled softmax"
    config = LanguageModelConfig
    # Intervals are gradient rows, which are words.
    defaults = {
        "train": {"epochs": 4, "max_active_keys": 16, "target": 5.6, "valid_instances": 50},
        "update": {
            "optimizer": "adam",
            "lr": 0.002,
            "min_update_interval": 200,
            "nodes": dict.fromkeys(("embed", "output"), TABLE_RULE),
        },
    }
    metric = "loss"
    counted = "sentences"

    def notes(self, cfg: LanguageModelConfig) -> list[str]:
        language = Language(cfg.vocabulary)
        return [
            f"on these sentences a unigram model has a loss of {language.entropy:.2f}, and no model one "
            f"below {language.conditional:.2f}"
        ]

    def graph(self, cfg: LanguageModelConfig) -> Graph:
        return compiled(cfg).graph

    def prepare(self, cfg: LanguageModelConfig, seed: int) -> None:
        for part in (0, 1):
            _encoded(cfg, seed, part)

    def training(self, cfg: LanguageModelConfig, seed: int, epoch: int, limit: int = 0) -> Instances:
        """The sentences, shuffled and with other candidates in every epoch."""
        return _encoded(cfg, seed, 0).epoch(seed, epoch, limit)

    def validation(self, cfg: LanguageModelConfig, seed: int, limit: int = 0) -> Instances:
        """500 other sentences, of which the loss is over the whole vocabulary."""
        return _encoded(cfg, seed, 1).in_order(limit)

    def parse(self, cfg: LanguageModelConfig, text: str) -> Instance:
        """A sentence: 2 to 20 numbers of words."""
        instance = _instance(cfg, numbered_words(text, cfg.vocabulary, 2, MOST))
        return instance if cfg.softmax == "full" else with_everything(instance, cfg.vocabulary)

    def explain(self, cfg: LanguageModelConfig, instance: Instance, report: Report) -> dict[str, Any]:
        """Behind each word the likeliest next one, the true one, and the latter's log-probability."""
        return told(report, self.loss_node, instance.tables["words_next"])


def recurrent(kind: str, width: int, name: str) -> tuple[Any, Callable[..., Any], int]:
    """A recurrent layer: itself, a body for `scan` that yields its h, and the width of its state."""
    if kind == "lstm":
        lstm = fe.LSTM(width, name=name)
        return lstm, lstm.step, 2 * width
    gru = fe.GRU(width, name=name)

    def step(state: fe.Tensor, *x: Any) -> tuple[fe.Tensor, fe.Tensor]:
        h = gru(state, *x)
        return h, h

    return gru, step, width


@lru_cache(maxsize=8)
def compiled(cfg: LanguageModelConfig) -> fe.Compiled:
    """The model of a configuration."""
    embed = fe.Embedding(cfg.vocabulary, cfg.embedding, init="normal:0.1", name="embed")
    _, step, state = recurrent(cfg.cell, cfg.hidden, "cell")
    word = fe.Record(word=fe.Int(cfg.vocabulary), next=fe.Int(cfg.vocabulary))
    parts: dict[str, fe.Spec] = {"words": fe.Sequence(word, MOST - 1)}
    full, sampled = fe.Linear(cfg.vocabulary, name="output"), SampledSoftmax(cfg.vocabulary, name="output")
    if cfg.softmax == "sampled":
        parts["candidates"] = candidates_spec(cfg.vocabulary)

    def model(x: Any) -> None:
        h = fe.scan(step, fe.constant(state), embed(x.words.word))[1]
        if cfg.softmax == "full":
            fe.classify(full(fe.group(h, x.words)), x.words.next)
        else:
            loss, right, prediction = sampled(h, x.words.next, x.candidates)
            fe.loss(loss, accuracy=right, prediction=prediction)

    return fe.compile(model, fe.Record(**parts), LanguageModel.name)


def _instance(cfg: LanguageModelConfig, sentence: Words) -> Instance:
    plain: dict[str, Any] = {"words": {"word": sentence[:-1], "next": sentence[1:]}}
    if cfg.softmax == "sampled":
        plain["candidates"] = NO_CANDIDATES
    return compiled(cfg).encode(plain)


@lru_cache(maxsize=4)
def _encoded(cfg: LanguageModelConfig, seed: int, part: int) -> Remembered | Sampled:
    """The sentences to train on (part 0) or to validate on (part 1)."""
    count = _VALID if part else cfg.sentences
    sentences = Language(cfg.vocabulary).sentences(count, LEAST, MOST, [seed, part])
    found = Remembered(count, lambda i: _instance(cfg, sentences[i]))
    return found if cfg.softmax == "full" else Sampled(found, cfg.vocabulary, cfg.samples)
