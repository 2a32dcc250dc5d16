"""Graphs as JSON: what a checkpoint's fingerprint covers, and how a graph crosses a process or a host.

Every part of a graph is a frozen dataclass, so one pair of converters works by type annotation: expressions,
programs and value types have their own short forms, any other dataclass becomes an object of its fields.
Fields at their default are written too, because a default that changes later must not change a stored graph.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from amphw.ir import grouping, nodes, routing
from amphw.ir.errors import AmphwError, GraphError
from amphw.ir.expr import Expr, from_json, to_json
from amphw.ir.graph import Graph, Region
from amphw.ir.instance import Axiom, Schema, TableType
from amphw.ir.nodes import Node
from amphw.ir.program import Program
from amphw.ir.start import values_from_json, values_to_json
from amphw.ir.state import FieldType, StateType

FORMAT = 1
"""Version of the layout; `graph_from_json` reads this one only."""

_ABSTRACT = {Node, nodes.Transform}
FAMILIES: dict[str, type[Node]] = {
    c.__name__: c
    for module in (nodes, grouping, routing)
    for c in vars(module).values()
    if isinstance(c, type) and issubclass(c, Node) and c not in _ABSTRACT
}
"""Every node family by name."""


def graph_to_json(graph: Graph) -> dict[str, Any]:
    """The whole definition as JSON values; edges in the order in which they were connected.

    values: where parameters start at given values, these (see `amphw.ir.start`); else there is no such entry.
    """
    values = values_to_json(graph)
    return definition(graph) | ({"values": values} if values else {})


def fingerprint(graph: Graph) -> str:
    """A hash of the whole definition; a checkpoint of another graph does not load."""
    text = json.dumps(definition(graph), sort_keys=True, separators=(",", ":"))
    # The start that an embedding has where none was asked for was N(0, 0.1) once. A checkpoint brings its
    # values along, so those of before still fit.
    text = text.replace('],"normal"]', '],"normal:0.1"]')
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def definition(graph: Graph) -> dict[str, Any]:
    """What a fingerprint covers: all but the values that parameters start at."""
    return {
        "format": FORMAT,
        "name": graph.name,
        "schema": _encode(graph.schema),
        "regions": [_encode(r) for r in graph.regions.values()],
        "nodes": [
            {"family": node.family, "region": graph.region_of.get(name), **_encode(node)}
            for name, node in graph.nodes.items()
        ],
        "edges": [[".".join(out), ".".join(into)] for out, into in graph.edges.items()],
        "replicas": [list(group) for group in graph.replicas],
    }


def graph_from_json(data: Mapping[str, Any]) -> Graph:
    """The inverse of `graph_to_json`.

    Raises GraphError for another format, an unknown family, or damaged data; it names the node.
    """
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, Mapping) else type(data).__name__
        raise GraphError(f"a stored graph of format {found!r}, this version reads {FORMAT}; store it again")
    graph = Graph(_part(str, data, "name"), _part(Schema, data, "schema"))
    for region in _part(tuple[Region, ...], data, "regions"):
        if region.name in graph.regions or (region.parent is not None and region.parent not in graph.regions):
            raise GraphError(f"the stored region '{region.name}' occurs twice or before its parent")
        graph.regions[region.name] = region
    for entry in _part(tuple[dict, ...], data, "nodes"):
        node = _node(entry)
        graph.add(node)
        region_name = entry.get("region")
        if region_name is not None:
            if region_name not in graph.regions:
                raise GraphError(
                    f"stored in the region {region_name!r}, which does not exist", node=node.name
                )
            graph.region_of[node.name] = region_name
    for out, into in _part(tuple[tuple[str, str], ...], data, "edges"):
        graph.connect(out, into)
    graph.replicas = list(_part(tuple[tuple[str, ...], ...], data, "replicas"))
    for group in graph.replicas:
        for name in group:
            if name not in graph.nodes:
                raise GraphError("named as a replica, but there is no such node", node=name)
    if "values" not in data:
        return graph
    return values_from_json(graph, _part(dict[str, dict[str, str]], data, "values"))


def _part(hint: Any, data: Mapping[str, Any], key: str) -> Any:
    """One top-level entry of a stored graph."""
    if key not in data:
        raise GraphError(f"the stored graph is damaged: '{key}' is missing")
    return _guarded(lambda: _decode(hint, data[key], key), None)


def _node(entry: Mapping[str, Any]) -> Node:
    name, family = entry.get("name"), entry.get("family")
    if not isinstance(name, str):
        raise GraphError(f"the stored graph is damaged: a node has the name {name!r}")
    if family not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise GraphError(f"unknown family {family!r}; this version knows {known}", node=name)
    fields = {k: v for k, v in entry.items() if k not in {"family", "region"}}
    return _guarded(lambda: _decode(FAMILIES[family], fields, family), name)


def _guarded(decode: Callable[[], Any], node: str | None) -> Any:
    """Run a decoder; whatever damaged data makes it raise becomes a GraphError that names the node."""
    try:
        return decode()
    except (AmphwError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise GraphError(f"the stored graph is damaged: {error}", node=node) from error


# --- conversion by type ---


@cache
def _hints(cls: type) -> dict[str, Any]:
    """Field name -> resolved type; some names are imported for type checking only where they are used."""
    known = {c.__name__: c for c in (FieldType, StateType, Axiom, TableType, Region)}
    hints = get_type_hints(cls, localns=known)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def _encode(value: Any) -> Any:
    if isinstance(value, Expr):
        return to_json(value)
    if isinstance(value, Program):
        return value.to_json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {k: _encode(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_encode(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise GraphError(f"cannot store a value of type {type(value).__name__}: {value!r}")


def _decode(hint: Any, data: Any, where: str) -> Any:
    """`data` as a value of the annotated type; `where` is the path for errors."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        if data is None and type(None) in args:
            return None
        (hint,) = (a for a in args if a is not type(None))
        return _decode(hint, data, where)
    if hint is Expr:
        return from_json(data)
    if hint is Program:
        return Program.from_json(_typed(data, dict, where))
    if dataclasses.is_dataclass(hint):
        return _decode_object(hint, data, where)  # type: ignore[arg-type]  # is_dataclass also admits instances
    if origin is tuple:
        items = _typed(data, list, where)
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_decode(args[0], x, f"{where}[{i}]") for i, x in enumerate(items))
        if len(items) != len(args):
            raise GraphError(f"{where} has {len(items)} entries, expected {len(args)}")
        return tuple(_decode(a, x, f"{where}[{i}]") for i, (a, x) in enumerate(zip(args, items, strict=True)))
    if origin is not None and issubclass(origin, Mapping):
        return {k: _decode(args[1], v, f"{where}.{k}") for k, v in _typed(data, dict, where).items()}
    return _typed(data, hint, where)


def _decode_object(cls: type, data: Any, where: str) -> Any:
    hints = _hints(cls)
    given = _typed(data, dict, where)
    if given.keys() != hints.keys():
        odd = sorted(given.keys() ^ hints.keys())
        raise GraphError(f"{where} lacks or has too many of {odd}")
    return cls(**{k: _decode(h, given[k], f"{where}.{k}") for k, h in hints.items()})


def _typed(data: Any, wanted: type, where: str) -> Any:
    if not isinstance(data, wanted) or (isinstance(data, bool) and wanted is not bool):
        raise GraphError(f"{where} is {data!r}, expected {wanted.__name__}")
    return data
