"""Circuits as devices of a network: cycles, links to their host, and the unit that fetches and delivers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from amphw.cpu_runtime import planes
from amphw.engine.lowering.lower import lower
from amphw.estimate.count.traffic import count
from amphw.estimate.network.devices import Circuit, Processor
from amphw.estimate.network.limit import limit_of
from amphw.estimate.network.network import Network, estimate, seconds_of
from amphw.estimate.network.topology import Part
from amphw.estimate.outcome import Outcome
from amphw.estimate.search.compare import compared
from amphw.estimate.search.space import affordable, rates
from amphw.ir.errors import AmphwError
from amphw.ir.graph import Graph
from amphw.ir.update import UpdateRule
from tests.estimate.chain import chain, rows

RULES = {"*": UpdateRule()}
FORWARD, BACKWARD, UPDATE = 100.0, 300.0, 50.0
pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")


@dataclass
class Cycles:
    """Every firing takes as long, whatever the lanes. fetches, delivers: cycles of the controller."""

    fetches: float = 0.0
    delivers: float = 0.0
    units: Mapping[str, object] = field(default_factory=lambda: {"layer0": None, "layer1": None})

    def firing(
        self, node: str, backward: bool, rows: Mapping[str, int], needs: int = 1, sends: int = 1
    ) -> float:
        return (BACKWARD if backward else FORWARD) * rows["rows"]

    def control(
        self, node: str, backward: bool, needs: float = 1, sends: float = 1, rows: float = 1
    ) -> tuple[float, float]:
        return self.fetches, self.delivers

    def update(self, node: str) -> float:
        return UPDATE


@dataclass(frozen=True)
class Maker:
    """Circuits of `Cycles`. latency: cycles to the host and back from it, each way."""

    latency: float = 0.0
    fetches: float = 0.0
    delivers: float = 0.0
    number_bytes: int = 2
    header_bytes: int = 20

    def resources(self, lanes: int) -> Mapping[str, int]:
        return {"luts": 1000 * lanes, "dsps": lanes + 8}

    def cycles(
        self,
        graph: Graph,
        rules: Mapping[str, UpdateRule],
        lanes: int,
        nodes: Sequence[str] | None = None,
    ) -> Cycles:
        return Cycles(self.fetches, self.delivers)


def of_chain(network: Network, keys: int = 1, events: bool = True) -> Outcome:
    traffic = count(lower(chain([8, 2])), rows(4))
    return estimate("chain", traffic, RULES, network, keys, events=events)


def on(maker: Maker, devices: int = 1) -> Network:
    return Network(circuit=Circuit(4, 1e6, maker), devices=devices)


WORK = 2 * (FORWARD + BACKWARD + UPDATE)


def test_an_instance_takes_the_cycles_of_its_firings_and_updates() -> None:
    found = of_chain(on(Maker()), keys=16)
    assert found.throughput == pytest.approx(1e6 / WORK)
    assert found.played is not None
    assert found.played.throughput == pytest.approx(1e6 / WORK, rel=0.02)
    (device,) = found.devices
    assert device.what == "4 lanes at 1 MHz" and device.flops == 8e6
    assert device.resources == {"luts": 4000, "dsps": 12}


def test_an_instance_alone_also_waits_for_messages_and_the_controller() -> None:
    maker = Maker(latency=7.0, fetches=11.0, delivers=13.0)
    found = of_chain(on(maker))
    assert found.played is not None
    # In: 4 numbers and a header, a word a cycle; to the loss and back: 2 numbers and a header each.
    link = (4 + 10) + 2 * (2 + 10) + 3 * 7
    control = 4 * (11 + 13)  # forward and backward of both layers
    # The first layer's gradient goes to nobody, but is delivered before the instance is over.
    assert found.played.latency * 1e6 == pytest.approx(link + control + WORK, abs=UPDATE)


def test_a_controller_that_is_slower_than_the_engines_limits() -> None:
    found = of_chain(on(Maker(fetches=600.0, delivers=400.0)), keys=16)
    assert found.played is not None
    assert found.played.throughput == pytest.approx(1e6 / (4 * 1000.0), rel=0.02)


def test_fetching_runs_beside_computing() -> None:
    found = of_chain(on(Maker(fetches=30.0, delivers=20.0)), keys=16)
    assert found.played is not None
    assert found.played.throughput == pytest.approx(1e6 / WORK, rel=0.05)


def test_messages_between_circuits_have_headers_and_short_numbers() -> None:
    found = of_chain(on(Maker(), devices=2), events=False)
    (there, back) = found.links
    assert there.bytes == back.bytes == 8 * 2 + 20
    assert found.per_node[0].memory.in_flight == 2 * (4 + 8)


def test_seconds_until_so_many_messages() -> None:
    traffic = count(lower(chain([8, 2])), rows(4))
    some, many = (seconds_of(traffic, RULES, on(Maker()), 4, messages) for messages in (300, 600))
    assert (many - some) * 1e6 == pytest.approx(50 * WORK, rel=0.02)  # six messages an instance


def test_the_controller_is_named_where_it_limits() -> None:
    found = of_chain(on(Maker(fetches=600.0, delivers=400.0)), keys=16)
    assert (found.bottleneck.of, found.bottleneck.name) == ("controller", "controller of device 0")
    assert found.throughput == pytest.approx(1e6 / (4 * 1000.0))
    assert found.played is not None and found.played.controller_busy[0] == pytest.approx(1.0, abs=0.02)
    assert limit_of(found).of == "controller"


def test_a_search_chooses_lanes_within_their_dsps() -> None:
    most = on(Maker(), devices=1).of(1)
    assert [(rate.label, rate.dsps) for rate in rates(most)] == [("2 lanes", 10), ("4 lanes", 12)]
    assert [rate.label for rate in affordable(most, 11)] == ["2 lanes"]
    with pytest.raises(AmphwError, match="the smallest device takes 10"):
        affordable(most, 9)


def test_a_mixed_network_plays_the_bytes_that_it_counts() -> None:
    circuit, slow = Circuit(4, 1e6, Maker()), Processor(1e5)
    network = Network(
        parts=[Part(slow, nodes=["layer0"]), Part(circuit, nodes=["layer1"])], bandwidth=1e6, latency=0.0
    )
    found = of_chain(network, keys=8)
    assert found.played is not None
    for link in found.links:
        busy = 8 * link.bytes / 1e6 * found.played.throughput
        assert found.played.link_busy[link.name] == pytest.approx(busy, rel=0.02)
    # What is kept for gradients has the numbers of the device that keeps it.
    at = {node.name: node.memory.in_flight for node in found.per_node}
    assert (at["layer0"], at["layer1"]) == (8 * 4 * (4 + 8), 8 * 2 * (8 + 2))


def test_replicas_share_instances_that_they_do_not_divide() -> None:
    traffic = count(lower(chain([8, 2])), rows(4))
    found = estimate("chain", traffic, RULES, Network(1e3, devices=4), 5, 4, events=True)
    assert found.played is not None
    assert found.played.latency * found.played.throughput == pytest.approx(5, rel=0.05)  # Little's law


def test_pinned_nodes_stay_where_they_are() -> None:
    traffic = count(lower(chain([8, 2])), rows(4))
    slow, fast = Part(Processor(1e2), nodes=["layer0"]), Part(Processor(1e5))
    network = Network(parts=[slow, fast])
    found = compared(estimate("chain", traffic, RULES, network, 4), traffic, RULES, network, 4, 1)
    assert all(list(each.where["layer0"]) == [0] for each in found.placements if each.where)


@pytest.mark.parametrize(
    "wrong, complaint",
    [
        ({"lanes": 3}, "3 lanes cannot be built"),
        ({"lanes": 0}, "0 lanes cannot be built"),
        ({"lanes": 1}, "1 lanes cannot be built"),
        ({"lanes": 128}, "128 lanes cannot be built: choose a power of two, 2 to 64"),
        ({"clock": 0.0}, "a clock of 0.0 cycles"),
        ({"clock": float("nan")}, "a clock of nan cycles"),
    ],
)
def test_circuits_that_cannot_be(wrong: dict[str, float], complaint: str) -> None:
    with pytest.raises(AmphwError, match=complaint):
        replace(Circuit(4, 1e6, Maker()), **wrong)  # type: ignore[arg-type]
