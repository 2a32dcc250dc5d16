"""Estimates and placements: what the command line and programs in Python have in common, and what the latter
get."""
