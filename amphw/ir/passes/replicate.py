"""replicate: a node becomes n copies that share the load; a rule of state and instance picks the copy.

                            .- cell_0 -.
    cell   becomes   replica            merge - done
                            `- cell_1 -'

A node with several in-ports has a `replica` before each of them, and all decide by the state that the node
fires for, as a join does: so the messages of one firing meet at the same copy. One with several out-ports has
a `merge` behind each. The copies hold parameters of their own (AMPNet, section 5: "replicas"); whoever trains
averages them, at the end of every epoch for instance. The graph remembers which nodes are copies of one
another, and the graph that it was before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from amphw.ir.behaviour import Behaviour, StateMap
from amphw.ir.check import infer
from amphw.ir.errors import GraphError
from amphw.ir.expr import Attr, Const, Expr, Field, mixed, substitute
from amphw.ir.graph import Graph
from amphw.ir.grouping import Group
from amphw.ir.nodes import Loss, Node, Source
from amphw.ir.routing import Isu, Phi, Replicate
from amphw.ir.state import FieldType, StateType


def _least_loaded(state: StateType, n: int, seed: int) -> Expr:
    """In turn: of n instances with successive numbers each copy gets one, all of its messages."""
    return Attr("instance") % n


def _hash(state: StateType, n: int, seed: int) -> Expr:
    """By the state alone: what has the same state goes to the same copy in every instance."""
    if not state.fields:
        raise GraphError(
            "its state has no fields, so a hash of it sends everything to one copy; take the rule random or "
            "least-loaded"
        )
    return mixed(_number(state), _SALT) % n


def _random(state: StateType, n: int, seed: int) -> Expr:
    """By state and instance. An instance shifts the copies of its states: those that are shifted alike are
    alike, and an executor prepares what it needs for n of them, not for each."""
    return (mixed(_number(state), _SALT + seed) % n + mixed(Attr("instance"), seed) % n) % n


_SALT = 0x5EED

RULES: dict[str, Callable[[StateType, int, int], Expr]] = {
    "least-loaded": _least_loaded,
    "hash": _hash,
    "random": _random,
}
"""Rules by name: of the node's state, the number of copies and a seed, the number of the copy."""


def _number(state: StateType) -> Expr:
    """Another number for each state."""
    number: Expr = Const(0)
    for f in reversed(state.fields):
        number = number * f.bound + Field(f.name)
    return number


def replicate(graph: Graph, node: str, n: int, rule: Expr | str = "least-loaded", seed: int = 0) -> Graph:
    """Replace `node` by `n` replicas `node_0 .. node_{n-1}`; with n = 1 the graph stays as it is.

    rule: the replica for a state that the node fires for, over its fields and the instance, in 0..n-1; or the
    name of one (`RULES`). seed: of the rule random. Raises GraphError naming what cannot be replicated, or
    whose state the rule cannot be recovered from.
    """
    old = _replicable(graph, node, n)
    if n == 1:
        return graph
    typed = infer(graph)
    behaviour = typed.behaviours[node]
    try:
        chosen = RULES[rule](behaviour.state, n, seed) if isinstance(rule, str) else rule
    except GraphError as error:
        raise GraphError(str(error), node=node) from None
    out = graph.empty_copy()
    copies = [f"{node}_{k}" for k in range(n)]
    field = f"{node}_r"
    before = {p: _beside(node, "replica", p, old.ins) for p in old.ins}
    merged = {p: _beside(node, "merge", p, old.outs) for p in old.outs}
    done = {p: _beside(node, "done", p, old.outs) for p in old.outs}
    of_port = _by_message(behaviour, chosen)
    parts: list[Node] = [Replicate(before[p], field, n, of_port[p]) for p in old.ins]
    parts += [replace(_carrying(old, FieldType(field, Const(n), n)), name=copy) for copy in copies]
    parts += [Phi(merged[p], tuple(f"in{k}" for k in range(n))) for p in old.outs]
    parts += [Isu(done[p], StateMap(drop={field: None})) for p in old.outs]
    for name, other in graph.nodes.items():
        for new in parts if name == node else (other,):
            out.add(new)
            if name in graph.region_of:
                out.region_of[new.name] = graph.region_of[name]
    for (source, port), (target, into) in graph.edges.items():
        left = done[port] if source == node else f"{source}.{port}"
        right = before[into] if target == node else f"{target}.{into}"
        out.connect(left, right)
    for k, copy in enumerate(copies):
        for port in old.ins:
            out.connect(f"{before[port]}.out{k}", f"{copy}.{port}")
        for port in old.outs:
            out.connect(f"{copy}.{port}", f"{merged[port]}.in{k}")
    for port in old.outs:
        out.connect(merged[port], done[port])
    out.replicas = [*graph.replicas, tuple(copies)]
    out.unreplicated = graph.unreplicated or graph
    return out


def _replicable(graph: Graph, node: str, n: int) -> Node:
    if n < 1:
        raise GraphError(f"{n} replicas; take 1 or more", node=node)
    for group in graph.replicas:
        if node in group or group[0] == f"{node}_0":
            raise GraphError(f"it is replicated already, as {', '.join(group)}", node=node)
    if node not in graph.nodes:
        raise GraphError(
            f"there is no such node to replicate (there are: {', '.join(graph.nodes)})", node=node
        )
    old = graph.nodes[node]
    if isinstance(old, Source | Loss):
        # Instances enter at the one, and the host reads the figures of the other by its name.
        raise GraphError(f"a {old.family} cannot be replicated; only what lies between can", node=node)
    return old


def _beside(node: str, what: str, port: str, ports: tuple[str, ...]) -> str:
    return f"{node}_{what}" if len(ports) == 1 else f"{node}_{what}_{port}"


def _by_message(behaviour: Behaviour, rule: Expr) -> dict[str, Expr]:
    """The rule at each in-port, over the fields of what arrives there."""
    return {r.port: substitute(rule, dict(r.key)) for r in behaviour.receives}


def _carrying(node: Node, field: FieldType) -> Node:
    """The node where its messages have this field as well."""
    if isinstance(node, Group) and node.map.add:
        # What the group's map adds would come behind the field, and its init operand has the field last.
        kept = replace(
            node.map,
            drop={**node.map.drop, field.name: Field(field.name)},
            add=(*node.map.add, (field, Field(field.name))),
        )
        return replace(node, map=kept)
    return node


def originals(graph: Graph) -> dict[str, str]:
    """For each copy that `replicate` made the name of the node that it is a copy of."""
    made = (group for group in graph.replicas if group[0].endswith("_0"))
    return {copy: group[0].removesuffix("_0") for group in made for copy in group}
