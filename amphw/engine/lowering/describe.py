"""A lowered graph as plain data for the C++ engine (`native/describe.cpp` reads it).

Expressions become prefix code over numbered columns, attributes and tables. The columns that a path's
expressions see are the sender's fields, then what it decides, then what its steps expand, in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amphw.engine.lowering.lower import Expand, Guard, Lowered, Path, Unit, choices
from amphw.engine.numbering import EXPRESSION_OPS, ExprOp, TermKind
from amphw.engine.tiles.code import TiledUnit
from amphw.ir.errors import GraphError
from amphw.ir.expr import ROW, Attr, Const, Expr, Field, Op, Table, lift
from amphw.ir.instance import Schema
from amphw.ir.optimizers import OPTIMIZERS, SCHEDULES, SETTINGS
from amphw.ir.primitives import ValueType
from amphw.ir.program import Program
from amphw.ir.state import FieldType, structure_of
from amphw.ir.update import UpdateRule


class Names:
    """Numbers for the attributes, tables and data arrays of a schema: the order in which they are passed."""

    def __init__(self, schema: Schema):
        self.attrs = [*schema.attrs, "instance"]
        self.tables = list(schema.tables)
        self.data = list(schema.data)

    def code(self, e: Expr | int | None, columns: Sequence[str] = ()) -> list[int]:
        """Prefix code; nothing for None."""
        out: list[int] = []
        if e is not None:
            self._append(lift(e), columns, out)
        return out

    def _append(self, e: Expr, columns: Sequence[str], out: list[int]) -> None:
        if isinstance(e, Const):
            out += [ExprOp.CONST, e.value]
        elif isinstance(e, Field):
            out += [ExprOp.FIELD, _number(columns, e.name, "field")]
        elif isinstance(e, Attr):
            out += [ExprOp.ATTR, _number(self.attrs, e.name, "attribute")]
        elif isinstance(e, Table):
            out += [ExprOp.TABLE, _number(self.tables, e.name, "table"), len(e.index)]
        else:
            assert isinstance(e, Op)
            out.append(EXPRESSION_OPS[e.op])
        for child in e.children:
            self._append(child, columns, out)


def _number(names: Sequence[str], name: str, what: str) -> int:
    if name not in names:
        raise GraphError(f"an expression reads the {what} '{name}'; there are {', '.join(names) or 'none'}")
    return list(names).index(name)


@dataclass(frozen=True)
class Products:
    """Who multiplies by matrices. use_blas(rows, columns): whether a library does by such a one. bf16:
    whether both sides are rounded to bfloat16, which only the own kernels do."""

    use_blas: Callable[[int, int], bool] = lambda rows, columns: False
    bf16: bool = False


OWN = Products()


def describe_graph(
    lowered: Lowered,
    tiled: Sequence[TiledUnit | None],
    names: Names,
    products: Products,
    slept: Container[int] = (),
) -> dict[str, Any]:
    """The units with their paths and code, what a plan depends on, and what is checked when one is made.

    slept: units that compute nothing, of whose products nobody asks who would be faster.
    """
    axioms = lowered.graph.schema.axioms
    checked = (e for a in axioms for e in (a.left, a.right, a.where, *(f.extent for f in a.over)))
    scalars, tables = structure_of([*lowered.planning(), *(e for e in checked if e is not None)])
    return {
        "units": [
            _unit(u, t, names, OWN if u.index in slept else products)
            for u, t in zip(lowered.units, tiled, strict=True)
        ],
        "signature": [names.code(e) for e in sorted(scalars, key=str)],
        "signature_tables": [names.tables.index(t) for t in sorted(tables)],
        "axioms": [
            {
                "over": _fields(a.over, names),
                "left": names.code(a.left, [f.name for f in a.over]),
                "right": names.code(a.right, [f.name for f in a.over]),
                "where": names.code(a.where, [f.name for f in a.over]),
            }
            for a in axioms
        ],
    }


def describe_schema(schema: Schema, names: Names) -> dict[str, Any]:
    return {
        "attrs": names.attrs[:-1],
        "attr_limits": [schema.attrs.get(a, -1) for a in names.attrs],
        "table_names": names.tables,
        "data": [(d, schema.data[d]) for d in names.data],
        "tables": [
            {
                "shape": [names.code(e) for e in t.shape],
                "high": names.code(t.high),
                "low": t.low,
            }
            for t in schema.tables.values()
        ],
    }


def describe_rule(rule: UpdateRule) -> dict[str, Any]:
    return {
        "interval": rule.interval,
        "optimizer": list(OPTIMIZERS).index(rule.optimizer),
        "settings": [float(getattr(rule, name)) for name in SETTINGS],
        "lr": rule.lr,
        "weight_decay": rule.weight_decay,
        "clip": rule.clip,
        "mean": rule.reduce == "mean",
        "schedule": list(SCHEDULES).index(rule.schedule),
        "schedule_steps": float(rule.schedule_steps),
        "schedule_gamma": rule.schedule_gamma,
        "warmup": float(rule.warmup),
    }


def _unit(u: Unit, tiled: TiledUnit | None, names: Names, products: Products) -> dict[str, Any]:
    b = u.behaviour
    state = list(b.state.names)
    sender = [*state, *(f.name for f, _ in b.decides)]
    program = b.program
    spaces = {name: i for i, (name, _) in enumerate(b.spaces)}
    emit = b.emits[0] if b.is_source else None
    source_rows = dict(b.spaces)["rows"] if emit is not None else None
    return {
        "name": u.name,
        "depth": u.depth,
        "fields": _fields(b.state.fields, names),
        "choices": [choices(f) for f, _ in b.decides],
        "decided": [k for _, k in b.decides],
        "spaces": [] if emit is not None else [names.code(e, state) for _, e in b.spaces],
        "operands": [
            {
                "width": o.width,
                "space": spaces[o.space],
                "needs_gradient": o.needs_gradient,
                "rows": names.code(o.rows, state),
                "count": names.code(o.count, state),
                "shared": tiled is not None and k in tiled.shared,
            }
            for k, o in enumerate(u.operands)
        ],
        "outputs": _values(program.outputs_types, spaces) if program is not None else [],
        "ints": [
            (names.code(e, [*state, ROW.name]), spaces[space])
            for e, space in (program.ints if program else ())
        ],
        "paths": [_path(p, sender, names) for p in u.out],
        "traps": [_steps(t.steps, sender, names)[0] for t in u.traps],
        "labels": len(b.report),
        "is_source": b.is_source,
        "emitted": _fields(emit.expand, names) if emit is not None else [],
        "emitted_rows": names.code(source_rows, [f.name for f in emit.expand] if emit is not None else []),
        "data": names.data.index(emit.data) if emit is not None and emit.data is not None else -1,
        "params": _params(u, program, tiled, products) if program is not None else [],
        **_code(tiled),
    }


def _fields(fields: Iterable[FieldType], names: Names) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    before: list[str] = []
    for f in fields:
        out.append({"extent": names.code(f.extent, before), "bound": f.bound})
        before.append(f.name)
    return out


def _values(types: Iterable[ValueType], spaces: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"width": t.width, "space": spaces[t.space], "is_int": t.kind == "int"} for t in types]


def _steps(
    steps: Sequence[Guard | Expand], columns: Sequence[str], names: Names
) -> tuple[list[dict[str, Any]], list[str]]:
    """The steps, and the columns that there are after them."""
    have = list(columns)
    out: list[dict[str, Any]] = []
    for s in steps:
        if isinstance(s, Guard):
            out.append({"expands": False, "expr": names.code(s.condition, have)})
        else:
            out.append({"expands": True, "expr": names.code(s.extent, have)})
            have.append(s.name)
    return out, have


def _path(p: Path, sender: Sequence[str], names: Names) -> dict[str, Any]:
    steps, columns = _steps(p.steps, sender, names)
    return {
        "output": p.value,
        "target": p.target,
        "operand": p.operand,
        "steps": steps,
        "key": [names.code(e, columns) for _, e in p.key],
        "member": names.code(p.member, columns),
        "row_column": columns.index(p.by_row) if p.by_row is not None else -1,
    }


def _params(u: Unit, program: Program, tiled: TiledUnit | None, products: Products) -> list[dict[str, Any]]:
    used: dict[str, set[str]] = {p.name: set() for p in program.params}
    assert u.derivative is not None
    codes = (
        []
        if tiled is None
        else [c for c in (tiled.forward, tiled.inference, tiled.backward) if c is not None]
    )
    folded = {k for f in (tiled.folds if tiled is not None else ()) for k in (f.table, f.weight)}
    transposed = {p.param for code in codes for p in code.phases if p.transposed}
    for one in (u.derivative.forward, u.derivative.backward):
        for i in one.instrs:
            name = i.attr().get("param")
            if name is not None:
                used[name].add(i.op)
    return [
        {
            "name": p.name,
            "rows": p.shape[0] if len(p.shape) == 2 else 0,
            "cols": p.shape[-1],
            "multiplied": bool(used[p.name] & {"matmul", "matmul_t"}),
            "transposed": k in transposed,
            "taken": "take" in used[p.name],
            # What is folded is multiplied in parts, which only the own kernels do.
            "blas": k not in folded
            and bool(used[p.name] & {"matmul", "matmul_t"})
            and not products.bf16
            and products.use_blas(p.shape[0], p.shape[1]),
            "bf16": products.bf16 and bool(used[p.name] & {"matmul", "matmul_t"}),
        }
        for k, p in enumerate(program.params)
    ]


def _code(tiled: TiledUnit | None) -> dict[str, Any]:
    if tiled is None:
        empty = ("saved", "log_buffers", "log_ints", "terms", "folds")
        return {"forward": None, "inference": None, "backward": None, **{name: [] for name in empty}}
    return {
        "forward": tiled.forward,
        "inference": tiled.inference,
        "backward": tiled.backward,
        "saved": [{"width": w, "space": s, "is_int": False} for w, s in tiled.saved],
        "log_buffers": [{"width": w, "space": s, "is_int": False} for w, s in tiled.log_buffers],
        "log_ints": [(slot, tiled.backward.int_spaces[slot]) for slot in tiled.log_ints]
        if tiled.backward
        else [],
        "terms": [
            (
                TermKind[t.kind.capitalize()],
                t.param,
                t.x,
                t.d,
                tiled.log_ints.index(t.ints) if t.ints >= 0 else -1,
                t.first_row,
            )
            for t in tiled.terms
        ],
        "folds": [(f.table, f.weight, f.first_row, f.bias) for f in tiled.folds],
    }
