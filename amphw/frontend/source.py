"""Where in the author's source something was written, and errors that say so."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from amphw.ir.errors import AmphwError

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_MODELS = os.path.join(_OURS, "models")
_NO_MODELS = {
    os.path.join(_MODELS, name)
    for name in ("__init__.py", "base.py", "files.py", "nested_json.py", "plain.py")
}
"""What models are made and found with: no line of these is a model's."""


@dataclass(frozen=True)
class SourceLine:
    """A line of the author's source."""

    file: str
    line: int
    function: str

    @classmethod
    def of(cls, frame: FrameType, line: int) -> SourceLine:
        """A line that the frame is at."""
        return cls(frame.f_code.co_filename, line, frame.f_code.co_name)

    def __str__(self) -> str:
        return f"{os.path.relpath(self.file) if os.path.isabs(self.file) else self.file}:{self.line}"


def here() -> SourceLine:
    """The innermost line that is not amphw's own: the author's. amphw's models have authors too."""
    frame = sys._getframe(1)
    while frame.f_back is not None and not _is_authors(frame):
        frame = frame.f_back
    return SourceLine.of(frame, frame.f_lineno)


def origin(error: BaseException) -> SourceLine | None:
    """The author's innermost line on the way to where an error was raised, when it is caught further out."""
    place, at = None, error.__traceback__
    while at is not None:
        if _is_authors(at.tb_frame):
            place = SourceLine.of(at.tb_frame, at.tb_lineno)
        at = at.tb_next
    return place


def _is_authors(frame: FrameType) -> bool:
    file = os.path.abspath(frame.f_code.co_filename)
    return not file.startswith(_OURS) or (file.startswith(_MODELS) and file not in _NO_MODELS)


class FrontendError(AmphwError):
    """A model that cannot be built; the message begins with the line of its source."""

    def __init__(self, message: str, place: SourceLine | None = None):
        self.place = place if place is not None else here()
        self.message = message
        super().__init__(f"{self.place}: {message}")


class FrontendNote(UserWarning):
    """Something of a model that works and may not be what was meant; it begins with the line."""


class UnknownName(FrontendError, AttributeError):
    """A name that the language does not have; `hasattr` takes it for an answer, as import does."""


def called(what: str, function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`; FrontendError where it does not take so many, whose fault else looks like ours."""
    try:
        inspect.signature(function).bind(*args)
    except TypeError as error:
        raise FrontendError(f"{what} is called with {len(args)} operands: {error}") from None
    except ValueError:
        pass  # not every callable says what it takes
    return function(*args)
