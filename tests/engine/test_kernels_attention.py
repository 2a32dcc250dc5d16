"""The kernels of attention against the primitives, for every instruction set that this machine runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amphw.ir.primitives import PRIMITIVES, RowContext
from amphw.ir.primitives.attention import OPERANDS
from tests.engine.test_kernels_rows import ISAS, assert_guarded, guarded, kernels

COUNTS = st.integers(0, 70)


def primitive(op: str, heads: int, rows: list[np.ndarray], seen: np.ndarray | None) -> np.ndarray:
    """In double precision, rounded at the end."""
    counts = {"queries": len(rows[0]), "keys": len(rows[1])}
    space, source = ("keys", "queries") if op == "attend_keys" else ("queries", "keys")
    attrs = {"space": space, "source": source, "heads": heads}
    operands = [*(x.astype(np.float64) for x in rows), *([] if seen is None else [seen])]
    return PRIMITIVES[op].evaluate(RowContext(1, counts), attrs, {}, operands).astype(np.float32)


def operands(
    seed: int, queries: int, keys: int, heads: int, width: int, values: int, seen: np.ndarray | None
) -> list[np.ndarray]:
    """q, k, v, the gradient of the result, and the two numbers of each query and head."""
    rng = np.random.default_rng(seed)
    shapes = ((queries, width), (keys, width), (keys, values), (queries, values))
    q, k, v, d = (rng.normal(size=(n, heads * w)).astype(np.float32) for n, w in shapes)
    out = primitive("attend", heads, [q, k, v], seen)
    mixed, logs = out[:, : heads * values], out[:, heads * values :]
    offsets = (mixed * d).reshape(queries, heads, values).sum(axis=2)
    return [q, k, v, d, np.concatenate([logs, offsets], axis=1)]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("op", OPERANDS)
@given(
    seed=st.integers(0, 2**32 - 1),
    queries=COUNTS,
    keys=COUNTS,
    heads=st.integers(1, 4),
    width=st.integers(1, 40),
    values=st.integers(1, 40),
    limited=st.booleans(),
)
def test_attention(
    isa: str, op: str, seed: int, queries: int, keys: int, heads: int, width: int, values: int, limited: bool
) -> None:
    """Nothing beside the result is touched; queries look at some of the keys, at none, or at all."""
    rng = np.random.default_rng(seed)
    seen = rng.integers(-1, keys + 2, queries) if limited else None
    rows = operands(seed, queries, keys, heads, width, values, seen)[: len(OPERANDS[op])]
    wanted = primitive(op, heads, rows, seen)
    whole, out = guarded(*wanted.shape)
    kernels.attend(isa, op, heads, rows, seen, out)
    assert_guarded(whole, out.shape[1])
    scale = np.abs(wanted).max(initial=1.0)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=3e-6 * scale)


@pytest.mark.parametrize("isa", ISAS)
def test_what_is_not_looked_at_is_not_read(isa: str) -> None:
    """Where it is looked at by nobody its score may be such that a power of it overflows."""
    queries, keys, heads = 5, 9, 2
    seen = np.array([4, 0, 3, 4, 1])
    rows = operands(1, queries, keys, heads, 8, 8, seen)
    expected = {op: primitive(op, heads, rows[: len(OPERANDS[op])], seen) for op in OPERANDS}
    rows[1][4:] = 1e3
    for op in OPERANDS:
        out = np.zeros_like(expected[op])
        kernels.attend(isa, op, heads, rows[: len(OPERANDS[op])], seen, out)
        np.testing.assert_allclose(out, expected[op], rtol=1e-5, atol=1e-5)
        assert op != "attend_keys" or not out[4:].any()


@pytest.mark.parametrize("isa", ISAS)
def test_large_scores_do_not_overflow(isa: str) -> None:
    q = np.full((2, 4), 200.0, np.float32)
    k = np.array([[200.0] * 4, [199.0] * 4, [-200.0] * 4], np.float32)
    v = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 5.0]], np.float32)
    out = np.zeros((2, 3), np.float32)
    kernels.attend(isa, "attend", 1, [q, k, v], None, out)
    np.testing.assert_allclose(out, primitive("attend", 1, [q, k, v], None), rtol=1e-6)
    assert out[0, 0] == 1.0
