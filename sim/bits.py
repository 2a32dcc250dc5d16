"""Structures as integers of their bits, which is how they pass through a simulator."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Shape
from amaranth.lib import data


def packed(layout: Any, values: dict[tuple[str, ...], int]) -> int:
    """A structure's bits from its parts' values, each cut to its part; the others are 0."""
    total = 0
    for path, value in values.items():
        at, offset, width = layout, 0, 0
        for name in path:
            part = at[name]
            offset, width, at = offset + part.offset, part.width, part.shape
        total |= (value & (1 << width) - 1) << offset
    return total


def unpacked(layout: Any, bits: int) -> dict[str, Any]:
    """The values of a structure's parts; structures within it are dictionaries, too."""
    found: dict[str, Any] = {}
    for name, part in layout:
        value = bits >> part.offset & (1 << part.width) - 1
        if isinstance(part.shape, data.Layout):
            found[name] = unpacked(part.shape, value)
        else:
            signed = Shape.cast(part.shape).signed
            found[name] = value - (1 << part.width) if signed and value >> part.width - 1 else value
    return found
