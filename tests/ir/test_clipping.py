"""The global norm of gradients, and what is made of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from amphw.ir.clipping import clip_factor, scale, squares
from amphw.ir.exchange import NodeGradient
from amphw.ir.update import UpdateRule

NUMBERS = st.floats(-1e3, 1e3, width=32)
GRADIENTS = st.dictionaries(
    st.sampled_from("abcd"),
    st.builds(
        NodeGradient,
        st.integers(0, 50),
        st.dictionaries(st.sampled_from("Wb"), arrays(np.float32, (2, 3), elements=NUMBERS)),
    ),
    min_size=1,
)
RULES = {"a": UpdateRule(reduce="sum"), "*": UpdateRule()}


def flat(gradients: dict[str, NodeGradient]) -> np.ndarray:
    """As the rules reduce them, one after the other."""
    found = [np.zeros(0)]
    for node, each in gradients.items():
        rows = 1 if node == "a" else max(each.rows, 1)
        found += [array.astype(np.float64).reshape(-1) / rows for array in each.arrays.values()]
    return np.concatenate(found)


@given(GRADIENTS)
def test_squares_are_of_the_gradients_as_rules_reduce_them(gradients: dict[str, NodeGradient]) -> None:
    assert squares(gradients, RULES) == pytest.approx(float(np.sum(flat(gradients) ** 2)), rel=1e-12)


@given(GRADIENTS, st.sets(st.sampled_from("abcd")))
def test_squares_of_parts_add_up(gradients: dict[str, NodeGradient], one: set[str]) -> None:
    parts = [{n: g for n, g in gradients.items() if (n in one) is there} for there in (True, False)]
    total = sum(squares(part, RULES) for part in parts)
    assert total == pytest.approx(squares(gradients, RULES), rel=1e-12)


@given(GRADIENTS, st.floats(1e-3, 1e3))
def test_the_norm_is_bounded_and_the_direction_stays(
    gradients: dict[str, NodeGradient], clip_norm: float
) -> None:
    before = flat(gradients)
    scale(gradients, clip_factor(squares(gradients, RULES), clip_norm))
    after = flat(gradients)
    norm = float(np.linalg.norm(before))
    if norm <= clip_norm * (1 - 1e-9):
        assert np.array_equal(after, before)
    else:
        np.testing.assert_allclose(after, before * min(1.0, clip_norm / norm), rtol=1e-6, atol=1e-37)
        assert float(np.linalg.norm(after)) <= clip_norm * (1 + 1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_stays_for_the_device_to_name(value: float) -> None:
    gradients = {"b": NodeGradient(1, {"W": np.array([value, 2.0], np.float32)})}
    factor = clip_factor(squares(gradients, RULES), 1.0)
    scale(gradients, factor)
    assert factor == 1.0 and gradients["b"].arrays["W"][1] == 2.0


def test_large_numbers_in_single_precision_do_not_overflow() -> None:
    gradients = {"b": NodeGradient(1, {"W": np.full(4, 3e38, np.float32)})}
    scale(gradients, clip_factor(squares(gradients, RULES), 1.0))
    np.testing.assert_allclose(gradients["b"].arrays["W"], 0.5, rtol=1e-6)


def test_without_a_bound_nothing_is_clipped() -> None:
    assert clip_factor(1e12, 0.0) == 1.0
