"""How large a vector unit is, and the fields of its commands."""

from __future__ import annotations

from dataclasses import dataclass, field

from amaranth.hdl import signed, unsigned
from amaranth.lib import data
from amaranth.utils import ceil_log2

from amphw.rtl.fixed.curves import Curve
from amphw.rtl.isa.commands import CONSTANT_BITS, IndexMode, VectorOp
from amphw.rtl.numbers.formats import Formats

SHIFT_BITS = 5


@dataclass(frozen=True)
class VectorShape:
    """How large a vector unit is. curves: what LINES can do. pointers: entries of the pointer file."""

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
                "op": VectorOp,
                "mode": IndexMode,
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
