"""What a node takes of whatever device it is on, read from the graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from amphw.engine.lowering.lower import Unit
from amphw.engine.parts.costs import DIRECTIONS, FLOAT_BYTES, Crossing, crossings
from amphw.estimate.count.traffic import NodeRate
from amphw.ir.flops import directions
from amphw.ir.graph import Graph
from amphw.ir.update import UpdateRule


@dataclass(frozen=True)
class NodeWork:
    """Of a node that computes, and an instance, on average.

    row_flops: floating-point operations for a row of each space, or for pairs of rows (`rows_of`), forward
    and backward. forward, backward, update: operations. updates: their number. parameters: bytes. held: bytes
    of parameters with gradients and the optimiser's arrays. kept: bytes that the instance with the most has
    there until its gradients are back. to_device, from_device: bytes of its frames and their results, both
    directions of training together.
    """

    row_flops: Mapping[str, tuple[int, int]]
    forward: float
    backward: float
    update: float
    updates: float
    parameters: int
    held: int
    kept: float
    to_device: float
    from_device: float


def work_of(graph: Graph, unit: Unit, rate: NodeRate, rule: UpdateRule) -> NodeWork:
    """unit: of the lowered graph that `rate` was counted on."""
    program, derivative = unit.behaviour.program, unit.derivative
    assert program is not None and derivative is not None
    ahead, back = directions(program, derivative)
    spaces = [space for space, _ in unit.behaviour.spaces]
    row_flops = {name: (ahead[name], back[name]) for name in {**dict.fromkeys(spaces), **ahead, **back}}
    specs = graph.nodes[unit.name].params if unit.owns else ()
    numbers = sum(math.prod(spec.shape) for spec in specs)
    updates = rate.rows["rows"].mean / rule.interval if specs and "rows" in rate.rows else 0.0
    crossing = [crossings(unit, kind) for kind in DIRECTIONS]
    residuals = Crossing()
    for of in derivative.forward.outputs_types[len(program.outputs) :]:
        if of.kind == "float":
            residuals.floats[of.space] += of.width
    most = {space: rate.rows[space].most for space in spaces}
    mean = {space: rate.rows[space].mean for space in spaces}
    counted = {name: of.mean for name, of in {**rate.rows, **rate.pairs}.items()}
    firings = rate.firings.mean
    return NodeWork(
        row_flops,
        sum(each * counted[name] for name, each in ahead.items()),
        sum(each * counted[name] for name, each in back.items()),
        updates * numbers * rule.operations(),
        updates,
        FLOAT_BYTES * numbers,
        rule.bytes(specs),
        FLOAT_BYTES * sum(each.numbers(most) for each in (*crossing[0], residuals)),
        sum(to.bytes(firings, mean) for to, _ in crossing),
        sum(back.bytes(firings, mean) for _, back in crossing),
    )
