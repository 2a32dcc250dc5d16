"""`amphw place`, and `amphw train` where it asks for a search."""

from __future__ import annotations

import json
import tomllib

import pytest

from amphw.cpu_runtime import planes
from amphw.estimate.network import host_costs
from amphw.estimate.network.cost_model import HostCosts

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")

SMALL = ["--set", "hidden=8", "--set", "batch=5", "--instances", "4"]
TWO = "cpu,a=sleep:1MFLOPS,b=sleep:1GFLOPS"


@pytest.fixture(autouse=True)
def known_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host takes 1 ms for a node: what is measured here would differ from run to run."""
    monkeypatch.setattr(
        host_costs,
        "host_costs",
        lambda graph, rules, options, instances, nodes, firings: HostCosts(
            dict.fromkeys(nodes, 1e-3), 0.0, 0.0, 1e-6, dict.fromkeys(nodes, 1.0), "stated", "by the test"
        ),
    )


def placed(amphw, *more: str) -> dict:
    done = amphw("place", "list-reduction", "--device", TWO, *SMALL, "--json", *more)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_both_placements_are_shown_with_what_limits_them(amphw) -> None:
    done = amphw("place", "list-reduction", "--device", TWO, *SMALL)
    assert done.exit_code == 0, done.stderr
    for text in (
        "2 nodes to place",
        "counted in the plans of the instances (4)",
        "a: stated: operations of its products at 1 MFLOPS",
        "heuristic search all on cpu",
        "Bottleneck: ",
        "the cpu takes its nodes",
        "--set device.place=cell=b,head=b",
    ):
        assert text in " ".join(done.stdout.split())
    assert all(len(line.rstrip()) <= 100 for line in done.stdout.splitlines())


def test_the_search_beats_a_heuristic_that_begins_with_the_slow_device(amphw) -> None:
    found = placed(amphw)
    assert found["heuristic"]["placement"] == {"cell": "a", "head": "b"}
    assert found["search"]["placement"] == {"cell": "b", "head": "b"}
    assert found["search"]["throughput"] > 10 * found["heuristic"]["throughput"]
    assert found["heuristic"]["loads"][0]["name"] == "a"
    assert found["chosen"] == "search" and found["set"] == "device.place=cell=b,head=b"


def test_the_json_says_how_everything_is_known(amphw) -> None:
    found = placed(amphw)
    cell = next(n for n in found["nodes"] if n["name"] == "cell")
    assert {label: cell["on"][label]["origin"] for label in ("a", "b", "cpu")} == dict.fromkeys(
        ("a", "b", "cpu"), "stated"
    )
    assert cell["firings"]["least"] <= cell["firings"]["mean"] <= cell["firings"]["most"]
    assert cell["work"]["parameters"] == 4 * (14 * 8 + 16 * 8 + 8)
    assert found["messages"]["origin"] == "counted in the plans of the instances"
    assert found["instances"] == 4 and found["counted_per_instance"] == 5
    assert found["devices"][0] == {
        "label": "a", "name": "sleep:1MFLOPS", "memory": None, "most_nodes": None, "link": None
    }  # fmt: skip


def test_without_a_search_the_heuristic_is_proposed(amphw) -> None:
    found = placed(amphw, "--no-search")
    assert found["search"] is None and found["chosen"] == "heuristic"
    assert found["set"] == "device.place=cell=a,head=b"


def test_nodes_that_are_placed_stay_and_limits_are_kept(amphw) -> None:
    fixed = placed(amphw, "--set", "device.place=cell=a")
    assert fixed["fixed"] == {"cell": "a"} and fixed["search"]["placement"]["cell"] == "a"
    limited = placed(amphw, "--limit", "b=1")
    assert list(limited["search"]["placement"].values()).count("b") == 1


def test_a_node_without_parameters_goes_where_it_is_asked_for(amphw) -> None:
    found = placed(amphw, "--set", "device.place=relu=b")
    assert found["fixed"] == {"relu": "b"}
    assert found["search"]["placement"] == {"cell": "b", "relu": "b", "head": "b"}


def test_a_heuristic_that_violates_a_limit_is_told(amphw) -> None:
    done = amphw("place", "list-reduction", "--device", TWO, *SMALL, "--limit", "a=0")
    assert done.exit_code == 0, done.stderr
    assert "The heuristic's placement cannot be: a may have 0 node(s), and has 1" in done.stdout


def test_a_link_can_be_what_limits(amphw) -> None:
    slow = "device.links=b=10kb/s"
    found = placed(amphw, "--set", slow, "--set", "device.place=cell=b,head=b")
    assert found["search"]["loads"][0]["of"] == "link"
    free = placed(amphw, "--set", slow)
    assert "b" not in free["search"]["placement"].values()


def test_a_layer_that_is_refused_is_told_with_its_reason_and_tiles(amphw, monkeypatch) -> None:
    from amphw.engine.parts.sleeper import Sleeper

    def refused(self, graph, unit, rules):
        wide = [p.shape[1] for p in graph.nodes[unit.name].params if len(p.shape) == 2 and p.shape[1] > 40]
        return f"it is {wide[0]} columns wide" if wide else ""

    monkeypatch.setattr(Sleeper, "refused", refused)
    wide = [
        "place",
        "mnist",
        "--device",
        TWO,
        "--set",
        "sample=true",
        "--set",
        "batch=2",
        "--set",
        "width=64",
        "--instances",
        "1",
    ]
    done = amphw(*wide)
    assert done.exit_code == 0, done.stderr
    assert "a refuses linear1, linear2, linear3: it is 64 columns wide" in done.stdout
    assert (
        "Every device but the cpu refuses linear1; in 2 tiles a takes it: --set device.tile=linear1:2"
        in done.stdout
    )
    tiled = amphw(*wide, "--set", "device.tile=linear1:2")
    assert tiled.exit_code == 0, tiled.stderr
    assert "linear1_1" in tiled.stdout and "refuses linear1_1" not in tiled.stdout
    assert "--set device.tile=linear1:2 --set device.place=" in tiled.stdout


def test_a_placement_is_faster_or_slower_than_the_cpu_alone(amphw) -> None:
    done = amphw("place", "list-reduction", "--device", TWO, *SMALL)
    (line,) = [each for each in done.stdout.splitlines() if each.startswith("beside all on cpu")]
    assert " x slower " in line and " x faster " in line and line.rstrip().endswith("the same")


def test_one_reason_is_told_once_for_all_nodes(amphw) -> None:
    done = amphw("place", "list-reduction", "--device", "cpu,fixed:q7.9", *SMALL, "--set", "optimizer=adam")
    assert done.exit_code == 0, done.stderr
    assert (
        done.stdout.count("fixed refuses") == 1
        and "fixed refuses cell, head: the hardware upd" in done.stdout
    )
    assert done.stdout.count("tiles do not help") <= 2


def test_without_other_devices_the_cpu_is_proposed(amphw) -> None:
    done = amphw("place", "list-reduction", "--device", "cpu,fixed:q7.9", *SMALL, "--set", "optimizer=adam")
    assert done.stdout.rstrip().endswith("--device cpu") and "device.place=" not in done.stdout


@pytest.mark.parametrize(
    "device, more, complaint",
    [
        ("cpu", [], "a placement is about devices beside the cpu"),
        ("fixed:q4.12", [], "name several, as in --device cpu,fixed:q4.12"),
        ("cpu,nothing", [], "there is no device"),
        ("cpu,sleep,sleep", [], "two devices are called 'sleep'"),
        (TWO, ["--set", "device.place=cell=z"], "there is no device 'z' in this run for node 'cell'"),
        (TWO, ["--set", "device.place=nothing=a"], "there is no node 'nothing'"),
        (TWO, ["--set", "device.place=loss=a"], "node 'loss' has no place of its own"),
        (TWO, ["--set", "device.links=z=1Gb/s"], "device.links: there is no device 'z' beside the cpu"),
        (TWO, ["--set", "device.links=a=0Gb/s"], "'0Gb/s' is no number of bits a second"),
        (TWO, ["--limit", "z=1"], "the limit of nodes: there is no device 'z'"),
        (TWO, ["--set", "device.tile=head:11"], "device.tile = 'head:11': cannot be tiled: head: it has 10 "),
        (TWO, ["--set", "device.tile=nothing:2"], "there is no such node"),
        (TWO, ["--set", "device.tile=cell"], "'cell' is not of the form NODE:N"),
    ],
)
def test_what_cannot_be_is_said(amphw, device, more, complaint) -> None:
    done = amphw("place", "list-reduction", "--device", device, *SMALL, *more)
    assert done.exit_code == 1 and complaint in done.stderr


def test_a_command_line_that_cannot_be_read(amphw) -> None:
    assert amphw("place", "list-reduction", "--device", TWO, "--instances", "0").exit_code == 2
    assert amphw("place", "list-reduction", "--device", TWO, "--limit", "a=few").exit_code == 2


def test_only_training_searches(amphw) -> None:
    """Nobody is to take the heuristic's placement for that of a search."""
    from amphw.host.null_device import NullDevice
    from amphw.ir.device import DeviceOptions
    from amphw.ir.errors import AmphwError
    from amphw.mixed.device import MixedDevice
    from tests.estimate.chain import chain

    device = MixedDevice({"a": NullDevice()})
    with pytest.raises(AmphwError, match="is for `amphw train`"):
        device.load(chain([8]), {}, DeviceOptions(settings={"placing": "search"}))
    device.load(chain([8]), {}, DeviceOptions(settings={"placing": "search", "place": "layer0=a"}))
    device.close()


def test_training_follows_the_search_and_its_folder_says_so(amphw, tiny, tmp_path) -> None:
    wanted = ["--device", TWO, "--set", "device.placing=search", "--out", "run"]
    done = amphw("train", "list-reduction", *tiny, *wanted)
    assert done.exit_code == 0, done.stderr
    assert "device.place=cell=b,head=b, estimated at" in done.stderr
    assert "placed on b: cell, head" in done.stdout + done.stderr
    saved = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert saved["device"]["place"] == "cell=b,head=b"
    again = amphw("train", "list-reduction", "--device", TWO, "--resume", "run", "--set", "epochs=2")
    assert again.exit_code == 0, again.stderr
    assert "estimated at" not in again.stderr  # it goes on where its nodes were


@pytest.mark.thorough
def test_an_opencl_device_is_timed(amphw) -> None:
    pytest.importorskip("pyopencl")
    done = amphw(
        "place",
        "list-reduction",
        "--device",
        "cpu,opencl:0",
        *SMALL,
        "--no-search",
        "--limit",
        "opencl=1",
        "--json",
    )
    assert done.exit_code == 0, done.stderr
    on = [node["on"]["opencl"] for node in json.loads(done.stdout)["nodes"]]
    assert all(each["origin"] == "measured" and each["busy"] > 0 for each in on)
