"""Costs from traces that are made up from known ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from amphw.bench.frame_costs import (
    UPDATE,
    Nodes,
    Slice,
    Trace,
    costs_with,
    fit,
    fit_costs,
    fit_together,
    host_line,
)
from amphw.engine.policy import BACKWARD, FORWARD
from amphw.estimate.play.simulation import Costs, Line


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
        ([(10, 10.0), (20, 30.0)], Line(0.0, 4 / 3)),  # nor does a frame
    ],
)
def test_no_part_of_a_line_is_negative(samples: list[tuple[int, float]], expected: Line) -> None:
    line = fit(samples)
    assert line.fixed == pytest.approx(expected.fixed) and line.per_row == pytest.approx(expected.per_row)


def traced(frames: int, interval: int, rows: int = 128, full: int = 256, row: float = 1.0) -> list[Slice]:
    """One worker, one node: forward 10 + `row` a row, backward 20 + 2 `row` a row, delivery 3, reducing half
    a microsecond a row of a chunk that is full, an update 50. Of the rows, every frame has a few less than
    the one before."""
    slices: list[Slice] = []
    at, chunk, since = 0.0, 0, 0
    for number in range(frames):
        n = rows - number % 7
        for kind, us in ((FORWARD, 10.0 + row * n), (BACKWARD, 20.0 + 2 * row * n)):
            slices.append(Slice(0, kind, at, us, n))
            at += us + 3.0
        chunk += n
        since += n
        if since >= interval:
            slices.append(Slice(0, UPDATE, at, 50.0 + chunk / 2, 0))
            at += 50.0 + chunk / 2
            chunk = since = 0
        elif chunk >= full:
            at += chunk / 2
            chunk = 0
    return slices


def costs_of(slices: Sequence[Slice], nodes: Nodes, host: float = 0.0) -> tuple[Costs, float]:
    """From one trace that counts from its beginning to its end."""
    found, explained = fit_costs({8: Trace(slices, [(0.0, slices[-1].end)], [(8, 8 * host)])}, nodes)
    return found[8], explained


def test_what_a_trace_was_made_of_is_found() -> None:
    costs, explained = costs_of(traced(400, interval=2000), Nodes({0: 2000}), host=9.0)
    for kind, line in ((FORWARD, Line(10.0, 1.0)), (BACKWARD, Line(20.0, 2.0))):
        assert costs.frame[0, kind].fixed == pytest.approx(line.fixed, abs=0.1)
        assert costs.frame[0, kind].per_row == pytest.approx(line.per_row, rel=1e-3)
        assert costs.delivery[0, kind].of(128) == pytest.approx(3.0)
    assert costs.reduce[0] == pytest.approx(0.5) and costs.update[0] == pytest.approx(50.0)
    assert costs.host == 9.0 and explained == pytest.approx(1.0, abs=0.01)


def test_a_node_that_updates_every_frame_has_its_reductions_in_its_updates() -> None:
    costs, explained = costs_of(traced(400, interval=1), Nodes({0: 1}))
    assert costs.reduce[0] == pytest.approx(0.5) and costs.update[0] == pytest.approx(50.0)
    assert explained == pytest.approx(1.0, abs=0.01)


def test_reductions_that_rows_do_not_tell_are_seen_from_the_time_they_take() -> None:
    slices = traced(400, interval=2000, rows=40, full=150)
    costs, explained = costs_of(slices, Nodes({0: 2000}, several=frozenset({0})))
    assert costs.reduce[0] == pytest.approx(0.5) and costs.update[0] == pytest.approx(50.0)
    assert costs.delivery[0, BACKWARD].of(40) == pytest.approx(3.0)
    assert explained == pytest.approx(1.0, abs=0.01)
    _, explained = costs_of(slices, Nodes({0: 2000}))
    assert explained < 0.9


def test_waiting_for_the_host_is_no_delivery() -> None:
    """Every third forward frame begins an instance, for which the worker has waited."""
    slices, waited = [], 0.0
    for s in traced(300, interval=1 << 30, full=1 << 30):
        waits = s.kind == FORWARD and len(slices) % 3 == 0
        waited += 40.0 * waits
        slices.append(replace(s, unit=1 if waits else 0, begin=s.begin + waited))
    nodes = Nodes({0: 1 << 30}, first=frozenset({1}))
    alone, _ = fit_costs({1: Trace(slices, [(0.0, slices[-1].end)], [(1, 9.0)])}, nodes)
    assert alone[1].host == 9.0 and alone[1].waking == pytest.approx(43.0 - 9.0)
    costs, explained = costs_of(slices, nodes, host=9.0)
    assert costs.host == 9.0
    assert costs.delivery[0, BACKWARD].of(128) == pytest.approx(3.0)
    assert explained == pytest.approx(1.0, abs=0.01)


def test_slices_outside_of_the_windows_count_for_the_log_alone() -> None:
    fast, slow = (traced(400, interval=2000, row=row) for row in (1.0, 3.0))
    later = fast[-1].end + 1000.0
    slices = [*fast, *(replace(s, begin=s.begin + later) for s in slow)]
    middle = fast[len(fast) // 2].begin
    trace = Trace(slices, [(middle, fast[-1].end)])
    costs, explained = fit_costs({8: trace}, Nodes({0: 2000}))
    assert costs[8].frame[0, FORWARD].per_row == pytest.approx(1.0, rel=1e-3)
    assert costs[8].reduce[0] == pytest.approx(0.5) and costs[8].update[0] == pytest.approx(50.0)
    assert explained == pytest.approx(1.0, abs=0.01)


def test_time_that_costs_do_not_account_for_is_told() -> None:
    slices = traced(400, interval=2000)
    middle = slices[len(slices) // 2].begin
    late = [s if s.begin < middle else replace(s, begin=s.begin + middle) for s in slices]
    _, explained = costs_of(late, Nodes({0: 2000}))
    assert explained == pytest.approx(2 / 3, abs=0.02)


# --- several traces -----------------------------------------------------------------------------------


def test_traces_share_what_a_frame_takes_without_rows() -> None:
    """The second has frames of one size only, which alone say nothing of a row."""
    few, many = fit_together([[(n, 5.0 + 0.5 * n) for n in range(1, 60)], [(80, 85.0)] * 50])
    assert few.fixed == pytest.approx(5.0) and few.per_row == pytest.approx(0.5)
    assert many.fixed == pytest.approx(5.0) and many.per_row == pytest.approx(1.0)


def test_a_trace_without_samples_has_the_line_of_the_others() -> None:
    first, second = fit_together([[(n, 5.0 + 0.5 * n) for n in range(1, 60)], []])
    assert first == second


def test_a_row_costs_what_it_does_with_as_many_instances_in_flight() -> None:
    traces = {
        keys: Trace(slices, [(0.0, slices[-1].end)])
        for keys, slices in ((2, traced(400, 2000)), (8, traced(400, 2000, row=3.0)))
    }
    found, explained = fit_costs(traces, Nodes({0: 2000}))
    assert explained == pytest.approx(1.0, abs=0.01)
    for keys, row in ((1, 1.0), (2, 1.0), (4, 2.0), (8, 3.0), (64, 3.0)):
        costs = costs_with(found, keys)
        assert costs.frame[0, FORWARD].per_row == pytest.approx(row, rel=1e-2)
        assert costs.frame[0, FORWARD].fixed == pytest.approx(10.0, rel=1e-2)
        assert costs.reduce[0] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([], Line(0.0, 0.0)),
        ([(n, 90.0 + 25.0 * n) for n in (1, 2, 8, 32)], Line(90.0, 25.0)),
        ([(4, 100.0)] * 3, Line(0.0, 25.0)),  # one number of instances says nothing of waking
        ([(1, 115.0)] * 9 + [(32, 890.0)] * 3 + [(1, 9000.0), (32, 9000.0)], Line(90.0, 25.0)),
    ],
)
def test_a_host_wakes_once_for_the_instances_of_a_round(
    rounds: list[tuple[int, float]], expected: Line
) -> None:
    line = host_line(rounds)
    assert line.fixed == pytest.approx(expected.fixed) and line.per_row == pytest.approx(expected.per_row)


def test_what_the_host_takes_is_the_same_with_any_number_in_flight() -> None:
    slices = traced(100, 2000)
    whole = [(0.0, slices[-1].end)]
    traces = {n: Trace(slices, whole, [(n, 90.0 + 25.0 * n)] * 3) for n in (2, 8, 32)}
    found, _ = fit_costs(traces, Nodes({0: 2000}))
    for keys in (2, 4, 32, 256):
        costs = costs_with(found, keys)
        assert costs.host == pytest.approx(25.0) and costs.waking == pytest.approx(90.0)
