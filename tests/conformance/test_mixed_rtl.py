"""Hardware as a part of a run beside the CPU: the same, to the bit, as the model of its arithmetic there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import planes
from amphw.ir.device import Device, Mode
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule
from amphw.mixed.device import MixedDevice
from amphw.rtl.driver.part import HardwarePart
from amphw.rtl.driver.verilator import VerilatorDevice
from amphw.rtl.fixed.device import FixedDevice
from sim.part_replay import ReplayedDevice
from tests.conformance.harness import Outcome, run
from tests.daily import daily
from tests.rtl.cases import SMALL, problem

pytest.importorskip("amaranth")
pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")

FORMATS = "q6.10,g=q4.12"
PLACES = {
    "tree-leaves": ("leaf", "branch"),
    "message-passing": ("edge0", "update", "readout"),
    "fe-gru": ("cell",),
}


def outcome(
    device: Device, graph: Graph, instances: Sequence[Instance], place: str, mode: Mode
) -> tuple[Outcome, dict[str, str]]:
    """And where each node was."""
    mixed = MixedDevice({"part": device})
    try:
        return run(mixed, graph, instances, keys=4, mode=mode, place=place, **SMALL), mixed.placing.of
    finally:
        mixed.close()


def written(places: Mapping[str, str]) -> str:
    return ",".join(f"{node}={label}" for node, label in places.items())


@pytest.mark.parametrize("name", daily(["tree-leaves"], ["message-passing", "fe-gru"]))
def test_hardware_beside_the_cpu(name: str) -> None:
    graph, instances = problem(name)
    for number, instance in enumerate(instances):
        instance.number = number
    asked = written(dict.fromkeys(PLACES[name], "part"))
    for mode in (Mode.TRAIN, Mode.INFER):
        found, places = outcome(VerilatorDevice(FORMATS), graph, instances, asked, mode)
        # Nodes without parameters followed those that send to them.
        expected, same = outcome(FixedDevice(FORMATS), graph, instances, written(places), mode)
        assert places == same
        assert found.losses == expected.losses
        assert found.forward == found.backward
        for key, value in expected.gradients.items():
            if places[key.partition(".")[0]] == "part":
                assert np.array_equal(found.gradients[key], value), key
            else:  # summed in the order of the frames
                assert np.allclose(found.gradients[key], value, rtol=1e-4, atol=1e-6), key


@pytest.mark.thorough
@pytest.mark.parametrize("name", daily(["tree-leaves"], ["message-passing", "fe-gru"]))
def test_a_run_with_hardware_is_replayed_to_the_bit(name: str) -> None:
    """With updates and several keys: the engine's log orders frames, the hardware's what it did with them."""
    graph, instances = problem(name)
    for number, instance in enumerate(instances):
        instance.number = number
    rule = UpdateRule(interval=4, lr=0.05, optimizer="momentum")
    place = ",".join(f"{node}=part" for node in PLACES[name])
    options: dict[str, Any] = {"keys": 4, "updates": "self", "rule": rule, "place": place, **SMALL}
    first = MixedDevice({"part": VerilatorDevice(FORMATS)})
    found = run(first, graph, instances, log=True, **options)
    (part,) = first.parts.values()
    assert isinstance(part, HardwarePart)
    again = MixedDevice({"part": ReplayedDevice(FORMATS, part.device)}, replay=list(first.log))
    repeated = run(again, graph, instances, **options)
    assert repeated.losses == found.losses
    for key, value in found.parameters.items():
        assert np.array_equal(repeated.parameters[key], value), key
    versions = {node: p.version for node, p in first.parameters().items()}
    assert versions == {node: p.version for node, p in again.parameters().items()}
    assert all(versions[node] for node in PLACES[name] if node in versions)
    first.close()
    again.close()
