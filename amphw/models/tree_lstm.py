"""A binary Tree-LSTM on the Stanford Sentiment Treebank (AMPNet, arXiv 1705.09786, section 6).

    words - embed - leaf -- word_state (w) - state - root? - yes - top
                     |                         |       `- no - rise (n, side) - side? - left, right
                     |                         `------------- branch <-------------------------'
                     |                                          |
                     `- word_hidden (w) - hidden <--------------'
                                             `- head (all n) - loss

The cells are those of Tai et al. (ACL 2015, section 3.2). What goes up the tree is h and c side by side, what
is classified is h alone. `rise` replaces a node by its parent and remembers on which side of it the message
comes in; the way back is `child[parent, side]`. The tree is the instance's: one graph serves single words,
chains and balanced trees.

The words of a sentence are embedded, and go through the leaf cell, as the rows of one message; from there on
each node of the tree has a message of its own, until the classifier gets them together again. So a CPU, which
pays for messages and not for rows, pays once a tree for all but the branch cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from amphw.data.sst import CLASSES, NAMES, Tree, load_sst, parse_tree, sample_sst, vocabulary
from amphw.ir.behaviour import MEMBER, StateMap
from amphw.ir.device import Report
from amphw.ir.expr import ROW, Attr, Field, lift, table
from amphw.ir.functions import columns, concat, dropout, linear, sigmoid, split, take, tanh
from amphw.ir.graph import Graph
from amphw.ir.grouping import Group
from amphw.ir.instance import Axiom, Instance, Schema, TableType
from amphw.ir.nodes import PPT, Source
from amphw.ir.program import Params, ParamSpec, Program, Value, ValueType, trace
from amphw.ir.routing import Cond, Discard, Isu, Phi, Ungroup
from amphw.ir.state import state_field
from amphw.models.base import Instances, Model, ModelError, at_least, knob, limited
from amphw.models.classify import Unlabelled, classification_loss

MAX_WORDS = 128  # the treebank's longest sentence has 56
MAX_NODES = 2 * MAX_WORDS - 1
_SAMPLES = (2000, 500)  # generated trees to train and to validate on

words, nodes = Attr("words"), Attr("nodes")
n, w, side = Field("n"), Field("w"), Field("side")
parent, child, side_of = table("parent"), table("child"), table("side")
N = state_field("n", nodes, MAX_NODES)
W = state_field("w", words, MAX_WORDS)
SIDE = state_field("side", 2)


@dataclass(frozen=True)
class TreeLSTMConfig:
    """Section [model] of the Tree-LSTM."""

    hidden: int = knob(150, "width of h and of c")
    embedding: int = knob(300, "width of a word's embedding; it starts at random and is trained")
    vocabulary: int = knob(8736, "rows of the embedding: the most frequent words, and one row for all others")
    dropout: float = knob(0.0, "share of each embedding, and of each h before its classification, left out")
    sample: bool = knob(False, "use generated trees, which need no download, instead of the treebank")

    def __post_init__(self) -> None:
        at_least(1, hidden=self.hidden, embedding=self.embedding, vocabulary=self.vocabulary)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}, expected a number from 0 to below 1.")


class TreeLSTM(Model[TreeLSTMConfig]):
    """The Tree-LSTM; throughput counts trees, loss and accuracy are means over their nodes."""

    name = "tree-lstm"
    summary = "a binary Tree-LSTM on the sentiment of every phrase of a parse tree"
    config = TreeLSTMConfig
    # Intervals are gradient rows, those of the paper: words at the embedding, nodes of the tree elsewhere. At
    # the classifier, which a tree's nodes reach together, they are trees, and 2 of them have some 75 nodes.
    defaults = {
        "train": {"epochs": 10, "max_active_keys": 16},
        "update": {
            "optimizer": "adagrad",
            "lr": 0.03,
            "min_update_interval": 50,
            "nodes": {
                "embed": {"min_update_interval": 1000, "lr": 0.05},
                "head": {"min_update_interval": 2},
            },
        },
    }
    counted = "trees"

    def graph(self, cfg: TreeLSTMConfig) -> Graph:
        """Attributes words (w) and nodes (2w - 1); nodes are numbered as in `amphw.data.sst.Tree`.

        Tables word [w], label [2w - 1], parent and side [2w - 1] (any for the root), child [w - 1, 2].
        """
        g = Graph(self.name, _schema(cfg.vocabulary))
        g.add(Source("words", rows=words))
        g.add(PPT("embed", _embedding(cfg)))
        g.add(PPT("leaf", _leaf_cell(cfg.embedding, cfg.hidden)))
        with g.region("tree", "loop", "n", "w", "side"):
            _climb(g, cfg.hidden)
            together = StateMap(drop={"n": Field(MEMBER)})
            g.add(Group("head", together, member=n, count=nodes, program=_classifier(cfg)))
        g.add(classification_loss(CLASSES))
        g.connect("words", "embed", "leaf")
        g.connect("hidden", "head", "loss")
        return g

    def prepare(self, cfg: TreeLSTMConfig, seed: int) -> None:
        for part in (0, 1):
            _load(part, cfg.sample, seed)
        _vocabulary(cfg.vocabulary, cfg.sample)

    def training(self, cfg: TreeLSTMConfig, seed: int, epoch: int, limit: int = 0) -> Instances:
        """8,544 trees (2,000 generated ones), shuffled in every epoch."""
        trees = _load(0, cfg.sample, seed)
        order = np.random.default_rng([seed, epoch]).permutation(limited(len(trees), limit))
        known = _vocabulary(cfg.vocabulary, cfg.sample)
        return Instances(len(order), lambda i: _instance(trees[order[i]], known))

    def validation(self, cfg: TreeLSTMConfig, seed: int, limit: int = 0) -> Instances:
        """The 1,101 trees of the development set (500 generated ones)."""
        trees = _load(1, cfg.sample, seed)
        known = _vocabulary(cfg.vocabulary, cfg.sample)
        return Instances(limited(len(trees), limit), lambda i: _instance(trees[i], known))

    def parse(self, cfg: TreeLSTMConfig, text: str) -> Instance:
        """A tree in brackets, such as `(3 (2 a) (3 (3 good) (2 film)))`; `?` is a label not known."""
        try:
            tree = parse_tree(text)
        except ValueError as error:
            raise ModelError(f"{error}; {_EXPECTED}") from None
        if len(tree.words) > MAX_WORDS:
            raise ModelError(f"the tree has {len(tree.words)} words, allowed are {MAX_WORDS}")
        return _instance(tree, _vocabulary(cfg.vocabulary, cfg.sample))

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


def _schema(vocabulary_size: int) -> Schema:
    node = TableType((nodes,), nodes)
    tables = {
        "word": TableType((words,), lift(vocabulary_size)),
        "label": TableType((nodes,), lift(CLASSES)),
        "parent": node,
        "side": TableType((nodes,), lift(2)),
        "child": TableType((nodes - words, lift(2)), nodes),
    }
    down_again = Axiom(
        "child inverse_of parent, side", (N,), child(parent(n) - words, side_of(n)), n, where=n.ne(nodes - 1)
    )
    return Schema({"words": MAX_WORDS, "nodes": MAX_NODES}, tables, axioms=(down_again,))


def _embedding(cfg: TreeLSTMConfig) -> Program:
    def function(p: Params, x: Value) -> Value:
        e = take(p.E, table("word")(ROW))
        return dropout(e, cfg.dropout, [Attr("instance")]) if cfg.dropout else e

    return trace(function, {"x": 0}, {"E": ParamSpec("E", (cfg.vocabulary, cfg.embedding), "normal:0.05")})


def _affine(inputs: int, outputs: int) -> dict[str, tuple[int, ...] | ParamSpec]:
    return {"W": (inputs, outputs), "b": ParamSpec("b", (outputs,), "zeros")}


def _leaf_cell(embedding: int, hidden: int) -> Program:
    """A word's embedding -> h, and h with c."""

    def function(p: Params, x: Value) -> list[Value]:
        z = linear(x, p.W, p.b)
        i, o = split(sigmoid(columns(z, 0, 2 * hidden)), 2)
        return _hidden(o, i * tanh(columns(z, 2 * hidden, hidden)))

    return trace(function, {"x": embedding}, _affine(embedding, 3 * hidden))


def _branch_cell(hidden: int) -> Program:
    """h and c of both children -> h, and h with c; there is a forget gate for each child."""

    def function(p: Params, left: Value, right: Value) -> list[Value]:
        (h_left, c_left), (h_right, c_right) = split(left, 2), split(right, 2)
        z = linear(concat(h_left, h_right), p.W, p.b)
        i, o, f_left, f_right = split(sigmoid(columns(z, 0, 4 * hidden)), 4)
        u = tanh(columns(z, 4 * hidden, hidden))
        return _hidden(o, i * u + f_left * c_left + f_right * c_right)

    return trace(function, {"left": 2 * hidden, "right": 2 * hidden}, _affine(2 * hidden, 5 * hidden))


def _hidden(o: Value, c: Value) -> list[Value]:
    h = o * tanh(c)
    return [h, concat(h, c)]


def _classifier(cfg: TreeLSTMConfig) -> Program:
    def function(p: Params, h: Value) -> Value:
        kept = dropout(h, cfg.dropout, [Attr("instance")], seed=1) if cfg.dropout else h
        return linear(kept, p.W, p.b)

    return trace(function, {"in": ValueType("float", "members", cfg.hidden)}, _affine(cfg.hidden, CLASSES))


def _climb(g: Graph, hidden: int) -> None:
    to_node = StateMap(drop={"w": n}, add=((N, w),))
    g.add(Ungroup("word_hidden", W, to_node))
    g.add(Ungroup("word_state", W, to_node))
    g.add(Phi("hidden", ("leaf", "branch")))
    g.add(Phi("state", ("leaf", "branch")))
    g.add(Cond("root?", n.eq(nodes - 1)))
    g.add(Discard("top"))
    # `child[n - words, side]` reads the new state: n is the parent there.
    rise = StateMap(set={"n": parent(n)}, add=((SIDE, side_of(n)),), inverse={"n": child(n - words, side)})
    g.add(Isu("rise", rise))
    g.add(Cond("side?", side, ("left", "right"), drop=("side",)))
    g.add(PPT("branch", _branch_cell(hidden)))
    g.connect("leaf.out0", "word_hidden", "hidden.leaf")
    g.connect("leaf.out1", "word_state", "state.leaf")
    g.connect("branch.out0", "hidden.branch")
    g.connect("branch.out1", "state.branch")
    g.connect("state", "root?")
    g.connect("root?.yes", "top")
    g.connect("root?.no", "rise", "side?")
    g.connect("side?.left", "branch.left")
    g.connect("side?.right", "branch.right")


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


def _instance(tree: Tree, known: dict[str, int]) -> Instance:
    count = len(tree.words)
    total = 2 * count - 1
    parent, side = np.zeros(total, np.int32), np.zeros(total, np.int32)
    parent[tree.children] = np.arange(count, total, dtype=np.int32)[:, None]
    side[tree.children] = np.arange(2, dtype=np.int32)
    kind = Unlabelled if tree.labels.min() < 0 else Instance
    tables = {
        "word": np.array([known.get(word, 0) for word in tree.words], np.int32),
        "label": np.maximum(tree.labels, 0),
        "parent": parent,
        "side": side,
        "child": tree.children,
    }
    return kind({"words": count, "nodes": total}, tables)
