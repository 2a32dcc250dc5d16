"""The bracket parser on small trees written here, the real files where they are at hand, generated trees."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from amphw.data import sst
from amphw.data.cache import DataError, is_local
from amphw.data.sst import Tree, load_sst, parse_tree, parse_trees, sample_sst, sst_file, vocabulary


def test_a_phrase_stands_behind_its_children_and_the_root_last():
    tree = parse_tree("(3 (2 a) (4 (3 (2 quite) (3 good)) (2 film)))")
    assert tree.words == ("a", "quite", "good", "film")
    assert tree.labels.tolist() == [2, 2, 3, 2, 3, 4, 3]
    assert tree.children.tolist() == [[1, 2], [4, 3], [0, 5]]
    assert tree.labels.dtype == tree.children.dtype == np.int32


def test_a_single_word_is_a_tree():
    tree = parse_tree("  (4 Superb)\n")
    assert (tree.words, tree.labels.tolist(), tree.children.shape) == (("Superb",), [4], (0, 2))


def test_words_keep_what_the_file_has():
    """Escapes stay, and a space that is none of the separators belongs to the word."""
    tree = parse_tree("(2 (2 8\u00a01\\/2) (2 -LRB-))")
    assert tree.words == ("8\u00a01\\/2", "-LRB-")


def test_a_label_may_be_left_open():
    assert parse_tree("(? (3 good) (? film))").labels.tolist() == [3, -1, -1]


def test_depth_is_no_limit():
    words = 3000
    text = "(2 (2 x) " * (words - 1) + "(2 x)" + ")" * (words - 1)
    tree = parse_tree(text)
    assert len(tree.words) == words
    assert tree.children[-1].tolist() == [0, 2 * words - 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no tree"),
        ("film", "column 1: 'film' stands outside the brackets"),
        (")", "column 1: ')' stands outside the brackets"),
        ("()", "column 2: a bracket is empty; it holds a label and then one word or two brackets"),
        ("(3)", "column 3: behind its label a bracket holds nothing, expected one word or two brackets"),
        (
            "(3 (2 a))",
            "column 9: behind its label a bracket holds one bracket, expected one word or two brackets",
        ),
        ("(3 (2 a) (2 b) (2 c))", "column 16: a third bracket inside one; the trees are binary"),
        ("(film)", "column 2: the label is 'film', expected 0 to 4"),
        ("(5 film)", "column 2: the label is '5', expected 0 to 4"),
        ("((2 a) (2 b))", "column 2: a bracket begins with its label, 0 to 4"),
        ("(2 a b)", "column 6: 'b' follows the word 'a'; a bracket holds one word or two brackets"),
        ("(2 (2 a) b)", "column 10: 'b' follows a bracket; a bracket holds one word or two brackets"),
        (
            "(2 a (2 b))",
            "column 6: a bracket follows the word 'a'; it holds one word or two brackets",
        ),
        ("(2 (2 a) (2 b)", "the tree is not complete: 1 of its brackets are still open"),
        ("(2 a) (2 b)", "column 7: '(' stands behind the end of the tree"),
    ],
)
def test_another_text_is_refused(text, message):
    with pytest.raises(ValueError) as caught:
        parse_tree(text)
    assert str(caught.value) == message


def test_errors_in_a_file_name_the_line():
    assert len(parse_trees("(2 a)\n\n(3 b)\n", where="x")) == 2
    with pytest.raises(DataError, match=r"^x, line 3: column 2: the label is '7', expected 0 to 4\.$"):
        parse_trees("(2 a)\n\n(7 b)\n", where="x")
    with pytest.raises(DataError, match=r"^x, line 1: a node has no label, but '\?'\.$"):
        parse_trees("(2 (? a) (2 b))\n", where="x")


def test_load_reads_the_checked_file(tmp_path, monkeypatch):
    content = b"(2 (2 a) (3 good))\n(1 bad)\n"
    (tmp_path / "sst").mkdir()
    (tmp_path / "sst" / "dev.txt").write_bytes(content)
    monkeypatch.setenv("AMPHW_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"dev\.txt is not the expected file: sha256 of its 27"):
        load_sst("dev")
    monkeypatch.setitem(sst._SHA256, "dev.txt", hashlib.sha256(content).hexdigest())
    assert [tree.words for tree in load_sst("dev")] == [("a", "good"), ("bad",)]


def test_unknown_split():
    with pytest.raises(
        ValueError, match=r"^the treebank has no split 'valid'; it has 'train', 'dev' and 'test'$"
    ):
        sst_file("valid")


# Trees and nodes of each split.
COUNTS = {"train": (8544, 318582), "dev": (1101, 41447), "test": (2210, 82600)}


@pytest.mark.parametrize("split", COUNTS)
def test_real_files(split):
    if not is_local(sst_file(split)):
        pytest.skip("the treebank is not at hand: set AMPHW_DATA or download it once")
    trees = load_sst(split)
    assert (len(trees), sum(len(tree.labels) for tree in trees)) == COUNTS[split]
    assert all(len(tree.labels) == 2 * len(tree.words) - 1 for tree in trees)
    if split == "train":
        assert trees[0].words[:4] == ("The", "Rock", "is", "destined")
        assert np.bincount([tree.labels[-1] for tree in trees]).tolist() == [1092, 2218, 1624, 2322, 1288]


def test_a_vocabulary_numbers_words_by_frequency():
    trees = [
        Tree(tuple(words.split()), np.zeros(1, np.int32), np.zeros((0, 2), np.int32))
        for words in ("b a c", "c d a c")
    ]
    assert vocabulary(trees, 4) == {"c": 1, "a": 2, "b": 3}
    assert vocabulary(trees, 99) == {"c": 1, "a": 2, "b": 3, "d": 4}
    assert vocabulary(trees, 1) == {}


def test_samples_follow_their_rule():
    values = {word: value for value, words in sst._SENTIMENT.items() for word in words}
    trees = sample_sst(300, seed=3)
    assert {len(tree.words) for tree in trees} == set(range(1, 13))
    assert {int(tree.labels[-1]) for tree in trees} == set(range(5))
    for tree in trees:
        value = [values.get(word, 0) for word in tree.words]
        for left, right in tree.children.tolist():
            first = tree.words[left] if left < len(tree.words) else ""
            if first == "not":
                value.append(-value[right])
            elif first == "very":
                value.append(max(-2, min(2, value[right] + int(np.sign(value[right])))))
            else:
                value.append(max(-2, min(2, value[left] + value[right])))
        assert tree.labels.tolist() == [v + 2 for v in value]


def test_samples_are_a_function_of_the_seed():
    def texts(seed):
        return [(tree.words, tree.labels.tolist(), tree.children.tolist()) for tree in sample_sst(20, seed)]

    assert texts(1) == texts(1)
    assert texts(1) != texts(2)
    assert sample_sst(0, 1) == []
    with pytest.raises(ValueError, match=r"^the number of trees must be 0 or more, got -1$"):
        sample_sst(-1, 0)
