"""What a run has in common with its replicas, as the host sees it; one that is alone has nothing.

Replicas train on shares of the same instances, each on a device of its own. They meet after each update of a
mode with a barrier, or at the end of a share, and whether to stop or to pause is agreed on there.
`amphw.replicas` has those of more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from amphw.host.gradients import Clipping
from amphw.host.run_model import InstanceSet
from amphw.ir.device import Device
from amphw.ir.instance import Instance


@dataclass(frozen=True)
class Share:
    """The instances that one replica has of a set. places: where they are in the set, in their order."""

    instances: InstanceSet
    places: Sequence[int]

    def __len__(self) -> int:
        return len(self.places)

    def numbered(self, first: int) -> Iterator[Instance]:
        """They carry the numbers that they have among all: number `first` is the set's first instance.

        Expressions and generators are keyed by the number, so it may not depend on who else there is.
        """
        for place in self.places:
            instance = self.instances[place]
            instance.number = first + place
            yield instance


class Replication(Protocol):
    """leads: whether this replica writes and tells what becomes of the run. ranks: how many there are."""

    leads: bool
    ranks: int

    def begin(self, device: Device, place: Sequence[int]) -> None:
        """This replica is about to train with what the device holds. place: epochs and instances behind it.

        Raises ConfigError where another one is elsewhere, or begins with other parameters.
        """
        ...

    def moved(self, device: Device) -> None:
        """The host has changed parameters, in the same way on every replica."""
        ...

    def share(self, instances: InstanceSet, start: int, window: int) -> Share:
        """This replica's part of what is next of `instances[start:]`; replicas take `window` each at a time.

        It may end before the instances do: then all meet, and there is another share.
        """
        ...

    def validating(self, instances: InstanceSet) -> Share:
        """This replica's part of all instances, to validate on."""
        ...

    def update(self, device: Device) -> None:
        """A window of a mode with a barrier has returned: nodes update with what all have accumulated."""
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


class Alone:
    """The only replica. clipping: of its gradients."""

    leads, ranks = True, 1

    def __init__(self, clipping: Clipping | None = None) -> None:
        self._clipping = clipping or Clipping()

    def begin(self, device: Device, place: Sequence[int]) -> None:
        """See `Replication`: there is nobody to differ from."""

    def moved(self, device: Device) -> None:
        """Nor anybody to tell."""

    def share(self, instances: InstanceSet, start: int, window: int) -> Share:
        return Share(instances, range(start, len(instances)))

    def validating(self, instances: InstanceSet) -> Share:
        return Share(instances, range(len(instances)))

    def update(self, device: Device) -> None:
        self._clipping.update(device)

    def settle(self, device: Device, updated: Callable[[], None]) -> None:
        """See `Replication`: without others there is nothing to wait for."""

    def stopping(self, wanted: bool) -> bool:
        return wanted

    def pausing(self, wanted: bool) -> bool:
        return wanted

    def total(self, values: Sequence[float]) -> list[float]:
        return list(values)
