"""Instances: what is encoded, and what is refused, with the path of the part that does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.ir.errors import InstanceError
from tests.frontend.running import declared

NESTED = fe.Record(
    words=fe.Sequence(fe.Record(word=fe.Int(9), letters=fe.Sequence(fe.Int(26), most=4)), most=3),
    label=fe.Int(2),
)


def words(*letters: list[int]) -> dict[str, Any]:
    return {"words": [{"word": 1, "letters": each} for each in letters], "label": 1}


def test_sequences_of_sequences_become_one_table_with_lengths_and_beginnings() -> None:
    found = declared(NESTED).encode(words([3, 4], [5], [6, 7, 8]))
    assert found.attrs == {"words_length": 3, "words_letters_total": 6}
    assert {k: t.tolist() for k, t in found.tables.items()} == {
        "words_word": [1, 1, 1],
        "words_letters_length": [2, 1, 3],
        "words_letters_first": [0, 2, 3],
        "words_letters": [3, 4, 5, 6, 7, 8],
        "label": [1],
    }


def test_a_list_of_records_and_a_dict_of_columns_are_the_same() -> None:
    m = declared(NESTED)
    columns = {"words": {"word": np.array([1, 1]), "letters": [[3, 4], [5]]}, "label": 1}
    one, other = m.encode(words([3, 4], [5])), m.encode(columns)
    assert one.attrs == other.attrs
    assert all((one.tables[k] == other.tables[k]).all() for k in one.tables)


@pytest.mark.parametrize(
    "value,message",
    [
        (words([3], [99]), r"instance 5: words\[1\].letters\[0\] is 99, allowed is 0..25"),
        (words([3, -1]), r"words\[0\].letters\[1\] is -1, allowed is 0..25"),
        (words([3, 1.5]), r"words\[0\].letters\[1\] is 1.5, expected an integer"),
        (words([3], []), r"words\[1\].letters has 0 items, allowed are 1..4"),
        (words([3], [1] * 5), r"words\[1\].letters has 5 items, allowed are 1..4"),
        (words(), r"words has 0 items, allowed are 1..3"),
        (words([1], [1], [1], [1]), r"words has 4 items, allowed are 1..3"),
        ({"words": [{"word": 1, "letters": [1]}]}, r"label is missing"),
        ({**words([1]), "more": 1}, r"more is not declared"),
        ({"words": "abc", "label": 0}, r"words is 'abc', expected a sequence"),
        ({"words": 3, "label": 0}, r"words is 3, expected a sequence"),
        ([1, 2], r"the instance is \[1, 2\], expected a dict"),
        ({"words": [{"word": 1}], "label": 0}, r"words\[0\].letters is missing"),
    ],
)
def test_an_instance_that_does_not_fit_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InstanceError, match=message + r".*\(declared at .*test_encoding.py:\d+\)$"):
        declared(NESTED).encode(value, number=5)


def test_floats_are_checked() -> None:
    m = declared(fe.Record(xs=fe.Sequence(fe.Floats(2), most=3)))
    assert m.encode({"xs": [[1, 2], [3, 4]]}).data["xs"].tolist() == [[1, 2], [3, 4]]
    for value, message in (
        ([[1, 2], [3]], r"xs\[1\] has 1 number, expected 2"),
        ([[1, 2], [3, float("nan")]], r"xs\[1\] is .*, expected finite numbers"),
        ([[1, 2, 3]], r"xs\[0\] has 3 numbers, expected 2"),
    ):
        with pytest.raises(InstanceError, match=message):
            m.encode({"xs": value})


def test_parts_along_an_axis_agree() -> None:
    axis = fe.Axis("batch", 4)
    m = declared(fe.Record(a=fe.Along(axis, fe.Int(3)), b=fe.Along(axis, fe.Int(3))))
    assert m.encode({"a": [0, 1], "b": [2, 2]}).attrs == {"batch": 2}
    with pytest.raises(InstanceError, match="b has 3 items, but 'batch' is 2 elsewhere"):
        m.encode({"a": [0, 1], "b": [2, 2, 0]})


@pytest.mark.parametrize(
    "value,message",
    [
        ({"word": 3, "letters": [[1]]}, r"words.word is 3, expected a sequence"),
        ({"word": [1, 2], "letters": [[1]]}, r"words has columns of different lengths"),
        ({"word": [1, "2"], "letters": [[1], [1]]}, r"words\[1\].word is '2', expected an integer"),
        ({"word": [1, 10**30], "letters": [[1], [1]]}, r"words\[1\].word is 10+, allowed is 0..8"),
        ({"word": [1, None], "letters": [[1], [1]]}, r"words\[1\].word is None, expected an integer"),
        (
            {"word": [1, 2], "letters": [[1], np.array(1)]},
            r"words\[1\].letters is array\(1\), expected a seq",
        ),
        ({"word": {1, 2}, "letters": [[1], [1]]}, r"words.word is \{1, 2\}, expected a sequence"),
    ],
)
def test_columns_that_do_not_fit_are_refused(value: Any, message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        declared(NESTED).encode({"words": value, "label": 0})


def test_integers_of_every_kind_are_integers() -> None:
    m = declared(fe.Record(xs=fe.Sequence(fe.Int(9), most=4)))
    for xs in ([1, True], (np.uint64(1), 1), np.array([1, 1], np.uint8), range(1, 2), [np.array(1)]):
        assert set(m.encode({"xs": xs}).tables["xs"].tolist()) == {1}


@pytest.mark.parametrize(
    "width,xs,message",
    [
        (1, [1.0, "x", 2.0], r"xs\[1\] is 'x', expected a number"),
        (1, [1.0, None], r"xs\[1\] is None, expected a number"),
        (1, ["1.5"], r"xs\[0\] is '1.5', expected a number"),
        (1, [1.0, 1e300], r"xs\[1\] is 1e\+300, expected finite numbers of 32 bits"),
        (1, [1, 10**400], r"xs\[1\] is .*, expected finite numbers"),
        (2, [[1, 2], ["a", 2]], r"xs\[1\] is \['a', 2\], expected 2 numbers"),
        (2, [[1, 2], [[1], [2, 3]]], r"xs\[1\] is \[\[1\], \[2, 3\]\], expected 2 numbers"),
    ],
)
def test_the_first_that_is_no_number_is_named(width: int, xs: Any, message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        declared(fe.Record(xs=fe.Sequence(fe.Floats(width), most=3))).encode({"xs": xs})


def test_numbers_of_every_kind_are_numbers() -> None:
    m = declared(fe.Record(xs=fe.Sequence(fe.Floats(4), most=3)))
    assert m.encode({"xs": [np.zeros((2, 2)), np.ones(4)]}).data["xs"].tolist() == [[0] * 4, [1] * 4]
    assert m.encode({"xs": [[10**30, 1, True, np.float16(2)]]}).data["xs"][0, 1:].tolist() == [1, 1, 2]


def test_arrays_of_several_ranks_are_sequences_all_the_same() -> None:
    spec = declared(fe.Record(xs=fe.Sequence(fe.Sequence(fe.Floats(1), most=3), most=2)))
    arrays = spec.encode({"xs": [np.zeros((2, 1)), np.ones(3)]})
    assert arrays.tables["xs_length"].tolist() == [2, 3]
