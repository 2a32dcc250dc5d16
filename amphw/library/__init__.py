"""Runs as one starts them: what the command line and programs in Python have in common.

`amphw` itself hands out what programs need of it.
"""
