"""rest: a loop of nodes that only route gets one that computes, in which a message can wait.

Such a loop is one whose turns may leave a value as it is: a step that is skipped. A device that compiles
routes into the node before them has no place for a message that goes round among routes alone.
"""

from __future__ import annotations

from amphw.ir.check import Typed, infer
from amphw.ir.graph import Graph, PortRef
from amphw.ir.nodes import NPT
from amphw.ir.program import trace


def rest(graph: Graph, typed: Typed | None = None) -> Graph:
    """The graph with the identity behind some nodes; the same graph where no loop needs it.

    typed: what `infer` says of the graph, where that is known.
    """
    typed = typed or infer(graph)
    routing = {n for n, b in typed.behaviours.items() if b.program is None and not b.is_source}
    cut = _back_edges(graph, routing)
    if not cut:
        return graph
    out = graph.empty_copy()
    out.region_of = dict(graph.region_of)
    for each in graph.nodes.values():
        out.add(each)
    for (node, port), (target, into) in graph.edges.items():
        last = f"{node}.{port}"
        if (node, port) in cut:
            name = _unused(out, f"{node}_rest")
            width = typed.edges[(node, port)].width
            out.connect(last, out.add(NPT(name, trace(lambda x: x * 1.0, {"in": width}))))
            if node in graph.region_of:
                out.region_of[name] = graph.region_of[node]
            last = name
        out.connect(last, f"{target}.{into}")
    return out


def _back_edges(graph: Graph, routing: set[str]) -> set[PortRef]:
    """Edges between these nodes without which they are in no loop."""
    found: set[PortRef] = set()
    done: set[str] = set()
    for start in (n for n in graph.nodes if n in routing):
        # Depth first, without recursion: an edge to a node that is still open closes a loop.
        open_nodes = [start] if start not in done else []
        ways = [iter(graph.nodes[n].outs) for n in open_nodes]
        while ways:
            port = next(ways[-1], None)
            if port is None:
                done.add(open_nodes.pop())
                ways.pop()
                continue
            edge = (open_nodes[-1], port)
            target = graph.edges[edge][0]
            if target in open_nodes:
                found.add(edge)
            elif target in routing and target not in done:
                open_nodes.append(target)
                ways.append(iter(graph.nodes[target].outs))
    return found


def _unused(graph: Graph, name: str) -> str:
    while name in graph.nodes:
        name += "_"
    return name
