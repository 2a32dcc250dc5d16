"""A layer with several functions of its parameters: one program, of which each call site computes a part.

A function's values are put into row spaces of their own, which have no rows in the messages of the other
functions' call sites. So a node with several functions is an ordinary node: what a site does not call costs
it nothing, all functions read the same version of the parameters, and their gradients are one sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amphw.frontend.source import FrontendError
from amphw.ir.expr import ROW, ROWS, Const, Expr, Op
from amphw.ir.primitives import ValueType
from amphw.ir.program import Builder, ParamSpec, Program, Value


@dataclass(frozen=True)
class Alternative:
    """One function of a layer, as all of its call sites compute it.

    program: over the state that all sites share. here: of two counts the first at the sites that call this
    function, the other elsewhere. single: whether messages have one row at all of these sites.
    """

    function: str
    program: Program
    here: Callable[[Expr, Expr], Expr]
    single: bool

    def count(self, rows: Expr) -> Expr:
        """Rows of a space, where there are `rows` of it at the sites that call this function."""
        if isinstance(rows, Op) and rows.op == "*" and rows.args[0] == ROWS:
            return self.count(ROWS) * rows.args[1]  # in proportion to the rows, and known to be so
        return self.here(rows, Const(0))


def widths(programs: Sequence[Program]) -> list[int]:
    """Of the operands of a program that computes all of these: of each the widest."""
    most = max(len(p.inputs) for p in programs)
    return [max(p.inputs[j][1].width for p in programs if j < len(p.inputs)) for j in range(most)]


def side_by_side(layer: str, alternatives: Sequence[Alternative]) -> Program:
    """One program with the results of all, in their order. Operands x0, x1, ... have the common `widths`."""
    params: dict[str, ParamSpec] = {}
    for spec in (s for a in alternatives for s in a.program.params):
        if params.setdefault(spec.name, spec) != spec:
            raise FrontendError(
                f"the functions of the layer '{layer}' ask for different parameters '{spec.name}': "
                f"{params[spec.name].shape} and {spec.shape}; `shapes` must not depend on the operands here"
            )
    builder = Builder(list(params.values()))
    common = widths([a.program for a in alternatives])
    operands = [builder.input(f"x{j}", ValueType("float", "rows", w)) for j, w in enumerate(common)]
    outputs = [v for a in alternatives for v in _part(builder, layer, a, operands)]
    return builder.build(outputs)


def _part(builder: Builder, layer: str, a: Alternative, operands: Sequence[Value]) -> list[Value]:
    """Add the program of one function -> its results."""
    program, home = a.program, a.function or "call"
    names = {"rows": home, **{s: f"{home}_{s}" for s, _ in program.spaces}}
    builder.spaces[home] = a.count(ROWS)
    builder.spaces.update({names[s]: a.count(e) for s, e in program.spaces})
    ones = {s for s, e in program.spaces if e == Const(1)} | ({"rows"} if a.single else set())
    values: list[Value] = []
    for j, (_, t) in enumerate(program.inputs):
        x = operands[j]
        if 0 < t.width < x.width:
            x = builder.emit("slice", [x], start=0, width=t.width)
        # A trigger without numbers is never read.
        values.append(_moved(builder, x, "rows", home, ROW) if t.width else x)
    values += [builder.integer(e, names[space]) for e, space in program.ints]
    for instr in program.instrs:
        attrs, args = instr.attr(), [values[v] for v in instr.args]
        if instr.op in ("sum_rows", "spread_rows", "max_rows"):
            one = attrs["source" if instr.op == "spread_rows" else "space"]
            values.append(_of_one_row(builder, layer, a, instr.op, args[0], attrs, names, one in ones))
            continue
        attrs.update({k: names[attrs[k]] for k in ("space", "source") if k in attrs})
        values.append(builder.emit(instr.op, args, **attrs))
    return [values[v] for v in program.outputs]


def _moved(builder: Builder, x: Value, source: str, space: str, row: Expr) -> Value:
    return builder.emit("gather_rows", [x, builder.integer(row, space)], space=space, source=source)


def _of_one_row(
    builder: Builder,
    layer: str,
    a: Alternative,
    op: str,
    x: Value,
    attrs: dict[str, str],
    names: dict[str, str],
    single: bool,
) -> Value:
    """What goes from or to a space of one row a message, which now has one or none: by that row's number."""
    source, space = attrs["source"], attrs["space"]
    called = f"the function '{a.function}' of" if a.function else "what is computed by calling"
    if not single:
        raise FrontendError(f"{called} the layer '{layer}' has {op} and is used where a value has many rows")
    if op == "max_rows":
        raise FrontendError(
            f"{called} the layer '{layer}' takes the largest of rows, which a layer with several functions "
            "cannot; do that outside of it"
        )
    if op == "spread_rows":
        return _moved(builder, x, names[source], names[space], Const(0))
    first = builder.integer(Const(0), names[source])
    return builder.emit("scatter_rows", [x, first], space=names[space], source=names[source])
