"""Where in the author's source something was written, and errors that say so."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from amphw.ir.errors import AmphwError

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_MODELS = os.path.join(_OURS, "models")


@dataclass(frozen=True)
class Place:
    """A line of the author's source."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{os.path.relpath(self.file) if os.path.isabs(self.file) else self.file}:{self.line}"


def here() -> Place:
    """The innermost line that is not amphw's own: the author's. amphw's models have authors too."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        file = os.path.abspath(frame.f_code.co_filename)
        if not file.startswith(_OURS) or file.startswith(_MODELS):
            break
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


class FrontendError(AmphwError):
    """A model that cannot be built; the message begins with the line of its source."""

    def __init__(self, message: str, place: Place | None = None):
        self.place = place if place is not None else here()
        self.message = message
        super().__init__(f"{self.place}: {message}")
