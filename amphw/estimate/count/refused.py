"""Layers that every device beside the host refuses, and the number of tiles in which one would take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amphw.engine.lowering.lower import lower
from amphw.engine.lowering.placing import too_much
from amphw.engine.parts.part import Part
from amphw.ir.errors import GraphError
from amphw.ir.graph import Graph
from amphw.ir.passes import tile
from amphw.ir.update import UpdateRule, rule_of

TILES = (2, 4, 8, 16, 32, 64)
"""Numbers that are tried."""


@dataclass(frozen=True)
class Tiling:
    """Of a node. tiles: 0 where none helps. label: of the first device that takes all of them. why: not."""

    node: str
    tiles: int
    label: str
    why: str


def tilings(
    graph: Graph,
    rules: Mapping[str, UpdateRule],
    parts: Mapping[str, Part],
    refused: Mapping[tuple[str, str], str],
    nodes: Sequence[str],
) -> list[Tiling]:
    """Of those nodes with parameters that all parts refuse."""
    alone = [n for n in nodes if graph.nodes[n].params and parts and all((n, p) in refused for p in parts)]
    return [_tiling(graph, rules, parts, n) for n in alone]


def _tiling(graph: Graph, rules: Mapping[str, UpdateRule], parts: Mapping[str, Part], node: str) -> Tiling:
    why = ""
    for n in TILES:
        try:
            tiled = tile(graph, n, [node])
        except GraphError as error:
            why = why or str(error)
            break
        units = {u.name: u for u in lower(tiled).units}
        own = {f"{node}_{k}": rule_of(rules, node) for k in range(n)}
        for label, part in parts.items():
            reasons = (
                part.refused(tiled, units[name], {**rules, **own})
                or too_much(part, tiled, [units[name]], own)
                for name in own
            )
            found = next(filter(None, reasons), "")
            if not found:
                return Tiling(node, n, label, "")
            why = "a tile is refused, too"
    return Tiling(node, 0, "", why)
