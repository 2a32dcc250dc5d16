"""What a run has in common with its replicas, as the host sees it; one that is alone has nothing.

Replicas train on shares of the same instances, each on a device of its own. They meet after each update of a
mode with a barrier, or at the end of a share, and whether to stop or to pause is agreed on there.
`amphw.replicas` has those of more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from amphw.host.gradients import Clipping
from amphw.host.records import RankFigures
from amphw.host.run_model import EndOfData, InstanceSet, MayEnd
from amphw.ir.device import Device
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule


@dataclass(frozen=True)
class Share:
    """The instances that one replica has of a set. places: where they are in the set, in their order.

    first: the number of the set's first instance. Instances carry the numbers that they have among all:
    expressions and generators are keyed by them, so they may not depend on who else there is.
    """

    instances: InstanceSet
    places: Sequence[int]
    first: int = 0

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[Instance]:
        each = map(self.at, self.places)
        return _until_end(each) if isinstance(self.instances, MayEnd) else each

    def at(self, place: int) -> Instance:
        instance = self.instances[place]
        instance.number = self.first + place
        return instance


def _until_end(instances: Iterator[Instance]) -> Iterator[Instance]:
    with suppress(EndOfData):
        yield from instances


class Replication(Protocol):
    """leads: whether this replica writes and tells what becomes of the run. ranks: how many there are."""

    leads: bool
    ranks: int

    def begin(
        self, device: Device, place: Sequence[int], graph: Graph, rules: Mapping[str, UpdateRule]
    ) -> None:
        """This replica is about to train with what the device holds. place: epochs and instances behind it.

        Raises ConfigError where another one is elsewhere, or begins with other parameters.
        """
        ...

    def moved(self, device: Device) -> None:
        """The host has changed parameters, in the same way on every replica."""
        ...

    def share(
        self,
        device: Device,
        instances: InstanceSet,
        start: int,
        window: int,
        first: int,
        updated: Callable[[], float],
    ) -> Iterable[Instance]:
        """This replica's part of what is next of `instances[start:]`; replicas take `window` each at a time.

        first: number of the first instance of all. updated: how often the device's nodes have updated in this
        phase so far, on average over those with parameters. The share may end before the instances do: then
        all meet, and there is another one.
        """
        ...

    def validating(self, device: Device, instances: InstanceSet) -> Share:
        """This replica's part of all instances, to validate on."""
        ...

    def update(self, device: Device) -> None:
        """A window of a mode with a barrier has returned: nodes update with what all have accumulated."""
        ...

    def look(self) -> None:
        """While the device is at work on this replica's share: take in what others have sent, if anything."""
        ...

    def goes_on(self, device: Device, stop: bool, pause: bool) -> bool:
        """What there was of the share has been pumped and has retired -> whether its next part follows, for
        which the share is iterated again. A replica may tell the others now what it has learnt.

        stop, pause: what this replica wants, as in `stopping` and `pausing`.
        """
        ...

    def retired(self) -> None:
        """An instance of the share has retired."""
        ...

    def settle(self, device: Device, updated: Callable[[], None]) -> None:
        """This replica has no more windows: take part in the others' updates until they have none, either.

        Nodes then update with what they may still hold. updated: is called after each of these updates.
        """
        ...

    def stopping(self, wanted: bool) -> bool:
        """wanted: by this replica -> whether all stop. It is agreed on where they meet."""
        ...

    def pausing(self, wanted: bool) -> bool:
        """The same of a pause, for which the leader alone may ask."""
        ...

    def total(self, values: Sequence[float]) -> list[float]:
        """The sums of all replicas' values, which are as many on each."""
        ...

    def figures(self, instances: float, seconds: float, staleness: tuple[float, float]) -> list[RankFigures]:
        """What every replica has done since the last call; none where there is just one.

        Of this one: the size of the instances that it trained on, its seconds of training, and the (p50, p99)
        of staleness.
        """
        ...

    def explained(self) -> list[str]:
        """Sentences, of what its user should know of a run that has begun."""
        ...

    def close(self) -> None:
        """The run has ended, maybe with an error; nothing goes on beside it. May be called again."""
        ...


class Alone:
    """The only replica. clipping: of its gradients."""

    leads, ranks = True, 1

    def __init__(self, clipping: Clipping | None = None) -> None:
        self._clipping = clipping or Clipping()

    def begin(
        self, device: Device, place: Sequence[int], graph: Graph, rules: Mapping[str, UpdateRule]
    ) -> None:
        """See `Replication`: there is nobody to differ from."""

    def moved(self, device: Device) -> None:
        """Nor anybody to tell."""

    def share(
        self,
        device: Device,
        instances: InstanceSet,
        start: int,
        window: int,
        first: int,
        updated: Callable[[], float],
    ) -> Iterable[Instance]:
        return Share(instances, range(start, len(instances)), first)

    def validating(self, device: Device, instances: InstanceSet) -> Share:
        return Share(instances, range(len(instances)))

    def update(self, device: Device) -> None:
        self._clipping.update(device)

    def look(self) -> None:
        """There is nobody who sends anything."""

    def goes_on(self, device: Device, stop: bool, pause: bool) -> bool:
        return False

    def retired(self) -> None:
        """There is nobody to exchange with."""

    def settle(self, device: Device, updated: Callable[[], None]) -> None:
        """See `Replication`: without others there is nothing to wait for."""

    def stopping(self, wanted: bool) -> bool:
        return wanted

    def pausing(self, wanted: bool) -> bool:
        return wanted

    def total(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def figures(self, instances: float, seconds: float, staleness: tuple[float, float]) -> list[RankFigures]:
        return []

    def explained(self) -> list[str]:
        return []

    def close(self) -> None:
        """Nothing goes on beside the run."""
