"""Node families over the rows of a message: Group, Distribute, Collect.

Group gathers messages into one; Distribute and Collect take one apart by index tables and put it together
again (the second form of graph networks in AMPNet's ICLR version).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from amphw.ir.algebra import Rule, simplify
from amphw.ir.behaviour import MEMBER, Behaviour, EdgeType, Emit, Receive, StateMap, identity
from amphw.ir.errors import GraphError
from amphw.ir.expr import Const, Expr, fields_of
from amphw.ir.functions import gather_rows, scatter_rows
from amphw.ir.nodes import NPT, Inferred, Node, Types, check_program, joined, receives_all, row_spaces
from amphw.ir.primitives import ValueType
from amphw.ir.program import ParamSpec, Program, trace


@dataclass(frozen=True)
class Group(Node):
    """Gathers `count` messages into one, rows in the order of `member`; the reverse of Ungroup and Flatmap.

    map: message state -> group state (its inverses may read `$m`, the member's position). init: an operand
    at the group's state that opens it, so that a count of zero fires at once. program: on the members "in"
    (space "members") and "init"; without one the members' rows go out as they are.
    """

    map: StateMap = StateMap()
    member: Expr = Const(0)
    count: Expr = Const(1)
    init: bool = False
    program: Program | None = None

    @property
    def ins(self) -> tuple[str, ...]:
        return ("init", "in") if self.init else ("in",)

    @property
    def params(self) -> tuple[ParamSpec, ...]:
        return self.program.params if self.program else ()

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        edge = types["in"]
        state, key, facts = self.map.apply(
            edge.state, edge.known, rules, (self.name, "in"), {MEMBER: self.member}
        )
        rows: Expr = Const(1)
        if self.init:
            opened = types["init"]
            if opened.state.names != state.names:
                odd = sorted(set(opened.state.names) ^ set(state.names)) or list(state.names)
                raise GraphError(
                    f"the group's state is {state}, its init operand brings {opened.state}",
                    node=self.name,
                    port="init",
                    field=odd[0],
                )
            state, rows, facts = opened.state, opened.rows, opened.facts
        for missing in sorted(fields_of(self.count) - set(state.names)):
            raise GraphError(
                f"the count '{self.count}' reads it, but the group's state is {state}",
                node=self.name,
                field=missing,
            )
        program = self.program or self._members_only(types)
        if tuple(n for n, _ in program.inputs) != self.ins or len(program.outputs) != 1:
            raise GraphError(
                f"its program must take the operands {list(self.ins)} in this order and return one value",
                node=self.name,
            )
        check_program(self, program, state, types, {"in": "members"})
        spaces = row_spaces(program, rows, {"members": simplify(self.count * edge.rows)})
        receives = [Receive("in", key, self.member, self.count)]
        if self.init:
            receives.insert(0, Receive("init", identity(state)))
        (t,) = program.outputs_types
        behaviour = Behaviour(
            state, tuple(receives), (Emit("out", 0, identity(state)),), program, spaces=tuple(spaces.items())
        )
        return behaviour, {"out": EdgeType(state, t.width, spaces[t.space], facts)}

    def _members_only(self, types: Types) -> Program:
        members = {"in": ValueType("float", "members", types["in"].width)}
        inputs: dict[str, int | ValueType] = (
            {"init": types["init"].width, **members} if self.init else {**members}
        )
        return trace(lambda *xs: xs[-1], inputs)


@dataclass(frozen=True)
class Distribute(Node):
    """One message of k rows -> one message a port, each with the rows that the port's index names.

    ports: (name, index over the state and `$row`, number of rows). A port without rows still sends its
    message, with none.
    """

    ports: tuple[tuple[str, Expr, Expr], ...] = ()

    @property
    def outs(self) -> tuple[str, ...]:
        return tuple(p for p, _, _ in self.ports)

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        spaces = {p: rows for p, _, rows in self.ports}
        program = trace(
            lambda x: [gather_rows(x, index, p) for p, index, _ in self.ports],
            {"in": types["in"].width},
            spaces=spaces,
        )
        behaviour, outs = NPT(self.name, program).infer(types, rules)
        renamed = {p: outs[o] for p, o in zip(self.outs, outs, strict=True)}
        emits = tuple(replace(e, port=p) for p, e in zip(self.outs, behaviour.emits, strict=True))
        return replace(behaviour, emits=emits), renamed


@dataclass(frozen=True)
class Collect(Node):
    """The reverse of Distribute: adds the rows of every port to the rows that its index names."""

    ports: tuple[tuple[str, Expr], ...] = ()
    rows: Expr = Const(1)

    @property
    def ins(self) -> tuple[str, ...]:
        return tuple(p for p, _ in self.ports)

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        inputs = {p: ValueType("float", p, types[p].width) for p in self.ins}

        def add_up(*xs):  # type: ignore[no-untyped-def]
            parts = [scatter_rows(x, index, "rows") for x, (_, index) in zip(xs, self.ports, strict=True)]
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            return total

        program = trace(add_up, inputs)
        edge = joined(self, {p: replace(types[p], rows=Const(1)) for p in self.ins})
        check_program(self, program, edge.state, types, {p: p for p in self.ins})
        spaces = {"rows": self.rows, **{p: types[p].rows for p in self.ins}}
        behaviour = Behaviour(
            edge.state,
            receives_all(self, edge.state),
            (Emit("out", 0, identity(edge.state)),),
            program,
            spaces=tuple(spaces.items()),
        )
        return behaviour, {"out": EdgeType(edge.state, program.outputs_types[0].width, self.rows, edge.facts)}
