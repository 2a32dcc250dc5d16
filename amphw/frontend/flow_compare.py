"""Comparisons and choices, number by number: what holds is 1, what does not is 0."""

from __future__ import annotations

from typing import Any

from amphw.frontend.flow import Step
from amphw.frontend.torch_ops import Operations, Refused
from amphw.ir import functions as f
from amphw.ir.program import Value


class Comparisons(Operations):
    """By PyTorch's name, as `do_NAME`, on values of the same width."""

    def do_where(self, condition: Value, a: Value, b: Value) -> Value:
        """Of each column the one that is chosen, whatever the other one is: also where that is no number."""
        columns = zip(*(f.split(x, condition.width) for x in (condition, b, a)), strict=True)
        return f.concat(*(f.pick(f.concat(no, yes), f.above(c, 0.5)) for c, no, yes in columns))

    def do_clamp(self, x: Value, min: Any = None, max: Any = None) -> Value:
        if any(isinstance(bound, Step) for bound in (min, max)):
            raise Refused("clamps to values that are computed; maximum and minimum do")
        # Of equal numbers the gradient goes through, as in PyTorch.
        y = x if min is None else f.maximum(f.zeros(x, x.width) + float(min), x)
        return y if max is None else -f.maximum(f.zeros(x, x.width) + -float(max), -y)

    def do_clamp_min(self, x: Value, min: Any) -> Value:
        return self.do_clamp(x, min)

    def do_clamp_max(self, x: Value, max: Any) -> Value:
        return self.do_clamp(x, None, max)

    def do_gt(self, a: Value, b: Value) -> Value:
        """1 where it holds, else 0; it has no gradient."""
        difference = a - b
        parts = f.split(difference, difference.width)
        made = [self.builder.emit("to_float", [f.above(p, 0.0)]) for p in parts]
        return f.concat(*made)

    def do_lt(self, a: Value, b: Value) -> Value:
        return self.do_gt(b, a)

    def do_ge(self, a: Value, b: Value) -> Value:
        return self.do_logical_not(self.do_gt(b, a))

    def do_le(self, a: Value, b: Value) -> Value:
        return self.do_logical_not(self.do_gt(a, b))

    def do_ne(self, a: Value, b: Value) -> Value:
        return self.do_gt(a, b) + self.do_gt(b, a)

    def do_eq(self, a: Value, b: Value) -> Value:
        return self.do_logical_not(self.do_ne(a, b))

    def do_logical_not(self, x: Value) -> Value:
        return 1.0 + -x

    def do_logical_and(self, a: Value, b: Value) -> Value:
        return a * b

    def do_logical_or(self, a: Value, b: Value) -> Value:
        return f.maximum(a, b)

    do_bitwise_not = do_logical_not
    do_and = do_bitwise_and = do_logical_and
    do_or = do_bitwise_or = do_logical_or
