"""From what was written down to a graph: unused parts go, shared layers get one owner, copies are made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from amphw.frontend.sites import share
from amphw.frontend.source import FrontendError, SourceLine
from amphw.frontend.trace import Trace
from amphw.ir.graph import Graph, PortRef
from amphw.ir.instance import Schema
from amphw.ir.nodes import Loss
from amphw.ir.routing import Bcast, Discard
from amphw.ir.told import FIGURES


def finish(trace: Trace, name: str, schema: Schema, place: SourceLine | None) -> Graph:
    """The graph of all that a loss depends on; place: of the whole model."""
    called = dict(trace.net.places)
    _prune(trace, place)
    net = trace.net
    for layer, calls in list(net.calls.items()):
        kept = [c for c in calls if c.node in net.nodes]
        if not kept:
            trace.note(
                f"no loss depends on the layer '{net.layer_names[layer]}', which is left out; "
                "use what it gives, or leave out the call",
                called[calls[0].node],
            )
        else:
            share(trace, net.layer_names[layer], kept)
    readers: dict[PortRef, list[PortRef]] = defaultdict(list)
    for into, source in net.inputs.items():
        readers[source].append(into)
    used_regions = set(net.region_of.values())
    for region in list(used_regions):
        parent = net.regions[region].parent
        while parent is not None and parent not in used_regions:
            used_regions.add(parent)
            parent = net.regions[parent].parent
    graph = Graph(name, schema)
    graph.regions = {n: r for n, r in net.regions.items() if n in used_regions}
    graph.region_of = dict(net.region_of)
    for node in net.nodes.values():
        graph.add(node)
    for node in list(net.nodes.values()):
        for port in node.outs:
            _connect(trace, graph, (node.name, port), readers[(node.name, port)])
    return graph


def _connect(trace: Trace, graph: Graph, source: PortRef, readers: list[PortRef]) -> None:
    at = ".".join(source)
    if len(readers) == 1:
        graph.connect(at, ".".join(readers[0]))
        return
    extra = graph.add(
        Bcast(trace.name(f"{source[0]}_copies"), len(readers))
        if readers
        else Discard(trace.name(f"{source[0]}_unused"))
    )
    trace.net.places[extra] = trace.net.places[source[0]]
    if source[0] in graph.region_of:
        graph.region_of[extra] = graph.region_of[source[0]]
    graph.connect(at, extra)
    for k, reader in enumerate(readers):
        graph.connect(f"{extra}.out{k}", ".".join(reader))


def _prune(trace: Trace, place: SourceLine | None) -> None:
    """Keep the nodes that a loss can be reached from."""
    net = trace.net
    feeds: dict[str, set[str]] = defaultdict(set)  # node -> what it reads
    for (node, _), (source, _) in net.inputs.items():
        feeds[node].add(source)
    sinks = {n: node for n, node in net.nodes.items() if isinstance(node, Loss)}
    if not any(node.trains for node in sinks.values()):
        raise FrontendError(
            "the model has no loss; end it with classify(...), regress(...) or loss(...)", place
        )
    _check_names(trace, sinks)
    waiting = list(sinks)
    kept: set[str] = set()
    while waiting:
        node = waiting.pop()
        if node not in kept:
            kept.add(node)
            waiting.extend(feeds[node])
    net.nodes = {n: node for n, node in net.nodes.items() if n in kept}
    net.inputs = {into: source for into, source in net.inputs.items() if into[0] in kept}
    net.region_of = {n: r for n, r in net.region_of.items() if n in kept}


def _check_names(trace: Trace, sinks: Mapping[str, Loss]) -> None:
    """FrontendError where `report` takes a name that is told of elsewhere."""
    taken = {*FIGURES, *(n for n, node in sinks.items() if node.trains)}
    taken |= {name for node in sinks.values() if node.trains for name in node.names}
    for n, node in sinks.items():
        if not node.trains:
            name = node.names[1]
            if name in taken:
                raise FrontendError(
                    f"`{name}` is the name of a loss, of what one reports, or reported twice; "
                    "report it under another name",
                    trace.net.places[n],
                )
            taken.add(name)
