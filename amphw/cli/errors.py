"""Errors that a user can do something about end as one message on stderr, not as a traceback.

Exit codes: 0 done; 1 an error with a message; 2 a command line that cannot be read; 130 interrupted. Any
other exception is a mistake in amphw itself and keeps its traceback. AMPHW_DEBUG=1 shows the traceback of
the expected ones as well.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

FAILED = 1
INTERRUPTED = 130
"""128 + SIGINT: what a shell reports for a program that Ctrl-C ended."""
_SMALLER = "make the model or its batch smaller, or lower max_active_keys and max_infer_keys"


class ReportingGroup(TyperGroup):
    """The top-level command, which puts the errors of every subcommand into words."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            complain("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except MemoryError as error:
            if debugging():
                raise
            complain(f"not enough memory ({str(error) or 'no size was told'}); {_SMALLER}")
            raise typer.Exit(FAILED) from None
        except OSError as error:
            # Files of a run have errors of their own; without a file name it is stdout that is full.
            if debugging() or error.errno not in (errno.ENOSPC, errno.EIO) or error.filename is not None:
                raise
            complain(f"cannot write the output: {error.strerror}; send it elsewhere")
            raise typer.Exit(FAILED) from None
        except Exception as error:
            if debugging() or not isinstance(error, expected_errors()):
                raise
            complain(str(error))
            raise typer.Exit(FAILED) from None


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
    # Imported when something failed: numpy and safetensors would slow down every `amphw --help`.
    from amphw.host.checkpoint import CheckpointError
    from amphw.host.run_folder import RunFolderError
    from amphw.ir.errors import AmphwError

    return (AmphwError, CheckpointError, RunFolderError)
