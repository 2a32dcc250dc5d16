"""replicate: one computing node becomes n copies that share the load; a rule of the state picks the copy.

The copies hold parameters of their own (AMPNet, section 5: "replicas"); whoever trains averages them, at the
end of every epoch for instance. The graph remembers which nodes are copies of one another.
"""

from __future__ import annotations

from dataclasses import replace

from amphw.ir.behaviour import StateMap
from amphw.ir.errors import GraphError
from amphw.ir.expr import Attr, Expr
from amphw.ir.graph import Graph
from amphw.ir.nodes import Transform
from amphw.ir.routing import Isu, Phi, Replicate


def replicate(graph: Graph, node: str, n: int, rule: Expr | None = None) -> Graph:
    """Replace `node` (one in-port, one out-port) by `n` replicas `node_0 .. node_{n-1}`.

    rule: replica of a state, over its fields and the instance; default: the instance's number modulo n.
    """
    if node not in graph.nodes:
        raise GraphError(
            f"there is no such node to replicate (there are: {', '.join(graph.nodes)})", node=node
        )
    old = graph.nodes[node]
    if not isinstance(old, Transform) or len(old.ins) != 1 or len(old.outs) != 1:
        raise GraphError(
            "only a PPT or NPT with one in-port and one out-port can be replicated; put a Concat before it",
            node=node,
        )
    if n < 2:
        raise GraphError(f"{n} replicas; at least 2 make sense", node=node)
    out = graph.empty_copy()
    copies = [f"{node}_{k}" for k in range(n)]
    field = f"{node}_r"
    parts = {
        f"{node}_replica": Replicate(
            f"{node}_replica", field, n, rule if rule is not None else Attr("instance") % n
        ),
        **{c: replace(old, name=c) for c in copies},
        f"{node}_merge": Phi(f"{node}_merge", tuple(f"in{k}" for k in range(n))),
        f"{node}_done": Isu(f"{node}_done", StateMap(drop={field: None})),
    }
    for name, other in graph.nodes.items():
        for new in parts.values() if name == node else (other,):
            out.add(new)
            if name in graph.region_of:
                out.region_of[new.name] = graph.region_of[name]
    for (source, port), (target, into) in graph.edges.items():
        left = f"{node}_done" if source == node else f"{source}.{port}"
        right = f"{node}_replica" if target == node else f"{target}.{into}"
        out.connect(left, right)
    for k, c in enumerate(copies):
        out.connect(f"{node}_replica.out{k}", c, f"{node}_merge.in{k}")
    out.connect(f"{node}_merge", f"{node}_done")
    out.replicas = [*graph.replicas, tuple(copies)]
    return out
