"""A divergence on OpenCL devices is told with the gradients that led to it, as on the others."""

from __future__ import annotations

import pytest

from amphw.cpu_runtime import planes
from amphw.host.divergence import DivergedError
from amphw.mixed.device import MixedDevice
from amphw.opencl import OpenCLDevice
from tests.host.test_divergence import told, trained

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")


def test_an_explosion_is_told() -> None:
    with pytest.raises(DivergedError, match="set update.clip") as e:
        trained(OpenCLDevice())
    losses, gradients = told(e.value)
    assert losses[0] < 1e-3 < 0.1 < losses[-1]
    assert gradients[0] < 0.5 < 10 < gradients[-1]


def test_it_is_told_where_the_device_is_a_part_of_a_run() -> None:
    with pytest.raises(DivergedError) as e:
        trained(MixedDevice({"a": OpenCLDevice()}), "device.place=grow=a")
    losses, gradients = told(e.value)
    assert losses[0] < 1e-3 < 0.1 < losses[-1]
    assert gradients[0] < 0.5 < 10 < gradients[-1]


def test_clipping_prevents_it() -> None:
    (loss,) = trained(OpenCLDevice(), "clip=0.02")
    assert loss < 1e-3
