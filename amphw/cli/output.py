"""What goes where: results to stdout, everything about the way there to stderr."""

from __future__ import annotations

import io
import json
import sys
import time
from typing import Any

from rich.console import Console
from rich.table import Table

BEGAN = time.perf_counter()
"""When the command began, nearly: before anything large was imported."""

NOISE = "one run; varies by a factor of two and more on a busy machine"
"""What a throughput is to be read with."""
_WIDE = 120  # columns of a table in a file or a pipe, where there is no terminal to ask


def results() -> Console:
    """The console for a command's answer."""
    return _console(sys.stdout)


def remarks() -> Console:
    """The console for progress, hints and warnings."""
    return _console(sys.stderr)


def remark(text: str) -> None:
    """One line of it, which says whose it is."""
    remarks().print(f"amphw: {text}")


def _console(stream: Any) -> Console:
    if stream is None:  # the caller closed it (`>&-`): nobody reads, and that is no error
        stream = io.StringIO()
    terminal = stream.isatty()
    # Text is printed as it is: a path with brackets in it is not markup.
    return Console(
        file=stream, width=None if terminal else _WIDE, soft_wrap=not terminal, markup=False, highlight=False
    )


def emit_json(value: Any) -> None:
    """Print one JSON object (strict: NaN becomes null) on one line of stdout."""
    from amphw.host.records import json_safe

    print(json.dumps(json_safe(value), allow_nan=False), flush=True)


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """An unboxed table that reads well in a terminal and in a file; the columns in `right` hold numbers."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return made
