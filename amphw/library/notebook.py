"""The progress of a run in the output of a notebook's cell, which is drawn over as it goes on."""

from __future__ import annotations

import io
import sys
import time
import warnings
from collections.abc import Callable
from html import escape
from types import TracebackType

from amphw.host.progress import LiveStats, Progress, epoch_cells
from amphw.host.records import EpochRecord
from amphw.library.tables import table

REDRAW_S = 0.5
ROWS = 20
"""Epochs that are shown, the last ones."""

Shows = Callable[[str], None]
"""Draws HTML in the place of what it has drawn before."""


def shows() -> Shows | None:
    """For the notebook that this runs in, Jupyter's or marimo's; None outside of any."""
    if "marimo" in sys.modules:
        import marimo

        if marimo.running_in_notebook():
            return lambda html: marimo.output.replace(marimo.Html(html))
    if "IPython" in sys.modules:
        from IPython import get_ipython
        from IPython.display import HTML, display

        if getattr(get_ipython(), "kernel", None) is not None:  # a terminal has none
            handle = display(HTML(""), display_id=True)
            return lambda html: handle.update(HTML(html))
    return None


class Nowhere(io.StringIO):
    """A stream that keeps nothing."""

    def write(self, text: str) -> int:
        return len(text)


class Silent(Progress):
    """Shows nothing; what is not as it should be becomes a warning of Python."""

    def __init__(self, total_epochs: int, label: str, counted: str = "instances") -> None:
        super().__init__(False, total_epochs, label, counted, stream=Nowhere())

    def warn(self, text: str) -> None:
        warnings.warn(text, stacklevel=2)


class NotebookProgress(Progress):
    """Epochs as the rows of a table, below it where the present one stands, and what there is to know."""

    def __init__(
        self,
        show: Shows,
        total_epochs: int,
        label: str,
        counted: str = "instances",
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Arguments are those of `Progress`."""
        super().__init__(False, total_epochs, label, counted, stream=Nowhere(), clock=clock)
        self._show, self._rows, self._notes = show, list[dict[str, str]](), list[str]()
        self._drawn_at, self._bar = clock() - REDRAW_S, ""

    def __enter__(self) -> NotebookProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar = ""
        self._draw()

    def update(self, live: LiveStats) -> None:
        now = self._clock()
        if now - self._drawn_at < REDRAW_S:
            return
        self._drawn_at = now
        told = self._told(live, self._remaining.of_epoch(live), self._remaining.of_run(live))
        self._bar = (
            f'<progress value="{live.done}" max="{max(live.total, 1)}" style="width:12em"></progress> '
            f"{escape(told)}"
        )
        self._draw()

    def epoch(self, record: EpochRecord) -> None:
        self._rows.append(epoch_cells(record, self._total_epochs, self._counted))
        self._draw()

    def note(self, text: str) -> None:
        self._notes.append(text)
        self._draw()

    def _draw(self) -> None:
        parts = [f"<b>{escape(self._label)}</b>"]
        if self._rows:
            columns = list(self._rows[-1])
            rows = [list(row.values()) for row in self._rows[-ROWS:]]
            parts.append(table(columns, rows, columns))
        parts += [f"<div>{self._bar}</div>"] if self._bar else []
        parts += [f"<div><small>{escape(note)}</small></div>" for note in self._notes]
        self._show("".join(parts))
