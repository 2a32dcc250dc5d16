"""Instances are built when they are asked for, once, and every use of one has a number of its own."""

from __future__ import annotations

import numpy as np

from amphw.ir.instance import Instance
from amphw.models.base import Remembered


def test_an_instance_is_built_once() -> None:
    asked: list[int] = []

    def build(i: int) -> Instance:
        asked.append(i)
        return Instance({}, {"token": np.array([i])}, number=i)

    remembered = Remembered(3, build)
    assert (len(remembered), asked) == (3, [])
    first, second = remembered[1], remembered[1]
    assert asked == [1]
    first.number = 7
    assert second.number == 1
    assert first.tables["token"] is second.tables["token"]
