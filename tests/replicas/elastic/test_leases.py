"""Leases: every place of an epoch is free, leased or trained on, and only one of these."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amphw.replicas.ako.message import Member
from amphw.replicas.elastic.leases import ROUNDS, Leases


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100)), max_size=60), st.integers(1, 40))
def test_every_place_is_counted_once(steps: list[tuple[int, int]], size: int) -> None:
    """A step is a member that takes a lease or, where it has one, ends it after some of its instances."""
    leases, epoch = Leases(), 0
    for number, taken in steps:
        me = Member(number)
        if me in leases.out:
            lease = leases.out[me]
            leases.close(me, taken % (lease.stop - lease.start + 1))
            continue
        found = leases.next_range(2, 4)
        if found is None:
            epoch += 1
            leases.begin(epoch, size)
            found = leases.next_range(2, 4)
        assert found is not None
        at, (start, stop) = found
        assert 0 < stop - start <= 2 * ROUNDS
        leases.lease(me, at, start, stop)
    for number, each in leases.epochs.items():
        places = [place for a, b in each.free for place in range(a, b)]
        places += [p for o in leases.out.values() if o.epoch == number for p in range(o.start, o.stop)]
        counted = [(lease, taken) for lease, taken in leases.counted() if lease.epoch == number]
        places += [p for lease, taken in counted for p in range(lease.start, lease.start + taken)]
        assert sorted(places) == list(range(size))
        assert leases.trained(number) == sum(taken for _, taken in counted)
        assert leases.complete(number) == (leases.trained(number) == size)


def test_what_is_free_again_is_leased_before_anything_else() -> None:
    leases = Leases()
    leases.begin(1, 10)
    leases.lease(Member(0), 1, 0, 4)
    leases.lease(Member(1), 1, 4, 10)
    leases.begin(2, 10)
    leases.close(Member(0), 3)
    assert leases.next_range(4, 1) == (1, (3, 4))


def test_going_back_undoes_what_came_after() -> None:
    leases = Leases()
    leases.begin(1, 6)
    for start in (0, 2):
        leases.lease(Member(0), 1, start, start + 2)
        leases.close(Member(0), 2)
    saved = leases.state()
    leases.lease(Member(0), 1, 4, 6)
    leases.close(Member(0), 2)
    leases.begin(2, 6)
    leases.lease(Member(0), 2, 0, 3)
    leases.close(Member(0), 3)
    leases.go_back(1, saved)
    assert leases.next_range(9, 1) == (1, (4, 6))
    assert [(lease.epoch, lease.start) for lease, _ in leases.counted()] == [(1, 0), (1, 2)]
    assert leases.undone == {3, 4}
