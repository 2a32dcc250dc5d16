"""Gradients and outputs to compare with others are in double precision, all the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe

SPEC = fe.Record(f=fe.Floats(1), i=fe.Int(9), s=fe.Sequence(fe.Floats(1), most=4))
INSTANCE = {"f": [0.1], "i": 3, "s": [[0.1], [0.2], [0.3]]}
linear = fe.Linear(1, bias=False)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (lambda x: 1.0 / fe.number(x.i), 1 / 3),
        (lambda x: fe.number(x.i) / fe.number(x.s.length + 4), 3 / 7),
        (lambda x: fe.constant(1, 1 / 3), 1 / 3),
        (lambda x: fe.constant(1, 1 / 3) * fe.number(x.i), 1.0),
        (lambda x: x.f * (1 / 3), 0.1 / 3),
        (lambda x: x.f, 0.1),
        (lambda x: x.f / fe.number(x.i), 0.1 / 3),
        (lambda x: fe.exp(fe.number(x.i)), np.exp(3.0)),
        (lambda x: fe.reduce(x.s, "mean"), 0.2),
        (lambda x: fe.is_best(fe.concat(x.f, x.f * 2.0), x.i - 2) / 3.0, 1 / 3),
    ],
)
def test_numbers_are_not_rounded(value: Callable[[Any], Any], expected: float) -> None:
    def model(x: Any) -> None:
        fe.loss(linear(x.f) * 0.0 + value(x) * 1.0)
        fe.report(value=value(x) + x.f * 0.0)

    found = fe.compile(model, SPEC).outputs(INSTANCE)
    for name in ("loss", "value"):
        assert found[name][name].dtype == np.float64
        assert found[name][name].item() == pytest.approx(expected, rel=1e-15)


def test_gradients_are_at_the_parameters_that_are_given() -> None:
    def model(x: Any) -> None:
        fe.regress(linear(x.f), 1.0 / fe.number(x.i))

    compiled = fe.compile(model, SPEC)
    weight = np.array([[1 / 3]])
    found = compiled.gradients(INSTANCE, {"linear": {"W": weight}})["linear"]["W"]
    assert found.item() == pytest.approx(2 * (0.1 / 3 - 1 / 3) * 0.1, rel=1e-14)
    assert compiled.outputs(INSTANCE, {"linear": {"W": weight}})["loss"]["prediction"].item() == 0.1 * (1 / 3)
    drawn = compiled.parameters()["linear"]["W"]
    np.testing.assert_array_equal(drawn, drawn.astype(np.float32))  # as every device begins


def test_numbers_that_32_bits_cannot_hold_are_refused_here_too() -> None:
    compiled = fe.compile(lambda x: fe.loss(linear(x.f)), SPEC)
    with pytest.raises(Exception, match="expected finite numbers of 32 bits"):
        compiled.outputs(INSTANCE | {"f": [1e60]})


def test_training_has_its_numbers_in_32_bits() -> None:
    compiled = fe.compile(lambda x: fe.loss(linear(x.f)), SPEC)
    assert compiled.encode(INSTANCE).data["f"].dtype == np.float32
