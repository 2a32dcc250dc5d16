"""What a vector unit can be, and what it refuses to be."""

from __future__ import annotations

from typing import Any

import pytest

from amphw.rtl.fixed.curves import curve
from amphw.rtl.gateware.vector.command import VectorShape
from amphw.rtl.gateware.vector.decode import RECIPES
from amphw.rtl.isa.commands import VectorOp
from amphw.rtl.numbers.formats import Formats


def test_every_operation_has_a_recipe() -> None:
    assert set(RECIPES) == set(VectorOp)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"address_bits": 19}, "vector unit: address_bits = 19, possible is 2 .. 18"),
        ({"count_bits": 16}, "vector unit: count_bits = 16, possible is 1 .. 15"),
        ({"pointers": 0}, "vector unit: pointers = 0, possible is 1 .. 4096"),
        (
            {"curves": (curve("tanh", 8),)},
            "vector unit: the curve tanh is for 8 bits behind the point, but values have 12 (q4.12",
        ),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        VectorShape(**({"address_bits": 10, "count_bits": 8, "formats": Formats.parse("q4.12")} | changes))
    assert str(caught.value).startswith(message)
