"""Stanford Sentiment Treebank: parse trees of film reviews, every phrase with one of five sentiments.

Socher et al., EMNLP 2013. A file has one tree a line, as brackets in the style of the Penn Treebank: a word
is `(label word)`, a phrase `(label left right)`, and labels go from 0 (very negative) to 4 (very positive).
8,544 trees to train on, 1,101 to validate on and 2,210 to test on, with 37 nodes on average.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from amphw.data.cache import DataError, DataFile, read_data

CLASSES = 5
NAMES = ("very negative", "negative", "neutral", "positive", "very positive")
"""What each label means."""

UNKNOWN_LABEL = -1
"""Label of a node whose sentiment is not given (`?`)."""

# A copy of the treebank's trees in a public repository, at a fixed commit; Stanford's own is a zip archive.
_URL = "https://raw.githubusercontent.com/neulab/dynet-benchmark/74b6e6bf2df5b1d3e0996e88e9a7971d0b8ef93f/data/trees/"
_SHA256 = {
    "train.txt": "e2f3f41b0b1e6d4dddc0effe3bfc2d27ed8928079aa9a03d652311614fc5feb7",
    "dev.txt": "0e9336aed6e4730e19f58d00a77b3f0297efdb755f7b5e598c98a05e3f97ea40",
    "test.txt": "6e54806dee95cf80cd918e7dfb3f6770f6df24bf826f289a4d1f709e1c8f6761",
}
_TOKEN = re.compile(r"[()]|[^ \t\r\n()]+")  # a word may hold other spaces: "8\u00a01\\/2" is one
_LABELS = {str(label): label for label in range(CLASSES)}

Integers = npt.NDArray[np.int32]


class Tree(NamedTuple):
    """A binary tree of w words, 2w - 1 nodes.

    Nodes 0 .. w - 1 are the words in their order, the phrases follow, each behind its children: the last node
    is the root. words: w strings; labels: int32 [2w - 1]; children: int32 [w - 1, 2], left and right child of
    each phrase.
    """

    words: tuple[str, ...]
    labels: Integers
    children: Integers


def sst_file(split: Literal["train", "dev", "test"]) -> DataFile:
    """The file of a split."""
    name = f"{split}.txt"
    if name not in _SHA256:
        raise ValueError(f"the treebank has no split {split!r}; it has 'train', 'dev' and 'test'")
    return DataFile(f"sst/{name}", f"{_URL}{name}", f"sha256:{_SHA256[name]}")


def load_sst(split: Literal["train", "dev", "test"]) -> list[Tree]:
    """The trees of a split, in the order of the file. Raises DataError if it cannot be had or is damaged."""
    file = sst_file(split)
    return parse_trees(read_data(file).decode("utf-8"), where=file.name)


def parse_trees(text: str, where: str) -> list[Tree]:
    """One labelled tree a line; empty lines are passed over.

    `where` names the file in errors. Raises DataError naming the line.
    """
    trees = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            tree = parse_tree(line)
        except ValueError as error:
            raise DataError(f"{where}, line {number}: {error}.") from error
        if tree.labels.min() < 0:
            raise DataError(f"{where}, line {number}: a node has no label, but '?'.")
        trees.append(tree)
    return trees


def parse_tree(text: str) -> Tree:
    """The tree that a text of brackets stands for; a label `?` reads as UNKNOWN_LABEL.

    Raises ValueError, whose message says what is wrong and at which column (from 1).
    """
    reader = _Reader()
    tokens = _TOKEN.findall(text)
    for k, token in enumerate(tokens):
        try:
            reader.take(token)
        except ValueError as error:
            column = [match.start() for match in _TOKEN.finditer(text)][k] + 1
            raise ValueError(f"column {column}: {error}") from None
    return reader.finished()


class _Open:
    """A bracket that is not closed yet."""

    __slots__ = ("children", "label", "word")

    def __init__(self) -> None:
        self.label: int | None = None
        self.word: str | None = None
        self.children: list[int] = []


class _Reader:
    """Builds a tree from tokens. It keeps its own stack: a treebank's trees are deeper than they are wide."""

    def __init__(self) -> None:
        self.open: list[_Open] = []
        self.words: list[str] = []
        self.word_labels: list[int] = []
        self.phrase_labels: list[int] = []
        # How many words there are shows at the end: until then, phrase k is number -1 - k.
        self.children: list[list[int]] = []
        self.complete = False

    def take(self, token: str) -> None:
        if self.complete:
            raise ValueError(f"'{token}' stands behind the end of the tree")
        if token == "(":
            if self.open:
                self._expects_child(self.open[-1])
            self.open.append(_Open())
        elif not self.open:
            raise ValueError(f"'{token}' stands outside the brackets")
        elif token == ")":
            self._close(self.open.pop())
        else:
            self._fill(self.open[-1], token)

    def finished(self) -> Tree:
        if self.open:
            raise ValueError(f"the tree is not complete: {len(self.open)} of its brackets are still open")
        if not self.complete:
            raise ValueError("there is no tree")
        count = len(self.words)
        children = np.array(self.children, np.int32).reshape(-1, 2)
        return Tree(
            tuple(self.words),
            np.array(self.word_labels + self.phrase_labels, np.int32),
            np.where(children < 0, count - 1 - children, children),
        )

    def _expects_child(self, node: _Open) -> None:
        if node.label is None:
            raise ValueError("a bracket begins with its label, 0 to 4")
        if node.word is not None:
            raise ValueError(f"a bracket follows the word '{node.word}'; it holds one word or two brackets")
        if len(node.children) == 2:
            raise ValueError("a third bracket inside one; the trees are binary")

    def _fill(self, node: _Open, token: str) -> None:
        if node.label is None:
            if token != "?" and token not in _LABELS:
                raise ValueError(f"the label is '{token}', expected 0 to {CLASSES - 1}")
            node.label = _LABELS.get(token, UNKNOWN_LABEL)
        elif node.word is not None or node.children:
            before = f"the word '{node.word}'" if node.word is not None else "a bracket"
            raise ValueError(f"'{token}' follows {before}; a bracket holds one word or two brackets")
        else:
            node.word = token

    def _close(self, node: _Open) -> None:
        if node.label is None:
            raise ValueError("a bracket is empty; it holds a label and then one word or two brackets")
        if node.word is not None:
            self.words.append(node.word)
            self.word_labels.append(node.label)
            number = len(self.words) - 1
        elif len(node.children) == 2:
            self.children.append(node.children)
            self.phrase_labels.append(node.label)
            number = -len(self.children)
        else:
            inside = "one bracket" if node.children else "nothing"
            raise ValueError(f"behind its label a bracket holds {inside}, expected one word or two brackets")
        if self.open:
            self.open[-1].children.append(number)
        else:
            self.complete = True


def vocabulary(trees: Iterable[Tree], size: int) -> dict[str, int]:
    """The `size - 1` most frequent words, numbered from 1 by frequency (of equals the earlier one first).

    0 is left for the unknown word, which every other word is read as.
    """
    counted = Counter(word for tree in trees for word in tree.words)
    return {word: k for k, (word, _) in enumerate(counted.most_common(size - 1), start=1)}


# --- generated trees -----------------------------------------------------------------------------

_SENTIMENT = {
    -2: ("awful", "dreadful", "unbearable"),
    -1: ("bad", "dull", "weak", "tired"),
    0: ("the", "film", "story", "actor", "music", "scene", "director", "and", "ending", "is"),
    1: ("good", "fine", "warm", "clever"),
    2: ("superb", "brilliant", "masterful"),
}
_OPERATORS = ("not", "very")
_MAX_SAMPLE_WORDS = 12


def sample_sst(n: int, seed: int) -> list[Tree]:
    """Generated trees of 1 to 12 words, for use without the data; the same `n` and `seed` give the same.

    **This is not the treebank** and accuracies on it mean nothing beyond it. A phrase's sentiment is the sum
    of its parts', -2 to 2 and cut off there; but `not` turns the part to its right round, and `very` moves it
    away from 0 by one. So what a phrase says follows from its words and its structure.
    """
    if n < 0:
        raise ValueError(f"the number of trees must be 0 or more, got {n}")
    rng = np.random.default_rng(seed)
    return [_sample(rng) for _ in range(n)]


def _sample(rng: np.random.Generator) -> Tree:
    words: list[str] = []
    word_values: list[int] = []
    phrases: list[tuple[int, int, int]] = []  # left, right (phrases as -1 - k), value

    def leaf(choices: Sequence[str], value: int) -> tuple[int, int]:
        words.append(choices[int(rng.integers(len(choices)))])
        word_values.append(value)
        return len(words) - 1, value

    def grow(count: int) -> tuple[int, int]:
        """A subtree of `count` words -> (its number, its value)."""
        if count == 1:
            value = int(rng.choice(5, p=(0.1, 0.15, 0.5, 0.15, 0.1))) - 2
            return leaf(_SENTIMENT[value], value)
        if rng.random() < 0.3:
            operator, _ = left = leaf(_OPERATORS, 0)
            right = grow(count - 1)
            value = -right[1] if words[operator] == "not" else right[1] + int(np.sign(right[1]))
        else:
            cut = int(rng.integers(1, count))
            left, right = grow(cut), grow(count - cut)
            value = left[1] + right[1]
        value = max(-2, min(2, value))
        phrases.append((left[0], right[0], value))
        return -len(phrases), value

    grow(int(rng.integers(1, _MAX_SAMPLE_WORDS + 1)))
    children = np.array([p[:2] for p in phrases], np.int32).reshape(-1, 2)
    labels = np.array(word_values + [p[2] for p in phrases], np.int32) + 2
    return Tree(tuple(words), labels, np.where(children < 0, len(words) - 1 - children, children))
