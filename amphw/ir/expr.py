"""State expressions: what Cond, Isu, Flatmap, Group and keys compute.

An expression is a tree over state fields, instance attributes and structure tables, never a Python
function, so that the same definition evaluates vectorised in numpy here, and compiles into C++, OpenCL C and
gates elsewhere. Values are 64-bit integers; a condition is 0 or 1.

>>> t, length = Field("t"), Attr("length")
>>> str((t + 1).eq(length))
't + 1 == length'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from amphw.ir.errors import GraphError, StateError

IntArray = np.ndarray


class Env(Protocol):
    """What an expression is evaluated against: columns of equal length for `size` states."""

    size: int

    def field(self, name: str) -> IntArray: ...
    def attr(self, name: str) -> int: ...
    def table(self, name: str, index: tuple[IntArray, ...]) -> IntArray: ...
    def subset(self, rows: IntArray) -> Env: ...


class Expr:
    """Base class; `==` compares structure, `.eq()` builds an equality test."""

    def __add__(self, other: Expr | int) -> Expr:
        return Op("+", (self, lift(other)))

    def __radd__(self, other: int) -> Expr:
        return Op("+", (lift(other), self))

    def __sub__(self, other: Expr | int) -> Expr:
        return Op("-", (self, lift(other)))

    def __rsub__(self, other: int) -> Expr:
        return Op("-", (lift(other), self))

    def __mul__(self, other: Expr | int) -> Expr:
        return Op("*", (self, lift(other)))

    def __rmul__(self, other: int) -> Expr:
        return Op("*", (lift(other), self))

    def __floordiv__(self, other: Expr | int) -> Expr:
        return Op("//", (self, lift(other)))

    def __mod__(self, other: Expr | int) -> Expr:
        return Op("%", (self, lift(other)))

    def __lt__(self, other: Expr | int) -> Expr:
        return Op("<", (self, lift(other)))

    def __le__(self, other: Expr | int) -> Expr:
        return Op("<=", (self, lift(other)))

    def __gt__(self, other: Expr | int) -> Expr:
        return Op("<", (lift(other), self))

    def __ge__(self, other: Expr | int) -> Expr:
        return Op("<=", (lift(other), self))

    def eq(self, other: Expr | int) -> Expr:
        return Op("==", (self, lift(other)))

    def ne(self, other: Expr | int) -> Expr:
        return Op("!=", (self, lift(other)))

    def __bool__(self) -> bool:
        raise GraphError(
            f"the expression '{self}' has no truth value while the graph is built; use where() or a Cond"
        )

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()


@dataclass(frozen=True)
class Const(Expr):
    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Field(Expr):
    """A field of the state, by name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Attr(Expr):
    """An attribute of the instance (its length, its root); `instance` is its number."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Table(Expr):
    """An entry of one of the instance's structure tables."""

    name: str
    index: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.index

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.index))}]"


@dataclass(frozen=True)
class Op(Expr):
    op: str
    args: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def __str__(self) -> str:
        if self.op in _INFIX:
            strength = _INFIX[self.op]
            left, right = (_bracketed(a, strength, i) for i, a in enumerate(self.args))
            return f"{left} {self.op} {right}"
        return f"{self.op}({', '.join(map(str, self.args))})"


# Binding strength of the infix operators, for printing only.
_INFIX = {"==": 1, "!=": 1, "<": 1, "<=": 1, "+": 2, "-": 2, "*": 3, "//": 3, "%": 3}


def _bracketed(arg: Expr, strength: int, position: int) -> str:
    text = str(arg)
    if isinstance(arg, Op) and arg.op in _INFIX and _INFIX[arg.op] < strength + position:
        return f"({text})"
    return text


ROW = Field("$row")
"""Inside a program: the number of the row within its message."""

ROWS = Field("$rows")
"""Where a program says how many rows a space has: the rows that its message has in the space "rows"."""


def lift(value: Expr | int) -> Expr:
    """An expression as it is; an integer as a constant."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool | int | np.integer):
        return Const(int(value))
    raise GraphError(f"expected a state expression or an integer, got {value!r}")


def table(name: str) -> Callable[..., Table]:
    """`table("parent")(n)` reads an entry: sugar for `Table("parent", (n,))`."""
    return lambda *index: Table(name, tuple(lift(i) for i in index))


def where(condition: Expr | int, then: Expr | int, otherwise: Expr | int) -> Expr:
    """`then` where the condition holds, else `otherwise`; only the chosen branch is evaluated."""
    return Op("where", (lift(condition), lift(then), lift(otherwise)))


def both(a: Expr, b: Expr) -> Expr:
    """1 where both hold, else 0; `b` is not evaluated where `a` fails."""
    return where(a, b if is_condition(b) else b.ne(0), 0)


def either(a: Expr, b: Expr) -> Expr:
    """1 where at least one holds, else 0; `b` is not evaluated where `a` holds."""
    return where(a, 1, b if is_condition(b) else b.ne(0))


def minimum(a: Expr | int, b: Expr | int) -> Expr:
    return Op("min", (lift(a), lift(b)))


def maximum(a: Expr | int, b: Expr | int) -> Expr:
    return Op("max", (lift(a), lift(b)))


def mixed(a: Expr | int, seed: int) -> Expr:
    """A seeded 32-bit hash of `a` (murmur3's finaliser), for routing to replicas by hash."""
    return Op("hash", (lift(a), lift(seed)))


def is_condition(e: Expr) -> bool:
    """Whether the expression is a comparison, whose value can only be 0 or 1."""
    return isinstance(e, Op) and e.op in {"==", "!=", "<", "<="}


def _hash(a: IntArray, seed: IntArray) -> IntArray:
    # Masked before each step, so that negative values and large seeds wrap without an overflow.
    mask = np.uint64(0xFFFFFFFF)
    word, salt = (np.asarray(x).astype(np.uint64) & mask for x in (a, seed))
    h = (word + (salt * np.uint64(0x9E3779B9) & mask)) & mask
    for shift, multiplier in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h ^= h >> np.uint64(shift)
        h = (h * np.uint64(multiplier)) & mask
    h ^= h >> np.uint64(16)
    return h.astype(np.int64)


_NUMPY: dict[str, Callable[..., IntArray]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "<": np.less,
    "<=": np.less_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "min": np.minimum,
    "max": np.maximum,
    "hash": _hash,
}


def evaluate(e: Expr, env: Env) -> IntArray:
    """Evaluate over all states of `env` at once -> int64 [env.size].

    Raises StateError for an index outside its table or a division by zero, naming the expression.
    """
    value = np.asarray(_evaluate(e, env), dtype=np.int64)
    if value.shape == (env.size,):
        return value
    # Of one state, as the interpreter evaluates most, broadcasting takes longer than all else.
    return value.reshape(1) if env.size == value.size == 1 else np.broadcast_to(value, (env.size,))


def _evaluate(e: Expr, env: Env) -> IntArray:
    if isinstance(e, Const):
        return np.int64(e.value)  # type: ignore[return-value]  # a scalar broadcasts
    if isinstance(e, Field):
        return env.field(e.name)
    if isinstance(e, Attr):
        return np.int64(env.attr(e.name))  # type: ignore[return-value]
    if isinstance(e, Table):
        index = tuple(evaluate(i, env) for i in e.index)
        return env.table(e.name, index)
    assert isinstance(e, Op)
    if e.op == "where":
        return _where(e, env)
    args = [_evaluate(a, env) for a in e.args]
    if e.op in {"//", "%"}:
        if np.any(np.asarray(args[1]) == 0):
            if env.size == 0:  # a constant divisor; no state divides by it
                return np.zeros(0, dtype=np.int64)
            raise StateError(f"'{e}' divides by zero; guard it with where()")
        return (np.floor_divide if e.op == "//" else np.mod)(*args)
    # numpy compares to booleans, whose sum would be an "or".
    return np.asarray(_NUMPY[e.op](*args), dtype=np.int64)[()]


def _where(e: Op, env: Env) -> IntArray:
    # Branches see only the states that choose them: `where(n >= 0, parent[n], 0)` never reads parent[-1].
    condition = evaluate(e.args[0], env) != 0
    if condition.all():
        return _evaluate(e.args[1], env)
    if not condition.any():
        return _evaluate(e.args[2], env)
    out = np.empty(env.size, dtype=np.int64)
    out[condition] = evaluate(e.args[1], env.subset(np.flatnonzero(condition)))
    out[~condition] = evaluate(e.args[2], env.subset(np.flatnonzero(~condition)))
    return out


def substitute(e: Expr, fields: Mapping[str, Expr]) -> Expr:
    """Replace fields by expressions (all at once)."""
    if isinstance(e, Field):
        return fields.get(e.name, e)
    if isinstance(e, Table):
        return Table(e.name, tuple(substitute(i, fields) for i in e.index))
    if isinstance(e, Op):
        return Op(e.op, tuple(substitute(a, fields) for a in e.args))
    return e


def walk(e: Expr) -> Iterator[Expr]:
    """The expression and everything below it."""
    yield e
    for child in e.children:
        yield from walk(child)


def fields_of(e: Expr) -> set[str]:
    """Names of the state fields that the expression reads."""
    return {x.name for x in walk(e) if isinstance(x, Field)}


def attrs_of(e: Expr) -> set[str]:
    return {x.name for x in walk(e) if isinstance(x, Attr)}


def tables_of(e: Expr) -> set[str]:
    return {x.name for x in walk(e) if isinstance(x, Table)}


def to_json(e: Expr) -> object:
    """Nested lists: `["+", ["field", "t"], 1]`."""
    if isinstance(e, Const):
        return e.value
    if isinstance(e, Field):
        return ["field", e.name]
    if isinstance(e, Attr):
        return ["attr", e.name]
    if isinstance(e, Table):
        return ["table", e.name, *map(to_json, e.index)]
    assert isinstance(e, Op)
    return [e.op, *map(to_json, e.args)]


def from_json(data: object) -> Expr:
    """The inverse of `to_json`; raises GraphError on anything else."""
    if isinstance(data, int) and not isinstance(data, bool):
        return Const(data)
    if isinstance(data, list) and data and isinstance(data[0], str):
        head, *rest = data
        if head in {"field", "attr"} and len(rest) == 1 and isinstance(rest[0], str):
            return Field(rest[0]) if head == "field" else Attr(rest[0])
        if head == "table" and rest and isinstance(rest[0], str):
            return Table(rest[0], tuple(map(from_json, rest[1:])))
        arity = 3 if head == "where" else 2
        if (head in _NUMPY or head in {"where", "//", "%"}) and len(rest) == arity:
            return Op(head, tuple(map(from_json, rest)))
    raise GraphError(f"not a state expression: {data!r}")
