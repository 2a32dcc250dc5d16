"""What can go wrong in a benchmark and is no fault of the program."""

from __future__ import annotations

from amphw.ir.errors import AmphwError


class BenchError(AmphwError):
    """A benchmark cannot be run as asked. The message says why, and what there is instead."""
