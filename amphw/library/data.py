"""Where instances come from: lists, data frames, data sets, generators that never end.

What has a length and items by number is a data set; its epochs are all of it, in an order of their own.
Anything else that can be iterated over is a stream; it is taken in its order, so many instances an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from amphw.data.cache import DataError
from amphw.host.run_model import EndOfData, MayEnd
from amphw.ir.instance import Instance

Data = Iterable[Any] | Mapping[str, Sequence[Any]] | Callable[[], Iterable[Any]]
"""Instances, plain Python and numpy: a list, a data set with `len` and items by number, such as PyTorch's or
Hugging Face's, a data frame of pandas or a dict of columns, whose rows are dicts, a generator, or a function
that makes one."""


class Rows(Sequence[dict[str, Any]]):
    """Columns of equal length, as dicts."""

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) != 1:
            raise DataError(f"the columns of the data have different lengths: {lengths}")
        # The rows of a Series of pandas have labels, which need not be their numbers.
        self._columns = {n: c.to_numpy() if hasattr(c, "to_numpy") else c for n, c in columns.items()}
        self._count = next(iter(lengths.values()))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: Any) -> Any:
        return {name: column[row] for name, column in self._columns.items()}


def data_set(data: Any) -> Sequence[Any] | None:
    """The data as something with a length and items by number; None where they are a stream.

    Raises DataError for what is neither.
    """
    if isinstance(data, str | bytes):
        raise DataError(f"the data are a text, {data[:40]!r}; give the instances that it stands for")
    if hasattr(data, "iloc") and hasattr(data, "columns"):  # of pandas, which need not be there
        return Rows({str(name): data[name].to_numpy() for name in data.columns})
    if isinstance(data, Mapping):
        if data and all(has_length(column) for column in data.values()):
            return Rows(data)
        raise DataError(
            f"the data are a dict with {', '.join(map(str, data)) or 'nothing'}; a dict holds columns of "
            "equal length, one for each part of an instance; of several data sets give one: data['train']"
        )
    if has_length(data):
        return data if _by_number(data) else list(data)
    if callable(data) or hasattr(data, "__iter__"):
        return None
    raise DataError(
        f"the data are {type(data).__name__}; give a list of instances, a data set, a data frame, an "
        "iterator, or a function that makes one"
    )


def has_length(data: Any) -> bool:
    """Whether there are so and so many; what can only be iterated over may have `__len__` all the same."""
    if isinstance(data, str | bytes):
        return False
    try:
        len(data)
    except TypeError:
        return False
    return True


def _by_number(data: Any) -> bool:
    """Whether items can be had by number. PyTorch's iterable data sets inherit a method that refuses."""
    if not hasattr(data, "__getitem__"):
        return False
    try:
        if len(data):
            data[0]
    except NotImplementedError:
        return False
    return True


def split(data: Sequence[Any], share: float, seed: int) -> tuple[Sequence[Any], Sequence[Any]]:
    """What is left to train on, and a share, drawn by the seed, to validate on; at least one each."""
    if len(data) < 2:
        raise DataError(f"{len(data)} instances cannot be divided to validate on some; give valid=None")
    order = np.random.default_rng([seed, len(data)]).permutation(len(data))
    held = min(max(1, round(share * len(data))), len(data) - 1)
    return Picked(data, np.sort(order[held:])), Picked(data, np.sort(order[:held]))


class Picked(Sequence[Any]):
    """Some items of a data set."""

    def __init__(self, data: Sequence[Any], places: np.ndarray) -> None:
        self._data, self._places = data, places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, item: Any) -> Any:
        return self._data[self.number(item)]

    def number(self, item: int) -> int:
        """Of an item in the data set that it was picked from."""
        return int(self._places[item])


class Stream:
    """Data without a length. Each call of `epoch` is the next part of them.

    What can be iterated over again, and what a function makes, begins anew where it has ended; an iterator
    that has ended stays at its end.
    """

    def __init__(
        self, data: Iterable[Any] | Callable[[], Iterable[Any]], encode: Callable[[Any, int], Instance]
    ):
        self._data, self._encode = data, encode
        self._held = self._taken = 0  # items that are in no epoch, and all that were taken in this round
        self._iterator = self._begun()
        self._again = callable(data) or iter(data) is not self._iterator
        self._epochs = dict[int, StreamPart]()

    def _begun(self) -> Iterator[Any]:
        return iter(self._data() if callable(self._data) else self._data)

    def epoch(self, number: int, count: int) -> StreamPart:
        """`count` instances, fewer where the data end. The same number gives the same ones again; those of
        earlier epochs are gone."""
        if number not in self._epochs:
            self._epochs = {number: StreamPart(self, count)}
        return self._epochs[number]

    def first(self, count: int) -> list[Any]:
        """So many items from the beginning, which are not in any epoch, however often the data begin anew."""
        found = list(islice(self._iterator, count))
        self._held = self._taken = len(found)
        return found

    def next(self, begin: bool) -> Instance:
        """begin: whether data that have ended begin anew. Raises StopIteration at their end."""
        try:
            return self._encoded()
        except StopIteration:
            if not begin or not self._again:
                raise
        self._iterator = self._begun()
        self._taken = len(list(islice(self._iterator, self._held)))
        return self._encoded()

    def _encoded(self) -> Instance:
        item = next(self._iterator)
        self._taken += 1
        return self._encode(item, self._taken - 1)


class StreamPart(MayEnd):
    """One epoch of a stream, which is kept for as long as it is trained on: a device may be lost in it."""

    def __init__(self, stream: Stream, count: int) -> None:
        self._stream, self._count = stream, count
        self._had = list[Instance]()

    @property
    def size(self) -> int:
        return len(self)

    def __len__(self) -> int:
        """How many are in it, as far as that is known: data may end."""
        if self._count and not self._had:
            self._reach(0)
        return self._count

    def __getitem__(self, place: int) -> Instance:
        """Raises EndOfData behind the end of the data."""
        self._reach(place)
        if place >= len(self._had):
            raise EndOfData
        had = self._had[place]
        return replace(had)

    def _reach(self, place: int) -> None:
        while len(self._had) <= place < self._count:
            try:
                self._had.append(self._stream.next(begin=not self._had))
            except StopIteration:
                self._count = len(self._had)
