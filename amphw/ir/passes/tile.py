"""tile: a wide linear layer becomes n nodes that own a block of its columns each.

    linear(W, b)   becomes   copy - linear_0(W[:, :w], b[:w]) - joined
                                  `- linear_1(W[:, w:], b[w:]) -'

What the layer does behind the product to its columns one by one (a bias, an activation) is done in the tiles.
So n workers or devices share one layer, each with a part of its parameters. A layer that looks a table up,
all of which each tile would need, is cut by its rows instead (`tile_rows`). `split` and `join` bring
parameters, and whatever else has their shape, from one form into the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from amphw.ir.check import infer
from amphw.ir.errors import GraphError
from amphw.ir.graph import Graph
from amphw.ir.nodes import PPT, Concat, Node
from amphw.ir.passes.tile_rows import Tiles, join_rows, row_tiles, split_rows
from amphw.ir.primitives.elementwise import COLUMNWISE
from amphw.ir.program import Builder, ParamSpec, Program, Value
from amphw.ir.routing import Bcast

WIDE = 64
"""Columns from which on a layer counts as wide."""

Values = Mapping[str, Mapping[str, np.ndarray]]
"""Arrays by node and parameter."""


def tile(graph: Graph, n: int, nodes: Sequence[str] | None = None) -> Graph:
    """The graph with these nodes in `n` tiles of equal width, give or take one column: of the result or,
    where that cannot be, of what the node is sent.

    nodes: by default all layers with `WIDE` columns or more that can be tiled. GraphError where a node that
    is named cannot be, or where there is none.
    """
    if n < 2:
        raise GraphError(f"{n} tiles: a layer is cut into 2 or more")
    infer(graph)
    why: dict[str, str] = {}
    tiles: dict[str, Tiles] = {}
    for name in graph.parameterised if nodes is None else nodes:
        found = _tiles(graph, name, n, WIDE if nodes is None else n)
        if isinstance(found, str):
            why[name] = found
        else:
            tiles[name] = found
    for group in graph.replicas:
        if any(name in tiles for name in group):
            missing = [name for name in group if name not in tiles]
            why.update(dict.fromkeys(missing, "copies of a node are tiled together"))
    if not tiles or (why and nodes is not None):
        reasons = "; ".join(f"{name}: {text}" for name, text in why.items()) or "no node has parameters"
        raise GraphError(f"cannot be tiled: {reasons}")
    return _rebuilt(graph, n, tiles)


def split(before: Graph, after: Graph, values: Values) -> dict[str, dict[str, np.ndarray]]:
    """Parameters of the graph before tiling -> those of the tiled one; arrays of the same shapes likewise."""
    out = {name: dict(arrays) for name, arrays in values.items() if name in after.nodes}
    for name, tiles in _tiled(before, after).items():
        if (node := _by_rows(before, after, name)) is not None:
            out.update(zip(tiles, split_rows(node, len(tiles), values.get(name, {})), strict=True))
            continue
        for key, array in values.get(name, {}).items():
            widths = [after.nodes[t].params for t in tiles]
            ends = np.cumsum([next(p for p in params if p.name == key).shape[-1] for params in widths])
            for t, block in zip(tiles, np.split(array, ends[:-1], axis=-1), strict=True):
                out.setdefault(t, {})[key] = block
    return out


def join(before: Graph, after: Graph, values: Values) -> dict[str, dict[str, np.ndarray]]:
    """The inverse of `split`."""
    out = {name: dict(arrays) for name, arrays in values.items() if name in before.nodes}
    for name, tiles in _tiled(before, after).items():
        if tiles[0] in values:
            if (node := _by_rows(before, after, name)) is not None:
                out[name] = join_rows(node, [values[t] for t in tiles])
                continue
            keys = values[tiles[0]]
            out[name] = {k: np.concatenate([values[t][k] for t in tiles], axis=-1) for k in keys}
    return out


def _tiled(before: Graph, after: Graph) -> dict[str, list[str]]:
    """The tiles of each node that was tiled."""
    out: dict[str, list[str]] = {}
    for name in before.parameterised:
        if name not in after.nodes:
            joined = after.nodes.get(f"{name}_joined")
            if joined is None:
                raise GraphError("neither this node nor tiles of it are in the other graph", node=name)
            out[name] = [f"{name}_{k}" for k in range(len(joined.ins))]
    return out


def _by_rows(before: Graph, after: Graph, name: str) -> PPT | None:
    """A node whose tiles have rows of it; None: they have columns."""
    node = before.nodes[name]
    return node if isinstance(node, PPT) and not isinstance(after.nodes[f"{name}_joined"], Concat) else None


def _tiles(graph: Graph, name: str, n: int, least: int) -> Tiles | str:
    """The tiles of a node, or why it has none."""
    node = graph.nodes.get(name)
    if node is None:
        return f"there is no such node (there are: {', '.join(graph.nodes)})"
    if not isinstance(node, PPT) or len(node.outs) != 1:
        return "only a node that computes one output can be tiled"
    (out,) = node.program.outputs_types
    if out.width < least:
        few = f"; a layer counts as wide from {least} on" if least > n else f", too few for {n} tiles"
        return f"it has {out.width} columns{few}"
    names = {port: _copy(node, port) for port in node.ins}
    ends = [out.width * k // n for k in range(n + 1)]
    made = []
    for k, (start, end) in enumerate(zip(ends, ends[1:], strict=False)):
        program = _Block(node.program, start, end - start).program()
        if isinstance(program, str):
            rows = row_tiles(node, n, names)
            return rows if isinstance(rows, Tiles) else program
        made.append(PPT(f"{name}_{k}", program))
    joined = Concat(f"{name}_joined", tuple(f"in{k}" for k in range(n)))
    return Tiles({port: Bcast(copy, n) for port, copy in names.items()}, made, joined)


class _Refused(Exception):
    """Why a program has no tiles."""


class _Block:
    """A program that computes some columns of another one's result."""

    def __init__(self, program: Program, start: int, width: int):
        self.old, self.start, self.width = program, start, width
        first = len(program.inputs) + len(program.ints)
        self.made = {first + k: i for k, i in enumerate(program.instrs)}
        self.owns = set[int]()  # values that hang on a parameter
        for v, instr in self.made.items():
            if "param" in instr.attr() or any(a in self.owns for a in instr.args):
                self.owns.add(v)
        self.blocks: dict[str, tuple[int, int]] = {}  # columns of each parameter

    def program(self) -> Program | str:
        self.builder = Builder()
        self.builder.spaces.update(dict(self.old.spaces))
        self.whole: dict[int, Value] = {}
        for v, (name, t) in enumerate(self.old.inputs):
            self.whole[v] = self.builder.input(name, t)
        for v, (e, space) in enumerate(self.old.ints, len(self.old.inputs)):
            self.whole[v] = self.builder.integer(e, space)
        try:
            made = self.builder.build([self._part(self.old.outputs[0], self.start, self.width)])
        except _Refused as refused:
            return str(refused)
        left = {p.name for p in self.old.params} - {p.name for p in made.params}
        return f"its result does not hang on {', '.join(sorted(left))}" if left else made

    def _part(self, v: int, start: int, width: int) -> Value:
        """Columns start .. start + width - 1 of an old value, in the new program."""
        if v not in self.owns:
            x = self._all(v)
            if (start, width) == (0, x.width):
                return x
            return self.builder.emit("slice", [x], start=start, width=width)
        instr = self.made[v]
        attrs = instr.attr()
        if instr.op in ("matmul", "take", "row_param"):
            attrs["param"] = self._param(attrs["param"], start, width)
            return self.builder.emit(instr.op, [self._all(a) for a in instr.args], **attrs)
        if instr.op in COLUMNWISE:
            return self.builder.emit(instr.op, [self._part(a, start, width) for a in instr.args], **attrs)
        if instr.op == "spread_cols":
            return self.builder.emit("spread_cols", [self._all(instr.args[0])], width=width)
        if instr.op == "slice":
            return self._part(instr.args[0], attrs["start"] + start, width)
        raise _Refused(f"behind its parameters it does more than column by column ('{instr.op}')")

    def _all(self, v: int) -> Value:
        """An old value as it was; every tile computes it, so it must not own anything."""
        if v in self.owns:
            params = sorted(set(self._params(v)))
            raise _Refused(f"every tile would need all of its parameter {', '.join(params)}")
        if v not in self.whole:
            instr = self.made[v]
            self.whole[v] = self.builder.emit(instr.op, [self._all(a) for a in instr.args], **instr.attr())
        return self.whole[v]

    def _params(self, v: int) -> list[str]:
        instr = self.made.get(v)
        if instr is None:
            return []
        own = [instr.attr()["param"]] if "param" in instr.attr() else []
        return own + [p for a in instr.args for p in self._params(a)]

    def _param(self, name: str, start: int, width: int) -> str:
        """Declare the columns of a parameter. All uses must be of the same, and all tiles' side by side."""
        spec = self.old.param(name)
        if self.blocks.setdefault(name, (start, width)) != (start, width) or start != self.start:
            raise _Refused(f"the columns of its parameter {name} are not those of the result")
        if spec.shape[-1] != self.old.outputs_types[0].width:
            raise _Refused(f"its parameter {name} has other columns than the result")
        own = ParamSpec(name, (*spec.shape[:-1], width), spec.init)
        if spec.values is not None:
            own = ParamSpec.given(name, spec.values[..., start : start + width], spec.values.dtype.type)
        self.builder.params[name] = own
        return name


def _rebuilt(graph: Graph, n: int, tiles: Mapping[str, Tiles]) -> Graph:
    out = graph.empty_copy()
    for name, node in graph.nodes.items():
        new: list[Node] = [node]
        if (made := tiles.get(name)) is not None:
            new = [*made.shares.values(), *made.tiles, made.joined]
        for each in new:
            out.add(each)
            if name in graph.region_of:
                out.region_of[each.name] = graph.region_of[name]
    for (source, port), (target, into) in graph.edges.items():
        left = tiles[source].joined.name if source in tiles else f"{source}.{port}"
        right = tiles[target].shares[into].name if target in tiles else f"{target}.{into}"
        out.connect(left, right)
    for made in tiles.values():
        for k, each in enumerate(made.tiles):
            for port, share in made.shares.items():
                out.connect(f"{share.name}.out{k}", f"{each.name}.{port}")
            out.connect(each.name, f"{made.joined.name}.in{k}")
    out.replicas = [g for g in graph.replicas if g[0] not in tiles]
    for group in (g for g in graph.replicas if g[0] in tiles):
        out.replicas += [tuple(f"{name}_{k}" for name in group) for k in range(n)]
    return out


def _copy(node: Node, port: str) -> str:
    return f"{node.name}_copy" if len(node.ins) == 1 else f"{node.name}_copy_{port}"
