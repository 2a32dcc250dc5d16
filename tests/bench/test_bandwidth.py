"""What memory is taken to move, and what becomes of workers that would move more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amphw.bench.bandwidth import CHANNEL_GB_S, CHANNELS, TIMES_MOVED, Bandwidth, Moves
from amphw.bench.simulated_workers import Setting, Simulated, limit, simulate
from amphw.bench.traced import Profile
from amphw.engine.lowering.lower import lower
from amphw.engine.policy import PolicyTable
from amphw.estimate.count.firings import Shape
from amphw.estimate.play.simulation import Costs, Line, Rules, Tally
from tests.cpu_runtime import graphs

ALONE = Shape([0], [1], [1], [[]], [[]], [1], [0], first_bytes=[1000])
"""An instance of one firing, with one message."""

BYTES = 4 * 250
"""Of the matrix that its unit multiplies with."""


def profile() -> Profile:
    """A unit whose frames take 50 us in each direction, and one firing each."""
    frames = {(0, kind): Line(50.0, 0.0) for kind in range(2)}
    costs = Costs(frames, dict.fromkeys(frames, Line(0.0, 0.0)), {}, {}, 0.0)
    table = PolicyTable([[0, 1, 1]], [[1] * 3])
    rules = Rules(table, [0], {}, frame_cap=1, parts={0: (1, BYTES // 4, 0)})
    return Profile({1: costs}, 1.0, lower(graphs.mlp()), rules)


def rate(workers: int, bandwidth: Bandwidth | None) -> Simulated:
    return simulate([ALONE], profile(), Setting(workers, 8 * workers), workers, bandwidth)


def test_frames_move_matrices_and_instances_their_messages() -> None:
    shapes = [ALONE, replace(ALONE, first_bytes=[3000])]
    moves = Moves.of(profile().rules, shapes)
    assert moves.frame == {0: BYTES} and moves.instance == TIMES_MOVED * 2000
    tally = Tally(us=1000.0, retired=10, unit_frames={0: 20, 1: 7})
    assert moves.gb_s(tally) == pytest.approx((20 * BYTES + 10 * TIMES_MOVED * 2000) / 1e-3 * 1e-9)


def test_messages_between_units_are_moved_in_both_directions() -> None:
    pair = Shape([0, 0], [1, 1], [1, 1], [[1], []], [[], [0]], [1, 1], [0], 1, [[8], []], [[], [4]], [2])
    assert Moves.of(profile().rules, [pair]).instance == TIMES_MOVED * (8 + 4 + 2)


@pytest.mark.parametrize(
    ("workers", "expected"), [(1, 10.0), (2, 18.0), (3, 18.0), (4, 18.0), (8, 36.0), (16, 72.0)]
)
def test_a_larger_machine_has_as_much_more_as_it_has_processors(workers: int, expected: float) -> None:
    assert Bandwidth({1: 10.0, 4: 18.0}).of(workers) == pytest.approx(expected)


def test_a_larger_machine_has_no_more_than_its_channels_or_this_one() -> None:
    assert Bandwidth({1: 10.0, 2: 20.0}).of(64) == CHANNELS * CHANNEL_GB_S
    assert Bandwidth({1: 100.0, 2: 200.0}).of(64) == 200.0


def test_workers_do_not_move_more_than_memory_does() -> None:
    """One moves 5 kB in 100 us, 0.05 GB/s. Memory moves 0.2, so the fifth and all others gain nothing."""
    free = [rate(workers, None).instances_per_s for workers in (1, 2, 8)]
    assert free[1:] == pytest.approx([2 * free[0], 8 * free[0]], rel=0.02)
    assert free[0] == pytest.approx(1e4, rel=0.02)
    for workers, expected, slowed in ((2, 2e4, 1.0), (8, 4e4, 2.0), (16, 4e4, 4.0)):
        one = rate(workers, Bandwidth({1: 0.05, 16: 0.2}))
        assert one.instances_per_s == pytest.approx(expected, rel=0.02)
        assert one.memory is not None and one.memory.slowed == pytest.approx(slowed, rel=0.05)
        assert one.memory.to_json() == {
            "gb_s": pytest.approx(min(0.05 * workers, 0.2)),
            "wanted_gb_s": pytest.approx(0.05 * workers, rel=0.02),
            "share": pytest.approx(1.0, rel=0.02),
            "slowed": one.memory.slowed,
        }


def test_what_memory_costs_is_named() -> None:
    one = rate(16, Bandwidth({1: 0.05, 16: 0.2}))
    assert limit(one, rate(1, None), ["a"]) == "memory"


def test_one_worker_is_as_fast_as_it_was_measured() -> None:
    assert rate(1, Bandwidth({1: 0.001})).instances_per_s == rate(1, None).instances_per_s
