"""Runs of the library leave sketches of their plots."""

from tests.cli.conftest import plots_sketched

__all__ = ["plots_sketched"]
