"""What an instance looks like: declared once, from which come its tables and the values that a model reads.

An instance is plain Python and numpy: a dict, a sequence, a tree, a graph. `encode` turns it into the flat
integer tables of `amphw.ir.instance`, level by level: a sequence of sequences becomes one table with the
items of all, and a table of where each begins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from amphw.frontend.index import Context, Dim, dims_of
from amphw.frontend.integer import Integer, Items, items_of
from amphw.frontend.place import FrontendError, Place, here
from amphw.frontend.tensor import Tensor
from amphw.frontend.trace import current
from amphw.ir.errors import InstanceError
from amphw.ir.expr import Attr, Const, Expr, Table, lift
from amphw.ir.instance import Axiom, TableType
from amphw.ir.nodes import Source
from amphw.ir.state import StateType

Locate = Callable[[int], str]
"""From the number of an item among all of its level to its path: `words[3].letters[2]`."""


@dataclass
class Declared:
    """What a specification declares: the parts of a schema."""

    attrs: dict[str, int] = field(default_factory=dict)
    tables: dict[str, TableType] = field(default_factory=dict)
    data: dict[str, int] = field(default_factory=dict)
    axioms: list[Axiom] = field(default_factory=list)
    axes: dict[Axis, Dim] = field(default_factory=dict)


@dataclass
class Encoded:
    """What an instance is encoded to."""

    attrs: dict[str, int] = field(default_factory=dict)
    tables: dict[str, np.ndarray] = field(default_factory=dict)
    data: dict[str, np.ndarray] = field(default_factory=dict)
    axes: dict[Axis, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Level:
    """Where the items of a specification are: the dimensions that number them, their address, how many."""

    context: Context = ()
    address: Expr = Const(0)
    count: Expr = Const(1)
    most: int = 1


class Spec(ABC):
    """A part of an instance."""

    def __init__(self) -> None:
        self.place: Place = here()

    @abstractmethod
    def declare(self, d: Declared, name: str, level: Level) -> Any:
        """Declare the tables -> what a model reads."""

    @abstractmethod
    def encode(self, e: Encoded, name: str, values: Any, locate: Locate) -> None:
        """Write the tables of all items of a level; InstanceError naming the first that does not fit."""

    def wrong(self, path: str, why: str) -> InstanceError:
        return InstanceError(f"{path or 'the instance'} {why} (declared at {self.place})")


class Int(Spec):
    """An integer from 0 to below `high`: a token, a class, a pointer."""

    def __init__(self, high: int) -> None:
        super().__init__()
        if high < 1:
            raise FrontendError(f"Int({high}): there is no integer from 0 to below {high}")
        self.high = high

    def declare(self, d: Declared, name: str, level: Level) -> Integer:
        d.tables[name] = TableType((level.count,), lift(self.high))
        return Integer(Table(name, (level.address,)), level.context, lift(self.high))

    def encode(self, e: Encoded, name: str, values: Any, locate: Locate) -> None:
        try:
            column = np.asarray(values)
            if column.size == 0:
                column = np.zeros(0, np.int32)
            fits = column.ndim == 1 and column.dtype.kind in "iub"
        except ValueError:
            fits = False
        if not fits:
            for i, v in enumerate(values):
                if isinstance(v, float) or not hasattr(v, "__index__"):
                    raise self.wrong(locate(i), f"is {v!r}, expected an integer")
            raise self.wrong(locate(0), f"is {values[0]!r}, expected an integer")
        bad = np.flatnonzero((column < 0) | (column >= self.high))
        if len(bad):
            i = int(bad[0])
            raise self.wrong(locate(i), f"is {int(column[i])}, allowed is 0..{self.high - 1}")
        e.tables[name] = column.astype(np.int32)


class Floats(Spec):
    """`width` numbers: features, or a number to predict."""

    def __init__(self, width: int = 1) -> None:
        super().__init__()
        if width < 1:
            raise FrontendError(f"Floats({width}): a width is 1 or more")
        self.width = width

    def declare(self, d: Declared, name: str, level: Level) -> LazyTensor:
        d.data[name] = self.width
        return LazyTensor(name, self.width, level.context)

    def encode(self, e: Encoded, name: str, values: Any, locate: Locate) -> None:
        try:
            rows = np.asarray(values, np.float32).reshape(len(values), -1 if len(values) else self.width)
        except (ValueError, TypeError):
            for i, v in enumerate(values):
                if np.shape(v) not in ((self.width,), ()):
                    raise self.wrong(locate(i), f"is {v!r}, expected {self.width} numbers") from None
            raise self.wrong(locate(0), f"is {values[0]!r}, expected {self.width} numbers") from None
        if rows.shape[1] != self.width:
            raise self.wrong(locate(0), f"has {rows.shape[1]} numbers, expected {self.width}")
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(bad):
            raise self.wrong(locate(int(bad[0])), f"is {rows[bad[0]].tolist()}, expected finite numbers")
        e.data[name] = rows


@dataclass(frozen=True)
class LazyTensor:
    """Data of the instance, which becomes a message once the model reads it."""

    name: str
    width: int
    context: Context

    def tensor(self) -> Tensor:
        known = current().net.made
        if self.name not in known:
            rows = self.context[-1] if self.context and isinstance(self.context[-1], Dim) else None
            outer = self.context[:-1] if rows else ()
            node = current().name(self.name)
            state = StateType(tuple(d.field for d in dims_of(outer)))
            extent = rows.extent if rows else Const(1)
            current().emit(Source(node, state, self.width, extent, data=self.name), {})
            known[self.name] = Tensor((node, "out"), self.width, outer, rows)
        made: Tensor = known[self.name]
        return made


class Record(Spec):
    """Named parts; a dict."""

    def __init__(self, **parts: Spec) -> None:
        super().__init__()
        for name, part in parts.items():
            if not isinstance(part, Spec):
                raise FrontendError(f"'{name}' is {part!r}, expected Int, Floats, Sequence, Tree, Graph, ...")
        self.parts = parts

    def declare(self, d: Declared, name: str, level: Level) -> RecordValue:
        return RecordValue({k: p.declare(d, join(name, k), level) for k, p in self.parts.items()})

    def encode(self, e: Encoded, name: str, values: Any, locate: Locate) -> None:
        columns = self.columns(values, locate)
        for k, part in self.parts.items():
            part.encode(e, join(name, k), columns[k], lambda i, k=k: dotted(locate(i), k))  # type: ignore[misc]

    def columns(self, values: Any, locate: Locate) -> dict[str, list[Any]]:
        for i, v in enumerate(values):
            if not isinstance(v, Mapping):
                raise self.wrong(
                    locate(i) or "the instance", f"is {v!r}, expected a dict with {list(self.parts)}"
                )
            if v.keys() != self.parts.keys():
                odd = sorted(map(str, v.keys() ^ self.parts.keys()))[0]
                what = "is missing" if odd in self.parts else "is not declared"
                raise self.wrong(dotted(locate(i), odd), what)
        return {k: [v[k] for v in values] for k in self.parts}


class RecordValue:
    """The parts of a record, as attributes."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self._parts = dict(parts)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._parts:
            raise FrontendError(f"the instance has no '{name}' here (it has {', '.join(self._parts)})")
        return read(self._parts[name])


def read(value: Any) -> Any:
    """What a model gets: data as tensors, all else as it is."""
    return value.tensor() if isinstance(value, LazyTensor) else value


class Axis:
    """A length that several parts of an instance share: so many steps, so many rows."""

    def __init__(self, name: str, most: int, least: int = 1) -> None:
        self.place = here()
        if not 0 <= least <= most or most < 1:
            raise FrontendError(f"{name or 'a sequence'} has from {least} to {most} items; most is 1 or more")
        self.name, self.most, self.least = name, most, least

    def dim(self, d: Declared) -> Dim:
        if self not in d.axes:
            if self.name in d.attrs:
                raise FrontendError(f"two axes are called '{self.name}'")
            d.attrs[self.name] = self.most
            why = f"the axis '{self.name}' of the instance"
            d.axes[self] = current().dim(self.name[:1], Attr(self.name), self.most, why, least=self.least)
        return d.axes[self]


class Along(Spec):
    """An item for each position of an axis; a list or an array."""

    def __init__(self, axis: Axis, item: Spec) -> None:
        super().__init__()
        self.axis, self.item = axis, item

    def declare(self, d: Declared, name: str, level: Level) -> SequenceValue:
        dim = self.axis.dim(d)
        length = Attr(self.axis.name)
        address = level.address * length + dim.at if level.context else dim.at
        count = level.count * length if level.context else length
        inner = Level((*level.context, dim), address, count, level.most * self.axis.most)
        return SequenceValue(dim, self.item.declare(d, name, inner), Integer(length))

    def encode(self, e: Encoded, name: str, values: Any, locate: Locate) -> None:
        for i, length in enumerate(_lengths(self, values, locate)):
            if not self.axis.least <= length <= self.axis.most:
                allowed = f"{self.axis.least}..{self.axis.most}"
                raise self.wrong(locate(i), f"has {length} items, allowed are {allowed}")
            if e.axes.setdefault(self.axis, length) != length:
                raise self.wrong(
                    locate(i), f"has {length} items, but '{self.axis.name}' is {e.axes[self.axis]} elsewhere"
                )
        e.attrs[self.axis.name] = e.axes.get(self.axis, self.axis.least)
        _encode_items(self, e, name, values, locate)


class Sequence(Along):
    """From `least` to `most` items; a list or an array. Each sequence within another has its own length."""

    def __init__(self, item: Spec, most: int, least: int = 1) -> None:
        super().__init__(Axis("", most, least), item)
        self.most, self.least = most, least

    def declare(self, d: Declared, name: str, level: Level) -> SequenceValue:
        if not level.context:
            self.axis.name = join(name, "length")
            return super().declare(d, name, level)
        length, first, total = (join(name, part) for part in ("length", "first", "total"))
        most = level.most * self.most
        d.attrs[total] = most
        d.tables[length] = TableType((level.count,), lift(self.most + 1), self.least)
        d.tables[first] = TableType((level.count,), lift(most + 1))
        own = Table(length, (level.address,))
        why = f"position in '{name}'"
        stem = name.rpartition("_")[2][:1]
        dim = current().dim(stem, own, self.most, why, least=self.least, needs=dims_of(level.context))
        address = Table(first, (level.address,)) + dim.at
        inner = Level((*level.context, dim), address, Attr(total), most)
        return SequenceValue(dim, self.item.declare(d, name, inner), Integer(own, level.context))

    def encode(self, e: Encoded, name: str, values: Any, locate: Locate) -> None:
        if self.axis.name:
            super().encode(e, name, values, locate)
            return
        lengths = np.array(_lengths(self, values, locate), np.int32)
        for i in np.flatnonzero((lengths < self.least) | (lengths > self.most)):
            raise self.wrong(locate(int(i)), f"has {lengths[i]} items, allowed are {self.least}..{self.most}")
        e.attrs[join(name, "total")] = int(lengths.sum())
        e.tables[join(name, "length")] = lengths
        e.tables[join(name, "first")] = (np.cumsum(lengths) - lengths).astype(np.int32)
        _encode_items(self, e, name, values, locate)


class SequenceValue(Items):
    """A sequence as a model reads it: `item` at any position, `length`; parts of a record as attributes.

    Where a value or an Integer is wanted, it stands for its items.
    """

    __hash__ = object.__hash__
    __array_ufunc__ = None  # a number of numpy leaves operators to the sequence beside it

    def __init__(self, dim: Dim, item: Any, length: Integer) -> None:
        self.dim, self._item, self.length = dim, item, length

    @property
    def item(self) -> Any:
        return read(self._item)

    @property
    def position(self) -> Integer:
        return Integer(self.dim.at, (*self.dim.needs, self.dim), self.dim.extent)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.item, name)

    def __getitem__(self, columns: Any) -> Any:
        if not isinstance(columns, slice):
            raise FrontendError(
                "a sequence has no items by number while the model is built: `pick(x, position)` takes one, "
                "`fold` and `scan` go over all"
            )
        return self.item[columns]

    def __iter__(self) -> Any:
        raise FrontendError("how long a sequence is differs from instance to instance; use fold or scan")

    def __bool__(self) -> bool:
        raise FrontendError("a sequence has no truth while the model is built; `length` is its length")


def _delegated(name: str) -> Any:
    def operator(self: SequenceValue, *others: Any) -> Any:
        found = getattr(type(self.item), name, None)
        if found is None:
            raise FrontendError(f"the items of this sequence have no {name}; they are {self.item!r}")
        return found(self.item, *(items_of(x) for x in others))

    return operator


for _name in "add radd sub rsub mul rmul truediv rtruediv floordiv mod neg eq ne lt le gt ge".split():
    setattr(SequenceValue, f"__{_name}__", _delegated(f"__{_name}__"))


def encode(spec: Spec, value: Any) -> Encoded:
    """The tables of one instance; InstanceError naming the part that does not fit."""
    e = Encoded()
    spec.encode(e, "", [value], lambda i: "")
    return e


def _encode_items(spec: Along, e: Encoded, name: str, values: Any, locate: Locate) -> None:
    lengths = _lengths(spec, values, lambda i: "")
    ends = np.cumsum(lengths)

    def inner(i: int) -> str:
        outer = int(np.searchsorted(ends, i, side="right"))
        start = int(ends[outer]) - lengths[outer] if outer < len(lengths) else 0
        return f"{locate(outer)}[{i - start}]"

    if isinstance(spec.item, Record) and any(isinstance(v, Mapping) for v in values):
        # Columns instead of a list of records: {"word": [...], "tag": [...]}.
        parts = spec.item.columns(values, locate)
        for k, part in spec.item.parts.items():
            at: Locate = lambda i, k=k: dotted(inner(i), k)  # type: ignore[misc]  # noqa: E731
            part.encode(e, join(name, k), flat(parts[k]), at)
    else:
        spec.item.encode(e, name, flat(values), inner)


def flat(values: Any) -> Any:
    """The items of all sequences, one after the other."""
    if len(values) == 1:
        return values[0]
    if isinstance(values, np.ndarray) and values.ndim > 1:
        return values.reshape(-1, *values.shape[2:])
    if len(values) and all(isinstance(v, np.ndarray) for v in values):
        return np.concatenate(values)
    return list(chain.from_iterable(values))


def _lengths(spec: Along, values: Any, locate: Locate) -> list[int]:
    """The length of each sequence. There may be many in an instance; their paths are made for errors only."""
    plain = (list, tuple, np.ndarray)
    return [len(v) if type(v) in plain else _length(spec, v, locate(i)) for i, v in enumerate(values)]


def _length(spec: Along, value: Any, path: str) -> int:
    if isinstance(value, Mapping) and isinstance(spec.item, Record):
        lengths = {k: len(v) for k, v in value.items()}
        if len(set(lengths.values())) > 1:
            raise spec.wrong(path, f"has columns of different lengths: {lengths}")
        return next(iter(lengths.values()), 0)
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__len__"):
        raise spec.wrong(path, f"is {value!r}, expected a sequence")
    return len(value)


def join(name: str, part: str) -> str:
    return f"{name}_{part}" if name else part


def dotted(outer: str, part: str) -> str:
    return f"{outer}.{part}" if outer else part
