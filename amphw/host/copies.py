"""Copies of a node in one graph, brought together after every so many instances (`device.replicate_every`).

Where a device `Moves`, workers go on meanwhile; another one lets its instances return first. Either way the
values alone meet: each copy keeps the state of its optimiser, its version and what it has accumulated. The
state meets at the end of an epoch (`snapshots.average_replicas`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

import numpy as np

from amphw.ir.device import Device, Moves
from amphw.ir.instance import Instance
from amphw.ir.meeting import moves_to_mean


class Copies:
    """groups: nodes that are copies of one another. every: instances between two meetings, 0: there are none.

    barrier: of a mode whose windows see the same parameters: copies then meet after an update.
    """

    def __init__(self, device: Device, groups: Sequence[Sequence[str]], every: int, barrier: bool):
        self._device, self._groups, self._every, self._barrier = device, groups, every, barrier
        self._in_flight = self._every > 0 and not barrier and isinstance(device, Moves)
        self._since = 0

    @property
    def at_updates(self) -> bool:
        """Whether they meet after updates, and nothing may be in flight then."""
        return self._every > 0 and self._barrier

    def retired(self) -> None:
        """A training instance came back."""
        if not self._barrier:
            self._since += 1
            if self._in_flight and self._since >= self._every:
                self.meet()

    def updated(self, window: int) -> None:
        """All nodes have updated with a window of so many instances."""
        if self.at_updates:
            self._since += window
            if self._since >= self._every:
                self._device.drain()  # the update may still be under way
                self.meet()

    def stretches(self, share: Iterable[Instance]) -> Iterator[Iterable[Instance]]:
        """The instances, in as many parts as have to return one after the other; whoever takes the next part
        has nothing in flight."""
        if not self._every or self._barrier or self._in_flight:
            yield share
            return
        source = iter(share)
        for first in source:
            yield chain([first], islice(source, self._every - self._since - 1))
            if self._since >= self._every:
                self._device.drain()
                self.meet()

    def meet(self) -> None:
        """Every copy moves to the mean of its group."""
        self._since = 0
        device = self._device
        for group in self._groups:
            if isinstance(device, Moves):
                device.move(_moves(device.latest(group)))
                continue
            parameters = device.parameters()
            for node, moves in _moves({node: parameters[node].values for node in group}).items():
                p = parameters[node]
                p.values = {name: value + moves[name] for name, value in p.values.items()}


def _moves(found: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, dict[str, np.ndarray]]:
    """Of each copy, by its name and that of the parameter."""
    out: dict[str, dict[str, np.ndarray]] = {node: {} for node in found}
    for name in next(iter(found.values())):
        moves = moves_to_mean([values[name] for values in found.values()])
        for node, move in zip(found, moves, strict=True):
            out[node][name] = move
    return out
