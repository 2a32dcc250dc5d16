"""Word vectors: the words that are wanted are found in their forms, and a damaged file is named."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from amphw.data.cache import DataError
from amphw.data.vectors import load_vectors

LINES = "film 1 2 3\n( 4 5 6\nby mail 7 8 9\ngreat -0.5 0.25 1e-3\nnobody 0 0 0\n"


def file(folder: Path, text: str, name: str = "vectors.txt") -> str:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return str(path)


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.txt.gz"])
@pytest.mark.parametrize("first", ["", "5 3\n"], ids=["GloVe", "fastText"])
def test_words_are_found_as_they_are_in_lower_case_and_as_brackets(
    tmp_path: Path, name: str, first: str
) -> None:
    found = load_vectors(file(tmp_path, first + LINES, name), ["film", "Great", "-LRB-", "by mail", "?"], 3)
    assert {word: vector.tolist() for word, vector in found.items()} == {
        "film": [1, 2, 3],
        "Great": [-0.5, 0.25, np.float32(1e-3)],
        "-LRB-": [4, 5, 6],
        "by mail": [7, 8, 9],
    }


def test_a_word_as_it_is_goes_before_its_lower_case(tmp_path: Path) -> None:
    path = file(tmp_path, "may 1\nMay 2\n")
    assert load_vectors(path, ["May"], 1)["May"].tolist() == [2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("film 1 2 3\nbad 1 2\n", r"line 2: a word and 2 numbers, expected 3; set the model's `embedding`"),
        ("film 1 two 3\n", r"line 1: could not convert string to float: 'two'"),
        ("film 1 nan 3\n", r"line 1: a number is not finite"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_vectors(file(tmp_path, text), ["film"], 3)


def test_a_file_of_other_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no vector of any of the 1 words"):
        load_vectors(file(tmp_path, LINES), ["aardvark"], 3)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt cannot be read: .*No such file"):
        load_vectors(str(tmp_path / "none.txt"), ["film"], 3)
    damaged = tmp_path / "damaged.gz"
    damaged.write_bytes(gzip.compress(b"film 1 2 3\n" * 100)[:30])
    with pytest.raises(DataError, match=r"damaged\.gz cannot be read"):
        load_vectors(str(damaged), ["film"], 3)
