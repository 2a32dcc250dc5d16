"""The device of one's own in the documentation: installed as a package, and trained on."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from amphw.cpu_runtime import planes
from amphw.host.devices import make_device
from amphw.ir.errors import AmphwError
from amphw.mixed.device import MixedDevice
from tests.conformance.harness import assert_same, reference, run
from tests.conformance.packages import install
from tests.conformance.protocol import CONFIG, instances
from tests.host.training import MODEL

PAGE = Path(__file__).parents[2] / "docs" / "several-devices.md"

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MixedDevice:
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    install(tmp_path, monkeypatch, "mine", "mypackage:MyDevice", program)
    assert make_device("mine").capabilities().name == "cpu,mine"
    made = make_device("cpu,mine")
    assert isinstance(made, MixedDevice)
    return made


def test_it_computes_its_nodes(device: MixedDevice) -> None:
    graph = MODEL.graph(CONFIG)
    found = run(device, graph, instances(), keys=3, place="relu=mine")
    assert device.placing.of["relu"] == "mine"
    device.close()
    assert found.forward == found.backward > 0
    assert_same(found, reference(graph, instances()))
    assert any(np.any(g) for g in found.gradients.values())


def test_it_refuses_the_others(device: MixedDevice) -> None:
    with pytest.raises(AmphwError, match="'cell' cannot be placed on mine: it is no ReLU, but"):
        run(device, MODEL.graph(CONFIG), instances(), place="cell=mine")
