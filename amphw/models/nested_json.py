"""JSON that may be nested as deep as a tree is: Python's own reader goes one call deeper at every level."""

from __future__ import annotations

import json
import re
from typing import Any

_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = json.JSONDecoder()


def loads(text: str) -> Any:
    """The value, as `json.loads`; json.JSONDecodeError where the text is none."""
    try:
        return json.loads(text)
    except RecursionError:
        return _iteratively(text)


def _iteratively(text: str) -> Any:
    """With a stack of what is open: each container, and of a dict the key that waits for its value."""
    open_: list[tuple[Any, str]] = []
    at = _skip(text, 0)
    while True:
        # A value begins here.
        if text[at : at + 1] in ("[", "{"):
            made: Any = [] if text[at] == "[" else {}
            at = _skip(text, at + 1)
            if text[at : at + 1] != _end(made):
                key, at = _key(text, at) if isinstance(made, dict) else ("", at)
                open_.append((made, key))
                continue
            at += 1
        else:
            made, at = _SCALAR.raw_decode(text, at)
        # A value has ended: it goes into what is open, which may end as well.
        while True:
            at = _skip(text, at)
            if not open_:
                if at != len(text):
                    raise json.JSONDecodeError("Extra data", text, at)
                return made
            around, key = open_.pop()
            if isinstance(around, dict):
                around[key] = made
            else:
                around.append(made)
            if text[at : at + 1] == ",":
                at = _skip(text, at + 1)
                key, at = _key(text, at) if isinstance(around, dict) else ("", at)
                open_.append((around, key))
                break
            if text[at : at + 1] != _end(around):
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
            made, at = around, at + 1


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None  # it matches nothing as well
    return found.end()


def _end(container: Any) -> str:
    return "}" if isinstance(container, dict) else "]"


def _key(text: str, at: int) -> tuple[str, int]:
    """A key of a dict and where its value begins."""
    if text[at : at + 1] != '"':
        raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
    key, at = _SCALAR.raw_decode(text, at)
    at = _skip(text, at)
    if text[at : at + 1] != ":":
        raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
    return key, _skip(text, at + 1)
