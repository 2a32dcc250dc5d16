"""Attacks run the program as the tests of the command line do."""

from tests.cli.conftest import plots_sketched, amphw, environment, program, spawn, tiny

__all__ = ["plots_sketched", "amphw", "environment", "program", "spawn", "tiny"]
