"""The moving average of parameters against its weights, written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from amphw.ir.averaging import MovingAverage
from amphw.ir.program import ParamSpec
from amphw.ir.update import NodeParameters, UpdateRule

COURSES = st.lists(arrays(np.float32, (3,), elements=st.floats(-100, 100, width=32)), min_size=1, max_size=30)
DECAYS = st.sampled_from([0.1, 0.5, 0.9, 0.999, 0.99999])


def parameters(value: np.ndarray) -> dict[str, NodeParameters]:
    return {"n": NodeParameters.of((ParamSpec("w", (3,)),), UpdateRule(), {"w": value})}


def averaged(course: list[np.ndarray], decay: float) -> MovingAverage:
    average = MovingAverage(decay)
    for value in course:
        average.advance(parameters(value))
    return average


@given(COURSES, DECAYS)
def test_weights_decay_and_add_up_to_one(course: list[np.ndarray], decay: float) -> None:
    weights = np.array([decay ** (len(course) - 1 - i) for i in range(len(course))])
    wanted = (weights[:, None] * np.array(course, np.float64)).sum(axis=0) / weights.sum()
    found = averaged(course, decay)
    np.testing.assert_allclose(found.values["n"]["w"], wanted, rtol=1e-8, atol=1e-8)
    assert found.updates == len(course)


@given(COURSES, DECAYS)
def test_an_average_lies_among_what_it_is_of(course: list[np.ndarray], decay: float) -> None:
    found, every = averaged(course, decay).values["n"]["w"], np.array(course, np.float64)
    assert (found >= every.min(axis=0) - 1e-9).all() and (found <= every.max(axis=0) + 1e-9).all()


def test_the_first_update_is_its_own_average_and_parameters_that_rest_stay() -> None:
    value = np.array([1.1, -2.3, 3e-9], np.float32)
    for count in (1, 2, 1000):
        assert np.array_equal(averaged([value] * count, 0.999).values["n"]["w"], value)


def test_a_long_course_ends_as_the_common_recurrence() -> None:
    """Whose start, the initial parameters, is forgotten by then."""
    rng, decay = np.random.default_rng(3), 0.9
    course = [rng.normal(size=3).astype(np.float32) for _ in range(400)]
    plain = np.zeros(3)
    for value in course:
        plain = decay * plain + (1 - decay) * value.astype(np.float64)
    np.testing.assert_allclose(averaged(course, decay).values["n"]["w"], plain, rtol=1e-12)


def test_a_copy_goes_on_by_itself() -> None:
    first = averaged([np.zeros(3, np.float32)], 0.5)
    other = first.copied()
    other.advance(parameters(np.ones(3, np.float32)))
    assert (first.updates, other.updates) == (1, 2)
    assert not first.values["n"]["w"].any()
    assert other.values["n"]["w"] == pytest.approx([2 / 3] * 3)
