"""What `make test` runs of a list of parameters; `make test-all` runs all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def daily(every_day: Iterable[Any], thorough: Iterable[Any]) -> list[Any]:
    """Those of every day, then those that are thorough; a tuple has the values of several names."""
    later = (value if isinstance(value, tuple) else (value,) for value in thorough)
    return [*every_day, *(pytest.param(*values, marks=pytest.mark.thorough) for values in later)]
