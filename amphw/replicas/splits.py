"""The best split of ranks into those that train and those that serve (PS* of the Ako paper)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from amphw.host.config import RunConfig
from amphw.replicas.rehearsal import Simulated


@dataclass(frozen=True)
class Split:
    """servers: of all ranks; 0: every rank trains and serves. throughput: instances a second."""

    workers: int
    servers: int
    throughput: float


@dataclass(frozen=True)
class Splits:
    """tried: by servers. best: the fastest of them, and what was found of it."""

    tried: list[Split]
    best: Split
    found: Simulated


def best_split(ranks: int, simulated: Callable[[int], Simulated]) -> Splits:
    """simulated: so many ranks of which so many are servers.

    First 0, every rank a server, and powers of two are tried, then what is between the best number of servers
    and its neighbours, as long as anything is. So it is the best of all if throughput has one peak.
    """
    outcomes: dict[int, Simulated] = {}

    def attempt(servers: int) -> None:
        if servers not in outcomes:
            outcomes[servers] = simulated(servers)

    def best(among: list[int]) -> int:
        return max(among, key=lambda servers: outcomes[servers].instances_per_s)

    attempt(0)
    apart = [2**k for k in range(ranks.bit_length()) if 2**k < ranks]
    while True:
        for servers in apart:
            attempt(servers)
        tried = sorted(servers for servers in outcomes if servers)
        if not tried:
            break
        peak = best(tried)
        below = max((s for s in tried if s < peak), default=0)
        above = min((s for s in tried if s > peak), default=ranks)
        apart = sorted({(peak + below) // 2, (peak + above) // 2} - {0} - outcomes.keys())
        if not apart:
            break
    splits = [
        Split(ranks - servers, servers, outcomes[servers].instances_per_s) for servers in sorted(outcomes)
    ]
    chosen = best(sorted(outcomes))
    return Splits(splits, next(s for s in splits if s.servers == chosen), outcomes[chosen])


def with_servers(cfg: RunConfig[Any], servers: int) -> RunConfig[Any]:
    return replace(cfg, replicas=replace(cfg.replicas, servers=servers))
