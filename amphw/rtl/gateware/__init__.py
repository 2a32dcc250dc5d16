"""Generators of the hardware, in Amaranth."""
