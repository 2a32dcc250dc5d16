"""Functions of values: what they compute where the obvious way would lose it, and on Integers too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.ir.derive import differentiate
from amphw.ir.primitives import RowContext
from amphw.ir.program import trace
from tests.frontend.running import computed

NUMBERS = np.array([[0.03, -0.7, 0.0, 3e-20, 1e8, -1e-8, 7.25]], np.float32)


def on_float32(function: Callable[[Any], Any]) -> np.ndarray:
    """The function of `NUMBERS`, in the arithmetic of the devices."""
    program = trace(function, {"x": NUMBERS.shape[1]})
    (found,) = program.run(RowContext(1, {"rows": 1}), [NUMBERS], [], {})
    assert found.dtype == np.float32
    return found


@pytest.mark.parametrize("bound", [1e8, -1e6, 0.0, 0.5, -0.25, 1e-9])
def test_the_smaller_and_the_larger_of_a_value_and_a_number_are_exact(bound: float) -> None:
    limit = np.float32(bound)
    for swapped in (False, True):
        order = (lambda x: (bound, x)) if swapped else (lambda x: (x, bound))
        np.testing.assert_array_equal(
            on_float32(lambda x, o=order: fe.maximum(*o(x))), np.maximum(NUMBERS, limit)
        )
        np.testing.assert_array_equal(
            on_float32(lambda x, o=order: fe.minimum(*o(x))), np.minimum(NUMBERS, limit)
        )


def test_the_smaller_and_the_larger_of_two_values_are_exact() -> None:
    other = np.float32([1e-8, 1e8, -1.0, 0.0, -1e8, 1e-8, 7.25])

    def both(x: Any) -> Any:
        y = fe.concat(*(fe.minimum(x[:1], 0.0) * 0.0 + float(v) for v in other))
        return fe.concat(fe.minimum(x, y), fe.maximum(y, x))

    spec = fe.Record(x=fe.Floats(7))
    found, _ = computed(lambda i: both(i.x), spec, {"x": NUMBERS[0]})
    expected = np.concatenate([np.minimum(NUMBERS[0], other), np.maximum(NUMBERS[0], other)])
    assert found[0].tolist() == expected.astype(float).tolist()
    with pytest.raises(fe.FrontendError, match="maximum of widths 2 and 1"):
        trace(fe.maximum, {"a": 2, "b": 1})
    with pytest.raises(fe.FrontendError, match=r"minimum is of values of the model, got 2\.0"):
        fe.minimum(1.0, 2.0)


@pytest.mark.parametrize("n", range(4))
def test_the_smaller_and_the_larger_of_integers(n: int) -> None:
    clamp = fe.Layer(
        lambda p, x, i, j: fe.column(x @ p.W, fe.maximum(fe.minimum(i, j), fe.minimum(2, j))),
        {"W": fe.parameter((3, 3), "identity")},
    )

    def model(x: Any) -> Any:
        inside = clamp(
            fe.constant(3, 1.0) * fe.concat(*(fe.constant(1, k) for k in (4.0, 5.0, 6.0))), x.n, x.m
        )
        return fe.concat(fe.number(fe.minimum(x.n, x.m)), fe.number(fe.maximum(1, x.n)), inside)

    spec = fe.Record(n=fe.Int(4), m=fe.Int(3))
    for m in range(3):
        found, _ = computed(model, spec, {"n": n, "m": m})
        assert found[0].tolist() == [min(n, m), max(1, n), [4.0, 5.0, 6.0][max(min(n, m), min(2, m))]]


def test_a_number_is_divided_by_a_value() -> None:
    spec = fe.Record(x=fe.Floats(2), xs=fe.Sequence(fe.Floats(1), most=3))
    plain = {"x": [4.0, -0.5], "xs": [[2.0], [8.0]]}
    inside = fe.Layer(lambda p, x: 3 / (x @ p.W), {"W": fe.parameter((2, 2), "identity")})

    def model(x: Any) -> Any:
        return fe.concat(1.0 / x.x, inside(x.x), fe.reduce(np.float32(4) / x.xs))

    assert computed(model, spec, plain)[0][0].tolist() == pytest.approx([0.25, -2.0, 0.75, -6.0, 2.5])


def test_every_name_of_the_language_is_explained() -> None:
    pages = ("language.md", "imports.md")
    docs = Path(__file__).parents[2] / "docs"
    manual = "".join((docs / page).read_text(encoding="utf-8") for page in pages)
    for name in fe.__all__:
        public = getattr(fe, name)
        own = public.__dict__.get("__doc__") if isinstance(public, type) else public.__doc__
        assert own, f"{name} has no docstring"
        assert f"`{name}" in manual or f"fe.{name}" in manual, f"{name} is not in the manual"


def test_a_softmax_goes_over_columns_or_over_positions() -> None:
    xs = np.array([[1.0, -2.0], [0.5, 300.0], [3.0, 0.0]])

    def model(x: Any) -> Any:
        return fe.concat(fe.softmax(x.xs.item, over=x.xs), fe.softmax(x.xs.item))

    spec = fe.Record(xs=fe.Sequence(fe.Floats(2), most=4))
    powers = [np.exp(xs - xs.max(axis, keepdims=True)) for axis in (0, 1)]
    expected = [p / p.sum(axis, keepdims=True) for axis, p in enumerate(powers)]
    np.testing.assert_allclose(computed(model, spec, {"xs": xs})[0], np.hstack(expected), atol=1e-12)


def test_a_vector_of_parameters_is_on_every_row() -> None:
    start = {"g": np.array([2.0, 4.0], np.float32), "b": np.array([1.0, -1.0], np.float32)}
    layer = fe.Layer(
        lambda p, x: (p.b + x * p.g - p.b) / p.g - p.b,
        {name: fe.parameter((2,), values) for name, values in start.items()},
    )
    found, _ = computed(lambda i: layer(i.x), fe.Record(x=fe.Floats(2)), {"x": [3.0, 5.0]})
    assert found.tolist() == [[2.0, 6.0]]


def test_of_equal_numbers_the_gradient_goes_to_the_second_alone() -> None:
    for function in (fe.minimum, fe.maximum):
        program = trace(function, {"a": 1, "b": 1})
        tie = np.ones((1, 1), np.float32)
        derived, space = differentiate(program), RowContext(1, {"rows": 1})
        (result, *further) = derived.forward.run(space, [tie, tie], [], {})
        kept = {"input": [tie, tie], "output": [result], "value": further}
        inputs = [tie, *(kept[kind][k] for kind, k in derived.residuals)]
        a, b = derived.backward.run(space, inputs, [], {})[:2]
        assert (a.item(), b.item()) == (0.0, 1.0)
