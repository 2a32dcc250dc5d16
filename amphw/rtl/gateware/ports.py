"""Ports of the payload memory, from the point of view of the unit that uses them.

A unit never waits for the memory: data is there in the cycle after `en`, and a write always happens.
"""

from __future__ import annotations

from amaranth.hdl import signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.formats import BITS


class ReadPort(wiring.Signature):
    """`data` is the word at `addr`, in the cycle after `en`."""

    def __init__(self, address_bits: int) -> None:
        super().__init__({"en": Out(1), "addr": Out(address_bits), "data": In(signed(BITS))})


class WritePort(wiring.Signature):
    """In a cycle with `en` the word at `addr` becomes `data`; reads see it from the next cycle on."""

    def __init__(self, address_bits: int) -> None:
        super().__init__({"en": Out(1), "addr": Out(address_bits), "data": Out(signed(BITS))})
