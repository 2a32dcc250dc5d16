"""State expressions as logic: adders, comparators and multiplexers over registers that hold still.

There is a register behind each operator, so a result is there some cycles (`stages`) after its inputs;
whoever reads it waits that long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value

from amphw.ir.errors import GraphError
from amphw.ir.expr import Const, Expr, Field, Op

HASHED = 32
"""Bits of a hash."""

ALL = 64
"""Bits of whatever is looked at in full: a number's sign, or whether it is 0 or less than another."""


def looked_at(wanted: Mapping[Expr, int]) -> dict[Expr, int]:
    """How many low bits matter of each expression and of each part of one, where so many are `wanted`.

    Those of a sum, a difference or a product depend on as many of its parts alone.
    """
    found: dict[Expr, int] = {}

    def look(e: Expr, bits: int) -> None:
        if bits > found.get(e, -1):
            found[e] = bits
            if isinstance(e, Op):
                for part, its in zip(e.args, _of_parts(e, bits), strict=True):
                    look(part, its)

    for e, bits in wanted.items():
        look(e, bits)
    return found


def _of_parts(e: Op, bits: int) -> Sequence[int]:
    if e.op in {"+", "-", "*"}:
        return bits, bits
    if e.op == "where":
        return ALL, bits, bits
    if e.op in {"//", "%"}:
        by = _power(e)
        return (min(ALL, bits + by) if e.op == "//" else min(bits, by)), 0
    if e.op == "hash":
        return HASHED, 0
    return ALL, ALL


class ExpressionLogic:
    """Builds expressions into a module; equal ones share their logic. registers: what fields stand for.

    wanted: those that will be built, each with how many of its low bits are looked at; no others are made.
    names: of an expression's register, if it gets one.
    """

    def __init__(
        self,
        m: Module,
        registers: Mapping[str, Any],
        wanted: Mapping[Expr, int],
        names: Mapping[Expr, str] | None = None,
    ):
        self.m, self.registers, self.names = m, registers, names or {}
        self._bits = looked_at(wanted)
        self._built: dict[Expr, tuple[Any, int]] = {}

    def build(self, e: Expr) -> tuple[Any, int]:
        """-> (value, stages); the value is signed, if all of it was wanted."""
        if e not in self._built:
            self._built[e] = self._make(e)
        return self._built[e]

    def _make(self, e: Expr) -> tuple[Any, int]:
        if isinstance(e, Const):
            return Value.cast(e.value), 0
        if isinstance(e, Field):
            return self._field(e), 0
        assert isinstance(e, Op), e
        parts = [self.build(a) for a in e.args]
        values, stages = [p[0] for p in parts], max(p[1] for p in parts)
        if e.op == "hash":
            return self._hash(e, values[0]), stages + 3
        value = self._operation(e, values)
        if e.op in {"//", "%"}:  # no more than a choice of bits
            return value, stages
        if self._bits[e] < len(value):
            value = value[: self._bits[e]]
        kept = Signal.like(value, name=self.names.get(e, "partial"))
        self.m.d.sync += kept.eq(value)
        return kept, stages + 1

    def _field(self, e: Field) -> Any:
        name = e.name
        if name in self.registers:
            return self.registers[name]
        if name.startswith("$s"):
            offset, _, bits = name[2:].partition(".")
            return self.registers["$state"][int(offset) : int(offset) + int(bits)]
        raise GraphError("no register of the controller holds this", field=name)

    def _operation(self, e: Op, v: list[Any]) -> Any:
        if e.op == "+":
            return v[0] + v[1]
        if e.op == "-":
            return v[0] - v[1]
        if e.op == "*":
            return v[0] * v[1]
        if e.op == "where":
            return Mux(v[0] != 0, v[1], v[2])
        if e.op in {"min", "max"}:
            smaller = v[0] < v[1]
            return Mux(smaller, v[0], v[1]) if e.op == "min" else Mux(smaller, v[1], v[0])
        if e.op in {"//", "%"}:
            return self._divided(e, v[0])
        compare = {"<": v[0] < v[1], "<=": v[0] <= v[1], "==": v[0] == v[1], "!=": v[0] != v[1]}
        return compare[e.op]

    def _divided(self, e: Op, value: Any) -> Any:
        bits = _power(e)
        if e.op == "//":
            return value >> bits
        return (value & ((1 << bits) - 1)) if bits else Value.cast(0)

    def _hash(self, e: Op, value: Any) -> Any:
        """murmur3's finaliser, as `amphw.ir.expr` defines it; three registers deep."""
        seed = e.args[1]
        if not isinstance(seed, Const):
            raise GraphError(f"the seed of '{e}' must be a constant")
        h = Signal(HASHED, name="salted")
        self.m.d.sync += h.eq(value + ((seed.value & 0xFFFFFFFF) * 0x9E3779B9 & 0xFFFFFFFF))
        for shift, multiplier in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            mixed = Signal(HASHED, name="mixed")
            self.m.d.sync += mixed.eq((h ^ (h >> shift)) * multiplier)
            h = mixed
        return h ^ (h >> 16)


def _power(e: Op) -> int:
    """Of which power of two it divides by."""
    by = e.args[1]
    if not isinstance(by, Const) or by.value < 1 or by.value & (by.value - 1):
        raise GraphError(
            f"the hardware divides by powers of two alone, not in '{e}': put the result into a table"
        )
    return by.value.bit_length() - 1
