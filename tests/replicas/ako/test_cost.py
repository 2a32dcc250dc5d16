"""How many partitions there are, from the rate of gradients and what a rank can send."""

from __future__ import annotations

import pytest

from amphw.replicas.ako.cost import Measured, partitions_for


@pytest.mark.parametrize(
    ("rate", "size", "ranks", "bandwidth", "expected"),
    [
        (10.0, 1e6, 4, 30e6, 1),
        (10.0, 1e6, 4, 29e6, 2),
        (10.0, 1e6, 9, 1e6, 80),
        (0.1, 1.0, 2, 1e9, 1),
    ],
)
def test_the_network_is_busy_and_not_overloaded(
    rate: float, size: float, ranks: int, bandwidth: float, expected: int
) -> None:
    p = partitions_for(rate, size, ranks, bandwidth)
    assert p == expected
    assert rate * size * (ranks - 1) / p <= bandwidth


def test_partitions_follow_the_rate_once_it_has_drifted() -> None:
    now = 0.0
    measured = Measured(bandwidth=1e6, seconds=1.0, clock=lambda: now)

    def rounds(a_second: float, number: int) -> list[int]:
        nonlocal now
        found = []
        for _ in range(number):
            now += 1 / a_second
            if (p := measured.round(1e6, 2)) is not None:
                found.append(p)
        return found

    assert rounds(4.0, 20) == [4]
    assert rounds(4.5, 20) == []  # not worth it
    assert rounds(8.0, 40)[-1] == 8
    measured.pause()
    now += 100.0  # validation
    assert rounds(8.0, 40) == []
