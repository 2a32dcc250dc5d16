"""Node families that only route: Cond, Phi, Isu, Bcast, Flatmap, Ungroup, Replicate, Discard.

They leave payloads alone (their program is the identity), so a CPU compiles chains of them into tables,
whereas an FPGA builds each one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from amphw.ir.algebra import Rule, simplify
from amphw.ir.behaviour import Behaviour, EdgeType, Emit, Receive, StateMap, identity, learned_fact
from amphw.ir.errors import GraphError
from amphw.ir.expr import Const, Expr, Field, fields_of, substitute
from amphw.ir.nodes import Inferred, Node, Types
from amphw.ir.state import FieldType, StateType


def _one_in(state: StateType, port: str = "in") -> tuple[Receive, ...]:
    return (Receive(port, identity(state)),)


def _readable(node: Node, e: Expr, state: StateType, what: str) -> None:
    for missing in sorted(fields_of(e) - set(state.names)):
        raise GraphError(
            f"{what} '{e}' reads a field that the state {state} does not hold",
            node=node.name,
            port="in",
            field=missing,
        )


@dataclass(frozen=True)
class Cond(Node):
    """Sends each message to the port that `index` (over its state) names.

    A condition has the ports (no, yes). Behind a port the state knows what the choice says (`t == length -
    1`); fields in `drop` that this determines are removed there.
    """

    index: Expr = Const(0)
    ports: tuple[str, ...] = ("no", "yes")
    drop: tuple[str, ...] = ()

    @property
    def outs(self) -> tuple[str, ...]:
        return self.ports

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        edge = types["in"]
        _readable(self, self.index, edge.state, "the index")
        emits, outs = [], {}
        for k, port in enumerate(self.ports):
            facts = edge.known
            if isinstance(self.index, Field):
                facts[self.index.name] = Const(k)
            learned = learned_fact(self.index) if k == 1 else None
            if learned:
                facts[learned[0]] = learned[1]
            dropped = StateMap(drop=dict.fromkeys(self.drop))
            state, forward, facts_out = dropped.apply(edge.state, facts, rules, (self.name, port))
            rows = dropped.carried(edge.rows, edge.state, facts, (self.name, port))
            emits.append(Emit(port, 0, forward, self.index.eq(k)))
            outs[port] = replace(edge, state=state, rows=rows, facts=facts_out)
        return Behaviour(edge.state, _one_in(edge.state), tuple(emits), spaces=(("rows", edge.rows),)), outs


@dataclass(frozen=True)
class Phi(Node):
    """Merges ports whose messages have disjoint states.

    A backward message returns where its forward one came from.

    site: a field that records the port (a call site of a shared parameter), so states of two sites differ.
    rows: the rows of a message behind it, where they differ by port: at each port, what is known there must
    make them the same as what it brings.
    """

    ports: tuple[str, ...] = ("a", "b")
    site: str | None = None
    rows: Expr | None = None

    @property
    def ins(self) -> tuple[str, ...]:
        return self.ports

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        present = [p for p in self.ports if p in types]  # a loop's back edge is not typed on the first visit
        first = types[present[0]]
        facts = first.known
        for port in present[1:]:
            self._same(first, types[port], present[0], port)
            facts = {k: v for k, v in facts.items() if types[port].known.get(k) == v}
        state = first.state
        if self.site is not None:
            extra = FieldType(self.site, Const(len(self.ports)), len(self.ports))
            try:
                state = state.add(extra)
            except GraphError as error:
                raise GraphError(
                    "the state holds a field of that name already", node=self.name, field=self.site
                ) from error
        rows = first.rows if self.rows is None else self.rows
        receives = []
        for k, port in enumerate(self.ports):
            site = ((self.site, Const(k)),) if self.site is not None else ()
            receives.append(Receive(port, identity(first.state) + site))
        behaviour = Behaviour(
            state,
            tuple(receives),
            (Emit("out", 0, identity(state)),),
            any_port=True,
            spaces=(("rows", rows),),
        )
        return behaviour, {"out": EdgeType(state, first.width, rows, tuple(sorted(facts.items())))}

    def _same(self, a: EdgeType, b: EdgeType, port_a: str, port_b: str) -> None:
        if a.state != b.state:
            odd = sorted(set(a.state.names) ^ set(b.state.names)) or [
                x.name for x, y in zip(a.state.fields, b.state.fields, strict=True) if x != y
            ]
            raise GraphError(
                f"merges '{port_a}' with state {a.state} and '{port_b}' with state {b.state}",
                node=self.name,
                port=port_b,
                field=odd[0],
            )
        if self.rows is not None:
            same_rows = all(
                simplify(substitute(self.rows, x.known)) == simplify(substitute(x.rows, x.known))
                for x in (a, b)
            )
        else:
            same_rows = simplify(a.rows) == simplify(b.rows)
        if a.width != b.width or not same_rows:
            raise GraphError(
                f"'{port_a}' brings [{a.rows}, {a.width}], '{port_b}' brings [{b.rows}, {b.width}]",
                node=self.name,
                port=port_b,
            )


@dataclass(frozen=True)
class Isu(Node):
    """Invertible state update; the static checks prove the inverse."""

    map: StateMap = StateMap()

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        edge = types["in"]
        state, forward, facts = self.map.apply(edge.state, edge.known, rules, (self.name, "in"))
        behaviour = Behaviour(
            edge.state, _one_in(edge.state), (Emit("out", 0, forward),), spaces=(("rows", edge.rows),)
        )
        rows = self.map.carried(edge.rows, edge.state, edge.known, (self.name, "in"))
        return behaviour, {"out": replace(edge, state=state, rows=rows, facts=facts)}


@dataclass(frozen=True)
class Bcast(Node):
    """The same message to every port; gradients add up."""

    n: int = 2

    @property
    def outs(self) -> tuple[str, ...]:
        return tuple(f"out{k}" for k in range(self.n))

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        edge = types["in"]
        emits = tuple(Emit(port, 0, identity(edge.state)) for port in self.outs)
        behaviour = Behaviour(edge.state, _one_in(edge.state), emits, spaces=(("rows", edge.rows),))
        return behaviour, dict.fromkeys(self.outs, edge)


@dataclass(frozen=True)
class Flatmap(Node):
    """One message -> a copy for every value of `index` (its extent is over the state); gradients add up.

    An extent of zero returns a zero gradient. map: what becomes of the state and the index (`e = off[v] +
    j`).
    """

    index: FieldType = None  # type: ignore[assignment]
    map: StateMap = StateMap()

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        edge = types["in"]
        _readable(self, self.index.extent, edge.state, "the index's extent")
        wide = edge.state.add(self.index)
        state, forward, facts = self.map.apply(wide, edge.known, rules, (self.name, "out"))
        behaviour = Behaviour(
            edge.state,
            _one_in(edge.state),
            (Emit("out", 0, forward, expand=(self.index,)),),
            spaces=(("rows", edge.rows),),
        )
        rows = self.map.carried(edge.rows, wide, edge.known, (self.name, "out"))
        return behaviour, {"out": replace(edge, state=state, rows=rows, facts=facts)}


@dataclass(frozen=True)
class Ungroup(Node):
    """One message of k rows -> k messages of one row; `index` is the row's number (its extent: the rows)."""

    index: FieldType = None  # type: ignore[assignment]
    map: StateMap = StateMap()

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        edge = types["in"]
        if simplify(self.index.extent) != simplify(edge.rows):
            raise GraphError(
                f"its extent is '{self.index.extent}', the edge brings {edge.rows} rows",
                node=self.name,
                port="in",
                field=self.index.name,
            )
        wide = edge.state.add(self.index)
        state, forward, facts = self.map.apply(wide, edge.known, rules, (self.name, "out"))
        emit = Emit("out", 0, forward, expand=(self.index,), by_row=True)
        behaviour = Behaviour(edge.state, _one_in(edge.state), (emit,), spaces=(("rows", edge.rows),))
        return behaviour, {"out": EdgeType(state, edge.width, Const(1), facts)}


@dataclass(frozen=True)
class Replicate(Node):
    """Writes the replica's number into the field `replica` and sends the message to that port.

    rule: over the state and the instance (its number, `t`, a seeded hash), never over the slot, so routing
    does not depend on which key happened to be free.
    """

    replica: str = "r"
    n: int = 2
    rule: Expr = Const(0)

    @property
    def outs(self) -> tuple[str, ...]:
        return tuple(f"out{k}" for k in range(self.n))

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        edge = types["in"]
        _readable(self, self.rule, edge.state, "the rule")
        new = FieldType(self.replica, Const(self.n), self.n)
        state, forward, facts = StateMap(add=((new, self.rule),)).apply(
            edge.state, edge.known, rules, (self.name, "in")
        )
        emits = tuple(Emit(p, 0, forward, self.rule.eq(k)) for k, p in enumerate(self.outs))
        behaviour = Behaviour(edge.state, _one_in(edge.state), emits, spaces=(("rows", edge.rows),))
        return behaviour, {p: replace(edge, state=state, facts=facts) for p in self.outs}


@dataclass(frozen=True)
class Discard(Node):
    """Takes an unused value and returns a zero gradient."""

    @property
    def outs(self) -> tuple[str, ...]:
        return ()

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        edge = types["in"]
        return Behaviour(edge.state, _one_in(edge.state), (), spaces=(("rows", edge.rows),)), {}
