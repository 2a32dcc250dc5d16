"""An estimate beside others: what doubling one thing buys, and what other placements do.

Every other network and placement is calculated and played through like the estimate itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from amphw.estimate.count.traffic import Traffic
from amphw.estimate.network.busy import Load
from amphw.estimate.network.network import Network, estimate
from amphw.estimate.outcome import Candidate, Change, Outcome
from amphw.ir.errors import AmphwError
from amphw.ir.update import UpdateRule

Where = dict[str, Sequence[int]]
"""Devices of each node's replicas."""

TRIED = 400
"""Placements that the local search looks at, at most."""

OWN, ONE, EACH, FOUND = (
    "in turns, as estimated",
    "all on one device",
    "a device for each node",
    "local search",
)
"""Names of placements. A device for each node: for each replica of one with parameters."""


def compared(
    of: Outcome, traffic: Traffic, rules: Mapping[str, UpdateRule], network: Network, keys: int, replicas: int
) -> Outcome:
    """The outcome with its `sensitivity` and `placements`. The rest: what it was estimated of."""

    def again(
        there: Network,
        keys: int = keys,
        replicas: int = replicas,
        at: Where | None = None,
        events: bool = True,
    ) -> Outcome:
        return estimate(of.model, traffic, rules, there, keys, replicas, events, at)

    return replace(
        of,
        sensitivity=_sensitivity(of, again, network, keys, replicas),
        placements=_placements(of, again, network),
    )


# --- what doubling one thing buys ---------------------------------------------------------------------


def _sensitivity(
    of: Outcome, again: Callable[..., Outcome], network: Network, keys: int, replicas: int
) -> list[Change]:
    devices = len(of.devices)
    changes: dict[str, Callable[[], Outcome]] = {
        _faster(network): lambda: again(network.computing(2)),
        "links of twice the bandwidth": lambda: again(network.linked(2)),
        "twice as many devices": lambda: again(network.of(2 * devices)),
        "twice as many instances in flight": lambda: again(network, 2 * keys),
        "twice as many replicas, on twice as many devices": lambda: again(
            network.of(2 * devices), keys, 2 * replicas
        ),
    }
    if not of.links or network.linked(2) == network:
        del changes["links of twice the bandwidth"]  # they limit nothing
    if devices >= sum(len(node.devices) for node in of.per_node if node.memory.value):
        del changes["twice as many devices"]  # they would be idle
    found = [_change("as estimated", lambda: of if of.played else again(network))]
    return found + [_change(what, make) for what, make in changes.items()]


def _faster(network: Network) -> str:
    """What `Network.computing` makes of its devices, in words."""
    circuits = [network.device(d).resources for d in range(len(network.parts) or 1)]
    if all(circuits):
        return "circuits of twice the lanes"
    return "circuits of twice the lanes, others twice as fast" if any(circuits) else "devices twice as fast"


def _change(what: str, make: Callable[[], Outcome]) -> Change:
    try:
        other = make()
    except AmphwError as error:
        return Change(what, why=str(error))
    assert other.played is not None
    return Change(what, other.throughput, other.played.throughput, limit(other.bottleneck))


def limit(load: Load) -> str:
    """What it is, in words."""
    return f"link {load.name}" if load.of == "link" else load.name


# --- other placements ---------------------------------------------------------------------------------


def _placements(of: Outcome, again: Callable[..., Outcome], network: Network) -> list[Candidate]:
    copies = sum(len(node.devices) for node in of.per_node if node.memory.value)
    here = network if network.parts else network.of(len(of.devices))
    found = [
        _candidate(OWN, lambda: of if of.played else again(here)),
        _candidate(ONE, lambda: again(network.of(1))),
        _candidate(EACH, lambda: again(network.of(copies))),
    ]

    def rated(at: Where) -> tuple[float, float]:
        """The better of two placements has the larger one: more throughput, for the same fewer bytes that
        cross. Impossible ones have none."""
        try:
            other = again(here, at=at, events=False)
        except AmphwError:
            return 0.0, 0.0
        # Rounded: what a sum's order of terms changes is no throughput.
        return float(f"{other.throughput:.9g}"), -sum(link.bytes for link in other.links)

    pinned = {name for part in network.parts for name in part.nodes}
    best = _searched(_where(of), len(of.devices), rated, pinned)
    return [*found, _candidate(FOUND, lambda: again(here, at=best))]


def _candidate(name: str, make: Callable[[], Outcome]) -> Candidate:
    try:
        other = make()
    except AmphwError as error:
        return Candidate(name, 0, why=str(error))
    assert other.played is not None
    return Candidate(
        name=name,
        devices=sum(bool(device.nodes) for device in other.devices),
        where=_where(other),
        throughput=other.throughput,
        played=other.played.throughput,
        bottleneck=limit(other.bottleneck),
        busiest_bits_per_s=max((link.bits_per_s for link in other.links), default=0.0),
        bytes=sum(link.bytes for link in other.links),
    )


def _where(of: Outcome) -> Where:
    return {node.name: list(node.devices) for node in of.per_node}


def _searched(
    own: Where, devices: int, rated: Callable[[Where], tuple[float, float]], pinned: Collection[str]
) -> Where:
    """The best of what single moves and exchanges lead to from the better of two beginnings: `own`, and
    everything on one device. A step is taken as soon as it is better. pinned: nodes that stay."""
    one: Where = {name: where if name in pinned else [0] * len(where) for name, where in own.items()}
    at, best = max(((w, rated(w)) for w in (own, one)), key=lambda pair: pair[1])
    tried, better = 2, True
    while better:
        better = False
        for other in _steps(at, devices, pinned):
            if tried == TRIED:
                return at
            tried += 1
            rating = rated(other)
            if rating > best:
                at, best, better = other, rating, True
                break
    return at


def _steps(at: Where, devices: int, pinned: Collection[str]) -> Iterator[Where]:
    """One replica elsewhere; or two exchanged."""
    replicas = [(name, k) for name, where in at.items() if name not in pinned for k in range(len(where))]
    for name, k in replicas:
        for device in range(devices):
            if device != at[name][k]:
                yield _moved(at, (name, k, device))
    for (a, j), (b, k) in itertools.combinations(replicas, 2):
        if at[a][j] != at[b][k]:
            yield _moved(at, (a, j, at[b][k]), (b, k, at[a][j]))


def _moved(at: Where, *moves: tuple[str, int, int]) -> Where:
    found = {name: list(where) for name, where in at.items()}
    for name, replica, device in moves:
        found[name][replica] = device
    return dict(found)
