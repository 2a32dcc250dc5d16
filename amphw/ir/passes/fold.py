"""fold: a linear layer of an embedding becomes a table, for inference.

    take(E, i) @ W + b                  becomes   take(E W + b, i)
    concat(take(E, i), h) @ W + b       becomes   take(E W[:e], i) + h @ W[e:] + b

The table may be looked up in another node than the one that multiplies: on the way, the row may only have
its state changed or be copied. The folded graph computes the same as the one before if it gets its parameters
from `fold_parameters`; trained, it would be another network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from amphw.ir.check import infer
from amphw.ir.errors import GraphError
from amphw.ir.graph import Graph
from amphw.ir.grouping import Group
from amphw.ir.nodes import NPT, PPT, Node
from amphw.ir.program import Builder, ParamSpec, Program, Value
from amphw.ir.routing import Flatmap, Isu, Ungroup

Values = Mapping[str, Mapping[str, np.ndarray]]
"""Arrays by node and parameter."""


@dataclass(frozen=True)
class Recipe:
    """A parameter of the folded graph: rows of `weight` (node, parameter), multiplied by `table` if there is
    one; `bias` is added."""

    weight: tuple[str, str]
    rows: tuple[tuple[int, int], ...]  # first row and number of rows, side by side
    table: tuple[str, str] | None = None
    bias: tuple[str, str] | None = None

    def compute(self, values: Values) -> np.ndarray:
        w = values[self.weight[0]][self.weight[1]]
        made = np.concatenate([w[start : start + count] for start, count in self.rows])
        if self.table is not None:
            made = values[self.table[0]][self.table[1]] @ made
        return made if self.bias is None else made + values[self.bias[0]][self.bias[1]]


@dataclass
class Plan:
    """What becomes of a graph: other programs by node, and parameters by (node, name) that are computed."""

    programs: dict[str, Program] = field(default_factory=dict)
    recipes: dict[tuple[str, str], Recipe] = field(default_factory=dict)


def fold(graph: Graph) -> Graph:
    """The graph with every such table made; GraphError where there is none to make."""
    plan = _planned(graph)
    if not plan.programs:
        raise GraphError("there is nothing to fold: no product has rows of an embedding for an operand")
    out = graph.empty_copy()
    for name, node in graph.nodes.items():
        new: Node = node
        if name in plan.programs:
            program = plan.programs[name]
            if isinstance(node, Group):
                new = replace(node, program=program)
            else:
                new = (PPT if program.params else NPT)(name, program)
        out.add(new)
        if name in graph.region_of:
            out.region_of[name] = graph.region_of[name]
    for (source, port), (target, into) in graph.edges.items():
        out.connect(f"{source}.{port}", f"{target}.{into}")
    infer(out)
    return out


def fold_parameters(graph: Graph, values: Values) -> dict[str, dict[str, np.ndarray]]:
    """Parameters of the graph before folding -> those of the folded one, in float32 as they come."""
    plan = _planned(graph)
    out: dict[str, dict[str, np.ndarray]] = {}
    for name in graph.parameterised:
        program = plan.programs.get(name)
        if program is None:
            out[name] = dict(values[name])
            continue
        for p in program.params:
            recipe = plan.recipes.get((name, p.name))
            made = values[name][p.name] if recipe is None else recipe.compute(values)
            out.setdefault(name, {})[p.name] = made
    return out


def _planned(graph: Graph) -> Plan:
    infer(graph)
    plan = Plan()
    for name, node in graph.nodes.items():
        if isinstance(node, PPT | Group) and node.params and name not in plan.programs:
            _rewrite(plan, graph, node)
    return plan


def _rewrite(plan: Plan, graph: Graph, node: PPT | Group) -> None:
    """Fold what this node looks up or is sent, into the products that it makes of it."""
    assert node.program is not None
    rewriter = _Rewriter(node.program, node.name)
    sent: dict[int, _Embedding] = {}
    for k, port in enumerate(node.ins):
        embedding = _embedding(graph, node.name, port)
        if embedding is not None and embedding.node not in plan.programs and rewriter.multiplied(k):
            sent[k] = embedding
    program = rewriter.run({k: rewriter.multiplied(k) for k in sent})
    if not rewriter.recipes and not sent:
        return
    plan.programs[node.name] = program
    plan.recipes.update({(node.name, p): r for p, r in rewriter.recipes.items()})
    for k, embedding in sent.items():
        recipe = replace(rewriter.sent[k], table=(embedding.node, embedding.table))
        name = f"{embedding.table}_{recipe.weight[1]}"
        plan.programs[embedding.node] = embedding.widened(name, program.inputs[k][1].width)
        plan.recipes[embedding.node, name] = recipe


# --- rows that another node looks up ----------------------------------------------------------------


@dataclass(frozen=True)
class _Embedding:
    """A node that does nothing but look a row up in a table."""

    node: str
    table: str
    program: Program

    def widened(self, table: str, width: int) -> Program:
        """The same with rows of another width."""
        rows = self.program.param(self.table).shape[0]
        builder = Builder([ParamSpec(table, (rows, width), "zeros")])
        for name, t in self.program.inputs:
            builder.input(name, t)
        (e, space) = self.program.ints[0]
        return builder.build([builder.emit("take", [builder.integer(e, space)], param=table)])


def _embedding(graph: Graph, node: str, port: str) -> _Embedding | None:
    """The embedding whose rows arrive here, copied or with another state but otherwise as they were."""
    source = graph.nodes[graph.sources_of[(node, port)][0]]
    while isinstance(source, Isu | Flatmap | Ungroup):
        source = graph.nodes[graph.sources_of[(source.name, "in")][0]]
    if not isinstance(source, PPT) or len(source.outs) != 1 or len(source.program.instrs) != 1:
        return None
    (instr,) = source.program.instrs
    if instr.op != "take" or not source.program.ints:
        return None
    return _Embedding(source.name, instr.attr()["param"], source.program)


# --- programs ---------------------------------------------------------------------------------------


class _Rewriter:
    """Writes a program once more, with tables for products of rows that come from tables.

    recipes: parameters that it made, by name; sent: what the rows of operands that another node looks up are
    to be multiplied with.
    """

    def __init__(self, program: Program, node: str):
        self.old, self.node = program, node
        first = len(program.inputs) + len(program.ints)
        self.made = {first + k: i for k, i in enumerate(program.instrs)}
        self.readers: dict[int, list[int]] = {v: [] for v in range(len(program.types))}
        for v, instr in self.made.items():
            for a in instr.args:
                self.readers[a].append(v)
        for v in program.outputs:
            self.readers[v].append(-1)
        self.rows = {v: i.attr()["param"] for v, i in self.made.items() if i.op == "take"}
        self.recipes: dict[str, Recipe] = {}
        self.sent: dict[int, Recipe] = {}

    def multiplied(self, v: int) -> int:
        """Columns of the one product that reads a value, and nothing else does; 0 where there is no such."""
        if len(self.readers[v]) != 1 or self.readers[v][0] < 0:
            return 0
        (reader,) = self.readers[v]
        if self._op(reader) == "concat" and self.made[reader].args.count(v) == 1:
            return self.multiplied(reader)
        return self.old.types[reader].width if self._op(reader) == "matmul" else 0

    def run(self, given: Mapping[int, int]) -> Program:
        """given: operands that are to arrive multiplied already, with their new widths."""
        self.given = given
        self.builder = Builder(self.old.params)
        self.builder.spaces.update(dict(self.old.spaces))
        self.new: dict[int, Value] = {}
        self.done: dict[int, Value] = {}  # sums whose bias is in the table
        for v, (name, t) in enumerate(self.old.inputs):
            self.new[v] = self.builder.input(name, replace(t, width=given.get(v, t.width)))
        for v, (e, space) in enumerate(self.old.ints, len(self.old.inputs)):
            self.new[v] = self.builder.integer(e, space)
        for v, instr in self.made.items():
            if v in self.done:
                self.new[v] = self.done[v]
                continue
            parts = self._parts(instr.args[0]) if instr.op == "matmul" else []
            if any(p in self.rows or p in given for p, _, _ in parts):
                self.new[v] = self._product(v, instr.attr()["param"], parts)
            elif not set(instr.args) & set(given) and all(a in self.new for a in instr.args):
                self.new[v] = self.builder.emit(instr.op, [self.new[a] for a in instr.args], **instr.attr())
        return self.builder.build([self.new[o] for o in self.old.outputs])

    def _parts(self, v: int, row: int = 0) -> list[tuple[int, int, int]]:
        """(value, first row of the weight, rows of it) of what a product's left side is put together from."""
        if self._op(v) != "concat":
            return [(v, row, self.old.types[v].width)]
        out = []
        for a in self.made[v].args:
            out += self._parts(a, row)
            row += self.old.types[a].width
        return out

    def _op(self, v: int) -> str:
        return self.made[v].op if v in self.made else ""

    def _product(self, v: int, weight: str, parts: Sequence[tuple[int, int, int]]) -> Value:
        rest = [part for part in parts if part[0] not in self.rows and part[0] not in self.given]
        reader, bias = (-1, None) if rest else self._bias(v)
        terms: list[Value] = []
        for p, *block in (part for part in parts if part not in rest):
            recipe = Recipe((self.node, weight), (tuple(block),), bias=None if terms else bias)  # type: ignore[arg-type]
            terms.append(self._term(v, p, recipe))
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        if rest:
            total = total + self._rest(v, weight, rest)
        if bias is not None:
            self.done[reader] = total
        return total

    def _term(self, v: int, p: int, recipe: Recipe) -> Value:
        """Rows of a table in the place of a product with rows of another."""
        if p in self.given:
            self.sent[p] = recipe
            return self.new[p]
        table = self.rows[p]
        shape = (self.old.param(table).shape[0], self.old.types[v].width)
        name = self._fresh(f"{table}_{recipe.weight[1]}", shape, replace(recipe, table=(self.node, table)))
        return self.builder.emit("take", [self.new[self.made[p].args[0]]], param=name)

    def _rest(self, v: int, weight: str, rest: Sequence[tuple[int, int, int]]) -> Value:
        """The product of what comes from no table."""
        blocks = tuple((start, count) for _, start, count in rest)
        left = [self.new[p] for p, _, _ in rest]
        x = left[0] if len(left) == 1 else self.builder.emit("concat", left)
        shape = (sum(count for _, count in blocks), self.old.types[v].width)
        name = self._fresh(f"{weight}_rest", shape, Recipe((self.node, weight), blocks))
        return self.builder.emit("matmul", [x], param=name)

    def _bias(self, v: int) -> tuple[int, tuple[str, str] | None]:
        """The sum with a bias that alone reads a product, and the bias."""
        (reader, *more) = self.readers[v]
        others = [a for a in self.made[reader].args if a != v] if self._op(reader) == "add" else []
        if more or len(others) != 1 or self._op(others[0]) != "row_param":
            return -1, None
        return reader, (self.node, self.made[others[0]].attr()["param"])

    def _fresh(self, name: str, shape: tuple[int, ...], recipe: Recipe) -> str:
        while name in self.builder.params and self.recipes.get(name) != recipe:
            name += "_"
        self.builder.params[name] = ParamSpec(name, shape, "zeros")
        self.recipes[name] = recipe
        return name
