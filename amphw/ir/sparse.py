"""Sparse parameters: tables of which an instance looks up some rows alone, and which rows these are.

What is looked up is an expression over the state that a node fires in, and an instance says which states
there are. So the rows are known before anything is computed. Where a network decides which states it reaches,
these are the rows of all that it may reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from amphw.ir.check import infer
from amphw.ir.expr import ROW, Attr, Const, Expr, Field, Table, evaluate, fields_of
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.program import Instr, Program
from amphw.ir.state import MOST_STATES, Columns, KeySpace, StateType


@dataclass(frozen=True)
class Lookup:
    """One place where a node looks rows up. index: of the row, over the state and the place among the rows of
    a firing, of which there are `rows`."""

    index: Expr
    state: StateType
    rows: Expr

    def numbers(self, instance: Instance) -> np.ndarray:
        """The rows that it may look up, in any order, and some more than once."""
        found = self._beginning(instance)
        return self._of_all_states(instance) if found is None else found

    def _beginning(self, instance: Instance) -> np.ndarray | None:
        """A short cut to the same for `table[i]` where i counts from 0, as most are: the table's beginning.

        Ranks do this for every instance before it is pumped. None: it is something else.
        """
        if not isinstance(self.index, Table) or len(self.index.index) != 1:
            return None
        (i,), fields, count, most = self.index.index, self.state.fields, self.rows, MOST_STATES
        if fields:
            if len(fields) > 1 or self.rows != Const(1) or i != Field(fields[0].name):
                return None
            count, most = fields[0].extent, fields[0].bound
        elif i != ROW:
            return None
        table = instance.tables.get(self.index.name)
        if table is None or table.ndim != 1 or not isinstance(count, (Attr, Const)):
            return None
        end = instance.attr(count.name) if isinstance(count, Attr) else count.value
        return table[:end] if 0 <= end <= most else None

    def _of_all_states(self, instance: Instance) -> np.ndarray:
        states = KeySpace(self.state, instance).env(strict=False)
        counts = np.asarray(evaluate(self.rows, states))
        counts = np.where(states.outside, 0, counts)  # a state outside a table never occurs
        of = np.repeat(np.arange(states.size), counts)
        first = np.repeat(np.cumsum(counts) - counts, counts)
        columns = {name: column[of] for name, column in states.columns.items()}
        columns[ROW.name] = np.arange(len(of)) - first
        each = Columns(instance, columns, len(of), strict=False)
        found = np.asarray(evaluate(self.index, each))
        return found[~each.outside]


@dataclass(frozen=True)
class SparseParameter:
    """A table that is looked up and nothing else."""

    node: str
    name: str
    shape: tuple[int, ...]
    lookups: tuple[Lookup, ...]

    def rows(self, instances: Iterable[Instance]) -> np.ndarray:
        """Those that these instances may look up -> int32, ascending, each once."""
        return rows_read([self], instances)[0]


def rows_read(parameters: Sequence[SparseParameter], instances: Iterable[Instance]) -> list[np.ndarray]:
    """`SparseParameter.rows` of several, in their order; what they have in common is looked at once."""
    lookups: dict[Lookup, list[np.ndarray]] = {lookup: [] for p in parameters for lookup in p.lookups}
    for instance in instances:
        for lookup, found in lookups.items():
            found.append(lookup.numbers(instance))
    out = []
    for p in parameters:
        found = [numbers for lookup in p.lookups for numbers in lookups[lookup]]
        numbers = np.unique(np.concatenate(found)) if found else np.empty(0)
        out.append(numbers[(numbers >= 0) & (numbers < p.shape[0])].astype(np.int32))
    return out


def sparse_parameters(graph: Graph) -> list[SparseParameter]:
    """Of a graph, by node and name. A table that is multiplied as well (tied weights) is none."""
    typed = infer(graph)
    found = []
    for node in sorted(graph.parameterised):
        behaviour = typed.behaviours[node]
        program = behaviour.program
        assert program is not None, node
        spaces = dict(behaviour.spaces)
        before = len(program.inputs)
        for p in program.params:
            uses = [i for i in program.instrs if i.attr().get("param") == p.name]
            if len(p.shape) != 2 or not uses or any(i.op != "take" for i in uses):
                continue
            if _computed(program, uses):
                continue
            ints = [program.ints[i.args[0] - before] for i in uses]
            lookups = tuple(_lookup(e, behaviour.state, spaces[space]) for e, space in ints)
            found.append(SparseParameter(node, p.name, p.shape, lookups))
    return found


def dense_tables(graph: Graph) -> dict[str, str]:
    """Tables (NODE.NAME) that are looked up by rows and are dense all the same, and why each is."""
    typed = infer(graph)
    found = {}
    for node in sorted(graph.parameterised):
        program = typed.behaviours[node].program
        assert program is not None, node
        for p in program.params:
            ops = {i.op for i in program.instrs if i.attr().get("param") == p.name}
            if "take" not in ops:
                continue
            if others := sorted(ops - {"take"}):
                found[f"{node}.{p.name}"] = f"it is looked up, and also used as a whole ({', '.join(others)})"
            elif _computed(program, [i for i in program.instrs if i.attr().get("param") == p.name]):
                found[f"{node}.{p.name}"] = "its rows are looked up by numbers that the network computes"
            elif len(p.shape) != 2:
                found[f"{node}.{p.name}"] = f"it has {len(p.shape)} axes, and a table has 2"
    return found


def _computed(program: Program, uses: Sequence[Instr]) -> bool:
    """Whether any of these look-ups is of a row that nobody knows before the program has run."""
    return any(i.args[0] >= len(program.inputs) + len(program.ints) for i in uses)


def _lookup(index: Expr, state: StateType, rows: Expr) -> Lookup:
    """With those fields of the state alone that have a say: others would repeat the same rows."""
    wanted = fields_of(index) | fields_of(rows)
    for f in reversed(state.fields):
        if f.name in wanted:
            wanted |= fields_of(f.extent)
    return Lookup(index, StateType(tuple(f for f in state.fields if f.name in wanted)), rows)
