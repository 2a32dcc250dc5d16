"""Where time goes: each second counts for one thing."""

from __future__ import annotations

import pytest

from amphw.host.spent import Spent


def test_what_begins_within_something_else_takes_its_time_from_that() -> None:
    now = [100.0]
    spent = Spent(lambda: now[0])

    def later(seconds: float) -> None:
        now[0] += seconds

    later(5)  # for nothing
    with spent.on("training"):
        later(3)
        with spent.on("saving"):
            later(2)
            with spent.on("training"):
                later(1)
        later(4)
    later(7)
    with pytest.raises(RuntimeError), spent.on("validation"):
        later(0.5)
        raise RuntimeError
    later(1)
    assert spent.seconds == {"training": 8, "saving": 2, "validation": 0.5}
