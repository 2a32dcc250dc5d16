from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amphw.ir.errors import GraphError
from amphw.ir.expr import Attr, Const, Expr, Field, Op, Table, evaluate, mixed, table, where
from amphw.ir.instance import Instance, Schema, TableType
from amphw.ir.state import Columns, state_field
from amphw.rtl.plan.records import Item, Record, RowSpaces, Words, interval, row_bounds, state_bounds

LENGTH = Attr("length")
SPACES = RowSpaces.of("n", [("rows", Const(1)), ("members", LENGTH * 2), ("other", LENGTH), ("same", LENGTH)])


def test_spaces_of_a_known_size_take_no_register() -> None:
    assert SPACES.constant == {"rows": 1}
    assert SPACES.register == {"members": 0, "other": 1, "same": 1}
    assert SPACES.counts[1] == LENGTH
    assert SPACES.single("rows") and not SPACES.single("members")
    assert SPACES.words("rows", 5) == Words(5)
    assert SPACES.words("members", 5) == Words(0, ((0, 5),))


def test_too_many_spaces_name_the_node() -> None:
    with pytest.raises(GraphError, match="node 'n': its messages have 9 different numbers of rows"):
        RowSpaces.of("n", [(f"s{i}", LENGTH + i) for i in range(9)])


def test_words_add_up() -> None:
    total = Words(3, ((0, 2),)) + Words(4, ((0, 1), (2, 5)))

    assert total == Words(7, ((0, 3), (2, 5)))
    assert total.of([10, 0, 100]) == 7 + 30 + 500
    assert Words(1, ((0, 2),)).fits(total) and not Words(0, ((1, 1),)).fits(total)
    assert Words(9, ((0, 1),)).largest(total) == Words(9, ((0, 3), (2, 5)))


def test_items_stand_in_the_order_of_their_kinds() -> None:
    items = [
        Item("gradient", 1, "rows", 4),
        Item("members", 0, "members", 3),
        Item("kept", 0, "rows", 2),
        Item("output", 1, "other", 7),
        Item("output", 0, "rows", 6),
        Item("int", 0, "members", 1),
    ]

    record = Record.of(items, SPACES)

    assert [i.kind for i in record.items] == ["int", "output", "output", "kept", "members", "gradient"]
    assert record.offset("int", 0) == Words()
    assert record.offset("output", 0) == Words(0, ((0, 1),))
    assert record.offset("output", 1) == Words(6, ((0, 1),))
    assert record.offset("kept", 0) == Words(6, ((0, 1), (1, 7)))
    assert record.offset("gradient", 1) == Words(8, ((0, 4), (1, 7)))
    assert record.size == Words(12, ((0, 4), (1, 7)))
    assert record.size.of([2, 10]) == 12 + 8 + 70
    with pytest.raises(KeyError):
        record.offset("output", 2)


SCHEMA = Schema({"length": 5}, {"t": TableType((LENGTH + 1,), LENGTH + 3, low=-2)})
INDEX = state_field("i", LENGTH, 5)
LEAVES = st.sampled_from([LENGTH, Field("i"), Table("t", (Field("i"),)), Const(0), Const(3), Const(-4)])


def grown(children: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    two = st.tuples(children, children)
    return st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "min", "max", "<", "<=", "==", "!="]), two).map(
            lambda x: Op(x[0], x[1])
        ),
        st.tuples(st.sampled_from(["//", "%"]), children, st.integers(1, 4)).map(
            lambda x: Op(x[0], (x[1], Const(x[2])))
        ),
        st.tuples(children, children, children).map(lambda x: where(x[0].ne(0), x[1], x[2])),
        children.map(lambda e: mixed(e, 7)),
    )


HASHED = mixed(mixed(LENGTH, 7), 7)


@example(HASHED * HASHED, 3, 0)  # wraps
@given(st.recursive(LEAVES, grown, max_leaves=6), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_no_value_lies_outside_its_interval(e: Expr, length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = Instance({"length": length}, {"t": rng.integers(-2, length + 3, length + 1)})
    states = np.arange(length)

    low, high = interval(e, SCHEMA, state_bounds([INDEX]))
    found = evaluate(e, Columns(instance, {"i": states}, length))

    assert low <= found.min() and found.max() <= high


def test_bounds_of_rows_come_from_the_schema() -> None:
    spaces = RowSpaces.of("n", [("a", LENGTH * 3), ("b", table("t")(Field("i")) - Field("i"))])

    assert row_bounds(spaces, SCHEMA, [INDEX]) == (15, 7)
