"""Data frames, which need pandas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from amphw.ir.errors import AmphwError

if TYPE_CHECKING:
    import pandas


class RunError(AmphwError):
    """A run has nothing of what was asked for; the message says why, and what to do."""


def frame(rows: Iterable[Mapping[str, Any]], instead: str = "") -> pandas.DataFrame:
    """A data frame of rows with the same names. instead: what has the same without pandas, in a sentence.

    Raises RunError where pandas is not there.
    """
    try:
        import pandas
    except ImportError:
        raise RunError(f"a data frame needs pandas: pip install 'amphw[notebook]'{instead}") from None
    return pandas.DataFrame([*rows])
