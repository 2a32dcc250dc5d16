"""What a program knows of an instance before anything is computed: lengths, positions, tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amphw.frontend.flow import Step, is_truth
from amphw.frontend.index import Dim
from amphw.frontend.integer import Integer


class Integers:
    """Steps on Integers by the name of their operation, as `int_NAME`; they cost no message."""

    lengths: Mapping[str, Dim | None]

    def integer(self, x: Any) -> Integer:
        raise NotImplementedError

    def dim(self, symbol: Any, step: Step) -> Dim:
        raise NotImplementedError

    def int_sym_size(self, step: Step, x: Step, k: int) -> Any:
        symbol = (x.shape or ())[k]
        if isinstance(symbol, str) and symbol in self.lengths and self.lengths[symbol] is None:
            return 1  # a batch of one
        return Integer(self.dim(symbol, step).extent)

    def int_arange(self, step: Step, *args: Any, **_: Any) -> Any:
        starts = args[0] if len(args) > 1 else 0
        if starts != 0 or len(args) > 2 or not step.symbols:
            raise step.error("counts the positions of a length that differs, from 0 on; got another range")
        dim = self.dim(step.symbols[0], step)
        return Integer(dim.at, (*dim.needs, dim), dim.extent)

    def _two(self, a: Any, b: Any) -> tuple[Integer, Integer]:
        return self.integer(a), self.integer(b)

    def int_add(self, step: Step, a: Any, b: Any) -> Integer:
        x, y = self._two(a, b)
        return x + y

    def int_sub(self, step: Step, a: Any, b: Any) -> Integer:
        x, y = self._two(a, b)
        return x - y

    def int_mul(self, step: Step, a: Any, b: Any) -> Integer:
        x, y = self._two(a, b)
        return x * y

    def int_floordiv(self, step: Step, a: Any, b: Any) -> Integer:
        x, y = self._two(a, b)
        return x // y

    def int_remainder(self, step: Step, a: Any, b: Any) -> Integer:
        x, y = self._two(a, b)
        return x % y

    int_mod = int_remainder

    def int_lt(self, step: Step, a: Any, b: Any) -> Integer:
        x, y = self._two(a, b)
        return x < y

    def int_gt(self, step: Step, a: Any, b: Any) -> Integer:
        return self.int_lt(step, b, a)

    def int_le(self, step: Step, a: Any, b: Any) -> Integer:
        x, y = self._two(a, b)
        return x <= y

    def int_ge(self, step: Step, a: Any, b: Any) -> Integer:
        return self.int_le(step, b, a)

    def int_eq(self, step: Step, a: Any, b: Any) -> Integer:
        x, y = self._two(a, b)
        return x == y

    def int_ne(self, step: Step, a: Any, b: Any) -> Integer:
        x, y = self._two(a, b)
        return x != y

    # --- what holds, which is 1, or does not --------------------------------------------------------

    def _truth(self, x: Any) -> Integer:
        return self.integer(x) if is_truth(x) else self.integer(x) != 0

    def int_to(self, step: Step, x: Any, *_: Any, **__: Any) -> Integer:
        return self._truth(x) if step.truth else self.integer(x)

    int_to_copy = int_to

    def int_logical_not(self, step: Step, a: Any) -> Integer:
        return 1 - self._truth(a)

    def int_logical_and(self, step: Step, a: Any, b: Any) -> Integer:
        return self._truth(a) * self._truth(b)

    def _of_truths(self, step: Step) -> None:
        if not step.truth:
            raise step.error("is of bits; of what holds or does not it is known")

    def int_bitwise_not(self, step: Step, a: Any) -> Integer:
        self._of_truths(step)
        return self.int_logical_not(step, a)

    def int_and(self, step: Step, a: Any, b: Any) -> Integer:
        self._of_truths(step)
        return self.int_logical_and(step, a, b)

    int_bitwise_and = int_and
