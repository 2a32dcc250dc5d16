"""What a search may vary: the rate of a device, their number, links, replicas and instances in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from amphw.estimate.network.network import Network
from amphw.estimate.search.budget import Budget
from amphw.ir.errors import AmphwError

DIVISORS = (16, 8, 4, 2, 1)
"""Of the given rate of a device, and of a budget's bandwidth."""

DEVICES = 64
"""At most, where no budget says."""

KEYS = (1, 2, 4, 8, 16, 32, 64)
"""Instances in flight in each replica of the model; between two of them a search goes on in ones."""


@dataclass(frozen=True)
class Rate:
    """How fast a device may be. label: on its axis. cost: of one device, in the axis' unit. network: of such
    devices. dsps: that a device takes; None: it is not known what it is made of."""

    label: str
    cost: float
    network: Network
    dsps: int | None = None


def rates(network: Network) -> list[Rate]:
    """Those to choose from. Only this function knows what makes a device of the network fast.

    The given one is the fastest that there is. Of a circuit, these are numbers of lanes at its clock.
    """
    if (most := network.circuit) is not None:
        circuits = [replace(most, lanes=1 << k) for k in range(1, most.lanes.bit_length())]
        return [
            Rate(f"{c.lanes} lanes", c.lanes / most.lanes, replace(network, circuit=c), c.resources["dsps"])
            for c in circuits
        ]
    return [Rate("1" if n == 1 else f"1/{n}", 1 / n, network.computing(1 / n)) for n in DIVISORS]


def affordable(network: Network, dsps: int | None) -> list[Rate]:
    """Rates of devices that take no more than so many DSPs. Raises AmphwError where there are none, and
    for devices of which only their rate is known."""
    found = rates(network)
    if dsps is None:
        return found
    if any(rate.dsps is None for rate in found):
        raise AmphwError(
            f"a budget of dsps={dsps} is for devices that are circuits (--lanes): of others it is known how "
            "fast they are, not what they are made of. Leave dsps out"
        )
    fits = [rate for rate in found if rate.dsps is not None and rate.dsps <= dsps]
    if not fits:
        least = min(rate.dsps for rate in found if rate.dsps is not None)
        raise AmphwError(f"a budget of dsps={dsps}: the smallest device takes {least}")
    return fits


def device_counts(network: Network, budget: Budget) -> list[int]:
    """All numbers up to 32, and eight of each octave behind it: what fits into a smaller budget is among what
    fits into a larger one. Only the network's own number where it has one."""
    if network.devices is not None:
        return [network.devices]
    most = budget.devices or DEVICES
    return [n for n in range(1, most + 1) if n <= 32 or n % (1 << (n.bit_length() - 4)) == 0]


def bandwidths(network: Network, budget: Budget) -> list[Network]:
    """The network with the links that it may have, slowest first."""
    if budget.link is None:
        return [network]
    return [network.linked(1 / n) for n in DIVISORS]


def replica_counts(devices: int, heavy: int, replicas: int | None, keys: int | None) -> list[int]:
    """Of so many nodes with parameters: powers of two, whole pipelines of a device for each node, and one of
    all nodes on each device. Instances in flight, where their number is given, are shared evenly."""
    if replicas is not None:
        return [replicas]
    found = {1 << k for k in range(devices.bit_length())} | {max(1, devices // heavy), devices}
    return sorted(r for r in found if keys is None or keys % r == 0)


def key_counts(replicas: int, keys: int | None) -> Sequence[int]:
    """Instances in flight, of all replicas."""
    return [keys] if keys is not None else [replicas * each for each in KEYS]
