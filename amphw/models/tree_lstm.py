"""A binary Tree-LSTM on the Stanford Sentiment Treebank (AMPNet, arXiv 1705.09786, section 6).

The cells are those of Tai et al. (ACL 2015, section 3.2). What goes up the tree is h and c side by side, what
is classified is h alone, at every node. The tree is the instance's: one graph serves single words, chains and
balanced trees.

The words of a sentence are embedded, and go through the leaf cell, as the rows of one message; from there on
each node of the tree has a message of its own, until the classifier gets them together again. So a CPU, which
pays for messages and not for rows, pays once a tree for all but the branch cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from amphw import frontend as fe
from amphw.data.sst import CLASSES, NAMES, Tree, load_sst, parse_tree, sample_sst, vocabulary
from amphw.data.vectors import load_vectors
from amphw.ir.device import Report
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.start import Values
from amphw.models.base import Instances, Model, ModelError, Remembered, at_least, knob, rate
from amphw.models.classify import Unlabelled

_DEVIATION = 0.05  # of embeddings that start at random
_SAMPLES = (2000, 500)  # generated trees to train and to validate on


@dataclass(frozen=True)
class TreeLSTMConfig:
    """Section [model] of the Tree-LSTM."""

    hidden: int = knob(150, "width of h and of c")
    embedding: int = knob(
        300, "width of a word's embedding, which is trained; that of the file `glove`, if there is one"
    )
    vocabulary: int = knob(8736, "rows of the embedding: the most frequent words, and one row for all others")
    words: int = knob(
        56,
        "words of a sentence at most, for all of which a circuit has room; the treebank's longest has 56",
    )
    dropout: float = knob(0.0, "share of each embedding, and of each h before its classification, left out")
    recurrent_dropout: float = knob(0.0, "share of what a cell takes into its state left out")
    glove: str = knob(
        "", "file of word vectors that embeddings start at, such as GloVe's glove.840B.300d.txt"
    )
    sample: bool = knob(False, "use generated trees, which need no download, instead of the treebank")

    def __post_init__(self) -> None:
        at_least(
            1, hidden=self.hidden, embedding=self.embedding, vocabulary=self.vocabulary, words=self.words
        )
        rate(dropout=self.dropout, recurrent_dropout=self.recurrent_dropout)


class TreeLSTM(Model[TreeLSTMConfig]):
    """The Tree-LSTM; throughput counts trees, loss and accuracy are means over their nodes."""

    name = "tree-lstm"
    summary = "a binary Tree-LSTM on the sentiment of every phrase of a parse tree"
    config = TreeLSTMConfig
    # Intervals are gradient rows, those of the paper: words at the embedding, nodes of the tree elsewhere.
    defaults = {
        "train": {"epochs": 10, "max_active_keys": 16, "target": 0.82},
        "update": {
            "optimizer": "adagrad",
            "lr": 0.03,
            "min_update_interval": 50,
            "nodes": {"embed": {"min_update_interval": 1000, "lr": 0.05}},
        },
    }
    momentum = {
        "update": {
            "optimizer": "momentum",
            "lr": 0.1,
            "nodes": {"embed": {"min_update_interval": 1000, "lr": 0.5}},
        }
    }
    counted = "trees"

    def notes(self, cfg: TreeLSTMConfig) -> list[str]:
        if not cfg.glove:
            return ["embeddings start at random; glove=FILE lets them start at word vectors"]
        found = len(_vectors(cfg))
        return [f"{found} of {cfg.vocabulary} embeddings start at {cfg.glove}, the others at random"]

    def initial(self, cfg: TreeLSTMConfig) -> Values:
        """The embedding, where there is a file of word vectors; words that it lacks start at random."""
        if not cfg.glove:
            return {}
        known = _vocabulary(cfg.vocabulary, cfg.sample)
        start = np.random.default_rng(0).normal(0, _DEVIATION, (cfg.vocabulary, cfg.embedding))
        for word, vector in _vectors(cfg).items():
            start[known[word]] = vector
        return {"embed": {"E": start.astype(np.float32)}}

    def graph(self, cfg: TreeLSTMConfig) -> Graph:
        """Nodes are numbered as in `amphw.data.sst.Tree`."""
        return _compiled(cfg).graph

    def prepare(self, cfg: TreeLSTMConfig, seed: int) -> None:
        for part in (0, 1):
            _load(part, cfg.sample, seed)
        _vocabulary(cfg.vocabulary, cfg.sample)

    def training(self, cfg: TreeLSTMConfig, seed: int, epoch: int, limit: int = 0) -> Instances:
        """8,544 trees (2,000 generated ones), shuffled in every epoch."""
        return _encoded(0, cfg, seed).epoch(seed, epoch, limit)

    def validation(self, cfg: TreeLSTMConfig, seed: int, limit: int = 0) -> Instances:
        """The 1,101 trees of the development set (500 generated ones)."""
        return _encoded(1, cfg, seed).in_order(limit)

    def parse(self, cfg: TreeLSTMConfig, text: str) -> Instance:
        """A tree in brackets, such as `(3 (2 a) (3 (3 good) (2 film)))`; `?` is a label not known."""
        try:
            tree = parse_tree(text)
        except ValueError as error:
            raise ModelError(f"{error}; {_EXPECTED}") from None
        if len(tree.words) > cfg.words:
            raise ModelError(f"the tree has {len(tree.words)} words, allowed are {cfg.words} (words=)")
        return _instance(tree, cfg)

    def explain(self, cfg: TreeLSTMConfig, instance: Instance, report: Report) -> dict[str, Any]:
        """The sentiment of the whole tree, 0 to 4 and in words; of all its nodes; and the root's true one."""
        outputs = report.outputs[self.loss_node]
        found = [int(label) for label in outputs["prediction"][:, 0]]
        told: dict[str, Any] = {"prediction": found[-1], "sentiment": NAMES[found[-1]], "nodes": found}
        if not isinstance(instance, Unlabelled):
            told["label"] = int(instance.tables["label"][-1])
            told["probability_of_label"] = float(np.exp(-float(outputs["loss"][-1, 0])))
        return told


_EXPECTED = (
    "expected a binary tree in brackets, such as '(3 (2 a) (3 (3 good) (2 film)))', with ? for no label"
)


@lru_cache(maxsize=4)
def _compiled(cfg: TreeLSTMConfig) -> fe.Compiled:
    embed = fe.Embedding(cfg.vocabulary, cfg.embedding, init=f"normal:{_DEVIATION}")
    leaf = fe.TreeLSTMLeaf(cfg.hidden, dropout=cfg.recurrent_dropout)
    branch = fe.TreeLSTMBranch(cfg.hidden, dropout=cfg.recurrent_dropout)
    head = fe.Linear(CLASSES)

    def tree_lstm(x: Any) -> None:
        words = fe.dropout(embed(x.word), cfg.dropout)
        _, h = fe.fold_tree(leaf(words), branch, x)
        fe.classify(head(fe.dropout(fe.group(h), cfg.dropout)), x.label)

    parts = {"word": fe.Int(cfg.vocabulary)}, {"label": fe.Int(CLASSES)}
    return fe.compile(tree_lstm, fe.Tree(*parts, most=cfg.words), TreeLSTM.name)


@lru_cache(maxsize=4)
def _load(part: int, sample: bool, seed: int) -> list[Tree]:
    """The training set (part 0) or the validation set (1); generated ones differ by seed and split."""
    if sample:
        return sample_sst(_SAMPLES[part], 2 * seed + part)
    return load_sst("dev" if part else "train")


@lru_cache(maxsize=4)
def _vocabulary(size: int, sample: bool) -> dict[str, int]:
    """Word -> row of the embedding; words of the training set only.

    Of generated trees, those of seed 0: a prediction reads words as training did, whatever its seed.
    """
    return vocabulary(_load(0, sample, 0), size)


@lru_cache(maxsize=4)
def _vectors(cfg: TreeLSTMConfig) -> dict[str, np.ndarray]:
    """The vectors of those words that the file has."""
    return load_vectors(cfg.glove, _vocabulary(cfg.vocabulary, cfg.sample), cfg.embedding)


@lru_cache(maxsize=4)
def _encoded(part: int, cfg: TreeLSTMConfig, seed: int) -> Remembered:
    trees = _load(part, cfg.sample, seed)
    return Remembered(len(trees), lambda i: _instance(trees[i], cfg))


def _instance(tree: Tree, cfg: TreeLSTMConfig) -> Instance:
    known = _vocabulary(cfg.vocabulary, cfg.sample)
    plain = {
        "children": tree.children,
        "word": [known.get(word, 0) for word in tree.words],
        "label": np.maximum(tree.labels, 0),
    }
    found = _compiled(cfg).encode(plain)
    return Unlabelled(found.attrs, found.tables) if tree.labels.min() < 0 else found
