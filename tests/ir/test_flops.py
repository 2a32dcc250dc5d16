"""Operations of programs that are not in proportion to the rows of one space."""

from __future__ import annotations

from amphw.ir.derive import differentiate
from amphw.ir.flops import backward_operations, operations, pairs, rows_of
from amphw.ir.functions import attend
from amphw.ir.primitives import ValueType
from amphw.ir.program import trace


def test_attention_counts_pairs_of_rows() -> None:
    """Of a query and a key the score takes 6 products and sums, the values 4, whatever the heads."""
    types = {"q": 6, "k": ValueType("float", "keys", 6), "v": ValueType("float", "keys", 4)}
    program = trace(lambda q, k, v: attend(q, k, v, heads=2), types)
    found = operations(program)
    assert found == {pairs("rows", "keys"): 2 * (6 + 4)}
    assert rows_of({"rows": 3, "keys": 5}, pairs("rows", "keys")) == 15
    assert rows_of({"rows": 3, "keys": 5}, "keys") == 5
    back = backward_operations(differentiate(program))
    # The scores and what comes back for the weights, in both; then queries, and keys with values.
    assert back[pairs("rows", "keys")] == 2 * (6 + 4 + 6)
    assert back[pairs("keys", "rows")] == 2 * (6 + 4 + 6 + 4)
