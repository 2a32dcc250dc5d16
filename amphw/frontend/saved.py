"""A compiled model as JSON: the graph and what instances look like, without the function that it came from.

So a trained model can be used where its source is not, and loading one runs none of its author's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amphw.frontend.compile import Compiled, encoder_of
from amphw.frontend.graph_spec import Graph
from amphw.frontend.source import FrontendError
from amphw.frontend.spec import Along, Axis, Floats, Int, Record, Sequence, Spec
from amphw.frontend.torch_state import TorchState
from amphw.frontend.tree_spec import Tree
from amphw.ir.errors import AmphwError
from amphw.ir.serialise import graph_from_json, graph_to_json

FORMAT = 1
"""Version of the layout; `compiled_from_json` reads this one only."""


def compiled_to_json(compiled: Compiled) -> dict[str, Any]:
    """All of it but what `explain` tells, as JSON values."""
    axes = dict[int, Axis]()
    spec = _written(compiled.spec, axes)
    return {
        "format": FORMAT,
        "graph": graph_to_json(compiled.graph),
        "axes": [[axis.name, axis.most, axis.least] for axis in axes.values()],
        "spec": spec,
        "imported": {name: state.to_json() for name, state in compiled.imported.items()},
    }


def compiled_from_json(data: Any) -> Compiled:
    """The inverse of `compiled_to_json`. Raises FrontendError for another format and for damaged data."""
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, Mapping) else None
        raise FrontendError(
            f"the stored model has format {found!r}, this version of amphw reads format {FORMAT}"
        )
    try:
        axes = [Axis(name, most, least) for name, most, least in data["axes"]]
        spec = _read(data["spec"], axes)
        imported = {name: TorchState.from_json(entries) for name, entries in data["imported"].items()}
        return Compiled(graph_from_json(data["graph"]), spec, {}, (), encoder_of(spec), imported)
    except (AmphwError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise FrontendError(f"the stored model is damaged: {error}") from error


def _written(spec: Spec, axes: dict[int, Axis]) -> dict[str, Any]:
    """axes: those of all parts by identity, which are numbered in the order in which they are met."""

    def parts(of: Record) -> dict[str, Any]:
        return {name: _written(part, axes) for name, part in of.parts.items()}

    match spec:
        case Int():
            return {"kind": "Int", "high": spec.high}
        case Floats():
            return {"kind": "Floats", "width": spec.width}
        case Record():
            return {"kind": "Record", "parts": parts(spec)}
        case Along():
            axes.setdefault(id(spec.axis), spec.axis)
            return {
                "kind": "Along",
                "axis": list(axes).index(id(spec.axis)),
                "item": _written(spec.item, axes),
            }
        case Sequence():
            item = _written(spec.item, axes)
            return {"kind": "Sequence", "item": item, "most": spec.most, "least": spec.least}
        case Tree():
            sizes = {"most": spec.most, "arity": spec.arity}
            return {"kind": "Tree", "leaf": parts(spec.leaf), "node": parts(spec.node), **sizes}
        case Graph():
            sizes = {name: getattr(spec, name) for name in ("most_nodes", "most_edges", "types")}
            of = {name: parts(getattr(spec, name)) for name in ("node", "edge", "whole")}
            return {"kind": "Graph", **of, **sizes}
    raise FrontendError(f"{type(spec).__name__} is a specification of yours; those of amphw can be stored")


def _read(data: Mapping[str, Any], axes: list[Axis]) -> Spec:
    def parts(of: Mapping[str, Any]) -> dict[str, Spec]:
        return {name: _read(part, axes) for name, part in of.items()}

    given = {name: value for name, value in data.items() if name != "kind"}
    match data["kind"]:
        case "Int":
            return Int(**given)
        case "Floats":
            return Floats(**given)
        case "Record":
            return Record(**parts(given["parts"]))
        case "Along":
            return Along(axes[given["axis"]], _read(given["item"], axes))
        case "Sequence":
            return Sequence(**given | {"item": _read(given["item"], axes)})
        case "Tree":
            return Tree(**given | {name: parts(given[name]) for name in ("leaf", "node")})
        case "Graph":
            return Graph(**given | {name: parts(given[name]) for name in ("node", "edge", "whole")})
    raise ValueError(f"there is no specification {data['kind']!r}")
