"""Node families that compute: source, PPT, NPT, Concat, Split, Loss, Observe.

A node states its ports and, given the types of its incoming edges, its behaviour and the types of its
outgoing edges (`infer`). AMPNet, section 4, names the families; Observe and Discard are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest

from amphw.ir.algebra import Rule, simplify
from amphw.ir.behaviour import Behaviour, EdgeType, Emit, Receive, identity, learned_fact
from amphw.ir.errors import GraphError
from amphw.ir.expr import ROW, ROWS, Const, Expr, fields_of, substitute
from amphw.ir.functions import columns, concat
from amphw.ir.program import ParamSpec, Program, trace
from amphw.ir.state import FieldType, StateType

Types = Mapping[str, EdgeType]
Inferred = tuple[Behaviour, dict[str, EdgeType]]


@dataclass(frozen=True)
class Node:
    """Base of the families. `ins` and `outs` are port names in order."""

    name: str

    @property
    def family(self) -> str:
        return type(self).__name__

    @property
    def ins(self) -> tuple[str, ...]:
        return ("in",)

    @property
    def outs(self) -> tuple[str, ...]:
        return ("out",)

    @property
    def params(self) -> tuple[ParamSpec, ...]:
        return ()

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        raise NotImplementedError


def joined(node: Node, types: Types) -> EdgeType:
    """The type that all in-ports share; GraphError naming the port and field that differ."""
    first_port, *rest = node.ins
    first = types[first_port]
    facts = first.known
    for port in rest:
        other = types[port]
        for a, b in zip_longest(first.state.fields, other.state.fields):
            if a != b:
                raise GraphError(
                    f"joins '{first_port}' with state {first.state} and '{port}' with state {other.state}",
                    node=node.name,
                    port=port,
                    field=(b or a).name,
                )
        if simplify(other.rows) != simplify(first.rows):
            raise GraphError(
                f"'{port}' has {other.rows} rows a message, '{first_port}' has {first.rows}",
                node=node.name,
                port=port,
            )
        facts.update(other.known)
    return replace(first, facts=tuple(sorted(facts.items())))


def check_program(
    node: Node, program: Program, state: StateType, types: Types, spaces: Mapping[str, str] | None = None
) -> None:
    """Operand widths and row spaces against the edges, state expressions against the firing state.

    spaces: the row space of each operand that is not in "rows".
    """
    for name, t in program.inputs:
        wanted = (spaces or {}).get(name, "rows")
        if t.space != wanted:
            raise GraphError(
                f"the program takes it in the row space '{t.space}', the node brings it in '{wanted}'",
                node=node.name,
                port=name,
            )
        if types[name].width != t.width:
            raise GraphError(
                f"the edge brings width {types[name].width}, the program expects {t.width}",
                node=node.name,
                port=name,
            )
    opened = {"rows", *(spaces or {}).values(), *(s for s, _ in program.spaces)}
    for t in program.types:
        if t.space not in opened:
            raise GraphError(
                f"the program uses the row space '{t.space}' but does not open it", node=node.name
            )
    known = {*state.names, ROW.name}
    for e, _ in (*program.ints, *((substitute(e, {ROWS.name: ROW}), "") for _, e in program.spaces)):
        for missing in sorted(fields_of(e) - known):
            raise GraphError(
                f"the program reads '{e}', a field that its state {state} does not hold",
                node=node.name,
                field=missing,
            )


def row_spaces(program: Program, rows: Expr, more: Mapping[str, Expr] | None = None) -> dict[str, Expr]:
    """Rows of a message in "rows", in the spaces of `more` and in those that the program opens."""
    opened = {s: simplify(substitute(e, {ROWS.name: rows})) for s, e in program.spaces}
    return {"rows": rows, **(more or {}), **opened}


def receives_all(node: Node, state: StateType) -> tuple[Receive, ...]:
    return tuple(Receive(port, identity(state)) for port in node.ins)


@dataclass(frozen=True)
class Source(Node):
    """Where the controller pumps an instance: one message for each state of `state` (where `where` holds).

    data: name of the instance's data array whose rows are the payloads, in address order; without it the
    messages carry state alone (width 0), which is what an embedding needs.
    """

    state: StateType = StateType()
    width: int = 0
    rows: Expr = Const(1)
    data: str | None = None
    where: Expr | None = None

    @property
    def ins(self) -> tuple[str, ...]:
        return ()

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        if (self.data is None) != (self.width == 0):
            raise GraphError(
                f"width {self.width} with data {self.data!r}: a width needs a data array, and the reverse",
                node=self.name,
            )
        emit = Emit("out", 0, identity(self.state), self.where, self.state.fields, data=self.data)
        learned = learned_fact(self.where) if self.where is not None else None
        facts = tuple((f.name, Const(0)) for f in self.state.fields if f.extent == Const(1)) + (
            (learned,) if learned else ()
        )
        spaces = (("rows", self.rows),)
        return Behaviour(StateType(), (), (emit,), spaces=spaces), {
            "out": EdgeType(self.state, self.width, self.rows, facts)
        }


@dataclass(frozen=True)
class Transform(Node):
    """A program on joined operands; PPT owns parameters, NPT has none."""

    program: Program = None  # type: ignore[assignment]  # dataclass inheritance needs a default

    @property
    def ins(self) -> tuple[str, ...]:
        return tuple(n for n, _ in self.program.inputs)

    @property
    def outs(self) -> tuple[str, ...]:
        n = len(self.program.outputs)
        return ("out",) if n == 1 else tuple(f"out{k}" for k in range(n))

    @property
    def params(self) -> tuple[ParamSpec, ...]:
        return self.program.params

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        edge = joined(self, types)
        check_program(self, self.program, edge.state, types)
        spaces = row_spaces(self.program, edge.rows)
        emits, outs = [], {}
        for k, (port, t) in enumerate(zip(self.outs, self.program.outputs_types, strict=True)):
            if t.kind != "float":
                raise GraphError(
                    "the program's output is an integer; only Observe turns it into a field",
                    node=self.name,
                    port=port,
                )
            emits.append(Emit(port, k, identity(edge.state)))
            outs[port] = EdgeType(edge.state, t.width, spaces[t.space], edge.facts)
        behaviour = Behaviour(
            edge.state,
            receives_all(self, edge.state),
            tuple(emits),
            self.program,
            spaces=tuple(spaces.items()),
        )
        return behaviour, outs


@dataclass(frozen=True)
class PPT(Transform):
    """Parameterised payload transform: owns its parameters, accumulates their gradients, updates itself."""

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        if not self.program.params:
            raise GraphError("a PPT without parameters; use NPT", node=self.name)
        return super().infer(types, rules)


@dataclass(frozen=True)
class NPT(Transform):
    """Non-parameterised payload transform (activation, sum, product, ...)."""

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        if self.program.params:
            names = [p.name for p in self.program.params]
            raise GraphError(f"an NPT with parameters {names}; use PPT", node=self.name)
        return super().infer(types, rules)


@dataclass(frozen=True)
class Concat(Node):
    """Joins messages of equal state, columns side by side."""

    ports: tuple[str, ...] = ("a", "b")

    @property
    def ins(self) -> tuple[str, ...]:
        return self.ports

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        program = trace(lambda *xs: concat(*xs), {p: types[p].width for p in self.ports})
        return NPT(self.name, program).infer(types, rules)


@dataclass(frozen=True)
class Split(Node):
    """Blocks of columns to one out-port each."""

    widths: tuple[int, ...] = ()

    @property
    def outs(self) -> tuple[str, ...]:
        return tuple(f"out{k}" for k in range(len(self.widths)))

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        edge = types["in"]
        if len(self.widths) < 2 or sum(self.widths) != edge.width:
            raise GraphError(
                f"widths {self.widths} do not add up to the edge's {edge.width}", node=self.name, port="in"
            )
        starts = [sum(self.widths[:k]) for k in range(len(self.widths))]
        program = trace(
            lambda x: [columns(x, s, w) for s, w in zip(starts, self.widths, strict=True)], {"in": edge.width}
        )
        return NPT(self.name, program).infer(types, rules)


@dataclass(frozen=True)
class Loss(Node):
    """A sink: the program's first output is the loss of each row, the others are metrics or predictions.

    Values are handed to the controller, summed over rows; the loss is differentiated with weight 1 a row.
    """

    program: Program = None  # type: ignore[assignment]
    names: tuple[str, ...] = ("loss",)

    @property
    def told(self) -> str:
        """The node of which the values are told."""
        return self.name

    @property
    def trains(self) -> bool:
        """Whether the loss depends on anything; one that is constant is there for what it reports."""
        return bool(self.program.read_by([0]))

    @property
    def ins(self) -> tuple[str, ...]:
        return tuple(n for n, _ in self.program.inputs)

    @property
    def outs(self) -> tuple[str, ...]:
        return ()

    @property
    def params(self) -> tuple[ParamSpec, ...]:
        return self.program.params

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        edge = joined(self, types)
        check_program(self, self.program, edge.state, types)
        if len(self.names) != len(self.program.outputs):
            raise GraphError(f"{len(self.program.outputs)} outputs, but names {self.names}", node=self.name)
        if self.params and self.told == self.name:
            raise GraphError("a Loss cannot own parameters; put them into a PPT before it", node=self.name)
        spaces = row_spaces(self.program, edge.rows)
        return (
            Behaviour(
                edge.state,
                receives_all(self, edge.state),
                (),
                self.program,
                report=self.names,
                told=self.told,
                spaces=tuple(spaces.items()),
            ),
            {},
        )


@dataclass(frozen=True)
class OwningLoss(Loss):
    """A PPT and the Loss `of` behind it as one node, which `fuse` makes, with the PPT's name and values."""

    of: str = ""

    @property
    def told(self) -> str:
        return self.of


@dataclass(frozen=True)
class Observe(Node):
    """Writes a value computed from the payload into a fresh state field: a decision of the network.

    program: outputs are the payload to pass on and one integer (argmax, threshold), which becomes `field`.
    """

    program: Program = None  # type: ignore[assignment]
    field: FieldType = None  # type: ignore[assignment]

    @property
    def ins(self) -> tuple[str, ...]:
        return tuple(n for n, _ in self.program.inputs)

    @property
    def params(self) -> tuple[ParamSpec, ...]:
        return self.program.params

    def infer(self, types: Types, rules: list[Rule]) -> Inferred:
        edge = joined(self, types)
        check_program(self, self.program, edge.state, types)
        if [t.kind for t in self.program.outputs_types] != ["float", "int"]:
            raise GraphError("the program must return the payload and one integer", node=self.name)
        if self.field.name in edge.state.names:
            raise GraphError(
                "Observe writes a fresh field, never over one that the state holds",
                node=self.name,
                field=self.field.name,
            )
        if not isinstance(self.field.extent, Const):
            raise GraphError(
                "the extent of an observed field must be a constant", node=self.name, field=self.field.name
            )
        if simplify(edge.rows) != Const(1):
            raise GraphError(
                f"a decision needs one row a message, the edge brings {edge.rows}", node=self.name
            )
        state = edge.state.add(self.field)
        spaces = row_spaces(self.program, edge.rows)
        behaviour = Behaviour(
            edge.state,
            receives_all(self, edge.state),
            (Emit("out", 0, identity(state)),),
            self.program,
            decides=((self.field, 1),),
            spaces=tuple(spaces.items()),
        )
        return behaviour, {"out": EdgeType(state, self.program.outputs_types[0].width, edge.rows, edge.facts)}
