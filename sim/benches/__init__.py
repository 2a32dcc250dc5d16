"""Benches: each file holds the cocotb tests of one kind of component."""
