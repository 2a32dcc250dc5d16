"""Ports of the payload memory, from the point of view of the unit that uses them.

A unit never waits for the memory: data is there READ_LATENCY cycles after `en`, and a write always happens.
"""

from __future__ import annotations

from amaranth.hdl import signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.numbers.formats import BITS

NO_COLLISION = {"no_rw_check": 1}
"""Attribute of a memory whose users never use what a read gives of a word that is written in the same cycle.

Block memories leave that undefined, between two ports. Without the attribute tools add logic behind them that
gives the old word, in the slowest place there is: a block memory's answer alone takes half a cycle.
"""


class ReadPort(wiring.Signature):
    """`data` is the word at `addr`, READ_LATENCY cycles after `en`; one read may begin in every cycle."""

    def __init__(self, address_bits: int) -> None:
        super().__init__({"en": Out(1), "addr": Out(address_bits), "data": In(signed(BITS))})


class WritePort(wiring.Signature):
    """In a cycle with `en` the word at `addr` becomes `data`; reads see it from the next cycle on."""

    def __init__(self, address_bits: int) -> None:
        super().__init__({"en": Out(1), "addr": Out(address_bits), "data": Out(signed(BITS))})
