"""Tagged sentences written here, the real files where they are at hand, generated sentences."""

from __future__ import annotations

import hashlib

import pytest

from amphw.data import wikiner
from amphw.data.cache import DataError, is_local
from amphw.data.wikiner import (
    TAGS,
    Sentence,
    alphabet,
    load_wikiner,
    parse_sentence,
    parse_sentences,
    sample_wikiner,
    vocabulary,
    wikiner_file,
)


def test_a_sentence_is_words_and_tags():
    assert parse_sentence("Oslo|I-LOC a|b|O\n") == Sentence(("Oslo", "a|b"), ("I-LOC", "O"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Oslo is|O", "'Oslo' has no tag; expected word|tag"),
        ("|O", "'O' has no tag; expected word|tag"),
        ("Oslo|LOC", f"'Oslo' has the tag 'LOC', expected one of {', '.join(TAGS)}"),
    ],
)
def test_another_text_is_refused(text, message):
    with pytest.raises(ValueError) as caught:
        parse_sentence(text)
    assert str(caught.value) == message


def test_errors_in_a_file_name_the_line():
    assert len(parse_sentences("a|O\n\nb|O c|O\n", where="x")) == 2
    with pytest.raises(DataError, match=r"^x, line 2: 'b' has no tag; expected word\|tag\.$"):
        parse_sentences("a|O\nb\n", where="x")


def test_load_reads_the_checked_file(tmp_path, monkeypatch):
    content = "Oslo|I-LOC\nis|O Übung|O\n".encode()
    (tmp_path / "wikiner").mkdir()
    (tmp_path / "wikiner" / "dev.txt").write_bytes(content)
    monkeypatch.setenv("AMPHW_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"dev\.txt is not the expected file: sha256 of its 25"):
        load_wikiner("dev")
    monkeypatch.setitem(wikiner._SHA256, "dev", hashlib.sha256(content).hexdigest())
    assert [s.words for s in load_wikiner("dev")] == [("Oslo",), ("is", "Übung")]


def test_unknown_split():
    with pytest.raises(ValueError, match=r"^WikiNER has no split 'test'; it has 'train' and 'dev'$"):
        wikiner_file("test")


@pytest.mark.parametrize(
    ("split", "sentences", "words"), [("train", 10_000, 248_038), ("dev", 1_696, 39_007)]
)
def test_real_files(split, sentences, words):
    if not is_local(wikiner_file(split)):
        pytest.skip("no local copy of WikiNER")
    found = load_wikiner(split)
    assert (len(found), sum(len(s.words) for s in found)) == (sentences, words)
    assert {tag for s in found for tag in s.tags} <= set(TAGS)


def test_the_real_vocabulary_is_that_of_the_default_configuration():
    if not is_local(wikiner_file("train")):
        pytest.skip("no local copy of WikiNER")
    assert len(vocabulary(load_wikiner("train"), 10**6, more_than=5)) == 4651


def test_words_are_numbered_by_frequency():
    sentences = [Sentence(tuple("abcabcabd"), ("O",) * 9)]
    assert vocabulary(sentences, 10, more_than=1) == {"a": 1, "b": 2, "c": 3}
    assert vocabulary(sentences, 3, more_than=0) == {"a": 1, "b": 2}
    assert alphabet(sentences, 5, first=2) == {"a": 2, "b": 3, "c": 4}


def test_samples_follow_the_rule_and_the_seed():
    sentences = sample_wikiner(200, 3)
    assert sentences == sample_wikiner(200, 3) != sample_wikiner(200, 4)
    assert {len(s.words) for s in sentences} == set(range(1, 13))
    for sentence in sentences:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            kinds = [k for k, ends in wikiner._ENDINGS.items() if word.endswith(ends)]
            assert tag == (f"I-{kinds[0]}" if word[0].isupper() else "O")
    with pytest.raises(ValueError, match=r"^the number of sentences must be 0 or more, got -1$"):
        sample_wikiner(-1, 0)
