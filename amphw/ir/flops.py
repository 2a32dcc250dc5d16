"""Floating-point operations of programs, for a row of each space.

Each primitive's row says what counts (`primitives.base.Flops`). A product of a row with a matrix [i, o]
counts 2 i o. A primitive that only moves numbers counts nothing, one that sums or compares a row or rows
counts one for each number that it reads, any other one for each number that it makes: a sigmoid is one
operation here, whatever it takes somewhere. Attention counts for each query and each row, looked at or not:
what belongs to pairs of rows of two spaces is found under both their names (`pairs`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from amphw.ir.derive import Derivative
from amphw.ir.primitives import PRIMITIVES
from amphw.ir.primitives.attention import pair_operations
from amphw.ir.program import Program

NOTHING: Mapping[str, int] = {}
_BETWEEN = "*"


def pairs(space: str, source: str) -> str:
    """The name under which operations of pairs of rows are counted."""
    return f"{space}{_BETWEEN}{source}"


def pairs_in(program: Program, derivative: Derivative) -> list[str]:
    """Names of what is counted for pairs of rows, in both directions."""
    both = {**operations(program), **operations(derivative.backward)}
    return [name for name in both if _BETWEEN in name]


def rows_of(rows: Mapping[str, float], counted: str) -> float:
    """How many rows, or pairs of rows, one message has that operations are counted for under this name."""
    return math.prod(rows[space] for space in counted.split(_BETWEEN))


def products(program: Program, spared: Mapping[str, int] = NOTHING) -> Counter[str]:
    """Of its matrix products. spared: rows of a parameter that take no part, by its name."""
    found: Counter[str] = Counter()
    for number, instr in enumerate(program.instrs, _first(program)):
        if PRIMITIVES[instr.op].flops == "product":
            found[program.types[number].space] += _product(program, instr.attr()["param"], spared)
    return found


def operations(program: Program) -> Counter[str]:
    """Of all its primitives."""
    found = products(program)
    for number, instr in enumerate(program.instrs, _first(program)):
        counted = PRIMITIVES[instr.op].flops
        if counted in ("makes", "reads"):
            of = program.types[instr.args[0] if counted == "reads" else number]
            found[of.space] += of.width
        elif counted == "pairs":
            attrs, widths = instr.attr(), [program.types[a].width for a in instr.args]
            found[pairs(attrs["space"], attrs["source"])] += pair_operations(instr.op, widths)
    return found


def gradient_products(derivative: Derivative, spared: Mapping[str, int] = NOTHING) -> Counter[str]:
    """Of the products that make gradients of matrices."""
    backward = derivative.backward
    found: Counter[str] = Counter()
    for term in derivative.terms:
        if term.kind == "matmul":
            found[backward.outputs_types[term.dz].space] += _product(backward, term.param, spared)
    return found


def backward_operations(derivative: Derivative) -> Counter[str]:
    """Of the backward direction, gradients of parameters included."""
    found = operations(derivative.backward) + gradient_products(derivative)
    for term in derivative.terms:
        if term.kind != "matmul":
            dz = derivative.backward.outputs_types[term.dz]
            found[dz.space] += dz.width
    return found


def directions(
    program: Program,
    derivative: Derivative,
    products_alone: bool = False,
    spared: Mapping[str, int] = NOTHING,
) -> tuple[Counter[str], Counter[str]]:
    """Of a firing forward and backward, gradients of parameters included.

    products_alone: of matrix products, which are all but a few percent; spared: see `products`.
    """
    if products_alone:
        back = products(derivative.backward, spared) + gradient_products(derivative, spared)
        return products(program, spared), back
    return operations(program), backward_operations(derivative)


def _first(program: Program) -> int:
    """Number of the first instruction's value."""
    return len(program.inputs) + len(program.ints)


def _product(program: Program, param: str, spared: Mapping[str, int]) -> int:
    rows, cols = program.param(param).shape
    return 2 * (rows - spared.get(param, 0)) * cols
