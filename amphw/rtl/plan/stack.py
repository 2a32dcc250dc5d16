"""Where parameters lie in the lane engine's memory: one behind the other, in beats of `lanes` columns.

A parameter [K, N] takes ceil(N / lanes) beats a row. A bias is a further row of the matrix that it is added
behind, so that a product with a bias is one pass; alone it is read and summed up as a matrix without rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from amphw.ir.errors import GraphError
from amphw.rtl.fixed.program import FixedProgram


@dataclass(frozen=True)
class ParameterPlace:
    """Beats of one parameter: row k, block b at base + k * blocks + b.

    rows: K, 0 for a vector. bias: whether a row behind the others holds a bias; a vector is nothing else.
    """

    base: int
    rows: int
    columns: int
    blocks: int
    bias: bool

    @property
    def beats(self) -> int:
        return (self.rows + self.bias) * self.blocks


Places = Mapping[str, ParameterPlace]
"""Places of one node's parameters by name. A bias that lies behind a matrix has a place of its own, too."""


@dataclass(frozen=True)
class Stack:
    """The parameters of all nodes of a device. places: by node. beats: in use."""

    lanes: int
    places: Mapping[str, Places]
    beats: int

    @classmethod
    def of(cls, nodes: Iterable[tuple[str, FixedProgram]], lanes: int) -> Stack:
        """nodes: names and forward programs. GraphError for a bias that cannot be placed, naming the node."""
        places: dict[str, Places] = {}
        beats = 0
        for node, program in nodes:
            places[node] = found = place(node, program, lanes, beats)
            beats = max((p.base + p.beats for p in found.values()), default=beats)
        return cls(lanes, places, beats)


def place(node: str, program: FixedProgram, lanes: int, base: int = 0) -> dict[str, ParameterPlace]:
    """Places of one node's parameters from beat `base` on, in the order of the program's parameters."""
    behind = _biases(node, program)
    places: dict[str, ParameterPlace] = {}
    for spec in program.params:
        if spec.name in behind.values():
            continue
        *rows, columns = spec.shape
        k, blocks = (rows[0] if rows else 0), -(-columns // lanes)
        bias = behind.get(spec.name)
        places[spec.name] = found = ParameterPlace(base, k, columns, blocks, bias is not None or not rows)
        if bias is not None:
            places[bias] = ParameterPlace(base + k * blocks, 0, columns, blocks, True)
        base += found.beats
    return places


def _biases(node: str, program: FixedProgram) -> dict[str, str]:
    """The bias of each matrix that has one."""
    of: dict[str, str] = {}
    for o in program.operations:
        at = o.attr()
        if o.op != "affine" or not o.args or at["bias"] is None:
            continue
        matrix, bias = at["param"], at["bias"]
        if of.get(matrix, bias) != bias:
            raise GraphError(
                f"the matrix '{matrix}' is used with the biases '{of[matrix]}' and '{bias}'; the hardware "
                "keeps one behind it: use two matrices, or one bias",
                node=node,
            )
        of[matrix] = bias
    for bias in of.values():
        matrices = [m for m, b in of.items() if b == bias]
        if len(matrices) > 1:
            raise GraphError(
                f"the bias '{bias}' is added to products with {' and '.join(map(repr, matrices))}; the "
                "hardware keeps a bias behind one matrix: give each its own",
                node=node,
            )
    return of
