"""What `make test` runs of a list of parameters; `make test-all` runs all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def daily(every_day: Iterable[Any], thorough: Iterable[Any]) -> list[Any]:
    """Parameters: those of every day, then those that are thorough."""
    return [*every_day, *(pytest.param(value, marks=pytest.mark.thorough) for value in thorough)]
