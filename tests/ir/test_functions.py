"""The functions that programs are written with: the examples in their documentation."""

from __future__ import annotations

import doctest

from amphw.ir import functions


def test_the_examples_run() -> None:
    found = doctest.testmod(functions)
    assert found.attempted and not found.failed
