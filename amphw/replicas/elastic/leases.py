"""Which instances of which epoch are whose: leases, of which each has a range of one epoch's order.

What a member had leased and not trained on when it was lost is free again, and is leased before anything
else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from amphw.replicas.ako.message import Member

ROUNDS = 8
"""That a lease has at most: with fewer a member asks often, with more the end of an epoch is uneven."""

Range = tuple[int, int]


class Lease(NamedTuple):
    """number: among all of the job, from 1. start, stop: places in the epoch's order."""

    number: int
    holder: Member
    epoch: int
    start: int
    stop: int

    @classmethod
    def told(cls, numbers: Sequence[Any]) -> Lease:
        """As a coordinator tells it, in lists."""
        number, holder, epoch, start, stop = numbers
        return cls(number, Member(*holder), epoch, start, stop)


@dataclass
class Epoch:
    """size: how many instances it has. first: number of the first of them among those of all epochs. free:
    the places that nobody has, as ranges in order."""

    size: int
    first: int
    free: list[Range] = field(default_factory=list)


class Leases:
    """epochs: those that have begun, by number from 1. out: leases that are not through, by their holder.
    closed: with those that are, how many of their first instances count."""

    def __init__(self) -> None:
        self.epochs: dict[int, Epoch] = {}
        self.out: dict[Member, Lease] = {}
        self.closed: list[tuple[Lease, int]] = []
        self.undone: set[int] = set()  # numbers of leases that count no more
        self._count = 0

    def begin(self, epoch: int, size: int) -> None:
        first = sum(each.size for each in self.epochs.values())
        self.epochs[epoch] = Epoch(size, first, [(0, size)])

    def next_range(self, unit: int, members: int) -> tuple[int, Range] | None:
        """What is to be leased next, (epoch, places); None: there is nothing free in the epochs so far.

        unit: instances of a round. members: how many share what is left.
        """
        for number, epoch in sorted(self.epochs.items()):
            if epoch.free:
                start, stop = epoch.free[0]
                left = sum(b - a for a, b in epoch.free)
                rounds = min(ROUNDS, max(1, left // (2 * members * unit)))
                return number, (start, min(stop, start + rounds * unit))
        return None

    def lease(self, holder: Member, epoch: int, start: int, stop: int) -> Lease:
        assert holder not in self.out, holder
        self._take(epoch, start, stop)
        self._count += 1
        self.out[holder] = Lease(self._count, holder, epoch, start, stop)
        return self.out[holder]

    def _take(self, epoch: int, start: int, stop: int) -> None:
        kept = []
        for a, b in self.epochs[epoch].free:
            kept += [(a, min(b, start)), (max(a, stop), b)]
        self.epochs[epoch].free = [(a, b) for a, b in kept if a < b]

    def close(self, holder: Member, taken: int) -> None:
        """The holder has trained on the first `taken` instances of its lease; the others are free again."""
        lease = self.out.pop(holder)
        assert 0 <= taken <= lease.stop - lease.start, (lease, taken)
        self.closed.append((lease, taken))
        if lease.start + taken < lease.stop:
            self._free(lease.epoch, lease.start + taken, lease.stop)

    def _free(self, epoch: int, start: int, stop: int) -> None:
        free = self.epochs[epoch].free
        free.append((start, stop))
        free.sort()

    def complete(self, epoch: int) -> bool:
        """Whether all of the epoch has been trained on."""
        known = self.epochs.get(epoch)
        return known is not None and not known.free and all(o.epoch != epoch for o in self.out.values())

    def trained(self, epoch: int) -> int:
        """How many of its instances count by now."""
        known = self.epochs[epoch]
        out = sum(o.stop - o.start for o in self.out.values() if o.epoch == epoch)
        return known.size - sum(b - a for a, b in known.free) - out

    def counted(self) -> list[tuple[Lease, int]]:
        """Leases that are through and count, with how many of their first instances do."""
        return [(lease, taken) for lease, taken in self.closed if lease.number not in self.undone and taken]

    def state(self) -> dict[str, list[Range]]:
        """What a checkpoint has to know: of each epoch that is not complete the places without a training
        that counts, leases that are out among them."""
        found = {}
        for number, epoch in self.epochs.items():
            out = [(o.start, o.stop) for o in self.out.values() if o.epoch == number]
            if missing := sorted([*epoch.free, *out]):
                found[str(number)] = missing
        return found

    def go_back(self, last: int, missing: dict[str, Sequence[Sequence[int]]]) -> None:
        """To what `state` was when epochs up to `last` had begun; nobody holds a lease. All that was trained
        on since is undone."""
        assert not self.out, self.out
        self.epochs = {number: epoch for number, epoch in self.epochs.items() if number <= last}
        for number, epoch in self.epochs.items():
            epoch.free = [(int(a), int(b)) for a, b in missing.get(str(number), ())]
        for lease, taken in self.closed:
            if taken and (lease.epoch > last or _any_free(self.epochs[lease.epoch].free, lease, taken)):
                self.undone.add(lease.number)


def _any_free(free: Sequence[Range], lease: Lease, taken: int) -> bool:
    return any(a < lease.start + taken and lease.start < b for a, b in free)
