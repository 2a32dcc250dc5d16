"""Floating-point operations of an instance: those of its products with parameters, which are all but a few
percent where no attention goes over hundreds of positions.

A product of r rows with a matrix [i, o] has 2 r i o operations forward. Backward there is the same again for
the gradient of the matrix, and once more for the gradient of the rows, unless nothing upstream has parameters
that want it. Counted is the graph as the model gives it: what a device recomputes or saves does not count.
With one exception: an embedding of few rows that is only multiplied is taken to be folded into its matrix, on
our side as on the peers', so its part of the product does not count at all (`engine.tiles.fold`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amphw.engine.tiles.fold import folds
from amphw.ir.behaviour import Behaviour
from amphw.ir.check import Typed, infer
from amphw.ir.derive import differentiate
from amphw.ir.expr import evaluate
from amphw.ir.flops import directions
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.program import Program
from amphw.ir.state import KeySpace


@dataclass(frozen=True)
class Flops:
    """Operations forward and backward, of whatever was counted."""

    forward: float
    backward: float

    @property
    def total(self) -> float:
        return self.forward + self.backward

    def per(self, count: float) -> Flops:
        return Flops(self.forward / count, self.backward / count)


def count_flops(graph: Graph, instances: Sequence[Instance], rows: Mapping[str, float]) -> Flops:
    """Operations of these instances together. rows: gradient rows of each node, as a device counted them."""
    typed = infer(graph)
    forward = backward = 0.0
    for node in graph.parameterised:
        behaviour = typed.behaviours[node]
        assert behaviour.program is not None
        ahead, back = _products(behaviour.program, _wanted(typed, node, behaviour))
        if not ahead and not back:
            continue
        spaces = _rows_by_space(behaviour, instances, rows.get(node, 0.0))
        forward += sum(spaces[space] * each for space, each in ahead.items())
        backward += sum(spaces[space] * each for space, each in back.items())
    return Flops(forward, backward)


def _products(program: Program, wanted: Sequence[int]) -> tuple[Counter[str], Counter[str]]:
    """Operations for a row of each space, forward and backward."""
    derivative = differentiate(program, wanted)
    spared = {program.params[f.weight].name: f.width for f in folds(program)}
    return directions(program, derivative, products_alone=True, spared=spared)


def _wanted(typed: Typed, node: str, behaviour: Behaviour) -> list[int]:
    """Operands whose gradient somebody upstream has use for."""
    graph = typed.graph
    return [i for i, r in enumerate(behaviour.receives) if _owned(graph, graph.sources_of[(node, r.port)][0])]


def _owned(graph: Graph, node: str) -> bool:
    """Whether the node, or one before it, has parameters."""
    seen, stack = {node}, [node]
    while stack:
        at = stack.pop()
        if graph.nodes[at].params:
            return True
        before = {graph.sources_of[(at, port)][0] for port in graph.nodes[at].ins} - seen
        seen |= before
        stack += before
    return False


def _rows_by_space(behaviour: Behaviour, instances: Sequence[Instance], measured: float) -> dict[str, float]:
    """Rows of the node's messages in each space.

    Which of a node's possible states occur is known to the device alone, which counts rows in the space
    "rows". The others are taken to be in proportion, which is exact where all states occur or are alike.
    """
    possible: Counter[str] = Counter()
    for name, expression in behaviour.spaces if len(behaviour.spaces) > 1 else ():
        for instance in instances:
            possible[name] += int(evaluate(expression, KeySpace(behaviour.state, instance).env()).sum())
    share = measured / possible["rows"] if possible["rows"] else 0.0
    return {name: share * count for name, count in possible.items()} | {"rows": measured}
