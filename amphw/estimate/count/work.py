"""What a node takes of whatever device it is on, read from the graph."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from amphw.engine.lowering.lower import Unit
from amphw.engine.parts.links import FLOAT_BYTES, frame_bytes
from amphw.estimate.count.traffic import NodeRate
from amphw.ir.flops import directions
from amphw.ir.graph import Graph
from amphw.ir.update import UpdateRule


@dataclass(frozen=True)
class NodeWork:
    """Of a node that computes, and an instance, on average.

    row_flops: floating-point operations for a row of each space, (forward, backward). forward, backward,
    update: operations. updates: their number. parameters: bytes. held: bytes of parameters with gradients and
    the optimiser's arrays. kept: bytes that the instance with the most has there until its gradients are
    back. to_device, from_device: bytes of its frames and their results, both directions of training together.
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
    row_flops = {space: (ahead[space], back[space]) for space in spaces}
    specs = graph.nodes[unit.name].params if unit.owns else ()
    numbers = sum(math.prod(spec.shape) for spec in specs)
    updates = rate.rows["rows"].mean / rule.interval if specs and "rows" in rate.rows else 0.0
    operands, results, returned = _operands(unit), _results(unit), _returned(unit)
    residuals = _summed(
        (t.space, t.width)
        for t in derivative.forward.outputs_types[len(program.outputs) :]
        if t.kind == "float"
    )
    most = {space: rate.rows[space].most for space in spaces}
    mean = {space: rate.rows[space].mean for space in spaces}
    firings, ints = rate.firings.mean, _times(_ints(unit), mean)
    decided = len(unit.behaviour.decides) * firings
    return NodeWork(
        row_flops,
        sum(ahead[s] * mean[s] for s in spaces),
        sum(back[s] * mean[s] for s in spaces),
        updates * numbers * rule.operations(),
        updates,
        FLOAT_BYTES * numbers,
        rule.bytes(specs),
        FLOAT_BYTES * sum(_times(each, most) for each in (operands, results, residuals)),
        frame_bytes(firings, _times(operands, mean), ints)
        + frame_bytes(firings, _times(results, mean), ints),
        frame_bytes(firings, _times(results, mean), decided) + frame_bytes(firings, _times(returned, mean)),
    )


def _times(by_space: Mapping[str, int], rows: Mapping[str, float]) -> float:
    return sum(each * rows.get(space, 0.0) for space, each in by_space.items())


def _operands(unit: Unit) -> dict[str, int]:
    """Of a row of each space, numbers that come in forward."""
    return _summed((o.space, o.width) for o in unit.operands)


def _returned(unit: Unit) -> dict[str, int]:
    """What goes out backward."""
    return _summed((o.space, o.width) for o in unit.operands if o.needs_gradient)


def _results(unit: Unit) -> dict[str, int]:
    """What goes out forward, and comes in backward."""
    assert unit.behaviour.program is not None
    types = unit.behaviour.program.outputs_types
    return _summed((t.space, t.width) for t in types if t.kind == "float")


def _ints(unit: Unit) -> dict[str, int]:
    """Integer operands, which come in both times."""
    assert unit.behaviour.program is not None
    return _summed((space, 1) for _, space in unit.behaviour.program.ints)


def _summed(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    out: dict[str, int] = {}
    for space, numbers in pairs:
        out[space] = out.get(space, 0) + numbers
    return out
