"""Strategies: how ranks keep their parameters together. Each has a file of its own; none knows a carrier."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from amphw.host.gradients import Clipping
from amphw.ir.device import Device
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule
from amphw.replicas.packed import Traffic
from amphw.replicas.rounds import Rounds
from amphw.replicas.transport import Transport


class Strategy:
    """name: as in `replicas.strategy`.

    in_step: whether ranks exchange with every update of a mode in which the controller updates; the others
    exchange between rounds of instances, whatever the mode. All ranks call the methods in the same order,
    also a rank that has nothing to tell, and nothing is in flight then. servers_only: the last so many ranks
    do not train. own_pace: whether each rank exchanges by itself, between rounds of its own (`pass_on`), and
    meets the others at the end of a share alone. owned_bytes: what this rank has as a server. whole: tables
    that could be exchanged by rows, and why they are not. moves_whole: of ranks that do not go in step, what
    they exchange of each parameter. serves: whether servers own parameters.
    """

    name: str
    in_step: bool
    own_pace = False
    owned_bytes = 0
    servers_only = 0
    whole: Mapping[str, str] = {}
    moves_whole = "parameters"
    serves = False

    def working(self, ranks: int) -> range:
        """Those of so many ranks that train."""
        return range(ranks - self.servers_only)

    def serving(self, ranks: int) -> list[int]:
        """Those that are servers, if there are any: the ranks that do not train, or else all."""
        working = self.working(ranks)
        return [rank for rank in range(ranks) if rank not in working] or list(range(ranks))

    def begin(
        self, device: Device, transport: Transport, graph: Graph, rules: Mapping[str, UpdateRule]
    ) -> None:
        """Training goes on from what the device holds, which is the same on all ranks."""

    def place(self, device: Device, transport: Transport, instances: Iterable[Instance]) -> None:
        """These instances are this rank's first window; called before any is pumped to train."""

    def moved(self, device: Device) -> None:
        """The host has changed parameters, in the same way on all ranks."""

    def update(self, device: Device, clipping: Clipping) -> None:
        """Of ranks that do not go in step: a window of a mode with a barrier has returned."""
        clipping.update(device)

    def usual_every(self, window: int) -> int:
        """With `own_pace`: instances of a round where nobody has said. window: in flight at most."""
        raise NotImplementedError(f"{self.name} has no rounds of a rank's own")

    def look(self, transport: Transport, traffic: Traffic) -> bool:
        """While the device of a rank that trains is at work: what others have posted may be taken in ->
        whether any of it was."""
        return False

    def look_ahead(self, upcoming: Sequence[Instance]) -> None:
        """Of ranks in step: these instances are pumped after the next exchange. The device may be at work."""

    def plan(self, device: Device, transport: Transport) -> np.ndarray:
        """Integers of this rank, of which the sum over all ranks is what `exchange` has to know beforehand.

        int64, as many on each rank.
        """
        return np.zeros(0, np.int64)

    def exchange(self, device: Device, transport: Transport, traffic: Traffic, planned: np.ndarray) -> None:
        """Make this rank's device and the others' agree. planned: the sum of all ranks' `plan`s.

        Each strategy has its own."""

    def moves(self, ranks: int, size: float, alpha: float | None) -> float | None:
        """Bytes that a rank sends in an exchange, on average, by the formula for a parameter of `size` bytes.

        alpha: of a table that is exchanged by rows. None: there is no formula for it.
        """
        return None

    def pass_on(
        self, device: Device, transport: Transport, traffic: Traffic, rounds: Rounds, asks: bool
    ) -> None:
        """With `own_pace`, after each of this rank's `rounds`.

        asks: it wants all to meet soon. Once it has agreed with the others how many instances all take before
        they meet, `rounds.limit` is that number.
        """
        raise NotImplementedError(f"{self.name} has no rounds of a rank's own")

    def pumping(self, device: Device, transport: Transport, traffic: Traffic, rounds: Rounds) -> None:
        """With `own_pace`: instances of `rounds` are about to be pumped. A strategy that exchanges meanwhile,
        in a thread of its own, does so until the next `pass_on` or `close`."""

    def check(self, transport: Transport) -> None:
        """Between instances: raise RankLostError where another rank has told that it cannot go on, and what
        went wrong in a thread of this strategy's."""
        transport.check()

    def close(self) -> None:
        """The run has ended, maybe with an error: nothing of this strategy goes on beside it."""

    def explained(self) -> list[str]:
        """Sentences, of what its user should know of how it goes about the run that has begun."""
        return []

    def fetch(
        self, device: Device, transport: Transport, traffic: Traffic, instances: Iterable[Instance]
    ) -> None:
        """These instances are about to be pumped, and no exchange came before: the device has to hold what
        they read."""

    def told(self, transport: Transport) -> dict[str, Any]:
        """What there is to say of this strategy alone, for programs; all ranks call it when they are done."""
        return {}

    def gather(self, device: Device, transport: Transport) -> None:
        """The first rank's device has to hold everything, with the optimisers' state, as it is about to be
        saved."""
