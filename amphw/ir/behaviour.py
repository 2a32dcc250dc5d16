"""What a node does to a message, in one canonical form that every executor interprets or lowers.

A node *fires* for a firing state once its operands are complete: one message at every in-port (a join), one
message at any in-port (Phi), or `count` messages at a group port. It then runs its program and *emits*: each
out-port has a guard, a state map, and possibly several copies. Every family of the papers is an instance of
this form (`nodes.py` and `routing.py` define them), so an executor implements receive, run and emit once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from amphw.ir.algebra import Rule, inverse_holds, simplify
from amphw.ir.errors import GraphError
from amphw.ir.expr import Const, Expr, Field, Op, fields_of, substitute
from amphw.ir.program import Program
from amphw.ir.state import FieldType, StateType

MEMBER = "$m"
"""Name under which the inverse of a Group's key reads the position of a member."""


@dataclass(frozen=True)
class EdgeType:
    """What flows over an edge: state, payload [rows, width], and facts (field values known on this edge)."""

    state: StateType
    width: int
    rows: Expr = Const(1)
    facts: tuple[tuple[str, Expr], ...] = ()

    @property
    def known(self) -> dict[str, Expr]:
        return dict(self.facts)

    def __str__(self) -> str:
        known = "; ".join(f"{k} = {v}" for k, v in self.facts)
        return f"{self.state} [{self.rows}, {self.width}]" + (f" where {known}" if known else "")


@dataclass(frozen=True)
class Receive:
    """An in-port: how a message's state becomes the firing state.

    key: firing field -> expression over the message's fields. member/count: set on a group port. Each firing
    takes `count` messages (over the firing state), placed by `member` (over the message's state).
    """

    port: str
    key: tuple[tuple[str, Expr], ...]
    member: Expr | None = None
    count: Expr | None = None


@dataclass(frozen=True)
class Emit:
    """An out-port: which of the program's outputs it sends, when, and with which states.

    expand: fields enumerated for every firing (Flatmap's copies, Ungroup's rows, a source's states); guard
    and state read the firing state, the decided fields and the expanded ones. by_row: copy j carries row j
    only. data: a source's payload, rows of the instance's data array in address order.
    """

    port: str
    value: int
    state: tuple[tuple[str, Expr], ...]
    guard: Expr | None = None
    expand: tuple[FieldType, ...] = ()
    by_row: bool = False
    data: str | None = None


@dataclass(frozen=True)
class Behaviour:
    """The canonical form of a node.

    program None means the identity on the one operand. decides: fields that the program's integer outputs
    write (Observe). report: names of the outputs handed to the controller (Loss); the first one is
    differentiated. told: the Loss of which they are told. spaces: rows a message has in each row space, over
    the firing state.
    """

    state: StateType
    receives: tuple[Receive, ...]
    emits: tuple[Emit, ...]
    program: Program | None = None
    any_port: bool = False
    decides: tuple[tuple[FieldType, int], ...] = ()
    report: tuple[str, ...] = ()
    told: str = ""
    spaces: tuple[tuple[str, Expr], ...] = (("rows", Const(1)),)

    @property
    def is_source(self) -> bool:
        return not self.receives


def identity(state: StateType) -> tuple[tuple[str, Expr], ...]:
    return tuple((name, Field(name)) for name in state.names)


def learned_fact(e: Expr) -> tuple[str, Expr] | None:
    """(field, value) if the condition is `field == value` with the field not in the value."""
    if isinstance(e, Op) and e.op == "==":
        for a, b in (e.args, e.args[::-1]):
            if isinstance(a, Field) and a.name not in fields_of(b):
                return a.name, b
            # t + c == value: solve for t
            for f in sorted(fields_of(a)):
                step = simplify(a - Field(f))
                if f not in fields_of(step) and f not in fields_of(b):
                    return f, simplify(b - step)
    return None


def _only_value(state: StateType, facts: Mapping[str, Expr]) -> dict[str, Expr]:
    """Fields that can only be 0, as what is known leaves them an extent of 1."""
    extents = {f.name: simplify(substitute(f.extent, facts)) for f in state.fields}
    return {name: Const(0) for name, extent in extents.items() if extent == Const(1)}


@dataclass(frozen=True)
class StateMap:
    """An invertible change of state: fields set, added and dropped.

    set: field -> new value (over the old fields). add: new fields with their value. drop: field -> its value
    recovered from the new state, or None where an edge fact determines it. inverse: old value of a set field
    from the new state; may be left out for `f + constant`. store: fields dropped although nothing determines
    them (a decision that Observe wrote): the executor keeps their value under the new state until the
    gradient is back, so at most one of their values may leave for each new state, which executors verify.
    """

    set: Mapping[str, Expr] = field(default_factory=dict)
    add: tuple[tuple[FieldType, Expr], ...] = ()
    drop: Mapping[str, Expr | None] = field(default_factory=dict)
    inverse: Mapping[str, Expr] = field(default_factory=dict)
    store: tuple[str, ...] = ()

    def apply(
        self,
        old: StateType,
        facts: Mapping[str, Expr],
        rules: list[Rule],
        where: tuple[str, str],
        extra: Mapping[str, Expr] | None = None,
    ) -> tuple[StateType, tuple[tuple[str, Expr], ...], tuple[tuple[str, Expr], ...]]:
        """-> (new state, its fields as expressions over the old ones, facts on the new state).

        Proves that the old state can be recovered. `where` is (node, port) for errors; `extra` are further
        quantities that the inverse may read (a Group's member position).
        """
        node, port = where
        facts = {**_only_value(old, facts), **facts}
        for name in (*self.set, *self.drop, *self.store):
            if name not in old.names:
                raise GraphError(f"the state {old} has no such field", node=node, port=port, field=name)
        try:
            new = old.drop({*self.drop, *self.store}).add(*(f for f, _ in self.add))
        except GraphError as error:
            raise GraphError(
                f"cannot form the new state: {error}", node=node, port=port, field=error.field
            ) from None
        kept = [n for n in old.names if n not in self.drop and n not in self.store]
        forward: dict[str, Expr] = {n: self.set.get(n, Field(n)) for n in kept}
        forward.update({f.name: e for f, e in self.add})
        for name, e in forward.items():
            for missing in sorted(fields_of(e) - set(old.names)):
                raise GraphError(
                    f"'{name} = {e}' reads a field that {old} does not hold",
                    node=node,
                    port=port,
                    field=missing,
                )
        back = {n: self._recover(n, old, facts, where) for n in old.names if n not in self.store}
        allowed = set(new.names) | set(extra or {})
        for name, e in back.items():
            for missing in sorted(fields_of(e) - allowed):
                raise GraphError(
                    f"its inverse '{e}' reads '{missing}', which the new state {new} does not hold",
                    node=node,
                    port=port,
                    field=name,
                )
        extents = {f.name: f.extent for f in old.fields}
        failed = inverse_holds({**forward, **(extra or {})}, back, rules, facts, extents)
        if failed is not None:
            raise GraphError(
                f"cannot prove that '{back[failed]}' recovers it from the new state {new}; "
                "give drop/inverse an expression that an axiom of the schema supports, over fields with the "
                "extents that it states",
                node=node,
                port=port,
                field=failed,
            )
        return new, tuple(forward.items()), self._facts(forward, facts, new)

    def carried(
        self, e: Expr, old: StateType, facts: Mapping[str, Expr], where: tuple[str, str] = ("", "")
    ) -> Expr:
        """An expression over the old state (an edge's row count), written over the new one."""
        return simplify(substitute(e, {n: self._recover(n, old, facts, where) for n in fields_of(e)}))

    def _recover(self, name: str, old: StateType, facts: Mapping[str, Expr], where: tuple[str, str]) -> Expr:
        if name in self.store:
            raise GraphError(
                "stored on exit, so no expression over the new state can read it",
                node=where[0],
                port=where[1],
                field=name,
            )
        if name in self.inverse:
            return self.inverse[name]
        if name in self.drop:
            given = self.drop[name]
            if given is not None:
                return given
            if name in facts:
                return facts[name]
            raise GraphError(
                "dropped, but the remaining state does not determine it: drop it behind a Cond that fixes "
                "its value, or say how to recover it",
                node=where[0],
                port=where[1],
                field=name,
            )
        if name in self.set:
            step = simplify(self.set[name] - Field(name))
            if fields_of(step) - (set(old.names) - set(self.set) - set(self.drop)):
                raise GraphError(
                    f"'{name} = {self.set[name]}' is not of the form {name} + constant; give its inverse",
                    node=where[0],
                    port=where[1],
                    field=name,
                )
            return simplify(Field(name) - step)
        return Field(name)

    def _facts(
        self, forward: Mapping[str, Expr], facts: Mapping[str, Expr], new: StateType
    ) -> tuple[tuple[str, Expr], ...]:
        kept = {n for n in new.names if forward[n] == Field(n)}
        shift = {n: simplify(self.set[n] - Field(n)) for n in self.set if n not in self.drop}
        out: dict[str, Expr] = {}
        for name, value in facts.items():
            if fields_of(value) <= kept:
                if name in kept:
                    out[name] = value
                elif name in shift and fields_of(shift[name]) <= kept:
                    out[name] = simplify(value + shift[name])
        for f, value in self.add:
            known = simplify(substitute(value, facts))
            for candidate in (value, known):
                if fields_of(candidate) <= kept:
                    out[f.name] = simplify(candidate)
                    break
        return tuple(sorted(out.items()))
