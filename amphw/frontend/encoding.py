"""From plain Python and numpy to the flat integer tables of `amphw.ir.instance`.

It goes level by level: the items of all sequences at one place become one table, encoded at once. A path such
as `words[3].letters[2]` is made only where something does not fit.
"""

from __future__ import annotations

import math
import operator
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from amphw.frontend.source import SourceLine
from amphw.ir.errors import InstanceError

SHOWN = reprlib.Repr()
"""How a value is shown that does not fit: what a person reads of it, however large or deep it is."""
SHOWN.maxlist = SHOWN.maxtuple = SHOWN.maxdict = 12
SHOWN.maxstring = SHOWN.maxother = 120

Locate = Callable[[int], str]
"""From the number of an item among all of its level to its path: `words[3].letters[2]`."""


@dataclass
class Encoded:
    """What an instance is encoded to. axes: how long each is, as far as a part has told. answers: names of
    tables and data that may be missing from what is encoded; None where it has to have everything. dtype: of
    the data. answered: whether nothing was missing. given: as an Instance has it."""

    attrs: dict[str, int] = field(default_factory=dict)
    tables: dict[str, np.ndarray] = field(default_factory=dict)
    data: dict[str, np.ndarray] = field(default_factory=dict)
    axes: dict[str, int] = field(default_factory=dict)
    answers: frozenset[str] | None = None
    dtype: type = np.float32
    answered: bool = True
    given: dict[str, np.ndarray] = field(default_factory=dict)

    def spares(self, name: str) -> bool:
        """Whether the table or the data of this name may be missing."""
        return self.answers is not None and name in self.answers


class Encoder(ABC):
    """Writes a part of instances under the names that were declared for it. place: the declaration's line."""

    def __init__(self, place: SourceLine) -> None:
        self.place = place

    @abstractmethod
    def encode(self, e: Encoded, values: Any, locate: Locate) -> None:
        """Write the tables of all items of a level; InstanceError naming the first that does not fit."""

    def anything(self, e: Encoded) -> Any:
        """What may stand for a part that is missing, where any value will do; None where none will."""
        return None

    def wrong(self, path: str, why: str) -> InstanceError:
        return InstanceError(f"{path or 'the instance'} {why} (declared at {self.place})")

    def size(self, value: Any, path: str, expected: str = "a sequence") -> int:
        """How many items a list or an array has; anything else is refused."""
        if not isinstance(value, str | bytes | Mapping | set | frozenset):
            try:
                return len(value)
            except TypeError:  # an array without dimensions has `__len__` too
                pass
        raise self.wrong(path, f"is {SHOWN.repr(value)}, expected {expected}")

    def count(self, value: Any, path: str) -> int:
        try:
            return operator.index(value)
        except TypeError:
            raise self.wrong(path, f"is {SHOWN.repr(value)}, expected an integer") from None


class Integers(Encoder):
    """Integers from 0 to below `high`."""

    def __init__(self, place: SourceLine, name: str, high: int) -> None:
        super().__init__(place)
        self.name, self.high = name, high

    def encode(self, e: Encoded, values: Any, locate: Locate) -> None:
        e.tables[self.name] = self.column(values, locate).astype(np.int32)

    def anything(self, e: Encoded) -> Any:
        return 0 if e.spares(self.name) else None

    def column(self, values: Any, locate: Locate) -> np.ndarray:
        """All values, as an array of integers."""
        column = integers(values)
        if column is None or column.shape != (len(values),):
            # Not all are integers as numpy knows them: one by one, to name the first that is none.
            column = np.array([self._checked(v, locate, i) for i, v in enumerate(values)], np.int64)
        if column.size and (column.min() < 0 or column.max() >= self.high):
            for i, v in enumerate(column):
                self._checked(v, locate, i)
        return column

    def _checked(self, value: Any, locate: Locate, i: int) -> int:
        try:
            number = operator.index(value)
        except TypeError:
            raise self.wrong(locate(i), f"is {SHOWN.repr(value)}, expected an integer") from None
        if not 0 <= number < self.high:
            raise self.wrong(locate(i), f"is {number}, allowed is 0..{self.high - 1}")
        return number


class Numbers(Encoder):
    """`width` numbers each, in the order that they have in memory if they are an array themselves."""

    def __init__(self, place: SourceLine, name: str, width: int) -> None:
        super().__init__(place)
        self.name, self.width = name, width

    def encode(self, e: Encoded, values: Any, locate: Locate) -> None:
        count = len(values)
        found = numbers(values)
        if found is None or found.shape[:1] != (count,) or found.size != count * self.width:
            # Of different shapes, or not all numbers: one by one, to name the first that does not fit.
            rows = [self._row(v, locate, i) for i, v in enumerate(values)]
            found = np.stack(rows) if rows else np.zeros((0, self.width))
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused below
            column: np.ndarray = found.reshape(count, self.width).astype(e.dtype)
            fits = np.isfinite(column.astype(np.float32, copy=False)).all(axis=1)
        for i in np.flatnonzero(~fits):
            raise self.wrong(locate(int(i)), f"is {found[i].tolist()}, expected finite numbers of 32 bits")
        e.data[self.name] = column

    def anything(self, e: Encoded) -> Any:
        return np.zeros(self.width, np.float32) if e.spares(self.name) else None

    def _row(self, value: Any, locate: Locate, i: int) -> np.ndarray:
        row = numbers(value)
        if row is None:
            expected = f"{self.width} numbers" if self.width > 1 else "a number"
            raise self.wrong(locate(i), f"is {SHOWN.repr(value)}, expected {expected}")
        if row.size != self.width:
            raise self.wrong(
                locate(i), f"has {row.size} number{'s' * (row.size != 1)}, expected {self.width}"
            )
        return row.reshape(-1)


class Parts(Encoder):
    """Dicts with the same keys."""

    def __init__(self, place: SourceLine, parts: Mapping[str, Encoder]) -> None:
        super().__init__(place)
        self.parts = dict(parts)

    def encode(self, e: Encoded, values: Any, locate: Locate) -> None:
        self.encode_columns(e, self.columns(e, values, locate), len(values), locate)

    def columns(self, e: Encoded, values: Any, locate: Locate) -> dict[str, list[Any]]:
        """By part; where answers may be missing, those that the first dict has."""
        known, first = list(self.parts), values[0] if len(values) else None
        if e.answers is not None and isinstance(first, Mapping):
            known = [k for k in self.parts if k in first]
        for i, v in enumerate(values):
            if not isinstance(v, Mapping):
                raise self.wrong(locate(i), f"is {SHOWN.repr(v)}, expected a dict with {list(self.parts)}")
            if v.keys() != set(known):
                raise self.wrong(*odd_key(v, self.parts, known, locate(i)))
        return {k: [v[k] for v in values] for k in known}

    def anything(self, e: Encoded) -> Any:
        found = {k: part.anything(e) for k, part in self.parts.items()}
        return None if any(x is None for x in found.values()) else found

    def encode_columns(self, e: Encoded, columns: Mapping[str, Any], count: int, locate: Locate) -> None:
        """The parts of so many dicts, by name. What is missing comes last: it may have to be as long as
        something that is there."""
        for k, found in columns.items():
            self.parts[k].encode(e, found, within(locate, k))
        self.fill(e, columns, count, locate)

    def fill(self, e: Encoded, given: Container[str], count: int, locate: Locate) -> None:
        """Let anything stand for the parts that are not given, of so many dicts; refuse those that matter."""
        for k, part in self.parts.items():
            if k not in given:
                if (stands := part.anything(e)) is None:
                    why = "; what the model reports depends on it, or which way values take" * (
                        e.answers is not None
                    )
                    raise self.wrong(dotted(locate(0), k), f"is missing{why}")
                part.encode(e, [stands] * count, within(locate, k))
                e.answered = False


class Items(Encoder):
    """Sequences of items: lists, arrays, or dicts of columns if the items are dicts."""

    def __init__(self, place: SourceLine, item: Encoder) -> None:
        super().__init__(place)
        self.item = item

    def lengths(self, values: Any, locate: Locate) -> list[int]:
        """The length of each. There may be many in an instance; their paths are made for errors only."""
        plain = (list, tuple)
        return [len(v) if type(v) in plain else self._length(v, locate, i) for i, v in enumerate(values)]

    def _length(self, value: Any, locate: Locate, i: int) -> int:
        if type(value) is np.ndarray and value.ndim:
            return len(value)
        if not isinstance(value, Mapping) or not isinstance(self.item, Parts):
            return self.size(value, locate(i))
        lengths = {k: self.size(v, dotted(locate(i), k)) for k, v in value.items()}
        if len(set(lengths.values())) > 1:
            raise self.wrong(locate(i), f"has columns of different lengths: {lengths}")
        return next(iter(lengths.values()), 0)

    def encode_items(self, e: Encoded, values: Any, lengths: list[int], locate: Locate) -> None:
        def inner(i: int) -> str:
            ends = np.cumsum(lengths)
            outer = int(np.searchsorted(ends, i, side="right"))
            return f"{locate(outer)}[{i - int(ends[outer]) + lengths[outer]}]"

        if isinstance(self.item, Parts) and any(isinstance(v, Mapping) for v in values):
            # Columns instead of a list of records: {"word": [...], "tag": [...]}.
            columns = {k: flat(found) for k, found in self.item.columns(e, values, locate).items()}
            self.item.encode_columns(e, columns, sum(lengths), inner)
        else:
            self.item.encode(e, flat(values), inner)


class Aligned(Items):
    """Sequences that are all as long as the axis `name`."""

    def __init__(self, place: SourceLine, item: Encoder, name: str, least: int, most: int) -> None:
        super().__init__(place, item)
        self.name, self.least, self.most = name, least, most

    def encode(self, e: Encoded, values: Any, locate: Locate) -> None:
        lengths = self.lengths(values, locate)
        for i, length in enumerate(lengths):
            if not self.least <= length <= self.most:
                raise self.wrong(locate(i), f"has {length} items, allowed are {self.least}..{self.most}")
            if e.axes.setdefault(self.name, length) != length:
                others = e.axes[self.name]
                raise self.wrong(locate(i), f"has {length} items, but '{self.name}' is {others} elsewhere")
        e.attrs[self.name] = e.axes.get(self.name, self.least)
        self.encode_items(e, values, lengths, locate)

    def anything(self, e: Encoded) -> Any:
        item = self.item.anything(e)
        return None if item is None or self.name not in e.axes else [item] * e.axes[self.name]


@dataclass(frozen=True)
class RaggedNames:
    """Of the table of lengths, of that of where each sequence begins, and of the number of all items."""

    length: str
    first: str
    total: str


class Ragged(Items):
    """Sequences that have a length each."""

    def __init__(self, place: SourceLine, item: Encoder, names: RaggedNames, least: int, most: int) -> None:
        super().__init__(place, item)
        self.names, self.least, self.most = names, least, most

    def encode(self, e: Encoded, values: Any, locate: Locate) -> None:
        found = self.lengths(values, locate)
        lengths = np.array(found, np.int32)
        for i in np.flatnonzero((lengths < self.least) | (lengths > self.most)):
            raise self.wrong(locate(int(i)), f"has {found[i]} items, allowed are {self.least}..{self.most}")
        e.attrs[self.names.total] = int(lengths.sum())
        e.tables[self.names.length] = lengths
        e.tables[self.names.first] = (np.cumsum(lengths) - lengths).astype(np.int32)
        self.encode_items(e, values, found, locate)


def encode(
    encoder: Encoder, value: Any, answers: frozenset[str] | None = None, dtype: type = np.float32
) -> Encoded:
    """The tables of one instance; InstanceError naming the part that does not fit. answers: names of tables
    and data that may be missing from it, as anything will do; without them it has everything. dtype: of the
    data."""
    e = Encoded(answers=answers, dtype=dtype)
    encoder.encode(e, [value], lambda i: "")
    return e


def integers(values: Any) -> np.ndarray | None:
    """As an array of integers; None where anything else is among them, or parts of different lengths."""
    try:
        found = np.asarray(values)
    except ValueError:
        return None
    if found.size == 0:  # numpy takes an empty list for floats
        return np.zeros(found.shape, np.int64)
    if found.dtype.kind == "b":
        return found.astype(np.int64)
    return found if found.dtype.kind in "iu" else None


def numbers(values: Any) -> np.ndarray | None:
    """As an array of numbers; None where anything else is among them, or parts of different lengths."""
    try:
        found = np.asarray(values)
    except ValueError:
        return None
    if found.dtype.kind == "O" and all(
        isinstance(v, int | float | np.integer | np.floating) for v in found.flat
    ):
        # Python's integers may be larger than numpy's; where even a float cannot hold one, it is infinite.
        return np.array([_float(v) for v in found.flat]).reshape(found.shape)
    return found if found.dtype.kind in "fiub" else None


def _float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def flat(values: Any) -> Any:
    """The items of all sequences, one after the other."""
    if len(values) == 1:
        return next(iter(values))
    if isinstance(values, np.ndarray) and values.ndim > 1:
        return values.reshape(-1, *values.shape[2:])
    if len(values) and all(isinstance(v, np.ndarray) for v in values):
        if len({v.shape[1:] for v in values}) == 1:
            return np.concatenate(values)
    return list(chain.from_iterable(values))


def odd_key(value: Mapping[str, Any], declared: Any, known: Any, path: str) -> tuple[str, str]:
    """The path of the first key that is not as expected, and why. known: those that are, of the declared."""
    key = sorted(map(str, value.keys() ^ set(known)))[0]
    if key in known:
        return dotted(path, key), "is missing"
    return dotted(
        path, key
    ), "is not declared" if key not in declared else "is missing from the first of them"


def within(locate: Locate, part: str) -> Locate:
    return lambda i: dotted(locate(i), part)


def dotted(outer: str, part: str) -> str:
    return f"{outer}.{part}" if outer else part
