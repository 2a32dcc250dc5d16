"""Which layer of a drawing each vertex stands on, and which links run against the flow.

The links that close loops are found first; without them the graph is acyclic, and a vertex stands as deep as
the longest path that leads to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Vertex:
    """A box. groups: the groups that hold it, outermost first. entry: loops are entered here."""

    name: str
    width: float
    height: float
    groups: tuple[str, ...] = ()
    entry: bool = False


@dataclass(frozen=True)
class Link:
    """An edge with a label of the given size."""

    tail: str
    head: str
    width: float
    height: float


def back_links(vertices: Sequence[Vertex], links: Sequence[Link]) -> set[int]:
    """Numbers of the links that close loops; without them the drawing is acyclic.

    A loop is cut where it comes back to an entry that is also reached from outside it, outer loops first.
    """
    names, entries = [v.name for v in vertices], {v.name for v in vertices if v.entry}
    cut: set[int] = set()
    while True:
        kept = [(i, e) for i, e in enumerate(links) if i not in cut]
        reach = _reachability(names, [(e.tail, e.head) for _, e in kept])
        cyclic = [(i, e) for i, e in kept if e.tail in reach[e.head]]
        if not cyclic:
            break
        inside = {i for i, _ in cyclic}
        entered = {e.head for i, e in kept if i not in inside}
        cut |= {i for i, e in cyclic if e.head in entries & entered} or {cyclic[-1][0]}
    for i in sorted(cut):  # an early cut may have become needless by a later one
        rest = [(e.tail, e.head) for k, e in enumerate(links) if k not in cut]
        if links[i].tail not in _reachability(names, rest)[links[i].head]:
            cut.remove(i)
    return cut


def _reachability(names: Iterable[str], edges: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Every vertex -> itself and what can be reached from it."""
    next_of: dict[str, list[str]] = {n: [] for n in names}
    for a, b in edges:
        next_of[a].append(b)
    out = {}
    for start in next_of:
        seen, stack = {start}, [start]
        while stack:
            for follower in next_of[stack.pop()]:
                if follower not in seen:
                    seen.add(follower)
                    stack.append(follower)
        out[start] = seen
    return out


def layers_of(vertices: Sequence[Vertex], links: Sequence[Link], back: set[int]) -> dict[str, int]:
    """Even layer of every vertex: longest path from a source; what feeds one place only moves down to it."""
    forward = [e for i, e in enumerate(links) if i not in back]
    preds: dict[str, list[str]] = {v.name: [] for v in vertices}
    succs: dict[str, list[str]] = {v.name: [] for v in vertices}
    for e in forward:
        preds[e.head].append(e.tail)
        succs[e.tail].append(e.head)
    order: list[str] = []
    missing = {n: len(p) for n, p in preds.items()}
    ready = [n for n, k in missing.items() if k == 0]
    while ready:
        order.append(ready.pop(0))
        for follower in succs[order[-1]]:
            missing[follower] -= 1
            if missing[follower] == 0:
                ready.append(follower)
    layer: dict[str, int] = {}
    chain: set[str] = set()
    for n in order:
        layer[n] = max((layer[p] + 2 for p in preds[n]), default=0)
        if len(succs[n]) == 1 and all(p in chain for p in preds[n]):
            chain.add(n)
    for n in reversed(order):
        if n in chain:
            layer[n] = min(layer[s] for s in succs[n]) - 2
    return layer
