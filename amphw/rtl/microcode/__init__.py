"""The compiler from fixed-point programs to microprograms."""

from amphw.rtl.microcode.compile import UnitCode, compile_unit

__all__ = ["UnitCode", "compile_unit"]
