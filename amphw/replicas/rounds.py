"""A rank's instances in rounds, between which it exchanges with others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Protocol

from amphw.host.replication import Share
from amphw.host.run_model import InstanceSet
from amphw.ir.instance import Instance
from amphw.replicas.collectives import ranges


class Beside(Protocol):
    """Who exchanges while instances are in flight."""

    def over(self) -> None:
        """A round is over; the pump goes on with the next one meanwhile."""
        ...

    @property
    def holds(self) -> bool:
        """Whether the pump has to let all return that are in flight, and to ask how it goes on."""
        ...


class Rounds:
    """A share in rounds: with each `iter` the next one begins.

    Ranks take turns at the instances, at `every` of them where that is what a round has, else one by one. So
    when all have taken as many, what has been trained on is the beginning of the instances, whoever was fast.

    every: a round is over once `measure` has grown by as much; measure: instances that were taken, where
    nothing else is given. rank: of those that train; None: it does not, and takes none. ranks: that train.
    limit: so many instances this rank takes before all meet, once they have agreed on it. beside: with it, an
    `iter` goes on until it `holds`, or this rank `asks` for all to meet soon; a round is over once as many
    instances have come back (`retired`), or `measure` has grown by as much.
    """

    def __init__(
        self,
        instances: InstanceSet,
        start: int,
        every: int,
        rank: int | None,
        ranks: int,
        first: int,
        measure: Callable[[], float] | None = None,
        asks: Callable[[], bool] = lambda: False,
    ):
        turn = (every if measure is None else 1) * ranks
        turns = [
            (at, ranges(min(turn, len(instances) - at), ranks)) for at in range(start, len(instances), turn)
        ]
        if rank is None:
            rank, turns = 0, []
        mine = [range(at + parts[rank].start, at + parts[rank].stop) for at, parts in turns]
        self._share = Share(instances, list(chain.from_iterable(mine)), first)
        self.done = 0
        self.total = sum(max(part.stop - part.start for part in parts) for _, parts in turns)
        self._every, self._measure, self._asks = every, measure or self._taken, asks
        self.limit: int | None = None
        self.beside: Beside | None = None
        self._given = self._back = 0
        self._grown = measure or (lambda: self._back)
        self._ended: float | None = None  # what had grown when the last round was over

    def retired(self) -> None:
        """An instance that was taken has come back."""
        self._back += 1
        if self.beside is None or (self._back == self._given and not self.more()):
            return  # the last round of a share is over where all meet
        if (now := self._grown()) - (self._ended or 0.0) >= self._every:
            self._ended = now
            self.beside.over()

    def _taken(self) -> float:
        return self.done

    def more(self) -> bool:
        """Whether this rank takes more instances before all meet."""
        return self.done < (self.total if self.limit is None else min(self.limit, self.total))

    def __iter__(self) -> Iterator[Instance]:
        begun = self._measure()
        if self._ended is None:
            self._ended = begun
        while self._goes_on(begun):
            place, self.done = self.done, self.done + 1
            if place < len(self._share):  # of the last instances not every rank has one
                self._given += 1
                yield self._share.at(self._share.places[place])

    def _goes_on(self, begun: float) -> bool:
        if self.beside is not None:
            return self.more() and not self.beside.holds and not (self.limit is None and self._asks())
        return self.more() and self._measure() - begun < self._every
