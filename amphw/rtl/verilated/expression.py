"""The arithmetic of the hardware as C++: the text of `amphw.rtl.numbers.arithmetic`, made by running it.

Its functions are written with operators alone. Here these write down what they are asked for, so that a model
in C++ has no arithmetic of its own.

>>> from amphw.rtl.numbers.arithmetic import round_shift
>>> function("halved", lambda x: round_shift(x, 1))
'static inline int64_t halved(int64_t x) { return (((x + 0) + ((x >> 1) & 1)) >> 1); }'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Expression:
    """The text of an int64_t; its operators put longer ones together."""

    def __init__(self, text: str):
        self.text = text

    def __add__(self, other: Any) -> Expression:
        return _joined(self, "+", other)

    def __and__(self, other: Any) -> Expression:
        return _joined(self, "&", other)

    def __or__(self, other: Any) -> Expression:
        return _joined(self, "|", other)

    def __rshift__(self, other: Any) -> Expression:
        return _joined(self, ">>", other)

    def __lt__(self, other: Any) -> Expression:
        return _joined(self, "<", other)

    def __eq__(self, other: Any) -> Expression:  # type: ignore[override]
        return _joined(self, "==", other)

    __hash__ = None  # type: ignore[assignment]


def _joined(a: Any, operator: str, b: Any) -> Expression:
    return Expression(f"({_text(a)} {operator} {_text(b)})")


def _text(value: Any) -> str:
    if isinstance(value, Expression):
        return value.text
    return f"INT64_C({value})" if abs(value) >= 1 << 31 else str(value)


def select(condition: Any, a: Any, b: Any) -> Expression:
    """See `amphw.rtl.numbers.arithmetic`."""
    return Expression(f"({_text(condition)} ? {_text(a)} : {_text(b)})")


def function(name: str, formula: Callable[[Any], Any]) -> str:
    """A function in C++ of one int64_t that computes what `formula` does."""
    return f"static inline int64_t {name}(int64_t x) {{ return {_text(formula(Expression('x')))}; }}"
