"""Faults put into the gateware, to see whether its benches notice."""
