"""Convolution along a sequence, against plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amphw import frontend as fe
from tests.frontend.running import computed

SPEC = fe.Record(xs=fe.Sequence(fe.Floats(2), most=9))


def convolved(x: np.ndarray, W: np.ndarray, b: np.ndarray, offsets: list[int]) -> np.ndarray:
    def at(place: int) -> np.ndarray:
        return x[place] if 0 <= place < len(x) else np.zeros(x.shape[1])

    windows = [np.concatenate([at(k + offset) for offset in offsets]) for k in range(len(x))]
    return np.array(windows) @ W + b


@settings(max_examples=30)
@given(st.integers(1, 9), st.sampled_from([1, 3, 5]), st.booleans(), st.integers(1, 3), st.integers(0, 99))
def test_every_position_has_a_window(n: int, size: int, causal: bool, dilation: int, seed: int) -> None:
    xs = np.random.default_rng(seed).normal(size=(n, 2)).astype(np.float32)
    conv = fe.Conv1d(3, size, causal=causal, dilation=dilation, name="conv")
    found, p = computed(lambda x: conv(x.xs.item), SPEC, {"xs": xs})
    first = 1 - size if causal else -(size // 2)
    offsets = [dilation * (first + k) for k in range(size)]
    expected = convolved(xs.astype(float), p["conv"]["W"], p["conv"]["b"], offsets)
    np.testing.assert_allclose(found, expected, 1e-6, 1e-9)


def test_an_even_window_is_causal_and_an_activation_is_applied() -> None:
    xs = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    conv = fe.Conv1d(3, 2, causal=True, activation=fe.relu, name="conv")
    found, p = computed(lambda x: conv(x.xs.item), SPEC, {"xs": xs})
    expected = convolved(xs.astype(float), p["conv"]["W"], p["conv"]["b"], [-1, 0])
    np.testing.assert_allclose(found, np.maximum(expected, 0), 1e-6, 1e-9)


def test_two_in_a_row_and_a_reduction() -> None:
    one, two = fe.Conv1d(3, 3, name="one"), fe.Conv1d(2, 3, name="two")
    xs = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    found, p = computed(lambda x: fe.reduce(two(one(x.xs.item)), "max"), SPEC, {"xs": xs})
    inner = convolved(xs.astype(float), p["one"]["W"], p["one"]["b"], [-1, 0, 1])
    outer = convolved(inner, p["two"]["W"], p["two"]["b"], [-1, 0, 1])
    np.testing.assert_allclose(found, outer.max(axis=0, keepdims=True), 1e-6)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda x: fe.Conv1d(3, 2)(x.xs.item), "has no middle; take an odd one, or causal=True"),
        (lambda x: fe.Conv1d(0, 3)(x.xs.item), "of 1 or more, got 0, 3 and 1"),
        (lambda x: fe.Conv1d(3, 3)(x.xs.item, x.xs.item), "of one value, got 2"),
        (lambda x: fe.Conv1d(3, 3)(fe.reduce(x.xs.item)), "one value an instance"),
        (lambda x: fe.Conv1d(3, 3)(fe.constant(2)), "positions of a model's values"),
    ],
)
def test_what_is_refused(make: Any, told: str) -> None:
    with pytest.raises(fe.FrontendError, match=told):
        computed(make, SPEC, {"xs": np.zeros((3, 2))})
