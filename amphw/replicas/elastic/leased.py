"""A lease as the host trains on it: a part of an epoch, in rounds between which its member exchanges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from amphw.host.records import RankFigures
from amphw.host.replication import Share
from amphw.host.run_model import InstanceSet
from amphw.ir.device import Device
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule
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


class Leased:
    """See `Replication`. There are others, but nothing is agreed on with them: sums are this member's own.

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
        self._every, self._updates, self._update, self._between = every, updates, update, between
        self._begun = 0
        self.cut = False

    def begin(
        self, device: Device, place: Sequence[int], graph: Graph, rules: Mapping[str, UpdateRule]
    ) -> None:
        """See `Replication`: whoever leases has seen to it."""

    def moved(self, device: Device) -> None:
        """Others have replicas of their own."""

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

    def validating(self, device: Device, instances: InstanceSet) -> Share:
        return Share(instances, range(len(instances)))

    def update(self, device: Device) -> None:
        self._update(device)

    def look(self) -> None:
        """Messages are taken in between rounds."""

    def retired(self) -> None:
        """Nothing is exchanged beside the workers."""

    def goes_on(self, device: Device, stop: bool, pause: bool) -> bool:
        rounds, begun = self._rounds, self._begun
        self._begun = rounds.done
        if not self._between(begun, rounds.done, not rounds.more()):
            self.cut = rounds.more()
            rounds.limit = rounds.done
        return rounds.more()

    def settle(self, device: Device, updated: Callable[[], None]) -> None:
        """See `Replication`: nobody meets anybody."""

    def stopping(self, wanted: bool) -> bool:
        return self.cut  # between rounds alone: what a round has taken is trained on

    def pausing(self, wanted: bool) -> bool:
        return False

    def total(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def figures(self, instances: float, seconds: float, staleness: tuple[float, float]) -> list[RankFigures]:
        return []

    def explained(self) -> list[str]:
        return []

    def close(self) -> None:
        """Nothing goes on beside the lease."""
