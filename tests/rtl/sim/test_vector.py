"""The vector unit under Verilator: thousands of random commands, at any pace."""

from __future__ import annotations

import pytest

from amphw.rtl.fixed.curves import curve
from amphw.rtl.gateware.vector.command import VectorShape
from amphw.rtl.gateware.vector.unit import VectorUnit
from amphw.rtl.numbers.formats import Formats
from sim.coverage import assert_covered
from sim.runner import BenchResult, run_bench

CURVES = ("sigmoid", "tanh")


def run(name: str, formats: str, address_bits: int, rows: int, resets: int) -> BenchResult:
    given = Formats.parse(formats)
    curves = tuple(curve(c, given.value.frac) for c in CURVES)
    shape = VectorShape(address_bits, 8, given, curves, pointers=16)
    settings = {
        "formats": formats, "curves": CURVES, "address_bits": address_bits, "pointers": 16, "rows": rows,
        "resets": resets,
    }  # fmt: skip
    return run_bench(lambda: VectorUnit(shape), "vector_bench", name=name, settings=settings)


@pytest.mark.thorough
def test_vector_unit() -> None:
    counts = assert_covered("vector unit", run("vector", "q4.12", 10, 8, 10))
    assert counts["random commands"] > 2000


@pytest.mark.hardware
@pytest.mark.parametrize(("formats", "address_bits"), [("q6.10", 8), ("q1.15", 12)])
def test_vector_units(formats: str, address_bits: int) -> None:
    result = run(f"vector-{formats}", formats, address_bits, 30, 100)
    counts = assert_covered(f"vector unit, {formats}", result)
    assert counts["random commands"] > 8000
