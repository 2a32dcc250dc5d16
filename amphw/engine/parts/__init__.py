"""Devices as parts of one run: what a part is, and the threads, processes and links that reach it."""
