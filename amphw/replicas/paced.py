"""How far ranks that go at their own pace have come, and how far ahead of each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from amphw.replicas.collectives import all_reduce
from amphw.replicas.packed import add_up
from amphw.replicas.transport import Transport


@dataclass
class Paced:
    """Of one rank. rounds: it has made. leads: how many of them ended how many rounds ahead of the slowest
    other rank that went on. blocked: seconds for which the bound has held it. bound: that has to be exceeded
    for that. partitions: into which gradients are cut, for rounds or for servers."""

    rounds: int = 0
    leads: dict[int, int] = field(default_factory=dict)
    blocked: float = 0.0
    bound: int = 0
    partitions: int = 0

    def after(self, rounds: int, leads: Mapping[int, int]) -> Paced:
        """With those of another share."""
        both = {lead: self.leads.get(lead, 0) + leads.get(lead, 0) for lead in {*self.leads, *leads}}
        return replace(self, rounds=self.rounds + rounds, leads=both)

    def of_all(self, transport: Transport, working: int) -> dict[str, Any]:
        """All ranks call this. working: the first so many train.

        partitions, bound: of this rank. clocks: rounds of each. staleness_rounds: `leads` of all together;
        staleness_max: the largest of these. blocked: seconds, on average over them."""
        ranks, me = transport.ranks, transport.rank
        clocks, most = np.zeros((2, ranks), np.int64)
        clocks[me], most[me] = self.rounds, max(self.leads, default=0)
        add_up(transport, clocks)
        add_up(transport, most)
        leads = np.zeros(int(most.max()) + 1, np.int64)
        for lead, times in self.leads.items():
            leads[lead] = times
        add_up(transport, leads)
        blocked = np.array([self.blocked / working])
        all_reduce(transport, blocked)
        return {
            "partitions": self.partitions,
            "bound": self.bound,
            "clocks": clocks[:working].tolist(),
            "staleness_max": int(most.max()),
            "staleness_rounds": {lead: int(times) for lead, times in enumerate(leads) if times},
            "blocked": float(blocked[0]),
        }
