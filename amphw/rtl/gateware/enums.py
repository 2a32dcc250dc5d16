"""Enumerations that the host shares, as Amaranth wants them."""

from __future__ import annotations

import types
from enum import IntEnum
from typing import Any

from amaranth.lib import enum


def shaped(of: type[IntEnum], bits: int) -> Any:
    """The same members with a shape; their names stand in the Verilog."""

    def body(namespace: dict[str, Any]) -> None:
        namespace["__doc__"] = of.__doc__
        for member in of:
            namespace[member.name] = int(member)

    return types.new_class(of.__name__, (enum.Enum,), {"shape": bits}, body)
