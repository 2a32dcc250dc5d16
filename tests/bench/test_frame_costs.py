"""Costs from traces that are made up from known ones."""

from __future__ import annotations

import pytest

from amphw.bench.frame_costs import UPDATE, Slice, fit, fit_costs
from amphw.engine.policy import BACKWARD, FORWARD
from amphw.estimate.simulation import Line


def test_a_line_goes_through_its_points() -> None:
    line = fit([(rows, 5.0 + 0.5 * rows) for rows in range(1, 60)])
    assert line.fixed == pytest.approx(5.0) and line.per_row == pytest.approx(0.5)


def test_interrupted_samples_do_not_count() -> None:
    samples = [(rows, 5.0 + 0.5 * rows) for rows in range(1, 200)]
    samples += [(rows, 4000.0) for rows in range(1, 200, 10)]
    line = fit(samples)
    assert line.fixed == pytest.approx(5.0) and line.per_row == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], Line(0.0, 0.0)),
        ([(7, 3.0)], Line(3.0, 0.0)),
        ([(4, 2.0), (4, 4.0)], Line(3.0, 0.0)),  # one number of rows says nothing of a row
        ([(1, 4.0), (2, 3.0)], Line(3.5, 0.0)),  # no row costs less than nothing
        ([(10, 10.0), (20, 30.0)], Line(0.0, 1.4)),  # nor does a frame
    ],
)
def test_no_part_of_a_line_is_negative(samples: list[tuple[int, float]], expected: Line) -> None:
    line = fit(samples)
    assert line.fixed == pytest.approx(expected.fixed) and line.per_row == pytest.approx(expected.per_row)


def traced(frames: int, interval: int, rows: int = 128) -> list[Slice]:
    """One worker, one node: forward 10 + 1 a row, backward 20 + 2 a row, delivery 3, reducing half a
    microsecond a row, an update 50. Of the rows, every frame has a few less than the one before."""
    slices: list[Slice] = []
    at, chunk, since = 0.0, 0, 0
    for number in range(frames):
        n = rows - number % 7
        slices.append(Slice(0, FORWARD, at, 10.0 + n, n))
        at += 10.0 + n + 3.0
        slices.append(Slice(0, BACKWARD, at, 20.0 + 2 * n, n))
        at += 20.0 + 2 * n + 3.0
        chunk += n
        since += n
        if since >= interval:
            slices.append(Slice(0, UPDATE, at, 50.0 + chunk / 2, 0))
            at += 50.0 + chunk / 2
            chunk = since = 0
        elif chunk >= 256:
            at += chunk / 2
            chunk = 0
    return slices


def test_what_a_trace_was_made_of_is_found() -> None:
    costs, explained = fit_costs(traced(400, interval=2000), {0: 2000}, host=9.0)
    for kind, line in ((FORWARD, Line(10.0, 1.0)), (BACKWARD, Line(20.0, 2.0))):
        assert costs.frame[0, kind].fixed == pytest.approx(line.fixed, abs=0.1)
        assert costs.frame[0, kind].per_row == pytest.approx(line.per_row, rel=1e-3)
        assert costs.delivery[0, kind].of(128) == pytest.approx(3.0)
    assert costs.reduce[0] == pytest.approx(0.5) and costs.update[0] == pytest.approx(50.0)
    assert costs.host == 9.0 and explained == pytest.approx(1.0, abs=0.01)


def test_a_node_that_updates_every_frame_has_its_reductions_in_its_updates() -> None:
    costs, explained = fit_costs(traced(400, interval=1), {0: 1}, host=0.0)
    assert costs.reduce[0] == pytest.approx(0.5) and costs.update[0] == pytest.approx(50.0)
    assert explained == pytest.approx(1.0, abs=0.01)


def test_slices_before_the_measurement_count_for_the_log_alone() -> None:
    slices = traced(400, interval=2000)
    slow = [Slice(s.unit, s.kind, s.begin, s.duration, s.rows) for s in slices]
    middle = len(slow) // 2
    costs, _ = fit_costs(slow, {0: 2000}, host=0.0, warm=slow[middle].begin)
    assert costs.reduce[0] == pytest.approx(0.5) and costs.update[0] == pytest.approx(50.0)


def test_time_that_costs_do_not_account_for_is_told() -> None:
    slices = traced(400, interval=2000)
    middle = slices[len(slices) // 2].begin
    late = [
        s if s.begin < middle else Slice(s.unit, s.kind, s.begin + middle, s.duration, s.rows) for s in slices
    ]
    _, explained = fit_costs(late, {0: 2000}, host=0.0)
    assert explained == pytest.approx(2 / 3, abs=0.02)
