"""Windows of ranks in step: which instances of a common window each rank takes.

An update sums over all of a window's instances, whoever has them; but whoever has small ones waits for the
others. So each rank gets as many, and about as much to do: what the work of an instance grows with is how
large its tables and its data are. Every rank measures a part of the instances, two windows ahead, as none is
to build those of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from amphw.host.replication import Share
from amphw.host.run_model import InstanceSet
from amphw.ir.instance import Instance
from amphw.replicas.collectives import ranges


def size_of(instance: Instance) -> int:
    """Numbers that it brings; at least 1."""
    return 1 + sum(a.size for arrays in (instance.tables, instance.data) for a in arrays.values())


def dealt(sizes: np.ndarray, ranks: int) -> list[np.ndarray]:
    """By rank, which of these it takes: as many each, to within one.

    Each rank begins with a part of its own, those that it has measured. Then the rank with the most and that
    with the least swap the two instances that bring them closest, as long as that helps: a few swaps do, and
    whatever is not swapped is not built twice.
    """
    taken = [np.arange(part.start, part.stop) for part in ranges(len(sizes), ranks)]
    loads = np.array([sizes[mine].sum() for mine in taken])
    for _ in range(2 * ranks):
        most, least = int(loads.argmax()), int(loads.argmin())
        gap = int(loads[most] - loads[least])
        if not len(taken[most]) or not len(taken[least]):
            break
        gains = sizes[taken[most]][:, None] - sizes[taken[least]][None, :]
        best = np.abs(2 * gains - gap).argmin()
        i, j = np.unravel_index(best, gains.shape)
        gain = int(gains[i, j])
        if not 0 < gain < gap:
            break
        taken[most][i], taken[least][j] = taken[least][j], taken[most][i]
        loads[most] -= gain
        loads[least] += gain
    return taken


class Windows:
    """What one rank takes of `instances[start:]`, to be iterated over once, while windows are dealt.

    window: instances of a rank in a window. rank: of those that train; None: it does not. ranks: how many
    train. first: number of the first instance of all. look: is given each window but the first before it is
    pumped, while the device computes the one before, if there is time.
    """

    def __init__(
        self,
        instances: InstanceSet,
        start: int,
        window: int,
        first: int,
        rank: int | None,
        ranks: int,
        look: Callable[[Sequence[Instance]], None] = lambda upcoming: None,
    ):
        self._share = Share(instances, range(start, len(instances)), first)
        self._window, self._rank, self._ranks, self._look = window, rank, ranks, look
        self._dealt: list[list[int]] = []
        self._begun = self._looked = 0
        self._built: dict[int, Instance] = {}
        self._sizes: np.ndarray | None = None

    def sizes(self) -> np.ndarray:
        """Of the next window to be dealt, how large the instances are that this rank measures, and 0 for
        the others -> int64 [window * ranks]. The sum over all ranks is for `deal`."""
        if self._sizes is None:
            self._sizes = np.zeros(self._window * self._ranks, np.int64)
            if self._rank is not None:
                places = self._places()
                part = ranges(len(places), self._ranks)[self._rank]
                self._sizes[part] = [size_of(self._instance(place)) for place in places[part]]
        return self._sizes

    def _places(self) -> Sequence[int]:
        """Of the next common window to be dealt, in their order."""
        common = self._window * self._ranks
        return self._share.places[len(self._dealt) * common :][:common]

    def deal(self, sizes: np.ndarray) -> None:
        """The next window. sizes: of all of its instances."""
        places = self._places()
        mine: list[int] = []
        if self._rank is not None:
            taken = dealt(sizes[: len(places)], self._ranks)
            mine = [places[k] for k in taken[self._rank]]
        for place in set(places) - set(mine):
            self._built.pop(place, None)
        self._dealt.append(mine)
        self._sizes = None

    def prepare(self) -> None:
        """Whatever the next exchange needs: the window that is pumped after it, and sizes of the one after
        that. It is done once, by whoever asks first."""
        self.sizes()
        if self._looked < self._begun:
            self._looked = self._begun
            self._look([self._instance(place) for place in self._dealt[self._begun]])

    def next(self) -> list[Instance]:
        """This rank's instances of the window that is pumped next, which has been dealt."""
        self.prepare()
        if self._begun:
            for place in self._dealt[self._begun - 1]:
                self._built.pop(place, None)
        self._begun += 1
        return [self._instance(place) for place in self._dealt[self._begun - 1]]

    def __iter__(self) -> Iterator[Instance]:
        """Whoever pumps looks one instance ahead: at most into the window after the present one."""
        for number in range(len(self._share)):
            if number:
                self.prepare()
            mine = self._dealt[number]
            if not mine:
                return
            yield from map(self._instance, mine)

    def _instance(self, place: int) -> Instance:
        if place not in self._built:
            self._built[place] = self._share.at(place)
        return self._built[place]
