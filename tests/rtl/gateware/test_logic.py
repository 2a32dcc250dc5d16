"""State expressions in hardware, as wide as is looked at, against what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from amaranth.hdl import Module, Signal, Value, signed
from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st

from amphw.ir.expr import Const, Expr, Field, Op, evaluate, lift, mixed, where
from amphw.ir.instance import Instance
from amphw.ir.state import Columns
from amphw.rtl.gateware.logic import ALL, ExpressionLogic

FIELDS = ("a", "b", "c")
BITS = 8
DEEPEST = 24
"""Cycles within which any of these expressions has settled."""

leaves = st.one_of(st.integers(-9, 300).map(Const), st.sampled_from(FIELDS).map(Field))


def _grow(children: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    binary = st.sampled_from(["+", "-", "*", "<", "<=", "==", "!=", "min", "max"])
    powers = st.sampled_from([1, 2, 8, 64])
    return st.one_of(
        st.builds(lambda op, x, y: Op(op, (x, y)), binary, children, children),
        st.builds(where, children, children, children),
        st.builds(lambda x, by: x // by, children, powers),
        st.builds(lambda x, by: x % by, children, powers),
        st.builds(lambda x: mixed(lift(x), 5) % 64, children),
    )


expressions = st.recursive(leaves, _grow, max_leaves=5)
numbers = st.integers(-(1 << BITS - 1), (1 << BITS - 1) - 1)
looked_at = st.one_of(st.integers(1, 12), st.just(ALL))


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(expressions, looked_at, min_size=1, max_size=4),
    st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=3),
)
def test_the_bits_that_are_looked_at_are_right(
    wanted: dict[Expr, int], states: list[tuple[int, int, int]]
) -> None:
    """Of expressions that share their parts, each looked at as far as it says."""
    m = Module()
    registers = {name: Signal(signed(BITS), name=name) for name in FIELDS}
    logic = ExpressionLogic(m, registers, wanted)
    built = {e: logic.build(e) for e in wanted}
    m.d.sync += Signal().eq(1)  # a clock, for those that have no register
    for e, bits in wanted.items():
        if isinstance(e, Op) and e.op not in {"//", "%"}:  # others have no register of their own
            assert len(built[e][0]) <= max(bits, 1)

    async def bench(ctx: Any) -> None:
        for state in states:
            for name, number in zip(FIELDS, state, strict=True):
                ctx.set(registers[name], number)
            await ctx.tick().repeat(DEEPEST)
            columns = Columns(Instance(), dict(zip(FIELDS, np.array(state)[:, None], strict=True)), 1)
            for e, bits in wanted.items():
                [right] = evaluate(e, columns)
                value = Value.cast(built[e][0])
                found = ctx.get(value)
                if bits == ALL:
                    assert found == right, e
                else:
                    assert (found - int(right)) % (1 << bits) == 0, e

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
