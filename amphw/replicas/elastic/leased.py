"""A lease as the host trains on it: a part of an epoch, in rounds between which its member exchanges."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from amphw.host.replication import Alone
from amphw.host.run_model import InstanceSet
from amphw.ir.device import Device
from amphw.ir.instance import Instance
from amphw.replicas.rounds import Rounds


class Part:
    """The instances `start .. stop - 1` of a set; `size` is how many these are."""

    def __init__(self, instances: InstanceSet, start: int, stop: int):
        self._instances, self._start, self._size = instances, start, stop - start

    def __len__(self) -> int:
        return self._size

    @property
    def size(self) -> int:
        return self._size

    def __getitem__(self, place: int) -> Instance:
        return self._instances[self._start + place]


class Leased(Alone):
    """There are others, but nothing is agreed on with them: what they would agree on is this member's own, as
    with `Alone`.

    every: instances of a round, 0: as many as are in flight. updates: updates of a round, in place of that.
    update: as `Strategy.update`. between: is called after each round, with its first and its last place in
    the lease, and whether it is the last one -> whether the lease goes on.
    """

    leads = True
    ranks = 2  # there are others, however many these are: the host takes a set of more than one as shared

    def __init__(
        self,
        every: int,
        updates: int,
        update: Callable[[Device], None],
        between: Callable[[int, int, bool], bool],
    ):
        super().__init__()
        self._every, self._updates, self._update, self._between = every, updates, update, between
        self._begun = 0
        self.cut = False

    def share(
        self,
        device: Device,
        instances: InstanceSet,
        start: int,
        window: int,
        first: int,
        updated: Callable[[], float],
    ) -> Iterable[Instance]:
        self._begun, self.cut = 0, False
        every = self._updates or self._every or window
        measure = updated if self._updates else None
        self._rounds = Rounds(instances, start, every, 0, 1, first, measure)
        return self._rounds

    def update(self, device: Device) -> None:
        self._update(device)

    def goes_on(self, device: Device, stop: bool, pause: bool) -> bool:
        rounds, begun = self._rounds, self._begun
        self._begun = rounds.done
        if not self._between(begun, rounds.done, not rounds.more()):
            self.cut = rounds.more()
            rounds.limit = rounds.done
        return rounds.more()

    def stopping(self, wanted: bool) -> bool:
        return self.cut  # between rounds alone: what a round has taken is trained on

    def pausing(self, wanted: bool) -> bool:
        return False
