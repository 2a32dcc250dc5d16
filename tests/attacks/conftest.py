"""Attacks run the program as the tests of the command line do."""

from tests.cli.conftest import amphw, environment, plots_sketched, program, spawn, tiny

__all__ = ["plots_sketched", "amphw", "environment", "program", "spawn", "tiny"]
