"""What a device says of products of bfloat16 that it has not."""

from __future__ import annotations

import pytest

from amphw.cpu_runtime import CpuDevice, planes
from amphw.engine.tiles.gemm_choice import PORTABLE
from amphw.host.devices import make_device
from amphw.ir.device import Device, DeviceOptions
from amphw.ir.errors import AmphwError
from amphw.ir.update import UpdateRule
from tests.graphs import rnn

WANTED = DeviceOptions(1, 1, "off", 3, settings={"precision": "bf16"})


def load(device: Device) -> None:
    try:
        device.load(rnn.build(), {"*": UpdateRule()}, WANTED)
    finally:
        device.close()


def test_a_processor_without_the_instruction_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    if not planes.built():
        pytest.skip("the C++ data plane is not built")
    monkeypatch.setenv("AMPHW_ISA", "generic")
    monkeypatch.delenv(PORTABLE, raising=False)
    with pytest.raises(AmphwError, match="^device.precision = 'bf16': .*Set device.precision=float32"):
        load(CpuDevice())
    monkeypatch.setenv(PORTABLE, "portable")
    load(CpuDevice())


def test_the_numpy_plane_rounds_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(planes.ENGINE, "numpy")
    load(CpuDevice())


@pytest.mark.parametrize("spec", ["fixed:q4.12", "verilator:q4.12", "cpu,fixed:q4.12"])
def test_devices_of_other_kinds_refuse(spec: str) -> None:
    if "," in spec and not planes.built():
        pytest.skip("the C++ data plane is not built")
    with pytest.raises(AmphwError, match="^device.precision = 'bf16' is for a run on the CPU alone, and"):
        load(make_device(spec))
