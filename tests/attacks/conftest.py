"""Attacks run the program as the tests of the command line do."""

from tests.cli.conftest import amphw, environment, program, spawn, tiny

__all__ = ["amphw", "environment", "program", "spawn", "tiny"]
