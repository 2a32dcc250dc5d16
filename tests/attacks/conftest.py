"""Attacks run the program as the tests of the command line do."""

from tests.cli.conftest import _sketched, amphw, environment, program, spawn, tiny

__all__ = ["_sketched", "amphw", "environment", "program", "spawn", "tiny"]
