"""The C++ engine's plans are those of plan.py, table by table, and it refuses what plan.py refuses."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amphw.engine.faults import OUTSIDE_A_TABLE, trapped
from amphw.engine.lowering.lower import Expand, Guard, Lowered, Operand, Path, Trap, Unit, lower
from amphw.engine.lowering.plan import Plan, build_plan
from amphw.ir.behaviour import Behaviour, Emit, Receive
from amphw.ir.errors import AmphwError
from amphw.ir.expr import Attr, Const, Expr, Field, Op, Table, lift, maximum, minimum, substitute, where
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance, Schema, TableType
from amphw.ir.passes import fuse
from amphw.ir.state import FieldType, StateType
from tests.graphs.cases import Case, each_case

pytest.importorskip("amphw.engine._native", reason="the C++ data plane is not built")
from amphw.cpu_runtime.native_plane import NativePlane

Tables = list[dict[str, Any]]


def engine(lowered: Lowered) -> Any:
    """An engine that makes plans; it runs nothing."""
    plane = NativePlane(lowered, {}, updates="off", workers=1, placement=None, settings={}, log=None)
    return plane.engine


def found(made: Any, instance: Instance) -> Tables | None:
    tables = {name: np.ascontiguousarray(t) for name, t in instance.tables.items()}
    plan: Tables | None = made.plan(instance.number, instance.attrs, tables)
    return plan


def counts(values: np.ndarray | int, n: int) -> list[int]:
    return [values] * n if isinstance(values, int) else values.tolist()


def expected(lowered: Lowered, plan: Plan) -> Tables:
    """plan.py's tables in the engine's form: an outcome's routes together, in the order of the paths."""
    out = []
    for u, table in zip(lowered.units, plan.units, strict=True):
        n = table.space.size
        routes: list[list[tuple[int, ...]]] = [[] for _ in range(n * u.decisions)]
        data: list[tuple[int, int]] = []
        for p, t in zip(u.out, table.paths, strict=True):
            sender = np.repeat(np.arange(len(routes)), np.diff(t.start)).tolist()
            columns = (t.firing.tolist(), t.position.tolist(), t.row.tolist())
            for at, firing, position, row in zip(sender, *columns, strict=True):
                routes[at].append((p.target, p.operand, firing, position, row, p.value))
            if t.data is not None:
                data += zip(t.data[0].tolist(), t.data[1].tolist(), strict=True)
        starts = np.cumsum([0, *map(len, routes)]).tolist()
        out.append(
            {
                "need": table.need.tolist(),
                "spaces": [counts(v, n) for v in table.spaces.values()],
                "operand_rows": [counts(v, n) for v in table.rows],
                "members": [[] if m is None else m.tolist() for m in table.members],
                "route_start": starts,
                "routes": [r for each in routes for r in each],
                "data": data,
                "faults": dict(sorted(table.faults.items())),
            }
        )
    return out


def assert_same_plan(lowered: Lowered, made: Any, instance: Instance) -> bool:
    """-> whether there is a plan at all."""
    try:
        wanted = expected(lowered, build_plan(lowered, instance))
    except AmphwError:
        assert found(made, instance) is None
        return False
    have = found(made, instance)
    assert have is not None
    for u, ours, theirs in zip(lowered.units, have, wanted, strict=True):
        reasons = [trapped(t) for t in u.traps]
        ours["faults"] = {at: OUTSIDE_A_TABLE if k < 0 else reasons[k] for at, k in ours["faults"]}
        assert ours == theirs, u.name
    return True


@pytest.mark.parametrize("fused", [False, True], ids=["as-written", "fused"])
@each_case()
def test_plans_of_the_graphs(case: Case, fused: bool) -> None:
    graph = case.build()
    lowered = lower(fuse(graph) if fused else graph)
    made = engine(lowered)
    for seed in range(5):
        for number, instance in enumerate(case.instances(seed)):
            instance.number = 7 * seed + number
            assert assert_same_plan(lowered, made, instance)


# --- drawn units and paths ----------------------------------------------------------------------
# Not graphs: checks would refuse most drawn expressions, and a plan's tables are defined for any. Drawn by a
# seeded generator rather than by strategies, which take a hundred times as long for trees of this size.

SCHEMA = Schema(
    {"size": 4},
    {
        "T": TableType((Attr("size"),), Const(6), -2),
        "M": TableType((Attr("size"), Const(3)), Const(6), -2),
    },
)
BOUND = 5
SIZE = Attr("size")
OPS = ("+", "-", "*", "<", "<=", "==", "!=", "min", "max", "hash")


class Drawer:
    """Draws expressions and what is made of them; `wild` is the share that need not have a value."""

    def __init__(self, seed: int, wild: float):
        self.random, self.wild = Random(seed), wild

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def expression(self, fields: Sequence[str], depth: int = 3, lenient: bool = False) -> Expr:
        """lenient: reads outside a table have a meaning where it is evaluated."""
        r = self.random
        if depth == 0 or self.chance(0.25):
            leaves: list[Expr] = [Const(r.randint(-3, 5)), Attr(r.choice(("size", "instance")))]
            if fields:
                leaves += [Field(r.choice(fields)) for _ in range(3)]
            return r.choice(leaves)

        def below() -> Expr:
            return self.expression(fields, depth - 1, lenient)

        kind = r.choice(("op", "op", "where", "divide", "table"))
        if kind == "op":
            return Op(r.choice(OPS), (below(), below()))
        if kind == "where":
            return where(below() < below(), below(), below())
        if kind == "divide":
            quotient = Op(r.choice(("//", "%")), (below(), divisor := below()))
            return quotient if self.chance(self.wild) else where(divisor.ne(0), quotient, below())
        index, column = below(), below()
        read: Expr = Table("T", (index,)) if self.chance(0.5) else Table("M", (index, column))
        if self.chance(self.wild) or (lenient and self.chance(0.5)):
            return read
        inside = (index % maximum(SIZE, 1), column % 3)[: len(read.children)]
        assert isinstance(read, Table)
        return where(lift(0) < SIZE, Table(read.name, inside), below())

    def count(self, fields: Sequence[str], lenient: bool = False) -> Expr:
        """Mostly 0 .. 3."""
        e = self.expression(fields, 2, lenient)
        return minimum(e, 6) if self.chance(self.wild / 4) else e % self.random.choice((2, 3, 4))

    def state(self, prefix: str) -> StateType:
        fields: list[FieldType] = []
        for k in range(self.random.randint(0, 2)):
            extent = Const(self.random.randint(1, 3))
            drawn = self.count([f.name for f in fields])
            fields.append(FieldType(f"{prefix}{k}", drawn if self.chance(0.6) else extent, BOUND))
        return StateType(tuple(fields))

    def steps(self, columns: list[str], unit: int) -> tuple[Guard | Expand, ...]:
        """A walk's steps; `columns` grows by what they expand."""
        out: list[Guard | Expand] = []
        for k in range(self.random.randint(0, 2)):
            if self.chance(0.5):
                out.append(Guard(self.expression(columns, lenient=True)))
            else:
                name = f"u{unit}.x{k}"
                out.append(Expand(name, self.count(columns, lenient=True)))
                columns.append(name)
        return tuple(out)

    def lowered(self) -> Lowered:
        """A source and two units, joined by paths of drawn expressions."""
        emitted = self.state("s")
        emit = Emit("out", 0, (), expand=emitted.fields)
        rows = self.count(emitted.names)
        source = Unit(0, "source", Behaviour(StateType(), (), (emit,), spaces=(("rows", rows),)), [])
        units = [source, self.unit(1), self.unit(2)]
        paths: list[Path] = []
        for unit in units:
            first = [*unit.behaviour.state.names, *(f.name for f, _ in unit.behaviour.decides)]
            for _ in range(self.random.randint(1, 2)):
                target = units[self.random.randint(1, 2)]
                paths.append(self.path(len(paths), unit, first, emitted, target))
                unit.out.append(paths[-1])
            if unit.index and self.chance(0.5):
                unit.traps.append(Trap("choice", self.steps(list(first), unit.index)))
        graph = Graph("drawn", SCHEMA)
        return Lowered(graph, None, units, paths, {u.name: u.index for u in units})  # type: ignore[arg-type]

    def unit(self, u: int) -> Unit:
        state = self.state("abc"[u])
        operands = [
            Operand(
                f"i{k}",
                1,
                "rows",
                self.count(state.names),
                self.count(state.names) if self.chance(0.5) else None,
            )
            for k in range(self.random.randint(1, 2))
        ]
        decides = ((FieldType(f"d{u}", Const(2), 2), 0),) if self.chance(0.5) else ()
        spaces = (("rows", self.count(state.names)), ("other", self.count(state.names)))
        receives = tuple(Receive(o.port, ()) for o in operands)
        return Unit(u, f"unit{u}", Behaviour(state, receives, (), decides=decides, spaces=spaces), operands)

    def path(self, index: int, unit: Unit, first: list[str], emitted: StateType, target: Unit) -> Path:
        columns = list(first)
        begin: tuple[Guard | Expand, ...] = ()
        if unit.index == 0:  # a source's fields come first, under its own names
            own: dict[str, Expr] = {f: Field(f"source.{f}") for f in emitted.names}
            begin = tuple(Expand(f"source.{f.name}", substitute(f.extent, own)) for f in emitted.fields)
            columns += [f"source.{f}" for f in emitted.names]
        before = len(columns)
        steps = begin + self.steps(columns, unit.index)
        operand = self.random.randrange(len(target.operands))
        key = tuple((f, self.expression(columns, 2, True)) for f in target.behaviour.state.names)
        member = self.expression(columns, 2, True) if target.operands[operand].count is not None else None
        by_row = columns[-1] if len(columns) > before and self.chance(0.5) else None
        return Path(index, unit.index, 0, target.index, operand, steps, key, member, by_row, None)

    def instance(self) -> Instance:
        size, entry = self.random.randint(0, 4), self.random.randint
        t = np.array([entry(-2, 5) for _ in range(size)], np.int64)
        m = np.array([[entry(-2, 5) for _ in range(3)] for _ in range(size)], np.int64).reshape(size, 3)
        return Instance({"size": size}, {"T": t, "M": m}, {}, entry(0, 9))


@settings(max_examples=300)
@given(st.integers(0, 2**32 - 1), st.sampled_from((0.0, 0.1)))
def test_plans_of_drawn_expressions(seed: int, wild: float) -> None:
    drawer = Drawer(seed, wild)
    lowered = drawer.lowered()
    made = engine(lowered)
    for _ in range(3):
        assert_same_plan(lowered, made, drawer.instance())


def test_what_is_drawn_has_plans_with_routes_and_faults() -> None:
    """Else the test above would compare nothing."""
    plans = [plan for seed in range(60) if (plan := _plan_of(seed)) is not None]
    assert len(plans) > 30
    assert sum(any(u["routes"] for u in plan) for plan in plans) > 20
    assert sum(any(u["faults"] for u in plan) for plan in plans) > 5


def _plan_of(seed: int) -> Tables | None:
    drawer = Drawer(seed, 0.1)
    made = engine(drawer.lowered())
    return found(made, drawer.instance())
