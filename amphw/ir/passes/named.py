"""Passes by name, as a user writes them: `fuse`, `tile=4`, `replicate=cell:2`."""

from __future__ import annotations

from collections.abc import Callable

from amphw.ir.errors import GraphError
from amphw.ir.graph import Graph
from amphw.ir.passes.fold import fold
from amphw.ir.passes.fuse import fuse
from amphw.ir.passes.replicate import replicate
from amphw.ir.passes.tile import tile

FORMS = "fuse, fold, tile=N, tile=NODE:N, replicate=NODE:N"


def by_name(text: str) -> Callable[[Graph], Graph]:
    """The pass that a text stands for; GraphError saying which forms there are."""
    name, _, value = text.partition("=")
    node, _, digits = value.rpartition(":")
    if name in ("fuse", "fold") and text == name:
        return fuse if name == "fuse" else fold
    if digits.isdigit():
        n = int(digits)
        if name == "tile":
            return lambda graph: tile(graph, n, [node] if node else None)
        if name == "replicate" and node:
            return lambda graph: replicate(graph, node, n)
    raise GraphError(f"there is no pass '{text}'; there are: {FORMS}")
