"""What is made of the figures of an exchange; nothing is measured here."""

from __future__ import annotations

import pytest

from amphw.bench.errors import BenchError
from amphw.bench.replicas.exchange import Sides, accuracy_at, bandwidth_error, best_of, gradient_bytes
from amphw.bench.replicas.side import carrying


def test_the_best_number_of_partitions_is_further_away_than_chance() -> None:
    assert best_of({1: [0.90, 0.91], 2: [0.95, 0.94], 4: [0.80, 0.81]}) == (2, "")
    best, why = best_of({1: [0.90, 0.95], 2: [0.95, 0.94]})
    assert best is None
    assert why == (
        "the highest accuracy is 0.0200 above the next, and runs with the same number of partitions differ "
        "by 0.0500"
    )
    assert best_of({2: [0.9, 0.9]})[0] is None
    best, why = best_of({1: [0.9], 2: [0.1]})
    assert best is None and "one run with each number of partitions" in why


def test_accuracies_are_compared_after_a_fixed_time() -> None:
    curve = [(10.0, 0.9), (20.0, 0.98)]
    assert accuracy_at(curve, 15.0) == pytest.approx(0.94)
    assert accuracy_at(curve, 5.0) == pytest.approx(0.5)  # from chance
    assert accuracy_at(curve, 20.0) == pytest.approx(0.98)
    with pytest.raises(BenchError, match="over after 20.0 s, and 25 are compared"):
        accuracy_at(curve, 25.0)


def test_bytes_are_set_beside_the_cost_model() -> None:
    """Of 400 bytes a gradient, in two partitions: 200 a round for the one other rank, and at the end of each
    epoch the other partition."""
    epochs = [10.0, 10.0, 10.0]
    sides = Sides(rounds=[10.0, 10.0, 20.0], sent=[2222.0, 1818.0, 4020.0], epochs=epochs, partitions=2)
    assert bandwidth_error(sides, 400) == pytest.approx(0.0)


def test_a_gradient_has_the_bytes_of_all_parameters() -> None:
    """Kernels of 1 x 5 x 5, 10 x 5 x 5 and 20 x 3 x 3, then 400 and 200 neurons, and all biases."""
    weights = 25 * 10 + 250 * 20 + 180 * 100 + 400 * 200 + 200 * 10
    assert gradient_bytes([]) == 4 * (weights + 10 + 20 + 100 + 200 + 10)


def test_what_a_rank_can_send_is_measured() -> None:
    found = carrying(0.05, 1000)
    assert found is not None and found["bytes_per_s"] > 0
