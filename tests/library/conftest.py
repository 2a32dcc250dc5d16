"""Runs of the library leave sketches of their plots."""

from tests.cli.conftest import _sketched

__all__ = ["_sketched"]
