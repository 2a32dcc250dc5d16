"""How long the payload memory takes: what its users are built for, and what estimates count with."""

from __future__ import annotations

READ_LATENCY = 3
"""Cycles from an address to its word. A large memory lies all over the chip: an address has one cycle for the
way to its blocks, the block one to answer, and the answer one for the way back. Writes take the first of
these, too, so that reads and writes keep the order in which they were asked for."""
