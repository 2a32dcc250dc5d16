"""What a vector unit can be told: its operations, how elements are addressed, and a command's fields."""

from __future__ import annotations

from dataclasses import dataclass, field

from amaranth.hdl import signed, unsigned
from amaranth.lib import data, enum
from amaranth.utils import ceil_log2

from amphw.rtl.fixed.curves import Curve
from amphw.rtl.formats import Formats

CONSTANT_BITS = 18
"""Of a command's constant, signed: as wide as the multiplier."""

SHIFT_BITS = 5


class Op(enum.Enum, shape=unsigned(5)):  # type: ignore[call-arg]
    """What an element of d becomes; a and b are those of the operands. Results saturate to 16 bits."""

    FILL = 0
    """The constant."""
    COPY = 1
    """a"""
    CONVERT = 2
    """narrow(a, shift)"""
    LIFT = 3
    """a << shift"""
    ADD = 4
    """a + b"""
    SUB = 5
    """a - b"""
    MUL = 6
    """narrow(a * b, shift)"""
    SCALE = 7
    """narrow(a * constant, shift)"""
    SHIFT = 8
    """a + constant"""
    RELU = 9
    """max(a, 0)"""
    GATE = 10
    """a where b > 0, or else 0"""
    MAX = 11
    """max(a, b)"""
    ABS = 12
    """|a|"""
    SIGN = 13
    """The constant where a > 0, minus the constant where a < 0, or else 0."""
    STEP = 14
    """The constant where a > 0, or else 0."""
    EQUAL = 15
    """The constant where a == b, or else 0."""
    ABOVE = 16
    """1 where a > constant, or else 0."""
    LINES = 17
    """The curve number `table` of a."""
    SUM = 18
    """The sum of a over the inner loop; 0 where that is empty."""
    LARGEST = 19
    """The largest a of the inner loop; 0 where that is empty."""
    ARGMAX = 20
    """The position in the inner loop of the first of the largest a; 0 where that is empty."""


REDUCTIONS = (Op.SUM, Op.LARGEST, Op.ARGMAX)
"""Written once for each outer step, at d.base + o * d.outer."""


class Mode(enum.Enum, shape=unsigned(3)):  # type: ignore[call-arg]
    """What is added to the addresses of an outer step."""

    NONE = 0
    A = 1
    """To a's: mem[index.base + o] * index.scale, the word taken as unsigned."""
    D = 2
    """To d's: the same."""
    ADD_D = 3
    """To d's: the same; and b is what d's address holds, results of earlier elements included: with Op.ADD
    a scatter-add. b's own addresses are not used."""
    POINTERS = 4
    """To a's: pointer[i], where i counts the inner loop."""


@dataclass(frozen=True)
class VectorShape:
    """How large a vector unit is. curves: what Op.LINES can do. pointers: entries of the pointer file."""

    address_bits: int
    count_bits: int
    formats: Formats = field(default_factory=Formats)
    curves: tuple[Curve, ...] = ()
    pointers: int = 16

    def __post_init__(self) -> None:
        # Addresses are made by one 18 bit multiplier; a position in a row must fit a word, a sum the unit.
        for name, low, high in (("address_bits", 2, 18), ("count_bits", 1, 15), ("pointers", 1, 1 << 12)):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"vector unit: {name} = {getattr(self, name)}, possible is {low} .. {high}")
        for curve in self.curves:
            if curve.frac != self.formats.value.frac:
                raise ValueError(
                    f"vector unit: the curve {curve.name} is for {curve.frac} bits behind the point, but "
                    f"values have {self.formats.value.frac} ({self.formats})"
                )

    @property
    def pointer_bits(self) -> int:
        return max(1, ceil_log2(self.pointers))

    @property
    def command(self) -> data.StructLayout:
        """A command's fields.

        Elements are at base + o * outer + i * inner for o < outer and i < inner, modulo the address space.
        A count of 0 does nothing, but see the reductions. `overlap` says that no read of the command depends
        on a write of those before it: it then need not wait for them.
        """
        address = unsigned(self.address_bits)
        operand = data.StructLayout({"base": address, "outer": address, "inner": address})
        return data.StructLayout(
            {
                "op": Op,
                "mode": Mode,
                "overlap": 1,
                "table": max(1, ceil_log2(len(self.curves))) if self.curves else 1,
                "shift": SHIFT_BITS,
                "constant": signed(CONSTANT_BITS),
                "outer": self.count_bits,
                "inner": self.count_bits,
                "a": operand,
                "b": operand,
                "d": operand,
                "index": data.StructLayout({"base": address, "scale": address}),
            }
        )
