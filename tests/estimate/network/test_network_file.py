"""Networks of devices that are not alike: read from a file, placed, and played through."""

from __future__ import annotations

from pathlib import Path

import pytest

from amphw.cpu_runtime import planes
from amphw.engine.lowering.lower import lower
from amphw.estimate.count.traffic import count
from amphw.estimate.network.devices import Circuit, Processor, Wire
from amphw.estimate.network.file import read_network
from amphw.estimate.network.network import estimate
from amphw.estimate.network.topology import Network
from amphw.estimate.outcome import Outcome
from amphw.ir.errors import AmphwError
from amphw.ir.update import UpdateRule
from amphw.models.list_reduction import ListReductionConfig, ListReductionRNN
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.timing.circuit import Circuits
from tests.estimate.chain import chain, rows
from tests.estimate.network.test_devices import Maker

RULES = {"*": UpdateRule()}

TWO = """
[[device]]
flops = "1kFLOPS"
nodes = ["layer1"]

[[device]]
flops = "2kFLOPS"
nodes = ["layer0"]
memory = "1kB"
"""

LINK = """
[[link]]
between = [0, 1]
bandwidth = "1kb/s"
latency = "2ms"
credits = 3
"""


def read(tmp_path: Path, text: str, like: Network | None = None) -> Network:
    path = tmp_path / "network.toml"
    path.write_text(text)
    return read_network(path, lambda lanes, clock: Circuit(lanes, clock or 1e6, Maker()), like)


def of_chain(network: Network, events: bool = False) -> Outcome:
    traffic = count(lower(chain([8, 2])), rows())
    return estimate("chain", traffic, RULES, network, 4, events=events)


def test_devices_and_links_are_as_listed(tmp_path: Path) -> None:
    network = read(tmp_path, TWO + LINK + '\n[[device]]\nlanes = 8\nclock = "50MHz"')
    first, second, third = network.parts
    assert first.device == Processor(1e3) and list(first.nodes) == ["layer1"]
    assert second.device == Processor(2e3) and second.memory == 1e3
    assert isinstance(third.device, Circuit) and (third.device.lanes, third.device.clock) == (8, 50e6)
    assert network.wire(0, 1) == network.wire(1, 0) == Wire(1e3, 2e-3, 3)
    assert network.wire(0, 2) is None


def test_without_links_all_are_linked_alike(tmp_path: Path) -> None:
    network = read(tmp_path, TWO, Network(1.0, bandwidth=5e3, latency=1e-3))
    assert network.wire(0, 1) == Wire(5e3, 1e-3) == network.wire(1, 0)


def test_nodes_are_where_they_are_said_to_be_and_the_others_take_turns(tmp_path: Path) -> None:
    found = of_chain(read(tmp_path, TWO))
    at = {node.name: list(node.devices) for node in found.per_node}
    assert at["layer1"] == [0] and at["layer0"] == [1]
    turns = of_chain(read(tmp_path, TWO.replace('nodes = ["layer0"]', "").replace("layer1", "layer0")))
    assert {n.name: list(n.devices) for n in turns.per_node} == {"layer0": [0], "layer1": [1], "loss": [1]}
    assert [device.flops for device in found.devices] == [1e3, 2e3]
    assert found.devices[1].room == 1e3


@pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")
def test_it_plays_through_as_fast_as_its_busiest_part(tmp_path: Path) -> None:
    found = of_chain(read(tmp_path, TWO + LINK), events=True)
    assert found.played is not None
    # 8 numbers there and 8 gradients back, each on its own way; 4 instances wait for 4 ms of latency.
    assert (found.bottleneck.of, found.throughput) == ("link", pytest.approx(1e3 / (8 * 32)))
    assert found.played.throughput == pytest.approx(found.throughput, rel=0.05)


def test_a_link_that_is_missing_between_two_nodes(tmp_path: Path) -> None:
    three = TWO + LINK.replace("[0, 1]", "[0, 2]") + '\n[[device]]\nflops = "1kFLOPS"'
    with pytest.raises(
        AmphwError, match=r"'layer0' on device 1 and 'layer1' on device 0 .* no link from 1 to 0"
    ):
        of_chain(read(tmp_path, three))


def test_a_listed_device_that_is_too_small(tmp_path: Path) -> None:
    with pytest.raises(AmphwError, match="device 1 is too small by [0-9,]+ B: layer0"):
        of_chain(read(tmp_path, TWO.replace('"1kB"', '"100B"')))


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("", r"no \[\[device\]\] is listed"),
        ("[[device]]", "device 0: say either flops or lanes"),
        ('[[device]]\nflops = "1GFLOPS"\nlanes = 4', "device 0: say either flops or lanes"),
        ('[[device]]\nflops = "1000"', "device 0: flops: '1000' is no number of operations a second"),
        ("[[device]]\nlanes = 3", "3 lanes cannot be built"),
        (
            '[[device]]\nflops = "1GFLOPS"\nspeed = 3',
            "device 0: 'speed' is not known; expected some of flops",
        ),
        ('[[device]]\nflops = "1GFLOPS"\nuse = 2.0', "rate in use is 2.0"),
        ('[[device]]\nflops = "1GFLOPS"\nnodes = "x"', "expected names"),
        ('[device]\nflops = "1GFLOPS"', r"expected tables, as in \[\[device\]\]"),
        (TWO + LINK.replace("[0, 1]", "[0, 7]"), "expected two of the devices 0 to 1"),
        (TWO + LINK.replace("[0, 1]", "[1, 1]"), "expected two of the devices 0 to 1"),
        (TWO + LINK + LINK, "devices 0 and 1 have a link already"),
        (TWO + LINK.replace("3", "-1"), "a link's credits are -1"),
        (TWO + LINK.replace('"1kb/s"', '"0b/s"'), "link 0: bandwidth: '0b/s' is no number of bits"),
        ("[[device]", "network.toml: "),
        ("[[device]]\nlanes = 4\nuse = 0.5", "device 0: use means nothing for a device with lanes"),
        ('[[device]]\nflops = "1GFLOPS"\nclock = "1MHz"', "clock means nothing for a device with flops"),
        ('[[device]]\nflops = "1GFLOPS"\nuse = true', "use = True, expected a number"),
        (TWO + "[host]\nflops = 1", "the host: 'flops' is not known; expected some of nodes"),
        (TWO + '[host]\nnodes = "h0"', "the host: nodes = 'h0', expected names"),
        ("host = 3\n" + TWO, r"'host': expected a table, as in \[host\]"),
    ],
)
def test_files_that_mean_nothing(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(AmphwError, match=complaint) as caught:
        read(tmp_path, text)
    assert "network.toml" in str(caught.value)


def test_links_are_said_once(tmp_path: Path) -> None:
    with pytest.raises(AmphwError, match="links are listed here"):
        read(tmp_path, TWO + LINK, Network(1.0, latency=1e-3))


def test_nodes_that_are_not_there_or_placed_twice(tmp_path: Path) -> None:
    with pytest.raises(
        AmphwError, match="node 'layer9', and there is none that computes: expected one of layer0"
    ):
        of_chain(read(tmp_path, TWO.replace("layer1", "layer9")))
    twice = TWO.replace('"layer0"', '"layer1"')
    with pytest.raises(AmphwError, match="'layer1' is placed more often than it has replicas"):
        of_chain(read(tmp_path, twice))


CIRCUITS = """
[host]
nodes = []

[[device]]
lanes = 4
nodes = ["layer0"]

[[device]]
lanes = 4
nodes = ["layer1"]
"""


def test_a_host_passes_on_what_circuits_send_each_other(tmp_path: Path) -> None:
    """A word a cycle to the host and a word a cycle from it: twice as long as over a link of their own."""
    found = of_chain(read(tmp_path, CIRCUITS))
    straight = of_chain(read(tmp_path, CIRCUITS.replace("[host]\nnodes = []", "")))
    (there, back) = found.links
    assert there.bytes == back.bytes == 8 * 2 + 20
    seconds = 2 * (8 + 10) / 1e6
    assert there.share == back.share == pytest.approx(seconds * found.throughput)
    assert found.chain.mean - straight.chain.mean == pytest.approx(2 * seconds)
    assert [link.share for link in straight.links] == [None, None]  # nothing is said of it: no limit


@pytest.mark.parametrize(
    ("node", "complaint"),
    [
        (
            "layer2",
            "the host is to have node 'layer2', and there is none that computes: expected some of layer0",
        ),
        ("layer1", "the host is to have node 'layer1', which has parameters: place it on a device"),
    ],
)
def test_what_a_host_cannot_have(tmp_path: Path, node: str, complaint: str) -> None:
    with pytest.raises(AmphwError, match=complaint):
        of_chain(read(tmp_path, CIRCUITS.replace("nodes = []", f'nodes = ["{node}"]')))


def test_what_a_host_computes_takes_no_time_and_is_on_no_device(tmp_path: Path) -> None:
    """Of list reduction with its cell and its head on circuits, whose cycles are those of these nodes."""
    model, cfg = ListReductionRNN(), ListReductionConfig(hidden=8, batch=1)
    graph = model.graph(cfg)
    data = model.training(cfg, 0, 1, 4)
    traffic = count(lower(graph), [data[k] for k in range(4)])
    text = CIRCUITS.replace("layer0", "cell").replace("layer1", "head").replace("[]", '["relu", "h0"]')
    (tmp_path / "network.toml").write_text(text)
    maker = Circuits(Formats.parse("q4.12"))
    network = read_network(tmp_path / "network.toml", lambda lanes, clock: Circuit(lanes, 1e6, maker))
    found = estimate("lists", traffic, RULES, network, 4)
    assert [device.nodes for device in found.devices] == [["cell"], ["head", "loss"]]
    assert [node.name for node in found.per_node] == ["cell", "head", "loss"] and found.links == []
    alone = maker.cycles(graph, RULES, 4, ["cell"])
    assert list(alone.units) == ["cell"]
    rate = traffic.nodes["cell"].firings.mean
    spent = sum(alone.firing("cell", back, {"rows": 1}) for back in (False, True)) * rate
    spent += alone.update("cell") * rate
    assert found.devices[0].busy * 1e6 == pytest.approx(spent)
