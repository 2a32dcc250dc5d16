"""Gradient logs: every row is reduced once, intervals are counted in rows, versions appear whole."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from amphw.cpu_runtime.planes import built
from amphw.engine.numbering import WORTH_REDUCING
from amphw.engine.numpy_plane.float32 import FloatParameters
from amphw.engine.numpy_plane.gradients import GradientLog
from amphw.ir.derive import GradientTerm
from amphw.ir.errors import NonFiniteError
from amphw.ir.program import ParamSpec
from amphw.ir.update import NodeParameters, UpdateRule

Terms = list[tuple[np.ndarray | None, np.ndarray]]

W, B = ParamSpec("W", (3, 2)), ParamSpec("b", (2,))


def log(interval: int = 10, **rule: object) -> GradientLog:
    """Of a node with a weight and a bias."""
    values = {"W": np.ones((3, 2), np.float32), "b": np.zeros(2, np.float32)}
    params = NodeParameters.of((W, B), UpdateRule(interval=interval, lr=1.0, **rule), values)  # type: ignore[arg-type]
    terms = (GradientTerm("W", "matmul", 0, 1), GradientTerm("b", "sum", None, 1))
    return GradientLog(FloatParameters("node", params, terms))


def entry(rows: int, value: float = 1.0) -> Terms:
    """Terms whose gradients are `rows * value` in every element of b, and as much in W."""
    dz = np.full((rows, 2), value, np.float32)
    return [(np.ones((rows, 3), np.float32), dz), (None, dz)]


def test_a_log_is_taken_when_the_interval_is_full_or_the_product_worthwhile() -> None:
    one = log(interval=10)
    one.add(9, entry(9))
    assert not one.wants(self_updating=True)
    one.add(1, entry(1))
    assert one.wants(self_updating=True) and not one.wants(self_updating=False)
    one.add(WORTH_REDUCING - 10, entry(WORTH_REDUCING - 10))
    assert one.wants(self_updating=False)
    one.take(due=False)
    assert not one.wants(self_updating=True), "somebody is at it"


def test_reducing_without_being_due_keeps_the_count() -> None:
    one = log(interval=10)
    one.add(6, entry(6))
    share = one.take(due=False)
    one.reduce(share)
    one.finish(share)
    assert share.values is None and one.params.rows == 6 and one.rows == 6 and one.logged == 0
    one.add(4, entry(4))
    share = one.take(due=True)
    assert one.rows == 0, "the interval is closed, though its update is yet to come"
    one.reduce(share)
    one.finish(share)
    assert share.values is not None and one.rows == 0 and one.params.version == 1
    np.testing.assert_allclose(share.values["b"], [-1.0, -1.0])  # mean over all ten rows
    assert not one.params.gradients["W"].any() and one.params.rows == 0


def test_what_is_logged_while_a_share_is_out_belongs_to_the_next() -> None:
    one = log()
    for k in range(2):
        one.add(k + 1, entry(k + 1))
    share = one.take(due=True)
    one.add(3, entry(3))
    assert [rows for rows, _ in share.entries] == [1, 2]
    assert one.logged == one.rows == 3 and len(one.entries) == 1
    one.reduce(share)
    one.finish(share)
    assert [rows for rows, _ in one.take(due=True).entries] == [3] and one.logged == 0


def test_rows_count_what_is_logged_being_reduced_and_reduced() -> None:
    one = log(interval=100)
    one.params.rows = 7  # of a checkpoint taken within an interval
    one.add(5, entry(5))
    share = one.take(due=False)
    one.add(2, entry(2))
    assert one.rows == 14
    one.reduce(share)
    assert one.rows == 14
    one.finish(share)
    assert one.rows == 14


def test_slots_that_wait_go_with_the_share_that_completes_the_interval() -> None:
    one = log()
    one.add(3, entry(3))
    one.waiting.append("slot")
    assert one.take(due=False).waiting == [] and one.waiting == ["slot"]
    assert one.take(due=True).waiting == ["slot"] and one.waiting == []


def test_every_row_is_reduced_once_by_four_threads() -> None:
    """Whole numbers, so that the sums are exact; an update every 50 rows takes what is there."""
    one, lock = log(interval=50, reduce="sum"), threading.Lock()
    adds, threads = 400, 4
    updates = [0]

    def hammer(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(adds):
            rows = int(rng.integers(1, 9))
            with lock:
                one.add(rows, entry(rows))
                totals[seed] += rows
                share = one.take(one.rows >= 50) if one.wants(self_updating=True) else None
            while share is not None:
                one.reduce(share)
                with lock:
                    one.finish(share)
                    updates[0] += share.values is not None
                    share = one.take(one.rows >= 50) if one.wants(self_updating=True) else None

    totals = [0] * threads
    workers = [threading.Thread(target=hammer, args=(k,)) for k in range(threads)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    share = one.take(due=True)
    one.reduce(share)
    one.finish(share)
    total = sum(totals)
    np.testing.assert_array_equal(one.params.values["b"], [-total, -total])
    np.testing.assert_array_equal(one.params.values["W"], np.full((3, 2), 1.0 - total))
    assert updates[0] > 10 and one.params.version in (updates[0], updates[0] + 1)


def test_a_version_stays_whole_until_the_next_is_published() -> None:
    one = log(interval=4)
    old = one.params.values
    copies = {n: v.copy() for n, v in old.items()}
    one.add(4, entry(4))
    share = one.take(due=True)
    one.reduce(share)
    assert one.params.values is old and one.params.version == 0
    assert share.values is not None
    one.finish(share)
    assert one.params.version == 1 and one.params.values is share.values
    for name, value in old.items():
        np.testing.assert_array_equal(value, copies[name])  # whoever still uses the old version may


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_keeps_the_old_version(bad: float) -> None:
    one = log(interval=4, optimizer="momentum")
    before = {n: v.copy() for n, v in one.params.values.items()}
    one.add(4, entry(4, bad))
    with pytest.raises(NonFiniteError) as caught:
        one.reduce(one.take(due=True))
    assert str(caught.value) == (
        "node 'node' produced a non-finite value in its backward direction (the gradient of 'W'); "
        "lower the learning rate, set update.clip, or look at the instance's data"
    )
    assert one.params.version == 0
    for name, value in one.params.values.items():
        np.testing.assert_array_equal(value, before[name])
        assert not one.params.slots[name][0].any()


def test_large_gradients_are_not_mistaken_for_infinite_ones() -> None:
    one = log(interval=1)
    one.add(1, entry(1, 3e38))
    share = one.take(due=True)
    one.reduce(share)
    assert share.values is not None  # their sum overflows, they do not


@pytest.mark.skipif(not built(), reason="the C++ data plane is not built")
def test_both_planes_and_the_simulation_reduce_at_as_many_rows() -> None:
    from amphw.engine import _native

    assert _native.WORTH_REDUCING == WORTH_REDUCING
