"""What Python does with numbers and arrays, and a value of a model does not, with what to write instead."""

from __future__ import annotations

from typing import NoReturn

from amphw.frontend.remedies import unknown
from amphw.frontend.source import FrontendError


class NoArray:
    """Refuses what would need a number while the model is built, and what the language calls otherwise."""

    def _compared(self, other: object) -> NoReturn:
        raise FrontendError(
            "values are not compared while the model is built; `above(x, threshold)` is 1 where a number is "
            "above another, and cond, switch and while_loop decide by it"
        )

    __lt__ = __le__ = __gt__ = __ge__ = _compared

    def __matmul__(self, other: object) -> NoReturn:
        raise FrontendError("values have no `@`; Linear multiplies with a matrix, a Layer with `x @ p.W`")

    __rmatmul__ = __matmul__

    def __pow__(self, other: object) -> NoReturn:
        raise FrontendError("values have no `**`; x * x is a square, and exp(log(x) * a) any other power")

    def _with_remainder(self, other: object) -> NoReturn:
        raise FrontendError(
            "values are not divided with a remainder; `/` divides, and Integers have `//`, `%`"
        )

    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __divmod__ = __rdivmod__ = _with_remainder

    def __setitem__(self, columns: object, value: object) -> NoReturn:
        raise FrontendError("columns of a value are not assigned to; `concat` puts parts together anew")

    def __iter__(self) -> NoReturn:
        raise FrontendError(
            "a value is not gone through in Python; `fold` and `scan` go over its positions, `split` takes "
            "its columns apart"
        )

    def __len__(self) -> NoReturn:
        raise FrontendError("a value has no len(); its columns are `x.width`, a sequence has `length`")

    def _as_number(self) -> NoReturn:
        raise FrontendError(
            "a value is no number of Python while the model is built; compute with it as it is"
        )

    __float__ = __int__ = __index__ = _as_number

    def __round__(self, digits: int | None = None) -> NoReturn:
        self._as_number()

    def __format__(self, form: str) -> str:
        return str(self) if not form else self._as_number()

    def __abs__(self) -> NoReturn:
        raise FrontendError("values have no abs(); `absolute(x)` is |x|")

    def __getattr__(self, name: str) -> NoReturn:
        raise unknown("a value", name, ("width",))

    def __bool__(self) -> bool:
        raise FrontendError(
            "a value has no truth while the model is built; use cond, switch or while_loop to let it decide"
        )
