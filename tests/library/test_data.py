"""What a program may give as data: lists, columns, frames, data sets, streams; and what is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from amphw.data.cache import DataError
from amphw.host.run_model import EndOfData
from amphw.ir.instance import Instance
from amphw.library.data import Rows, Stream, data_set, split


class Endless:
    """A data set that can be iterated over any number of times, and has neither a length nor an end."""

    def __iter__(self) -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1


class Frame:
    """What is used of a data frame of pandas."""

    columns, iloc = ("a", "b"), None

    def __getitem__(self, name: str) -> Any:
        class Column:
            def to_numpy(self) -> np.ndarray:
                return np.array([1, 2, 3]) * (10 if name == "b" else 1)

        return Column()


class Labelled:
    """A column whose rows have labels that are not their numbers, as a Series of pandas may have."""

    def __init__(self, values: list[int]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, label: int) -> int:
        raise KeyError(label)

    def to_numpy(self) -> np.ndarray:
        return np.array(self._values)


class Refusing(list[int]):
    """An iterable data set of PyTorch's that knows its length."""

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError


class Sized:
    """A data set as PyTorch has them."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return index * index


def encoded(item: Any, number: int = 0) -> Instance:
    return Instance({"value": int(item)})


def values(part: Any) -> list[int]:
    """Of a stream's epoch, up to its end."""
    found = []
    try:
        for k in range(1000):
            found.append(part[k].attrs["value"])
    except EndOfData:
        return found
    raise AssertionError("it has no end")


def test_what_has_a_length_is_a_data_set() -> None:
    assert data_set([4, 5]) == [4, 5]
    sized = data_set(Sized())
    assert sized is not None and [sized[k] for k in range(len(sized))] == [0, 1, 4]
    assert sorted(data_set({7, 8}) or []) == [7, 8]
    assert data_set(Refusing([3, 4])) == [3, 4]
    series = Labelled([10, 20, 30])
    for columns in (
        {"a": [1, 2, 3], "b": np.array([10, 20, 30])},
        {"a": [1, 2, 3], "b": series},
        Frame(),
    ):
        rows = data_set(columns)
        assert isinstance(rows, Rows) and len(rows) == 3 and rows[1] == {"a": 2, "b": 20}


def test_what_has_none_is_a_stream() -> None:
    for data in (iter([1]), Endless(), lambda: [1], (x for x in [1])):
        assert data_set(data) is None


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("train.csv", "are a text"),
        ({"train": [1], "test": "no columns"}, r"data\['train'\]"),
        ({}, "a dict with nothing"),
        ({"a": [1, 2], "b": [1]}, r"different lengths: \{'a': 2, 'b': 1\}"),
        (17, "the data are int"),
    ],
)
def test_what_is_no_data_is_refused(data: Any, told: str) -> None:
    with pytest.raises(DataError, match=told):
        data_set(data)


def test_a_share_is_drawn_by_the_seed_and_leaves_something_on_both_sides() -> None:
    data = list(range(50))
    train, valid = split(data, 0.2, seed=1)
    assert len(valid) == 10 and sorted([*train, *valid]) == data
    assert list(valid) == list(split(data, 0.2, seed=1)[1]) != list(split(data, 0.2, seed=2)[1])
    for share in (1e-9, 1 - 1e-9):
        parts = split([1, 2], share, seed=0)
        assert [len(part) for part in parts] == [1, 1]
    with pytest.raises(DataError, match="valid=None"):
        split([1], 0.5, seed=0)


def test_the_epochs_of_a_stream_are_its_next_parts() -> None:
    stream = Stream(Endless(), encoded)
    assert stream.first(2) == [0, 1]
    part = stream.epoch(1, 3)
    assert len(part) == 3 and values(part) == [2, 3, 4]
    assert values(stream.epoch(1, 3)) == [2, 3, 4], "where a device is lost an epoch begins again"
    assert values(stream.epoch(2, 2)) == [5, 6]


def test_an_iterator_ends_and_what_makes_one_begins_anew() -> None:
    ends = Stream(iter([1, 2, 3]), encoded)
    assert values(ends.epoch(1, 2)) == [1, 2]
    part = ends.epoch(2, 2)
    assert len(part) == 2 and values(part) == [3] and len(part) == 1
    assert len(ends.epoch(3, 2)) == 0
    for data in (lambda: iter([1, 2, 3]), [1, 2, 3]):
        again = Stream(data, encoded)
        assert [values(again.epoch(k, 2)) for k in range(4)] == [[1, 2], [3], [1, 2], [3]]


def test_what_is_held_out_is_in_no_epoch_however_often_the_data_begin_anew() -> None:
    stream = Stream(lambda: iter(range(6)), encoded)
    assert stream.first(2) == [0, 1]
    assert [values(stream.epoch(k, 4)) for k in range(3)] == [[2, 3, 4, 5]] * 3


def test_instances_of_a_stream_are_its_own_each_time() -> None:
    part = Stream(iter([1]), encoded).epoch(1, 1)
    part[0].number = 7
    assert part[0].number == 0


def test_what_a_stream_raises_is_told_as_it_is() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    part = Stream(broken, encoded).epoch(1, 5)
    assert part[0].attrs["value"] == 1
    with pytest.raises(OSError, match="the disk is gone"):
        part[1]
