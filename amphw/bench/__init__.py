"""Benchmarks: amphw beside the strongest peers, in one run, on the same instances.

Every side is a process of its own (`subject`), started and warmed up beforehand, that works when told to; the
rounds give each its turn. What the figures mean is said in the manual.
"""
