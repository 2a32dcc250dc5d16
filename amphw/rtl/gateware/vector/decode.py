"""How the one datapath of a vector unit carries out every operation.

A result is always narrow(first * factor + addend, shift). What the three are is an operation's recipe; the
first may come of a comparison.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from amaranth.hdl import Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data

from amphw.rtl.gateware.vector.command import SHIFT_BITS, VectorShape
from amphw.rtl.isa.commands import CONSTANT_BITS, VectorOp


class First(enum.Enum):
    A = enum.auto()
    B = enum.auto()
    LARGER = enum.auto()
    """The larger of a and b."""
    LARGEST = enum.auto()
    """Of the a so far in the inner loop; the addend then belongs to it, too."""
    SLOPE = enum.auto()
    """Of a's line."""
    # Conditions: 1 where they hold, or else 0; the sign is -1, 0 or 1.
    SIGN = enum.auto()
    POSITIVE = enum.auto()
    B_POSITIVE = enum.auto()
    EQUAL = enum.auto()
    ABOVE = enum.auto()
    ALWAYS = enum.auto()


CONDITIONS = (First.SIGN, First.POSITIVE, First.B_POSITIVE, First.EQUAL, First.ABOVE, First.ALWAYS)


class Factor(enum.Enum):
    ZERO = enum.auto()
    ONE = enum.auto()
    MINUS_ONE = enum.auto()
    CONSTANT = enum.auto()
    POWER = enum.auto()
    """2**shift, or 2**16 where that is less, which is enough for all but 0 to saturate."""
    A = enum.auto()
    POSITION = enum.auto()
    """Of a on its line."""


class Addend(enum.Enum):
    NONE = enum.auto()
    A = enum.auto()
    COUNT = enum.auto()
    """Which element of the inner loop this is."""
    START = enum.auto()
    """Of a's line."""
    SUM = enum.auto()
    """Of what came before in the inner loop."""


@dataclass(frozen=True)
class Recipe:
    """shifts: whether the command's shift says how far the result is narrowed."""

    first: First
    factor: Factor = Factor.ONE
    addend: Addend = Addend.NONE
    shifts: bool = False

    @property
    def reads_a(self) -> bool:
        without = self.first in (First.B, First.B_POSITIVE, First.ALWAYS)
        return not without or self.factor is Factor.A or self.addend is Addend.A

    @property
    def reads_b(self) -> bool:
        return self.first in (First.B, First.LARGER, First.B_POSITIVE, First.EQUAL)


NOTHING = Recipe(First.ALWAYS, Factor.ZERO)
"""0: what a reduction of no elements is."""

RECIPES = {
    VectorOp.FILL: Recipe(First.ALWAYS, Factor.CONSTANT),
    VectorOp.COPY: Recipe(First.A),
    VectorOp.CONVERT: Recipe(First.A, shifts=True),
    VectorOp.LIFT: Recipe(First.A, Factor.POWER),
    VectorOp.ADD: Recipe(First.B, Factor.ONE, Addend.A),
    VectorOp.SUB: Recipe(First.B, Factor.MINUS_ONE, Addend.A),
    VectorOp.MUL: Recipe(First.B, Factor.A, shifts=True),
    VectorOp.SCALE: Recipe(First.A, Factor.CONSTANT, shifts=True),
    VectorOp.SHIFT: Recipe(First.ALWAYS, Factor.CONSTANT, Addend.A),
    VectorOp.RELU: Recipe(First.POSITIVE, Factor.A),
    VectorOp.GATE: Recipe(First.B_POSITIVE, Factor.A),
    VectorOp.MAX: Recipe(First.LARGER),
    VectorOp.ABS: Recipe(First.SIGN, Factor.A),
    VectorOp.SIGN: Recipe(First.SIGN, Factor.CONSTANT),
    VectorOp.STEP: Recipe(First.POSITIVE, Factor.CONSTANT),
    VectorOp.EQUAL: Recipe(First.EQUAL, Factor.CONSTANT),
    VectorOp.ABOVE: Recipe(First.ABOVE),
    VectorOp.LINES: Recipe(First.SLOPE, Factor.POSITION, Addend.START),
    VectorOp.SUM: Recipe(First.A, Factor.ONE, Addend.SUM),
    VectorOp.LARGEST: Recipe(First.LARGEST),
    VectorOp.ARGMAX: Recipe(First.LARGEST, Factor.ZERO, Addend.COUNT),
}

FLAGS: dict[str, tuple[enum.Enum, ...]] = {
    "first_b": (First.B,),
    "first_larger": (First.LARGER,),
    "first_largest": (First.LARGEST,),
    "if_sign": (First.SIGN,),
    "if_positive": (First.POSITIVE,),
    "if_b_positive": (First.B_POSITIVE,),
    "if_equal": (First.EQUAL,),
    "if_above": (First.ABOVE,),
    "always": (First.ALWAYS,),
    "is_condition": CONDITIONS,
    "is_line": (First.SLOPE,),
    "times_a": (Factor.A,),
    "plus_a": (Addend.A,),
    "plus_count": (Addend.COUNT,),
    "plus_sum": (Addend.SUM,),
}
"""A recipe as the datapath's control bits: each is set where the recipe has one of the choices."""


def controls_layout(shape: VectorShape) -> data.StructLayout:
    """All that the datapath must know about a command; `factor` is the one that is no operand."""
    return data.StructLayout(
        dict.fromkeys(FLAGS, 1)
        | {
            "factor": signed(CONSTANT_BITS),
            "constant": signed(CONSTANT_BITS),
            "shift": SHIFT_BITS,
            "table": shape.command["table"].shape,
        }
    )


def decode(m: Module, shape: VectorShape, command: data.View, empty: Value) -> tuple[data.View, Value, Value]:
    """The controls of a command, and whether it reads a and b; `empty`: it is a reduction of no elements."""
    controls = Signal(controls_layout(shape))
    reads = Signal(2)
    power = Const(1, CONSTANT_BITS) << Mux(command.shift[4], 16, command.shift[:4])
    factors = {
        Factor.ONE: 1,
        Factor.MINUS_ONE: -1,
        Factor.CONSTANT: command.constant,
        Factor.POWER: power[:CONSTANT_BITS],
    }

    def follow(recipe: Recipe) -> None:
        choices = (recipe.first, recipe.factor, recipe.addend)
        for name, those in FLAGS.items():
            m.d.comb += controls[name].eq(any(choice in those for choice in choices))
        m.d.comb += reads.eq(recipe.reads_a | recipe.reads_b << 1)
        m.d.comb += controls.factor.eq(factors.get(recipe.factor, 0))
        if recipe.shifts:
            m.d.comb += controls.shift.eq(command.shift)
        elif recipe.first is First.SLOPE and shape.curves:
            m.d.comb += controls.shift.eq(shape.curves[0].shift)

    m.d.comb += [controls.constant.eq(command.constant), controls.table.eq(command.table)]
    with m.If(empty):
        follow(NOTHING)
    with m.Else():
        with m.Switch(command.op):
            for op, recipe in RECIPES.items():
                with m.Case(op):
                    follow(recipe)
    return controls, reads[0], reads[1]
