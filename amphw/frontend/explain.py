"""What the frontend deduced, for people: the state of every edge, and where each field comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amphw.frontend.index import Dim
from amphw.frontend.source import SourceLine
from amphw.ir.check import infer
from amphw.ir.graph import Graph


def explain(graph: Graph, places: Mapping[str, SourceLine], dims: Sequence[Dim]) -> str:
    """The fields, then the nodes in order, each with its line and the states of its outputs."""
    typed = infer(graph)
    used = {f for edge in typed.edges.values() for f in edge.state.names}
    used |= {d.name for d in dims for edge in typed.edges.values() if str(edge.rows) == str(d.extent)}
    lines = [f"model {graph.name}", "", "fields:"]
    for d in dims:
        if d.name in used:
            lines.append(f"  {d.name} < {d.extent} (at most {d.bound}): {d.why}, {d.place}")
    for name in sorted(used - {d.name for d in dims}):
        lines.append(f"  {name}: {_why(name)}")
    lines += ["", "edges:"]
    for name, node in graph.nodes.items():
        at = f"  ({places[name]})" if name in places else ""
        lines.append(f"  {node.family} {name}{at}")
        for port in node.outs:
            edge = typed.edges[(name, port)]
            lines.append(f"    {port} -> {'.'.join(graph.edges[(name, port)])} : {edge}")
    return "\n".join(lines)


def _why(field: str) -> str:
    if field.startswith("decided"):
        return "what the network decided, until the message is on its way"
    if field.endswith("_site"):
        return "which use of the layer it is"
    return "a state of one of the layer's uses, under a name that all share"
