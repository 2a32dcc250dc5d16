"""The peers: the same models in other frameworks, each in a process of its own.

This folder is run by an interpreter that need not have amphw (`python .../amphw/bench/peers SPEC.json`), so
its files import one another relatively, numpy, the framework, and nothing else.
"""
