"""Errors that a user can do something about end as one message on stderr, not as a traceback.

Exit codes: 0 done; 1 an error with a message; 2 a command line that cannot be read; 130 interrupted. What a
user's model raises is shown with the lines of the user alone. Any other exception is a mistake in amphw
itself and keeps its traceback. AMPHW_DEBUG=1 shows the traceback of the expected ones as well.
"""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from amphw.cli.memory import check_limit

FAILED = 1
INTERRUPTED = 130
"""128 + SIGINT: what a shell reports for a program that Ctrl-C ended."""
_SMALLER = "make the model or its batch smaller, or lower max_active_keys and max_infer_keys"


class ReportingGroup(TyperGroup):
    """The top-level command, which puts the errors of every subcommand into words."""

    def invoke(self, ctx: Any) -> Any:
        try:
            check_limit()
            with plain_warnings():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            complain("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            message = None if debugging() else _of_the_system(error) or _expected(error)
            if message is None:
                raise
            complain(message)
            raise typer.Exit(FAILED) from None


@contextmanager
def plain_warnings() -> Iterator[None]:
    """A warning is said like everything else: where in amphw's code it was raised helps nobody."""

    def plain(message: Warning | str, category: type[Warning], *_: object) -> str:
        kind = "note" if category.__name__.endswith("Note") else "WARNING"
        return f"amphw: {kind}: {message}\n"

    before = warnings.formatwarning
    warnings.formatwarning = plain  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.formatwarning = before


def _of_the_system(error: Exception) -> str | None:
    """What to say of memory or a disk that is full; None of anything else."""
    # The loader has an error of its own for a library that did not fit.
    if isinstance(error, MemoryError) or "failed to map segment" in str(error):
        advice = "; ".join(getattr(error, "__notes__", ())) or _SMALLER
        return f"not enough memory ({str(error) or 'no size was told'}); {advice}"
    # Files of a run have errors of their own; without a file name it is stdout that is full.
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO) and error.filename is None:
        return f"cannot write the output: {error.strerror}; send it elsewhere"
    return None


def _expected(error: Exception) -> str | None:
    """What to say of an error that its user can do something about; None of a mistake in amphw."""
    if isinstance(error, expected_errors()):
        return str(error)
    from amphw.models.files import users_error  # as below

    return users_error(error)


def debugging() -> bool:
    """Whether tracebacks were asked for."""
    return os.environ.get("AMPHW_DEBUG", "") not in ("", "0")


def complain(message: str) -> None:
    """One message to stderr; a reader that has gone away is no reason for a second error."""
    try:
        print(f"amphw: {message}", file=sys.stderr, flush=True)
    except OSError:
        pass


def expected_errors() -> tuple[type[Exception], ...]:
    """The classes whose message names what was wrong, where, and what to do."""
    # Imported when something failed: numpy would slow down every `amphw --help`.
    from amphw.ir.errors import AmphwError

    return (AmphwError,)
