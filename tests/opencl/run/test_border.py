"""A region's border: what its nodes send each other stays with the device, and the rest is counted."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import planes
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import AmphwError
from amphw.ir.update import UpdateRule
from amphw.mixed.device import MixedDevice
from amphw.models import get_model
from tests import border
from tests.border import BATCH, HIDDEN, INSTANCES, MESSAGE
from tests.opencl.devices import PTHREAD

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")

pytest.importorskip("pyopencl")

from amphw.opencl import OpenCLDevice  # noqa: E402


def trained(place: str, tokens: int, mode: Mode = Mode.TRAIN, **settings: Any) -> MixedDevice:
    return border.trained(OpenCLDevice(PTHREAD), place, tokens, mode, **settings)


@pytest.mark.parametrize("settings", [{}, {"zero_copy": False}], ids=["the host's memory", "its own"])
@pytest.mark.parametrize("tokens", [3, 9])
def test_a_loop_on_a_device_costs_the_same_however_often_it_runs(
    tokens: int, settings: dict[str, Any]
) -> None:
    """Its start and its result's gradient go in, its result and its start's gradient come out."""
    device = trained("cell=one,head=cpu", tokens, **settings)
    assert device.placing.of["relu"] == "one"  # where all comes from that it receives
    assert device.carried() == {"one": (2 * INSTANCES * MESSAGE, 2 * INSTANCES * MESSAGE)}


def test_inference_brings_no_gradients() -> None:
    device = trained("cell=one,head=cpu", 4, Mode.INFER)
    assert device.carried() == {"one": (INSTANCES * MESSAGE, INSTANCES * MESSAGE)}


def test_a_border_in_the_loop_is_crossed_at_each_trip() -> None:
    """What the cell receives and sends in each of them, and the gradients of that."""
    tokens = 5
    device = trained("cell=one,relu=cpu,head=cpu", tokens)
    each_way = 2 * tokens * INSTANCES * MESSAGE
    assert device.carried() == {"one": (each_way, each_way)}


def test_the_run_says_what_crossed_over() -> None:
    found = trained("cell=one,head=cpu", 3).findings()
    told = json.loads(found.files["messages.json"])
    assert told == {
        "one": {"bytes_to": 2 * INSTANCES * MESSAGE, "bytes_back": 2 * INSTANCES * MESSAGE, "keeps": True}
    }
    directions = found.figures["launches"]["cell"]
    assert all(directions[kind]["frames"] <= directions[kind]["launches"] for kind in ("forward", "backward"))
    assert {row[:2] for row in found.rows} == {("cell", "one")}
    (remark,) = found.remarks
    assert remark.startswith("one: 3.84 kB of messages crossed over to it, 3.84 kB back; what its nodes send")


def test_two_regions_send_each_other_rows() -> None:
    """The layer behind the loop on a second device, both with memories of their own: as if on one."""
    model = get_model("list-reduction")
    config = model.config(hidden=HIDDEN, batch=BATCH)
    instances = list(model.training(config, 1, 0, 100))[:8]
    losses = []
    for place in ("cell=one,head=two", "cell=one,head=one"):
        device = MixedDevice({"one": OpenCLDevice(PTHREAD), "two": OpenCLDevice("2")})
        settings = {"place": place, "zero_copy": False}
        device.load(
            model.graph(config), {"*": UpdateRule()}, DeviceOptions(8, 0, "off", 3, settings=settings)
        )
        for slot, instance in enumerate(instances):
            device.submit(slot, 0, instance, Mode.TRAIN)
        reports = sorted(device.drain(), key=lambda r: r.slot)
        losses.append([sum(s["loss"] for s in r.sums.values()) for r in reports])
        device.close()
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_a_region_has_no_process_of_its_own() -> None:
    from amphw.host.devices import make_device

    with pytest.raises(
        AmphwError, match=r"process:opencl:0: .* name it without process:, as in cpu,opencl:0"
    ):
        make_device("cpu,process:opencl:0")
