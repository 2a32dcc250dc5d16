"""Stories written here, the real files where they are at hand, inflated and generated stories."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from amphw.data import babi
from amphw.data.babi import (
    Question,
    babi_file,
    inflate,
    load_babi,
    parse_question,
    parse_stories,
    sample_babi,
)
from amphw.data.cache import DataError, is_local

STORY = """\
1 Wolves are afraid of mice.
2 Winona is a sheep.
3 Sheep are afraid of wolves.
4 What is winona afraid of?\twolf\t2 3
"""
TEXT = "Winona is a sheep. Sheep are afraid of mice. What is winona afraid of?"


def follow(question: Question) -> int:
    """The answer, by the rule of the task."""
    facts = {
        (int(start), int(kind)): int(end)
        for (start, end), kind in zip(question.edges, question.types, strict=True)
    }
    return facts[facts[question.asked, 0], 1]


def told(question: Question) -> set[tuple[str, str, int]]:
    """The facts by name."""
    ends = [tuple(question.names[node] for node in edge) for edge in question.edges]
    return {(start, end, int(kind)) for (start, end), kind in zip(ends, question.types, strict=True)}


def test_a_story_is_a_graph_of_its_facts():
    (question,) = parse_stories(STORY, where="x")
    assert question.names == ("wolf", "mouse", "winona", "sheep")
    assert question.edges.tolist() == [[0, 1], [2, 3], [3, 0]]
    assert question.types.tolist() == [1, 0, 1]
    assert (question.asked, question.answer) == (2, 0)
    assert question.edges.dtype == question.types.dtype == np.int32


def test_a_new_story_begins_with_its_first_line():
    first, second = parse_stories(STORY + "\n" + STORY, where="x")
    assert first.names == second.names


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("3 Wolves like mice.", "x, line 4: 'Wolves like mice.' is neither a fact nor a question."),
        (
            "3 What is emily afraid of?\twolf\t1 2",
            "x, line 4: the facts say 0 times which animal emily is, expected once.",
        ),
        (
            "3 What is winona afraid of?\tmouse\t1 2",
            "x, line 4: the answer is mouse, but the facts say wolf.",
        ),
        ("3 What is winona afraid of?", "x, line 4: the answer is missing, but the facts say wolf."),
    ],
)
def test_errors_in_a_file_name_the_line(line, message):
    facts = "".join(STORY.splitlines(keepends=True)[:3])
    with pytest.raises(DataError) as caught:
        parse_stories(facts + line + "\n", where="x")
    assert str(caught.value) == message


def test_a_question_may_stand_in_one_line():
    question = parse_question(TEXT)
    assert [question.names[i] for i in (question.asked, question.answer)] == ["winona", "mouse"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no question"),
        ("Winona is a cat.", "there is no question"),
        (TEXT + " Emily is a cat.", "'Emily is a cat.' stands behind the question"),
        ("Winona is a cat. " + TEXT, "the facts say 2 times which animal winona is, expected once"),
    ],
)
def test_another_text_is_refused(text, message):
    with pytest.raises(ValueError) as caught:
        parse_question(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("nodes", [8, 9, 54])
def test_an_inflated_story_keeps_its_facts_and_its_answer(nodes):
    rng = np.random.default_rng(1)
    for question in sample_babi(50, 0):
        wide = inflate(question, nodes, rng)
        assert len(wide.names) == len(set(wide.names)) == len(wide.edges) == nodes
        assert told(question) <= told(wide)
        assert wide.names[wide.asked] == question.names[question.asked]
        assert wide.names[wide.answer] == question.names[question.answer]
        assert follow(wide) == wide.answer
        assert (wide.edges[:, 0] != wide.edges[:, 1]).all()
        assert sorted(wide.edges[:, 0].tolist()) == list(range(nodes))


def test_a_story_is_not_made_smaller():
    with pytest.raises(ValueError, match=r"^a story of 8 nodes has no room in 7$"):
        inflate(sample_babi(1, 0)[0], 7, np.random.default_rng(0))


def test_load_reads_the_checked_file(tmp_path, monkeypatch):
    (tmp_path / "babi15").mkdir()
    (tmp_path / babi_file("test").name).write_text(STORY)
    monkeypatch.setenv("AMPHW_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"deduction_test\.txt is not the expected file: sha256 of its"):
        load_babi("test")
    monkeypatch.setitem(babi._SHA256, "test", hashlib.sha256(STORY.encode()).hexdigest())
    assert len(load_babi("test")) == 1


def test_unknown_split():
    with pytest.raises(ValueError, match=r"^bAbI has no split 'valid'; it has 'train' and 'test'$"):
        babi_file("valid")


@pytest.mark.parametrize(("split", "count"), [("train", 10_000), ("test", 1_000)])
def test_real_files(split, count):
    if not is_local(babi_file(split)):
        pytest.skip("no local copy of bAbI")
    questions = load_babi(split)
    assert len(questions) == count
    assert {(len(q.names), len(q.edges)) for q in questions} == {(8, 8)}
    assert all(follow(q) == q.answer for q in questions)


def test_samples_follow_the_rule_and_the_seed():
    questions = sample_babi(100, 3)
    assert all(follow(q) == q.answer and len(q.names) == len(q.edges) == 8 for q in questions)
    assert [told(q) for q in questions] == [told(q) for q in sample_babi(100, 3)]
    assert [told(q) for q in questions] != [told(q) for q in sample_babi(100, 4)]
    with pytest.raises(ValueError, match=r"^the number of questions must be 0 or more, got -1$"):
        sample_babi(-1, 0)
