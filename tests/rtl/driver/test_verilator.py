"""What stands behind `verilator:`."""

from __future__ import annotations

import pytest

from amphw.host.devices import split_specs
from amphw.ir.config_fields import picked
from amphw.ir.device import DeviceOptions
from amphw.ir.errors import AmphwError
from amphw.ir.update import UpdateRule
from amphw.rtl.driver.verilator import VerilatorDevice
from amphw.rtl.numbers.formats import DEFAULT
from amphw.rtl.options import HardwareOptions
from amphw.rtl.plan.hardware import Sizes
from tests.rtl.cases import problem

pytest.importorskip("amaranth")


@pytest.mark.parametrize(
    ("argument", "formats", "lanes"),
    [
        ("q6.10", "q6.10", "gates"),
        ("lanes=model", DEFAULT, "model"),
        ("lanes=gates", DEFAULT, "gates"),
        ("q6.10,g=q4.12,lanes=model", "q6.10,g=q4.12", "model"),
        ("q6.10, lanes = model ,g=q4.12", "q6.10,g=q4.12", "model"),
    ],
)
def test_formats_and_lanes(argument: str, formats: str, lanes: str) -> None:
    device = VerilatorDevice(argument)
    assert (str(device.formats), device.lanes) == (formats, lanes)
    part = device.part().device
    assert isinstance(part, VerilatorDevice)
    assert (str(part.formats), part.lanes) == (formats, lanes)


@pytest.mark.parametrize("value", ["modle", "", "4"])
def test_lanes_that_there_are_not(value: str) -> None:
    with pytest.raises(AmphwError) as error:
        VerilatorDevice(f"q4.12,lanes={value}")
    assert str(error.value) == (
        f"the device 'verilator:q4.12,lanes={value}': lanes={value} is neither gates (the circuit as it is "
        "built, the default) nor model (the same words in the same cycles, simulated faster)"
    )


def test_the_circuit_has_as_many_multipliers_as_the_configuration_says() -> None:
    graph, _ = problem("tree-leaves")
    options = DeviceOptions(max_active_keys=2, max_infer_keys=2, settings={"lanes": 8, "clock": ""})
    plan = VerilatorDevice().make_plan(graph, {"*": UpdateRule()}, options)
    assert plan.sizes.lanes == 8
    assert picked(HardwareOptions, {}).lanes == Sizes().lanes  # where nothing is said


def test_an_argument_may_begin_with_a_name() -> None:
    assert split_specs("cpu,verilator:lanes=model") == [
        ("cpu", "cpu"),
        ("verilator", "verilator:lanes=model"),
    ]
    assert split_specs("cpu,a=verilator:lanes=model,g=q4.12,b = fixed:w=q5.11") == [
        ("cpu", "cpu"),
        ("a", "verilator:lanes=model,g=q4.12"),
        ("b", "fixed:w=q5.11"),
    ]
