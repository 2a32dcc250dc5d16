"""Estimates of chains, played through and compared: what pages are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from amphw.engine.lowering.lower import lower
from amphw.estimate.accuracy import known
from amphw.estimate.count.traffic import Spread, count
from amphw.estimate.network.network import Network, estimate
from amphw.estimate.outcome import Origin, Outcome
from amphw.estimate.search.compare import compared
from amphw.ir.update import UpdateRule
from tests.estimate.chain import chain, rows

LINKED = Network(1e9, bandwidth=1e9, latency=1e-6)


def outcome(
    widths: Sequence[int], network: Network = LINKED, keys: int = 8, replicas: int = 1, compare: bool = True
) -> Outcome:
    traffic, rules = count(lower(chain(widths)), rows(4)), {"*": UpdateRule()}
    found = estimate("chain", traffic, rules, network, keys, replicas, events=True, watch=True)
    if compare:
        found = compared(found, traffic, rules, network, keys, replicas)
    origin = {"flops": Origin("stated", "by the test"), "latency": Origin("assumed", "1 us")}
    return replace(found, origin=origin, accuracy=known())


def idle(widths: Sequence[int], name: str) -> Outcome:
    """As if nothing had reached the node: it has not fired, and its links carry nothing."""
    found = outcome(widths, compare=False)
    assert found.played is not None
    nodes = [replace(n, firings=Spread.of([0.0])) if n.name == name else n for n in found.per_node]
    home = next(n.devices[0] for n in nodes if n.name == name)
    links = [
        replace(link, bytes=0.0, bits_per_s=0.0, share=0.0) if home in (link.source, link.target) else link
        for link in found.links
    ]
    late = {node: value for node, value in found.played.staleness.items() if node != name}
    return replace(found, per_node=nodes, links=links, played=replace(found.played, staleness=late))
