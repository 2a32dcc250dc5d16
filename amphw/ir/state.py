"""State types, and the dense addresses that keys become.

A state type is an ordered record of small integer fields. Each field has an *extent*, an expression over the
instance's attributes and tables and over the fields before it (`t` in `[0, length)`, character `c` in
`[0, wlen[w])`), and a static *bound* for bit layouts. A `KeySpace` is a state type bound to one instance:
it enumerates the states that exist there and gives each a dense address. Where an extent depends on an
earlier field, the address goes through prefix sums (`off[w] + c`), so a ragged space wastes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from amphw.ir.errors import GraphError, StateError
from amphw.ir.expr import Const, Expr, attrs_of, evaluate, fields_of, lift, tables_of
from amphw.ir.instance import Instance

OUT_OF_DOMAIN = -2
"""The address that `KeySpace.address` gives a state outside the domain when asked not to raise."""


@dataclass(frozen=True)
class FieldType:
    """A declared field: its name, extent (values are `0 <= v < extent`), and static bound on the extent."""

    name: str
    extent: Expr
    bound: int

    @property
    def bits(self) -> int:
        return max(1, (self.bound - 1).bit_length())

    def __str__(self) -> str:
        return f"{self.name}<{self.extent}"


def state_field(name: str, extent: Expr | int, bound: int | None = None) -> FieldType:
    """Declare a field; the bound may be left out where the extent is a constant."""
    expression = lift(extent)
    if bound is None:
        if not isinstance(expression, Const):
            raise GraphError(
                f"the extent '{expression}' is not a constant: declare a static bound", field=name
            )
        bound = expression.value
    if bound < 1:
        raise GraphError(f"the bound must be at least 1, got {bound}", field=name)
    return FieldType(name, expression, bound)


@dataclass(frozen=True)
class StateType:
    """An ordered record of fields; an extent may read only fields that stand before it."""

    fields: tuple[FieldType, ...] = ()

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for f in self.fields:
            if f.name in seen:
                raise GraphError("the field occurs twice in one state; rename the inner one", field=f.name)
            missing = fields_of(f.extent) - seen
            if missing:
                raise GraphError(
                    f"its extent '{f.extent}' reads {sorted(missing)}, which the state does not hold "
                    "before it",
                    field=f.name,
                )
            seen.add(f.name)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def get(self, name: str) -> FieldType:
        for f in self.fields:
            if f.name == name:
                return f
        raise GraphError(f"the state {self} has no such field", field=name)

    def add(self, *new: FieldType) -> StateType:
        return StateType(self.fields + new)

    def drop(self, names: Iterable[str]) -> StateType:
        gone = set(names)
        for name in gone:
            self.get(name)
        return StateType(tuple(f for f in self.fields if f.name not in gone))

    @property
    def bound(self) -> int:
        """Static upper bound on the number of states of one instance."""
        total = 1
        for f in self.fields:
            total *= f.bound
        return total

    def __str__(self) -> str:
        return "(" + ", ".join(map(str, self.fields)) + ")"


@dataclass(frozen=True)
class BitLayout:
    """Fields packed into words, first field in the low bits: the header of a message on a wire."""

    fields: tuple[tuple[str, int, int], ...]  # (name, offset, width)
    width: int

    @classmethod
    def of(cls, state: StateType) -> BitLayout:
        offset, out = 0, []
        for f in state.fields:
            out.append((f.name, offset, f.bits))
            offset += f.bits
        return cls(tuple(out), offset)

    def pack(self, columns: Mapping[str, np.ndarray]) -> list[int]:
        """Columns of equal length -> one Python integer a state (any width)."""
        n = len(next(iter(columns.values()))) if self.fields else 0
        words = [0] * n
        for name, offset, width in self.fields:
            for i, value in enumerate(columns[name]):
                if not 0 <= int(value) < 1 << width:
                    raise StateError(f"field '{name}' = {int(value)} does not fit {width} bits")
                words[i] |= int(value) << offset
        return words

    def unpack(self, words: Iterable[int]) -> dict[str, np.ndarray]:
        listed = list(words)
        return {
            name: np.array([(w >> offset) & ((1 << width) - 1) for w in listed], dtype=np.int64)
            for name, offset, width in self.fields
        }


class Columns:
    """States of one instance as named columns: the environment that expressions are evaluated in.

    strict: reading outside a table raises StateError; else it gives 0, and `outside` (bool, by row of the
    environment that all others were cut from) remembers which states did; they may be such as never occur.
    """

    def __init__(
        self, instance: Instance, columns: Mapping[str, np.ndarray], size: int, *, strict: bool = True
    ):
        self.instance, self.columns, self.size, self.strict = instance, dict(columns), size, strict
        if not strict:
            self.outside = np.zeros(size, dtype=bool)
            self._origin = np.arange(size)

    def field(self, name: str) -> np.ndarray:
        try:
            return self.columns[name]
        except KeyError:
            raise GraphError(f"the state holds {sorted(self.columns)}, not this", field=name) from None

    def attr(self, name: str) -> int:
        return self.instance.attr(name)

    def table(self, name: str, index: tuple[np.ndarray, ...]) -> np.ndarray:
        if not self.strict:
            values = self.instance.lookup(name, index, strict=False)
            self.outside[self._origin[self.instance.outside(name, index)]] = True
            return values
        return self.instance.lookup(name, index)

    def subset(self, rows: np.ndarray) -> Columns:
        picked = {k: v[rows] for k, v in self.columns.items()}
        cut = Columns(self.instance, picked, len(rows), strict=self.strict)
        if not self.strict:
            cut.outside, cut._origin = self.outside, self._origin[rows]
        return cut


MOST_STATES = 2**31 - 1
"""States of one type in one instance: devices number them with 32 bits."""


class KeySpace:
    """The states of `type` that exist in `instance`, enumerated and addressed densely.

    `size` is their number; `columns[name]` int64 [size] in address order. Raises StateError for an extent
    outside its field's domain, and for more than MOST_STATES states.
    """

    def __init__(self, type: StateType, instance: Instance):
        self.type, self.instance = type, instance
        self.columns: dict[str, np.ndarray] = {}
        self.size = 1
        self._steps: list[int | np.ndarray] = []  # constant extent, or prefix sums over the fields before
        self._extents: list[np.ndarray] = []
        for f in type.fields:
            extent = evaluate(f.extent, Columns(instance, self.columns, self.size))
            if self.size and (extent.min() < 0 or extent.max() > f.bound):
                bad = int(extent.min() if extent.min() < 0 else extent.max())
                raise StateError(
                    f"instance {instance.number}: field '{f.name}' has extent {f.extent} = {bad}, "
                    f"outside 0..{f.bound}; raise its bound or mend the instance"
                )
            if self.size and (extent.max() > MOST_STATES or extent.sum() > MOST_STATES):
                raise StateError(
                    f"instance {instance.number}: there are more than {MOST_STATES} states with a field "
                    f"'{f.name}' of extent {f.extent}"
                )
            self._extend(f.name, extent)

    def _extend(self, name: str, extent: np.ndarray) -> None:
        uniform = self.size == 0 or bool((extent == extent[0]).all())
        if uniform:
            width = int(extent[0]) if self.size else 0
            self._steps.append(width)
            old = {k: np.repeat(v, width) for k, v in self.columns.items()}
            new = np.tile(np.arange(width, dtype=np.int64), self.size)
        else:
            starts = np.concatenate([[0], np.cumsum(extent)]).astype(np.int64)
            self._steps.append(starts)
            old = {k: np.repeat(v, extent) for k, v in self.columns.items()}
            new = np.arange(starts[-1], dtype=np.int64) - np.repeat(starts[:-1], extent)
        self._extents.append(np.array(extent))
        self.columns = {**old, name: new}
        self.size = len(new)

    def state(self, address: int) -> tuple[int, ...]:
        """The values of the fields at an address."""
        return tuple(int(column[address]) for column in self.columns.values())

    def address_of(self, state: Sequence[int]) -> int:
        """The inverse of `state`; OUT_OF_DOMAIN for what is none of these states."""
        if len(state) != len(self.columns):
            return OUT_OF_DOMAIN
        columns = {name: np.array([value]) for name, value in zip(self.columns, state, strict=True)}
        return int(self.address(columns, 1, strict=False)[0])

    def address(self, columns: Mapping[str, np.ndarray], n: int, *, strict: bool = True) -> np.ndarray:
        """Dense addresses int64 [n] of the given states.

        A state outside its domain raises StateError, or gives OUT_OF_DOMAIN where `strict` is false.
        """
        at = np.zeros(n, dtype=np.int64)
        bad = np.zeros(n, dtype=bool)
        for f, step, extent in zip(self.type.fields, self._steps, self._extents, strict=True):
            value = np.broadcast_to(np.asarray(columns[f.name], dtype=np.int64), (n,))
            if len(extent) == 0:
                bad[:] = True
                continue
            limit = extent[at]
            wrong = (value < 0) | (value >= limit)
            if wrong.any():
                if strict:
                    i = int(np.flatnonzero(wrong)[0])
                    state = {name: int(np.broadcast_to(columns[name], (n,))[i]) for name in self.type.names}
                    raise StateError(
                        f"instance {self.instance.number}: state {state}: field '{f.name}' = "
                        f"{int(value[i])} is outside "
                        f"0..{int(limit[i]) - 1} (extent {f.extent})"
                    )
                bad |= wrong
                value = np.where(wrong, 0, value)
            at = at * step + value if isinstance(step, int) else step[at] + value
            at = np.where(bad, 0, at)
        return np.where(bad, OUT_OF_DOMAIN, at)

    def env(self, *, strict: bool = True) -> Columns:
        """All states of the space, in address order, as an environment."""
        return Columns(self.instance, self.columns, self.size, strict=strict)


def structure_of(expressions: Iterable[Expr]) -> tuple[set[Expr], set[str]]:
    """What expressions depend on: their largest parts that read attributes alone, and names of tables.

    Of `instance % 2` that is the remainder, not the number: instances that agree in it are alike.
    """
    scalars: set[Expr] = set()
    tables: set[str] = set()
    waiting = list(expressions)
    while waiting:
        e = waiting.pop()
        tables |= tables_of(e)
        if attrs_of(e) and not fields_of(e) and not tables_of(e):
            scalars.add(e)
        else:
            waiting.extend(e.children)
    return scalars, tables
