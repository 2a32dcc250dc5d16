"""Hardware as a part of a run beside the CPU: the same, to the bit, as the model of its arithmetic there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from amphw.cpu_runtime import planes
from amphw.cpu_runtime.mixed import MixedDevice
from amphw.ir.device import Device, Mode
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.rtl.driver.verilator import VerilatorDevice
from amphw.rtl.fixed.device import FixedDevice
from tests.conformance.harness import Outcome, run
from tests.rtl.cases import SMALL, problem

pytest.importorskip("amaranth")
pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")

FORMATS = "q6.10,g=q4.12"
PLACES = {
    "tree-leaves": ("leaf", "branch"),
    "message-passing": ("edge0", "update", "readout"),
    "fe-gru": ("cell",),
}


def outcome(device: Device, graph: Graph, instances: Sequence[Instance], place: str, mode: Mode) -> Outcome:
    mixed = MixedDevice({"part": device})
    try:
        return run(mixed, graph, instances, keys=4, mode=mode, place=place, **SMALL)
    finally:
        mixed.close()


@pytest.mark.parametrize("name", PLACES)
def test_hardware_beside_the_cpu(name: str) -> None:
    graph, instances = problem(name)
    for number, instance in enumerate(instances):
        instance.number = number
    place = ",".join(f"{node}=part" for node in PLACES[name])
    for mode in (Mode.TRAIN, Mode.INFER):
        found = outcome(VerilatorDevice(FORMATS), graph, instances, place, mode)
        expected = outcome(FixedDevice(FORMATS), graph, instances, place, mode)
        assert found.losses == expected.losses
        assert found.forward == found.backward
        for key, value in expected.gradients.items():
            if key.partition(".")[0] in PLACES[name]:
                assert np.array_equal(found.gradients[key], value), key
            else:  # summed in the order of the frames
                assert np.allclose(found.gradients[key], value, rtol=1e-4, atol=1e-6), key
