"""What an instance looks like: declared once, from which come its tables and the values that a model reads.

An instance is plain Python and numpy: a dict, a sequence, a tree, a graph. What declares a part also makes
its encoder, which writes what was declared (`encoding.py`). A specification stays as it was written, so it
may be used in several places and for several models.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from amphw.frontend.encoding import Aligned, Encoder, Integers, Numbers, Parts, Ragged, RaggedNames
from amphw.frontend.index import Context, Dim, dims_of
from amphw.frontend.integer import Integer, Items, items_of
from amphw.frontend.source import FrontendError, SourceLine, here
from amphw.frontend.tensor import Tensor
from amphw.frontend.trace import current
from amphw.ir.expr import Attr, Const, Expr, Table, lift
from amphw.ir.instance import Axiom, TableType
from amphw.ir.nodes import Source
from amphw.ir.state import StateType

Path = tuple[str, ...]
"""Of a part of the instance: ("words", "letters")."""


def join(path: Path) -> str:
    """The name under which a part is stored."""
    return "_".join(path)


@dataclass
class Declared:
    """What a specification declares: the parts of a schema.

    axes: the dimensions of those that have been used. parts: what each name stands for, by kind and name.
    """

    attrs: dict[str, int] = field(default_factory=dict)
    tables: dict[str, TableType] = field(default_factory=dict)
    data: dict[str, int] = field(default_factory=dict)
    axioms: list[Axiom] = field(default_factory=list)
    axes: dict[Axis, Dim] = field(default_factory=dict)
    parts: dict[tuple[str, str], Path] = field(default_factory=dict)

    def attr(self, path: Path, most: int, place: SourceLine) -> str:
        """Declare an attribute -> its name; FrontendError where another part has the same."""
        name = self._name("attribute", path, place)
        self.attrs[name] = most
        return name

    def table(self, path: Path, type: TableType, place: SourceLine) -> str:
        name = self._name("table", path, place)
        self.tables[name] = type
        return name

    def numbers(self, path: Path, width: int, place: SourceLine) -> str:
        name = self._name("data", path, place)
        self.data[name] = width
        return name

    def _name(self, kind: str, path: Path, place: SourceLine) -> str:
        # Two paths may be one name: a.b and a_b are both stored as a_b.
        name, part = join(path), ".".join(path)
        if (kind, name) in self.parts:
            other = ".".join(self.parts[kind, name])
            which = f"'{other}'" if other != part else "a table of the sequence, tree or graph around it"
            raise FrontendError(f"'{part}' would be stored as '{name}', as is {which}; rename one", place)
        self.parts[kind, name] = path
        return name


@dataclass(frozen=True)
class Level:
    """Where the items of a specification are: the dimensions that number them, their address, how many.

    ragged: the path of the sequence within another that they are the items of, whose tables have that name.
    """

    context: Context = ()
    address: Expr = Const(0)
    count: Expr = Const(1)
    most: int = 1
    ragged: Path | None = None

    def path_of(self, path: Path) -> Path:
        """Under which the tables of an item are stored, beside those of the sequence around it."""
        return (*path, "item") if self.ragged == path else path


class Spec(ABC):
    """A part of an instance."""

    def __init__(self) -> None:
        self.place: SourceLine = here()

    @property
    def names(self) -> set[str]:
        """The parts that are read as its attributes."""
        return set()

    @abstractmethod
    def declare(self, d: Declared, path: Path, level: Level) -> tuple[Any, Encoder]:
        """Declare the tables -> what a model reads, and what writes them."""


class Int(Spec):
    """An integer from 0 to below `high`: a token, a class, a pointer."""

    def __init__(self, high: int) -> None:
        super().__init__()
        self.high = whole_number("Int(high)", high)
        if self.high < 1:
            raise FrontendError(f"Int({high}): there is no integer from 0 to below {high}")
        if self.high > 2**31:
            raise FrontendError(f"Int({high}): the tables of an instance hold integers of up to {2**31 - 1}")

    def declare(self, d: Declared, path: Path, level: Level) -> tuple[Integer, Encoder]:
        name = d.table(path, TableType((level.count,), lift(self.high)), self.place)
        value = Integer(Table(name, (level.address,)), level.context, lift(self.high))
        return value, Integers(self.place, name, self.high)


class Floats(Spec):
    """`width` numbers: features, or a number to predict."""

    def __init__(self, width: int = 1) -> None:
        super().__init__()
        self.width = whole_number("Floats(width)", width)
        if self.width < 1:
            raise FrontendError(f"Floats({width}): a width is 1 or more")

    def declare(self, d: Declared, path: Path, level: Level) -> tuple[LazyTensor, Encoder]:
        name = d.numbers(path, self.width, self.place)
        return LazyTensor(name, self.width, level.context), Numbers(self.place, name, self.width)


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

    def __init__(self, /, **parts: Spec) -> None:
        super().__init__()
        for name, part in parts.items():
            is_part(part, f"'{name}'")
            if not name.isidentifier() or name.startswith("_"):
                raise FrontendError(f"a part is read as an attribute, and '{name}' is not the name of one")
        self.parts = parts

    @property
    def names(self) -> set[str]:
        return set(self.parts)

    def declare(self, d: Declared, path: Path, level: Level) -> tuple[RecordValue, Parts]:
        made = {k: p.declare(d, (*path, k), level) for k, p in self.parts.items()}
        values, encoders = ({k: m[i] for k, m in made.items()} for i in (0, 1))
        return RecordValue(values), Parts(self.place, encoders)


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
        if not name or name == "instance":
            raise FrontendError(f"an axis needs a name of its own, got {name!r}")
        self.name = name
        self.least, self.most = _range(name, least, most)

    def dim(self, d: Declared) -> Dim:
        if self not in d.axes:
            if any(axis.name == self.name for axis in d.axes):
                raise FrontendError(f"two axes are called '{self.name}'", self.place)
            d.axes[self] = _length(d, (self.name,), self)
        return d.axes[self]


class Along(Spec):
    """An item for each position of an axis; a list or an array."""

    def __init__(self, axis: Axis, item: Spec) -> None:
        super().__init__()
        if not isinstance(axis, Axis):
            raise FrontendError(f"a part is along an Axis, got {axis!r}")
        self.axis, self.item = axis, _item(item)

    def declare(self, d: Declared, path: Path, level: Level) -> tuple[SequenceValue, Encoder]:
        dim = self.axis.dim(d)
        if dim in level.context:
            raise FrontendError(
                f"the axis '{self.axis.name}' is used within itself, where both positions would be one; give "
                "the inner items an axis of their own",
                self.place,
            )
        return _aligned(d, self, dim, self.axis, path, level)


class Sequence(Spec):
    """From `least` to `most` items; a list or an array. Each sequence within another has its own length."""

    def __init__(self, item: Spec, most: int, least: int = 1) -> None:
        super().__init__()
        self.item = _item(item)
        self.least, self.most = _range("a sequence", least, most)

    def declare(self, d: Declared, path: Path, level: Level) -> tuple[SequenceValue, Encoder]:
        if not level.context:
            return _aligned(d, self, _length(d, (*path, "length"), self), self, path, level)
        path = level.path_of(path)
        most, place = level.most * self.most, self.place
        total = d.attr((*path, "total"), most, place)
        length = d.table((*path, "length"), TableType((level.count,), lift(self.most + 1), self.least), place)
        first = d.table((*path, "first"), TableType((level.count,), lift(most + 1)), place)
        own, name = Table(length, (level.address,)), join(path)
        stem, why = name.rpartition("_")[2][:1], f"position in '{name}'"
        dim = current().dim(
            stem, own, self.most, why, least=self.least, needs=dims_of(level.context), place=place
        )
        address = Table(first, (level.address,)) + dim.at
        inner = Level((*level.context, dim), address, Attr(total), most, path)
        item, encoder = self.item.declare(d, path, inner)
        names = RaggedNames(length, first, total)
        value = SequenceValue(dim, item, Integer(own, level.context))
        return value, Ragged(place, encoder, names, self.least, self.most)


def _length(d: Declared, path: Path, of: Axis | Sequence) -> Dim:
    """The positions of what is equally long wherever it occurs in an instance."""
    name = d.attr(path, of.most, of.place)
    why = f"the axis '{name}' of the instance"
    return current().dim(name[:1], Attr(name), of.most, why, least=of.least, place=of.place)


def _aligned(
    d: Declared, spec: Along | Sequence, dim: Dim, length: Axis | Sequence, path: Path, level: Level
) -> tuple[SequenceValue, Encoder]:
    address = level.address * dim.extent + dim.at if level.context else dim.at
    count = level.count * dim.extent if level.context else dim.extent
    inner = Level((*level.context, dim), address, count, level.most * length.most, level.ragged)
    item, encoder = spec.item.declare(d, path, inner)
    assert isinstance(dim.extent, Attr)
    aligned = Aligned(spec.place, encoder, dim.extent.name, length.least, length.most)
    return SequenceValue(dim, item, Integer(dim.extent)), aligned


class SequenceValue(Items):
    """A sequence as a model reads it: `item` at any position, `length`; parts of a record as attributes.

    Where a value or an Integer is wanted, it stands for its items.
    """

    OWN = frozenset({"dim", "item", "length", "position"})  # attributes that no part of a record can be
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

    def __len__(self) -> int:
        raise FrontendError(
            "how long a sequence is differs from instance to instance; `length` is an Integer"
        )

    def __bool__(self) -> bool:
        raise FrontendError("a sequence has no truth while the model is built; `length` is its length")


def _delegated(name: str) -> Any:
    def operator(self: SequenceValue, *others: Any) -> Any:
        found = getattr(type(self.item), name, None)
        if found is None:
            raise FrontendError(f"the items of this sequence have no {name}; they are {self.item!r}")
        return found(self.item, *(items_of(x) for x in others))

    return operator


_OPERATORS = "add radd sub rsub mul rmul truediv rtruediv floordiv mod neg eq ne lt le gt ge"
for _name in f"{_OPERATORS} pow matmul rmatmul abs float int index setitem".split():
    setattr(SequenceValue, f"__{_name}__", _delegated(f"__{_name}__"))


def whole_number(what: str, value: Any, least: int | None = None) -> int:
    """A number of a declaration; FrontendError where it is no integer, or below `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise FrontendError(f"{what} is an integer, got {value!r}") from None
    if least is not None and number < least:
        raise FrontendError(f"{what} is {least} or more, got {number}")
    return number


def is_part(part: object, what: str) -> None:
    if not isinstance(part, Spec):
        raise FrontendError(f"{what} is {part!r}, expected Int, Floats, Sequence, Tree, Graph, ...")


def record_of(parts: Mapping[str, Spec] | None, what: str) -> Record:
    """The parts of a tree's or a graph's leaves, nodes or edges."""
    if not isinstance(parts, Mapping | None):
        raise FrontendError(f"the parts of {what} are a dict of names and specifications, got {parts!r}")
    return Record(**parts or {})


def _range(what: str, least: int, most: int) -> tuple[int, int]:
    least, most = whole_number("`least`", least), whole_number("`most`", most)
    if not 0 <= least <= most or most < 1:
        raise FrontendError(f"{what} has from {least} to {most} items; most is 1 or more")
    return least, most


def _item(item: Spec) -> Spec:
    is_part(item, "the item of a sequence")
    if odd := sorted(SequenceValue.OWN & item.names):
        raise FrontendError(
            f"the parts {odd} of a sequence's items need other names: it has its own of these"
        )
    return item
