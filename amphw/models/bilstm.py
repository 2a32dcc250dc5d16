"""A bidirectional LSTM that tags the words of a sentence (Lample et al., NAACL 2016, without the CRF).

A frequent word has an embedding. Every other one is spelled: two LSTMs read its letters, one from each end,
and their last states stand in place of an embedding. Two more read the words of the sentence, and a
perceptron says what each word is from their states before and behind it. Sizes are those of DyNet's benchmark
"bilstm-tagger-withchar" (Neubig et al. 2017).

Which words are spelled is known from the sentence, so there is a branch for them and nothing is computed that
is not used. The states of all words of a sentence go through the perceptron together, as rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from amphw import frontend as fe
from amphw.data.wikiner import TAGS, Sentence, alphabet, load_wikiner, sample_wikiner, vocabulary
from amphw.ir.device import Report
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.models.base import Instances, Model, ModelError, Remembered, at_least, knob, rate

MAX_WORDS = 256  # the longest sentence has 144
MAX_LETTERS = 64  # with both ends of the word; of a longer word the first are read
LETTERS = 256  # letters with an embedding, of 261 in the training set; others share one
_UNKNOWN, _EDGE, _FIRST = 0, 1, 2  # letters: one without an embedding, a word's ends, the most frequent one
_SAMPLES = (3000, 500)  # generated sentences to train and to validate on
_HELD_OUT, _SPLIT_SEED = 1000, 0  # sentences of the training set to validate on


@dataclass(frozen=True)
class BiLSTMConfig:
    """Section [model] of the tagger."""

    embedding: int = knob(128, "width of a word's embedding; it starts at random and is trained")
    letter: int = knob(20, "width of a letter's embedding")
    spelling: int = knob(64, "width of each of the two LSTMs over letters")
    hidden: int = knob(50, "width of each of the two LSTMs over words")
    perceptron: int = knob(32, "width of the layer between those and the tags")
    vocabulary: int = knob(4652, "rows of the embedding; words beyond it are spelled")
    frequent: int = knob(5, "a word is spelled unless the training set has it more often than this")
    dropout: float = knob(0.0, "share left out of what stands for a word, and of what the perceptron reads")
    validation: Literal["wikigold", "wikiner"] = knob(
        "wikigold", "what to validate on: sentences tagged by hand, or 1,000 of those to train on, held out"
    )
    sample: bool = knob(False, "use generated sentences, which need no download, instead of WikiNER")

    def __post_init__(self) -> None:
        widths = {k: getattr(self, k) for k in ("embedding", "letter", "spelling", "hidden", "perceptron")}
        at_least(1, **widths, vocabulary=self.vocabulary)
        at_least(0, frequent=self.frequent)
        if self.embedding != 2 * self.spelling:
            raise ValueError(
                f"embedding is {self.embedding} and spelling is {self.spelling}: two LSTMs over letters "
                "stand in place of an embedding, so it has to be twice as wide as one."
            )
        rate(dropout=self.dropout)


class BiLSTM(Model[BiLSTMConfig]):
    """The tagger; throughput counts sentences, loss and accuracy are means over their words."""

    name = "bilstm"
    summary = "a bidirectional LSTM that finds names in sentences, and spells words that it has seldom seen"
    config = BiLSTMConfig
    # Intervals are gradient rows: words, or letters where words are spelled; 200 words are eight sentences.
    defaults = {
        "train": {"epochs": 5, "max_active_keys": 16, "target": 0.94},
        "update": {"optimizer": "adam", "lr": 0.002, "min_update_interval": 200},
    }
    counted = "sentences"

    def notes(self, cfg: BiLSTMConfig) -> list[str]:
        subset = "10,000 of WikiNER's 142,000 sentences; on WikiGold they do not lead to 94 %"
        return [] if cfg.sample or cfg.validation == "wikiner" else [subset]

    def graph(self, cfg: BiLSTMConfig) -> Graph:
        return compiled(cfg).graph

    def prepare(self, cfg: BiLSTMConfig, seed: int) -> None:
        for part in (0, 1):
            _encoded(cfg, part, seed if cfg.sample else 0)

    def training(self, cfg: BiLSTMConfig, seed: int, epoch: int, limit: int = 0) -> Instances:
        """10,000 sentences, or 9,000 (or 3,000 generated ones), shuffled in every epoch."""
        return _encoded(cfg, 0, seed if cfg.sample else 0).epoch(seed, epoch, limit)

    def validation(self, cfg: BiLSTMConfig, seed: int, limit: int = 0) -> Instances:
        """1,696 sentences of WikiGold, or 1,000 of WikiNER (or 500 generated ones)."""
        return _encoded(cfg, 1, seed if cfg.sample else 0).in_order(limit)

    def parse(self, cfg: BiLSTMConfig, text: str) -> Instance:
        """A sentence; its words and punctuation marks have spaces between them."""
        words = tuple(text.split())
        if not 1 <= len(words) <= MAX_WORDS:
            raise ModelError(f"the line has {len(words)} words, expected a sentence of 1 to {MAX_WORDS}")
        plain = _reader(cfg)(Sentence(words, (TAGS[0],) * len(words)))
        instance = compiled(cfg).encode(plain)
        return _Text(instance.attrs, instance.tables, instance.data, words=words)

    def explain(self, cfg: BiLSTMConfig, instance: Instance, report: Report) -> dict[str, Any]:
        """The tag of every word; of a text also its names, and of another sentence its true tags."""
        found = [TAGS[int(k)] for k in report.outputs[self.loss_node]["prediction"][:, 0]]
        if isinstance(instance, _Text):
            tagged = zip(instance.words, found, strict=True)
            return {"prediction": " ".join(f"{word}|{tag}" for word, tag in tagged), "tags": found}
        return {"prediction": found, "label": [TAGS[k] for k in instance.tables["words_tag"]]}


@dataclass
class _Text(Instance):
    """A sentence whose true tags nobody knows: its table `words_tag` holds zeros in their place."""

    words: tuple[str, ...] = ()


@lru_cache(maxsize=8)
def compiled(cfg: BiLSTMConfig) -> fe.Compiled:
    """The model of a configuration."""
    embed = fe.Embedding(cfg.vocabulary, cfg.embedding, init="normal:0.1", name="embed")
    letter = fe.Embedding(LETTERS, cfg.letter, init="normal:0.1", name="letter")
    spell = [fe.LSTM(cfg.spelling, name=f"spell_{way}") for way in ("ahead", "back")]
    read = [fe.LSTM(cfg.hidden, name=f"read_{way}") for way in ("ahead", "back")]
    hidden, head = fe.Linear(cfg.perceptron, name="hidden"), fe.Linear(len(TAGS), name="head")

    def model(x: Any) -> None:
        words = x.words

        def known() -> fe.Tensor:
            return embed(words.word)

        def spelled() -> fe.Tensor:
            letters, start = letter(words.letters), fe.constant(2 * cfg.spelling)
            ends = [fe.fold(cell, start, letters, reverse=k == 1) for k, cell in enumerate(spell)]
            return fe.concat(*(cell.h(end) for cell, end in zip(spell, ends, strict=True)))

        word = fe.dropout(fe.cond(words.word, known, spelled), cfg.dropout)
        start = fe.constant(2 * cfg.hidden)
        ways = [fe.scan(cell.step, start, word, reverse=k == 1)[1] for k, cell in enumerate(read)]
        both = fe.dropout(fe.group(fe.concat(*ways), words), cfg.dropout)
        fe.classify(head(fe.tanh(hidden(both))), words.tag)

    word = fe.Record(
        word=fe.Int(cfg.vocabulary), letters=fe.Sequence(fe.Int(LETTERS), MAX_LETTERS), tag=fe.Int(len(TAGS))
    )
    return fe.compile(model, fe.Record(words=fe.Sequence(word, MAX_WORDS)), BiLSTM.name)


@lru_cache(maxsize=4)
def _load(part: int, cfg: BiLSTMConfig, seed: int) -> list[Sentence]:
    """The training set (part 0) or the validation set (part 1); generated ones differ by seed and part."""
    if cfg.sample:
        return sample_wikiner(_SAMPLES[part], 2 * seed + part)
    if cfg.validation == "wikigold":
        return load_wikiner("dev" if part else "train")
    sentences = load_wikiner("train")
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(sentences))
    return [sentences[i] for i in (order[:_HELD_OUT] if part else order[_HELD_OUT:])]


class _Reader:
    """Sentences as the model's specification wants them, by the words and letters of a training set."""

    def __init__(self, cfg: BiLSTMConfig, training: list[Sentence]) -> None:
        self.words = vocabulary(training, cfg.vocabulary, cfg.frequent)
        self.letters = alphabet(training, LETTERS, _FIRST)
        self.tags = {tag: k for k, tag in enumerate(TAGS)}

    def __call__(self, sentence: Sentence) -> dict[str, Any]:
        known = [self.words.get(word, 0) for word in sentence.words]
        # The letters of a word that is not spelled are not read.
        letters = [[_EDGE] if k else self._spell(w) for w, k in zip(sentence.words, known, strict=True)]
        tags = [self.tags[tag] for tag in sentence.tags]
        return {"words": {"word": known, "letters": letters, "tag": tags}}

    def _spell(self, word: str) -> list[int]:
        letters = [self.letters.get(letter, _UNKNOWN) for letter in word[: MAX_LETTERS - 2]]
        return [_EDGE, *letters, _EDGE]


@lru_cache(maxsize=4)
def _reader(cfg: BiLSTMConfig) -> _Reader:
    # Whatever the seed, a word has the same number: a checkpoint does not know what it was trained with.
    return _Reader(cfg, _load(0, cfg, 0))


@lru_cache(maxsize=4)
def _encoded(cfg: BiLSTMConfig, part: int, seed: int) -> Remembered:
    sentences, read, encode = _load(part, cfg, seed), _reader(cfg), compiled(cfg).encode
    return Remembered(len(sentences), lambda i: encode(read(sentences[i]), i))
