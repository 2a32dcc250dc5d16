"""The graph: nodes, edges between their ports, and regions.

>>> from amphw.ir.routing import Bcast
>>> g = Graph("example", Schema())
>>> fork = g.add(Bcast("fork"))

Every out-port goes to exactly one in-port; fan-out is a Bcast, fan-in a Phi or a Concat. A region (loop, map,
branch, call) names the state fields that exist only inside it; an edge that leaves the region must not carry
them, which the checks verify.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from amphw.ir.errors import GraphError
from amphw.ir.instance import Schema
from amphw.ir.nodes import Node

PortRef = tuple[str, str]
"""(node, port)."""

REGION_KINDS = ("loop", "map", "branch", "call")


@dataclass(frozen=True)
class Region:
    """A scope for state fields. Regions nest; names are unique in the graph."""

    name: str
    kind: str
    fields: tuple[str, ...]
    parent: str | None = None


class Graph:
    """A static graph; what it executes is decided by the states of the messages."""

    def __init__(self, name: str, schema: Schema):
        self.name, self.schema = name, schema
        self.nodes: dict[str, Node] = {}
        self.regions: dict[str, Region] = {}
        self.region_of: dict[str, str] = {}
        self.edges: dict[PortRef, PortRef] = {}  # out-port -> in-port
        self.sources_of: dict[PortRef, PortRef] = {}  # in-port -> out-port
        self.replicas: list[tuple[str, ...]] = []  # groups of nodes that are copies of one another
        self.unreplicated: Graph | None = None  # what it was before any of them was replicated, where known
        self._open: list[str] = []

    def empty_copy(self) -> Graph:
        """Name, schema, regions and replica groups, without nodes: where a pass starts."""
        out = Graph(self.name, self.schema)
        out.regions, out.replicas = dict(self.regions), list(self.replicas)
        return out

    def add(self, node: Node) -> str:
        """Add a node to the innermost open region -> its name."""
        if node.name in self.nodes:
            raise GraphError("a node of this name exists already", node=node.name)
        if not node.name or any(c in node.name for c in " .\t\n"):
            raise GraphError("a node's name must not be empty or contain dots or spaces", node=node.name)
        self.nodes[node.name] = node
        if self._open:
            self.region_of[node.name] = self._open[-1]
        return node.name

    @contextmanager
    def region(self, name: str, kind: str, *fields: str) -> Iterator[None]:
        """Nodes added inside belong to the region; `fields` exist only on its edges."""
        if kind not in REGION_KINDS:
            raise GraphError(f"unknown kind of region '{kind}'; there are {', '.join(REGION_KINDS)}")
        if name in self.regions:
            raise GraphError(f"the region '{name}' exists already")
        self.regions[name] = Region(name, kind, fields, self._open[-1] if self._open else None)
        self._open.append(name)
        try:
            yield
        finally:
            self._open.pop()

    def connect(self, *path: str) -> None:
        """`connect("a.out", "b.x", "c")`: a's out to b's x, b's out to c's in.

        A lone port may be left unnamed. In the middle of a path the port named is the in-port.
        """
        starts = [*path[:1], *(name.partition(".")[0] for name in path[1:])]
        for left, right in zip(starts, path[1:], strict=False):
            out, into = self._port(left, out=True), self._port(right, out=False)
            if out in self.edges:
                raise GraphError(
                    f"connected twice: to '{'.'.join(self.edges[out])}' and to '{'.'.join(into)}'; put a "
                    "Bcast behind it",
                    node=out[0],
                    port=out[1],
                )
            if into in self.sources_of:
                raise GraphError(
                    f"connected twice: from '{'.'.join(self.sources_of[into])}' and from "
                    f"'{'.'.join(out)}'; put a Phi or a Concat before it",
                    node=into[0],
                    port=into[1],
                )
            self.edges[out], self.sources_of[into] = into, out

    def _port(self, reference: str, *, out: bool) -> PortRef:
        name, _, port = reference.partition(".")
        if name not in self.nodes:
            raise GraphError(f"there is no such node (there are: {', '.join(self.nodes)})", node=name)
        ports = self.nodes[name].outs if out else self.nodes[name].ins
        kind = "out" if out else "in"
        if not port:
            if len(ports) != 1:
                raise GraphError(f"has the {kind}-ports {list(ports)}; say which", node=name)
            port = ports[0]
        if port not in ports:
            raise GraphError(
                f"no such {kind}-port (there are: {', '.join(ports) or 'none'})", node=name, port=port
            )
        return name, port

    def ancestors(self, node: str) -> tuple[str, ...]:
        """Regions that hold the node, innermost first."""
        out, at = [], self.region_of.get(node)
        while at is not None:
            out.append(at)
            at = self.regions[at].parent
        return tuple(out)

    def successors(self, node: str) -> list[str]:
        return [self.edges[(node, p)][0] for p in self.nodes[node].outs if (node, p) in self.edges]

    @property
    def parameterised(self) -> list[str]:
        """Names of the nodes that own parameters, in order."""
        return [n for n, node in self.nodes.items() if node.params]

    def _repr_svg_(self) -> str:
        from amphw.ir.draw import to_svg

        return to_svg(self)

    def _repr_html_(self) -> str:
        from amphw.ir.zoom import zoomable

        return zoomable(self._repr_svg_())

    def _mime_(self) -> tuple[str, str]:
        # What marimo asks for. It runs no scripts in what it shows, but for those of a frame.
        from amphw.ir.zoom import framed, zoomable

        return "text/html", framed(zoomable(self._repr_svg_(), fill=True))

    def __str__(self) -> str:
        return self.written({})

    def written(self, types: Mapping[PortRef, object]) -> str:
        """Its nodes in order, and where their out-ports lead, with the types that are known."""
        lines = [f"graph {self.name}"]
        for name, node in self.nodes.items():
            region = "/".join(reversed(self.ancestors(name)))
            params = ", ".join(f"{p.name}{list(p.shape)}" for p in node.params)
            lines.append(
                f"  {node.family} {name}"
                + (f" in {region}" if region else "")
                + (f" owns {params}" if params else "")
            )
            for port in node.outs:
                into = self.edges.get((name, port))
                label = f" : {types[(name, port)]}" if (name, port) in types else ""
                lines.append(f"    {port} -> {'.'.join(into) if into else '?'}{label}")
        return "\n".join(lines)
