"""Progress of a run, on stderr so that stdout stays clean for machine-readable output.

Finished epochs are the rows of one table, which fits 80 columns. Between them, on a terminal: a live table
that redraws at most five times a second; anywhere else (a log file, CI): a plain line about every ten
seconds. Progress is a courtesy: a closed pipe silences it and never ends a run.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from amphw.host.records import EpochRecord, RankFigures, mean_known
from amphw.page.numbers import UNKNOWN, duration, number, percent, seconds, size

REDRAW_S = 0.2
PLAIN_LINE_S = 10.0
_LEAST = {"staleness": 9, "keys": 5, "busy": 4}
"""Widths of columns, in characters, that hold more or less than others."""
_SHOWN_WORKERS = (
    8  # more than these are summed up: a bar for each of 64 workers would push the rest off the screen
)

_SHOWN_RANKS = 8
"""Of more ranks than these the live table shows the first."""


@dataclass(slots=True)
class LiveStats:
    """Where a run stands now. `done` of `total` instances of `epoch` (from 1); staleness in versions.

    `rate` is a second's, of what the model counts. `utilisation` is the busy share 0..1 of each worker; NaN
    marks a figure that is not known yet. `ranks` are those of the last epoch, where there are several.
    """

    epoch: int
    done: int
    total: int
    loss: float = math.nan
    valid: dict[str, float] = field(default_factory=dict)
    rate: float = math.nan
    keys_in_flight: float = math.nan
    staleness_p50: float = math.nan
    staleness_p99: float = math.nan
    utilisation: list[float] = field(default_factory=list)
    ranks: list[RankFigures] = field(default_factory=list)


class Remaining:
    """Seconds until an epoch's training ends, and until the run's last epoch has: estimates, NaN at first.

    clock: seconds. The run's is what epochs have taken so far, validation included; a target may end it
    earlier.
    """

    def __init__(self, total_epochs: int, clock: Callable[[], float]) -> None:
        self._epochs, self._clock = total_epochs, clock
        self._epoch = 0
        self._begun = (0.0, 0)
        self._first: tuple[float, float] | None = None  # when, and how many epochs the run had had by then

    def of_epoch(self, live: LiveStats) -> float:
        now = self._clock()
        if live.epoch != self._epoch:
            self._epoch, self._begun = live.epoch, (now, live.done)
        seconds, done = now - self._begun[0], live.done - self._begun[1]
        return seconds / done * (live.total - live.done) if done > 0 else math.nan

    def of_run(self, live: LiveStats) -> float:
        now = self._clock()
        at = live.epoch - 1 + (live.done / live.total if live.total else 0.0)
        if self._first is None:
            self._first = now, at
        gone, had = now - self._first[0], at - self._first[1]
        return gone / had * (self._epochs - at) if had > 0 else math.nan


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Fall silent. The inherited answer redirects stdout and ends the program, training and all."""
        self.quiet = True


class Progress:
    """A context manager that shows a run; its methods may be called from any thread.

    `console_is_tty`: True shows the live table, False plain lines, None asks the stream. `counted`: what the
    rate is of, such as words. `stream` and `clock` (seconds) are stderr and the monotonic clock unless told.
    """

    def __init__(
        self,
        console_is_tty: bool | None,
        total_epochs: int,
        label: str,
        counted: str = "instances",
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        # A dumb terminal cannot move its cursor back, so a live table would never show.
        moves = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._tty = moves if console_is_tty is None else console_is_tty
        self._total_epochs = total_epochs
        self._label, self._counted = label, counted
        self._clock = clock
        self._remaining = Remaining(total_epochs, clock)
        self._heading: list[str] | None = None
        self._told_ranks = False
        self._lock = threading.Lock()
        self._console = _Console(
            file=self._stream,
            force_terminal=self._tty,
            markup=False,
            highlight=False,
            soft_wrap=not self._tty,
        )
        self._live: Live | None = None
        self._broken = False
        self._shown_at = clock()

    def __enter__(self) -> Progress:
        self._shown_at = self._clock()
        if self._tty:
            # No refresh thread: it would take the GIL from training to draw the same numbers again.
            # stdout is left alone: whatever is printed there is the program's output.
            self._live = Live(
                console=self._console, auto_refresh=False, transient=True, redirect_stdout=False
            )
            self._guarded(self._live.start)
            self._shown_at -= REDRAW_S  # the first figures show at once
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._guarded(self._live.stop)
            self._live = None

    def update(self, live: LiveStats) -> None:
        """Show where the run stands, if the last showing is long enough ago; cheap otherwise."""
        interval = REDRAW_S if self._tty else PLAIN_LINE_S
        now = self._clock()
        with self._lock:
            if now - self._shown_at < interval:
                return
            self._shown_at = now
        left = self._remaining.of_epoch(live), self._remaining.of_run(live)
        if self._live is not None:
            table = self._table(live, *left)
            self._guarded(lambda: self._live.update(table, refresh=True) if self._live is not None else None)
        elif not self._tty:
            self._line(self._plain(live, *left))

    def epoch(self, record: EpochRecord) -> None:
        """Leave one lasting row about a finished epoch; the first one has a heading above it."""
        with self._lock:
            self._shown_at = self._clock() - (REDRAW_S if self._tty else 0.0)
        # Headings have two lines, so that the columns are as narrow as their figures.
        cells = epoch_cells(record, self._total_epochs, self._counted)
        headings = [(upper, lower) for upper, _, lower in (name.partition(" ") for name in cells)]
        least = [len(f"{self._total_epochs}/{self._total_epochs}")]
        least += [9, *(_LEAST.get(upper, 7) for upper, _ in headings[2:])]
        widths = [
            max(len(upper), len(lower), most) for (upper, lower), most in zip(headings, least, strict=True)
        ]
        if self._heading != list(cells):
            self._heading = list(cells)
            self._line(f"{self._label}: staleness is in versions; time is of training so far")
            self._row([upper if lower else "" for upper, lower in headings], widths)
            self._row([lower or upper for upper, lower in headings], widths)
        self._row(list(cells.values()), widths)
        self._ranks(record.ranks)

    def _ranks(self, ranks: list[RankFigures]) -> None:
        """A row for each rank below the epoch's; the first time with a heading."""
        if not ranks:
            return
        cells = [list(rank_cells(each, self._counted).values()) for each in ranks]
        heading = list(rank_cells(ranks[0], self._counted))
        widths = [max(len(name), 9) for name in heading]
        if not self._told_ranks:
            self._told_ranks = True
            self._line(f"{self._label}: below each epoch what its ranks did in it")
            self._row(heading, widths)
        for row in cells:
            self._row(row, widths)

    def _row(self, cells: list[str], widths: list[int]) -> None:
        self._line("  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())

    def note(self, text: str) -> None:
        """Leave one lasting line of text."""
        self._line(f"{self._label}: {text}")

    def warn(self, text: str) -> None:
        """The same of something that is not as it should be, which is told wherever anything is."""
        self.note(text)

    def _line(self, text: str) -> None:
        # Through the console, which puts the line above a live table instead of through it.
        self._guarded(lambda: self._console.print(Text(text)))

    def _guarded(self, show: Callable[[], object]) -> None:
        if self._broken:
            return
        with self._lock:
            try:
                show()
                self._stream.flush()
            except (OSError, ValueError, UnicodeError):  # ValueError: the stream was closed
                self._broken = True

    def _plain(self, live: LiveStats, of_epoch: float, of_run: float) -> str:
        return f"{self._label}: " + self._told(live, of_epoch, of_run)

    def _told(self, live: LiveStats, of_epoch: float, of_run: float) -> str:
        share = f" ({100 * live.done / live.total:.0f}%)" if live.total else ""
        parts = [
            f"epoch {live.epoch}/{self._total_epochs}",
            f"{live.done}/{live.total}{share}",
            f"{number(live.rate)} {self._counted}/s",
            f"loss {number(live.loss)}",
            f"busy {percent(mean_known(live.utilisation))}",
            *([f"{_left(of_epoch, of_run)}"] if math.isfinite(of_epoch) else []),
        ]
        return ", ".join(parts)

    def _table(self, live: LiveStats, of_epoch: float, of_run: float) -> Table:
        table = Table(
            title=Text(self._label, style="bold"), title_justify="left", show_header=False, box=None
        )
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        epoch = Table.grid(padding=(0, 1))
        epoch.add_row(
            Text(f"{live.epoch}/{self._total_epochs}"),
            ProgressBar(total=max(live.total, 1), completed=live.done, width=24),
            Text(f"{live.done}/{live.total}"),
        )
        table.add_row("epoch", epoch)
        table.add_row("time left", _left(of_epoch, of_run))
        table.add_row(Text(f"{self._counted}/s"), number(live.rate))
        table.add_row("loss", number(live.loss))
        for name, value in live.valid.items():
            table.add_row(Text(f"valid {name}"), number(value))
        table.add_row("keys in flight", number(live.keys_in_flight))
        table.add_row("staleness", f"p50 {number(live.staleness_p50)}   p99 {number(live.staleness_p99)}")
        for name, cell in _worker_rows(live.utilisation):
            table.add_row(name, cell)
        if live.ranks:
            table.add_row("ranks", _rank_table(live.ranks, self._counted))
        return table


def epoch_cells(record: EpochRecord, total_epochs: int, counted: str) -> dict[str, str]:
    """An epoch's figures as texts, by the heading of their column."""
    return {
        "epoch": f"{record.epoch}/{total_epochs}",
        f"{counted} a second": number(record.instances_per_s),
        "loss": _short(record.train_loss),
        # Of several losses the one that the run is about; the records have the others, too.
        **{f"valid {name}": _short(value) for name, value in record.valid.items() if "." not in name},
        "staleness p50, p99": f"{number(record.staleness_p50)}, {number(record.staleness_p99)}",
        "keys": f"{record.keys_in_flight:.3g}" if math.isfinite(record.keys_in_flight) else UNKNOWN,
        "busy": percent(record.busy),
        "time": duration(record.seconds),
    }


def rank_cells(of: RankFigures, counted: str) -> dict[str, str]:
    """A rank's figures as texts, by the heading of their column."""
    return {
        "rank": str(of.rank),
        f"{counted}/s": number(of.instances_per_s),
        "staleness": f"{number(of.staleness_p50)}, {number(of.staleness_p99)}",
        "sent": size(of.sent),
        "received": size(of.received),
        "wait": seconds(of.wait),
        "transfer": seconds(of.transfer),
    }


def _rank_table(ranks: list[RankFigures], counted: str) -> Table:
    """Of the last epoch."""
    table = Table(box=None, padding=(0, 1))
    for name in rank_cells(ranks[0], counted):
        table.add_column(Text(name), justify="right", no_wrap=True)
    for each in ranks[:_SHOWN_RANKS]:
        table.add_row(*(Text(cell) for cell in rank_cells(each, counted).values()))
    if len(ranks) > _SHOWN_RANKS:
        table.add_row(Text(f"and {len(ranks) - _SHOWN_RANKS} more"))
    return table


def _left(of_epoch: float, of_run: float) -> str:
    if not math.isfinite(of_epoch):
        return UNKNOWN
    return f"{duration(of_epoch)} of the epoch, at most {duration(of_run)} of the run"


def _worker_rows(utilisation: list[float]) -> list[tuple[str, RenderableType]]:
    if len(utilisation) > _SHOWN_WORKERS:
        known = [share for share in utilisation if math.isfinite(share)]
        text = f"mean {percent(mean_known(known))}"
        text += f"   {min(known):.0%} to {max(known):.0%}" if known else ""
        return [(f"{len(utilisation)} workers", Text(text))]
    rows: list[tuple[str, RenderableType]] = []
    for worker, share in enumerate(utilisation):
        cell = Table.grid(padding=(0, 1))
        length = share if math.isfinite(share) else 0.0
        cell.add_row(ProgressBar(total=1.0, completed=length, width=24), Text(percent(share)))
        rows.append((f"worker {worker}", cell))
    return rows


def _short(value: float) -> str:
    """The same in seven characters where it can be, for a column of a table."""
    shown = number(value)
    return shown if len(shown) <= 7 else f"{value:.1e}"
