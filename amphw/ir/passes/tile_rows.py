"""Tiles of a product's rows, for a layer of which every tile of columns would need a whole table.

    concat(take(E, i), h) @ W + b   becomes   cut - take(E[:, :e], i), h[:, :k] @ W_0 + b - joined
                                                  `- take(E[:, e:], i), h[:, k:] @ W_1 -----'

Each piece of the product's operand is cut into n blocks of columns. A tile owns its blocks of the tables and
the rows of W that they meet, is sent its blocks of the messages alone, and sends what these add to all
columns of the result; `joined` sums that up. So the tiles share both the parameters and what a firing keeps
for its gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from amphw.ir.functions import columns, concat
from amphw.ir.nodes import NPT, PPT, Node
from amphw.ir.program import Builder, ParamSpec, Program, trace


@dataclass(frozen=True)
class Tiles:
    """What takes the place of a node. shares: what hands each tile its part of the messages, by in-port, with
    ports out0, out1, ..; joined: what makes the result of theirs, with ports in0, in1, .."""

    shares: Mapping[str, Node]
    tiles: Sequence[PPT]
    joined: Node


def row_tiles(node: PPT, n: int, names: Mapping[str, str]) -> Tiles | str:
    """The tiles of a node's rows, or why it has none. names: of what cuts its messages, by in-port."""
    found = _Layer.of(node.program)
    if isinstance(found, str):
        return found
    narrow = min(piece.width for piece in found.pieces)
    if narrow < n:
        return f"its product has an operand of {narrow} columns, too few for {n} tiles"
    shares = {}
    for piece in found.pieces:
        if piece.port is not None:
            shares[piece.port] = NPT(names[piece.port], _cut(piece.width, n))
    tiles = [PPT(f"{node.name}_{k}", found.tile(k, n)) for k in range(n)]
    width = node.program.outputs_types[0].width
    joined = trace(lambda *parts: reduce(add, parts), {f"in{k}": width for k in range(n)})
    return Tiles(shares, tiles, NPT(f"{node.name}_joined", joined))


def _cut(width: int, n: int) -> Program:
    return trace(lambda x: [columns(x, *block) for block in _blocks(width, n)], {"x": width})


def split_rows(node: PPT, n: int, arrays: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """A node's parameters, or what else has their shapes -> those of its n tiles."""
    layer = _layer(node)
    return [{key: arrays[key][at] for key, at in layer.owned(k, n) if key in arrays} for k in range(n)]


def join_rows(node: PPT, tiles: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The inverse of `split_rows`."""
    layer, n = _layer(node), len(tiles)
    out: dict[str, np.ndarray] = {}
    shapes = {p.name: p.shape for p in node.params}
    for k, arrays in enumerate(tiles):
        for key, at in layer.owned(k, n):
            if key in arrays:
                out.setdefault(key, np.zeros(shapes[key], arrays[key].dtype))[at] = arrays[key]
    return out


def _layer(node: PPT) -> _Layer:
    """Of a node that has tiles."""
    found = _Layer.of(node.program)
    assert isinstance(found, _Layer)
    return found


@dataclass(frozen=True)
class _Piece:
    """Columns of a product's operand: of the message at a `port`, or rows of a `table` that the program's
    integer number `index` chooses. start: its first row of the weight."""

    width: int
    start: int
    port: str | None = None
    table: str = ""
    index: int = 0


@dataclass(frozen=True)
class _Layer:
    """A program that is a product of such pieces, and adds a bias, or none."""

    program: Program
    pieces: Sequence[_Piece]
    weight: str
    bias: str | None

    @classmethod
    def of(cls, program: Program) -> _Layer | str:
        """Or why the program is none."""
        first = len(program.inputs) + len(program.ints)
        made = {first + k: i for k, i in enumerate(program.instrs)}

        def op(v: int) -> str:
            return made[v].op if v in made else ""

        (v,) = program.outputs
        bias = None
        if op(v) == "add":
            for a, b in (made[v].args, made[v].args[::-1]):
                if op(a) == "matmul" and op(b) == "row_param":
                    v, bias = a, made[b].attr()["param"]
        if op(v) != "matmul":
            return "its result is not a product with a bias alone"
        pieces: list[_Piece] = []
        start = 0
        operand = made[v].args[0]
        for a in made[operand].args if op(operand) == "concat" else (operand,):
            width = program.types[a].width
            if a < len(program.inputs):
                pieces.append(_Piece(width, start, port=program.inputs[a][0]))
            elif op(a) == "take" and len(program.inputs) <= made[a].args[0] < first:
                chosen = made[a].args[0] - len(program.inputs)
                pieces.append(_Piece(width, start, table=made[a].attr()["param"], index=chosen))
            else:
                return "its product is not of messages and of rows of tables"
            start += width
        names = [piece.port or piece.table for piece in pieces]
        used = {made[v].attr()["param"], *(piece.table for piece in pieces), bias}
        tables = {piece.table for piece in pieces}
        twice = made[v].attr()["param"] in tables or bias in tables
        if twice or len(set(names)) < len(names) or len(program.params) != len(used - {"", None}):
            return "its product uses a message or a parameter twice"
        if not {name for name, _ in program.inputs} <= set(names):
            return "not all that it is sent is an operand of its product"
        return cls(program, pieces, made[v].attr()["param"], bias)

    def tile(self, k: int, n: int) -> Program:
        """The program of tile k."""
        builder = Builder([self._spec(key, at) for key, at in self.owned(k, n)])
        builder.spaces.update(dict(self.program.spaces))
        widths = {piece.port: list(_blocks(piece.width, n))[k][1] for piece in self.pieces}
        inputs = {
            name: builder.input(name, replace(t, width=widths[name])) for name, t in self.program.inputs
        }
        parts = []
        for piece in self.pieces:
            if piece.port is not None:
                parts.append(inputs[piece.port])
            else:
                row = builder.integer(*self.program.ints[piece.index])
                parts.append(builder.emit("take", [row], param=piece.table))
        out = builder.emit("matmul", [concat(*parts)], param=self.weight)
        if self.bias is not None and k == 0:
            out = out + builder.emit("row_param", [], param=self.bias, space=out.type.space)
        return builder.build([out])

    def owned(self, k: int, n: int) -> Iterator[tuple[str, tuple[np.ndarray | slice, ...]]]:
        """The parameters of tile k, each with its part of the node's own."""
        rows = []
        for piece in self.pieces:
            start, width = list(_blocks(piece.width, n))[k]
            rows.append(np.arange(piece.start + start, piece.start + start + width))
            if piece.table:
                yield piece.table, (slice(None), slice(start, start + width))
        yield self.weight, (np.concatenate(rows),)
        if self.bias is not None and k == 0:
            yield self.bias, (slice(None),)

    def _spec(self, key: str, at: tuple[np.ndarray | slice, ...]) -> ParamSpec:
        """The part of a parameter. It starts as that part of the whole would, whose size says how large its
        numbers are: those of a smaller matrix would be larger, and so would be the sum of all tiles."""
        spec = self.program.param(key)
        if spec.values is not None:
            return ParamSpec.given(key, spec.values[at], spec.values.dtype.type)
        if spec.init == "identity":
            return ParamSpec.given(key, np.eye(spec.shape[0], spec.shape[1])[at])
        shape = np.empty(spec.shape, bool)[at].shape
        init = f"uniform:{math.sqrt(6.0 / sum(spec.shape))}" if spec.init == "glorot" else spec.init
        return ParamSpec(key, shape, init)


def _blocks(width: int, n: int) -> Iterator[tuple[int, int]]:
    """(first, number) of the columns of each tile."""
    ends = [width * k // n for k in range(n + 1)]
    for start, end in zip(ends, ends[1:], strict=False):
        yield start, end - start
