"""Runs on several devices: the C++ engine, and a part for each of the others."""
