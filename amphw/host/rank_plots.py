"""Where the time of several ranks goes: a bar for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from amphw.host.plots import bars
from amphw.host.records import RankFigures


def step_times(ranks: Sequence[RankFigures], steps: int, path: Path, *, narrow: bool = False) -> None:
    """For each rank stack the milliseconds of an exchange, of `steps`, that it computed, waited, transferred.

    narrow: for a phone. Raises ValueError for no ranks, or for a suffix other than .svg and .png.
    """
    if not ranks:
        raise ValueError(f"no rank to draw in {path}; was it a run of several?")
    parts = {
        name: [1e3 * getattr(each, name) / max(steps, 1) for each in ranks]
        for name in ("compute", "wait", "transfer")
    }
    bars([f"rank {each.rank}" for each in ranks], parts, "ms of an exchange, on average", path, narrow)
