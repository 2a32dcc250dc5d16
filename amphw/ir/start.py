"""Parameters that start at given values, such as those of a model that was trained elsewhere.

The values are held by the parameters' specs, so every device starts with them. They cross a process with the
graph, but its fingerprint leaves them out: a checkpoint replaces them, whatever they were.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from amphw.ir.errors import GraphError
from amphw.ir.graph import Graph
from amphw.ir.program import ParamSpec, Program

Values = Mapping[str, Mapping[str, np.ndarray]]


def starting_at(graph: Graph, values: Values, dtype: type = np.float32) -> Graph:
    """The graph with these parameters, by node and name, starting at the given values; the others as before.

    dtype: what the values are kept in. Raises GraphError naming a node or a parameter that does not exist, or
    whose values have another shape.
    """
    out = graph.empty_copy()
    for name in values:
        if name not in graph.nodes:
            raise GraphError("values are given for its parameters, but there is no such node", node=name)
    for name, node in graph.nodes.items():
        if name in values:
            program = _given(name, getattr(node, "program", None), values[name], dtype)
            node = replace(node, program=program)  # type: ignore[call-arg]  # of a family that has one
        out.add(node)
    out.region_of = dict(graph.region_of)
    for (source, port), (target, into) in graph.edges.items():
        out.connect(f"{source}.{port}", f"{target}.{into}")
    return out


def _given(node: str, program: Program | None, values: Mapping[str, np.ndarray], dtype: type) -> Program:
    specs = {p.name: p for p in program.params} if program is not None else {}
    for name, array in values.items():
        if name not in specs:
            known = ", ".join(specs) or "none"
            raise GraphError(f"values are given for '{name}'; its parameters are: {known}", node=node)
        if array.shape != specs[name].shape:
            raise GraphError(
                f"the values given for '{name}' have shape {array.shape}, it has {specs[name].shape}",
                node=node,
            )
        specs[name] = ParamSpec.given(name, array, dtype)
    assert program is not None
    return replace(program, params=tuple(specs.values()))


def values_to_json(graph: Graph) -> dict[str, dict[str, str]]:
    """All given values, by node and parameter: float32 in base64, row by row, the lowest byte first."""
    out: dict[str, dict[str, str]] = {}
    for name, node in graph.nodes.items():
        for spec in node.params:
            if spec.values is not None:
                text = b64encode(spec.values.astype("<f4").tobytes()).decode()
                out.setdefault(name, {})[spec.name] = text
    return out


def values_from_json(graph: Graph, data: Mapping[str, Mapping[str, str]]) -> Graph:
    """The graph with the values that `values_to_json` wrote. Raises GraphError where they do not fit it."""
    values: dict[str, dict[str, np.ndarray]] = {}
    for node, texts in data.items():
        shapes = {s.name: s.shape for s in graph.nodes[node].params} if node in graph.nodes else {}
        for name, text in texts.items():
            try:
                array = np.frombuffer(b64decode(text, validate=True), "<f4").reshape(shapes.get(name, (-1,)))
            except ValueError as error:
                raise GraphError(
                    f"the stored graph is damaged: values of '{name}': {error}", node=node
                ) from None
            values.setdefault(node, {})[name] = array
    return starting_at(graph, values)
