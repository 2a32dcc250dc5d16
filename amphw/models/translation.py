"""Translation: an encoder reads a sentence, and a decoder writes it in another language, word by word.

Sequence to sequence (Sutskever et al., NeurIPS 2014) on generated sentences (`amphw.data.zipf`). The
translation of a sentence has its words in the opposite order, each replaced by that of a dictionary, which
the model has to learn. The decoder begins with the encoder's last state and reads the true word before
(teacher forcing). Three tables are sparse: the embeddings of both languages, and the output's, whose softmax
is sampled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from amphw import frontend as fe
from amphw.data.zipf import Language, Words, dictionary
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

LEAST, MOST = 2, 6  # words of a sentence
_VALID = 500  # sentences to validate on; `train.valid_instances` says how many of them


@dataclass(frozen=True)
class TranslationConfig:
    """Section [model] of the translation."""

    vocabulary: int = knob(10_000, "words of each language, numbered by frequency")
    embedding: int = knob(64, "width of a word's embedding, in either language")
    hidden: int = knob(128, "width of the encoder's and the decoder's LSTM, and of the output's table")
    samples: int = knob(64, "candidates of a sentence in training")
    sentences: int = knob(40_000, "generated sentences to train on")

    def __post_init__(self) -> None:
        at_least(2, vocabulary=self.vocabulary)
        names = ("embedding", "hidden", "samples", "sentences")
        at_least(1, **{name: getattr(self, name) for name in names})


class Translation(Model[TranslationConfig]):
    """The translation; throughput counts sentences, loss and accuracy are means over words."""

    name = "translation"
    summary = "an encoder and a decoder that translate generated sentences, with three sparse tables"
    config = TranslationConfig
    # Intervals are gradient rows, which are words.
    defaults = {
        "train": {"epochs": 4, "max_active_keys": 16, "target": 0.6, "valid_instances": 200},
        "update": {
            "optimizer": "adam",
            "lr": 0.002,
            "min_update_interval": 200,
            "nodes": dict.fromkeys(("source", "target", "output"), TABLE_RULE),
        },
    }
    counted = "sentences"

    def graph(self, cfg: TranslationConfig) -> Graph:
        return compiled(cfg).graph

    def prepare(self, cfg: TranslationConfig, seed: int) -> None:
        for part in (0, 1):
            _encoded(cfg, seed, part)

    def training(self, cfg: TranslationConfig, seed: int, epoch: int, limit: int = 0) -> Instances:
        """The sentences, shuffled and with other candidates in every epoch."""
        return _encoded(cfg, seed, 0).epoch(seed, epoch, limit)

    def validation(self, cfg: TranslationConfig, seed: int, limit: int = 0) -> Instances:
        """500 other sentences, of which loss and accuracy are over the whole vocabulary."""
        return _encoded(cfg, seed, 1).in_order(limit)

    def parse(self, cfg: TranslationConfig, text: str) -> Instance:
        """A sentence of the first language: 1 to 6 numbers of words."""
        sentence = numbered_words(text, cfg.vocabulary, 1, MOST)
        return with_everything(_instance(cfg, sentence), cfg.vocabulary)

    def explain(self, cfg: TranslationConfig, instance: Instance, report: Report) -> dict[str, Any]:
        """Each word of the translation as the model has it behind the right ones, and the right one."""
        return told(report, self.loss_node, instance.tables["target_word"])


@lru_cache(maxsize=8)
def compiled(cfg: TranslationConfig) -> fe.Compiled:
    """The model of a configuration."""
    # The table of the second language has a row more, for what stands before the first word.
    source = fe.Embedding(cfg.vocabulary, cfg.embedding, init="normal:0.1", name="source")
    target = fe.Embedding(cfg.vocabulary + 1, cfg.embedding, init="normal:0.1", name="target")
    encoder, decoder = fe.LSTM(cfg.hidden, name="encoder"), fe.LSTM(cfg.hidden, name="decoder")
    output = SampledSoftmax(cfg.vocabulary, name="output")

    def model(x: Any) -> None:
        read = fe.fold(encoder, fe.constant(2 * cfg.hidden), source(x.source))
        h = fe.scan(decoder.step, read, target(x.target.before))[1]
        loss, right, prediction = output(h, x.target.word, x.candidates)
        fe.loss(loss, accuracy=right, prediction=prediction)

    word = fe.Record(before=fe.Int(cfg.vocabulary + 1), word=fe.Int(cfg.vocabulary))
    spec = fe.Record(
        source=fe.Sequence(fe.Int(cfg.vocabulary), MOST),
        target=fe.Sequence(word, MOST),
        candidates=candidates_spec(cfg.vocabulary),
    )
    return fe.compile(model, spec, Translation.name)


def translated(vocabulary: int, sentence: Words) -> Words:
    """The translation of a sentence."""
    return _dictionary(vocabulary)[sentence[::-1]]


def _instance(cfg: TranslationConfig, sentence: Words) -> Instance:
    target = translated(cfg.vocabulary, sentence)
    before = np.concatenate([[cfg.vocabulary], target[:-1]])
    plain = {
        "source": sentence,
        "target": {"before": before, "word": target},
        "candidates": NO_CANDIDATES,
    }
    return compiled(cfg).encode(plain)


@lru_cache(maxsize=2)
def _dictionary(vocabulary: int) -> Words:
    return dictionary(vocabulary)


@lru_cache(maxsize=4)
def _encoded(cfg: TranslationConfig, seed: int, part: int) -> Sampled:
    """The sentences to train on (part 0) or to validate on (part 1)."""
    count = _VALID if part else cfg.sentences
    sentences = Language(cfg.vocabulary).sentences(count, LEAST, MOST, [seed, part])
    return Sampled(Remembered(count, lambda i: _instance(cfg, sentences[i])), cfg.vocabulary, cfg.samples)
