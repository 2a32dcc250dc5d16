"""Whatever stands for a value or an Integer is taken for one: sequences, numbers of Python and of numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from tests.frontend.running import computed

SPEC = fe.Record(
    n=fe.Int(3),
    ts=fe.Sequence(fe.Int(3), most=4),
    fs=fe.Sequence(fe.Floats(4), most=4),
    x=fe.Floats(3),
)
PLAIN = {"n": 2, "ts": [2, 0, 1], "fs": [[1.0, 4.0, 2.0, 3.0], [8.0, 5.0, 6.0, 7.0]], "x": [0.5, 2.0, -1.0]}


def along(x: Any, i: Any) -> Any:
    """An Integer of the positions of `ts`, as a value with a row for each."""
    return fe.group(fe.number(i), x.ts)


TAKEN: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "column by a number": (lambda x: fe.column(x.x, 1), [[2.0]]),
    "column by one of numpy": (lambda x: fe.column(x.x, np.int64(1)), [[2.0]]),
    "label": (lambda x: fe.is_best(x.x, 1), [[1.0]]),
    "logits": (lambda x: fe.cross_entropy(x.x, 1), [[float(np.log(np.exp([-1.5, 0.0, -3.0]).sum()))]]),
    "number": (lambda x: fe.number(3) + x.x, [[3.5, 5.0, 2.0]]),
    "number of numpy": (lambda x: x.x * np.float32(2) + np.int64(1), [[2.0, 5.0, -1.0]]),
    "number of numpy first": (lambda x: np.float32(2) * x.x - np.float64(1), [[0.0, 3.0, -3.0]]),
    "number of numpy and a sequence": (lambda x: fe.reduce(np.float32(2) * x.fs)[:1], [[18.0]]),
    "Integer and numpy": (lambda x: fe.number(x.n == np.int64(2)), [[1.0]]),
    "numpy and Integer": (lambda x: fe.number(np.int64(2) == x.n), [[1.0]]),
    "Integer and sequence": (lambda x: along(x, x.n == x.ts), [[1.0], [0.0], [0.0]]),
    "Integer less sequence": (lambda x: along(x, x.n - x.ts), [[0.0], [2.0], [1.0]]),
    "sequence and Integer": (lambda x: along(x, x.ts == x.n), [[1.0], [0.0], [0.0]]),
    "smaller": (lambda x: along(x, fe.minimum(x.ts, 1)), [[1.0], [0.0], [1.0]]),
    "choice": (lambda x: along(x, fe.choose(x.ts == 0, x.n, x.ts)), [[2.0], [2.0], [1.0]]),
    "condition": (lambda x: along(x, fe.choose(x.ts < np.int64(2), 5, 7)), [[7.0], [5.0], [5.0]]),
    "largest": (lambda x: fe.group(fe.largest(x.fs)), [[4.0], [8.0]]),
    "pool": (lambda x: fe.group(fe.MaxPool((2, 2, 1), 2)(x.fs)), [[4.0], [8.0]]),
    "blocks": (lambda x: fe.group(fe.split(x.fs, 2)[1]), [[2.0, 3.0], [6.0, 7.0]]),
    "carry": (
        lambda x: fe.group(fe.fold(lambda h, t: h * 2.0, x.fs, x.ts)),
        [[8.0, 32.0, 16.0, 24.0], [64.0, 40.0, 48.0, 56.0]],
    ),
    "carries": (
        lambda x: fe.group(
            fe.fold(lambda h, t: (h[0] + h[1][:1], h[1]), (x.fs, fe.constant(3, 1.0)), x.ts)[0]
        ),
        [[4.0, 7.0, 5.0, 6.0], [11.0, 8.0, 9.0, 10.0]],
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_an_operand_is_taken_as_it_is_meant(name: str) -> None:
    model, expected = TAKEN[name]
    assert computed(model, SPEC, PLAIN)[0].tolist() == [pytest.approx(row) for row in expected]


def test_a_loss_takes_sequences_and_constants() -> None:
    head = fe.Linear(4)

    def model(x: Any) -> None:
        fe.regress(fe.constant(4, 2.0), head(x.fs), name="constant")
        fe.regress(head(x.fs), x.fs, name="sequence")
        fe.loss(fe.largest(x.fs), name="plain", read=x.fs)
        fe.loss_of(lambda a, b: fe.squared_error(a, b), fe.constant(4), x.fs, name="own")

    assert {"constant", "sequence", "plain", "own"} <= set(fe.compile(model, SPEC).graph.nodes)
