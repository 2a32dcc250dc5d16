"""A circuit's border: it joins what its own nodes send each other, and only the rest goes over its link."""

from __future__ import annotations

import json

import pytest

from amphw.cpu_runtime import planes
from amphw.engine.lowering.lower import lower
from amphw.ir.device import Mode
from amphw.ir.update import UpdateRule
from amphw.models import get_model
from amphw.rtl.build.circuit import CircuitError
from amphw.rtl.driver.part import HardwarePart
from amphw.rtl.driver.verilator import VerilatorDevice
from tests.border import INSTANCES, MESSAGE, trained
from tests.daily import daily

pytest.importorskip("amaranth")
pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")

FORMATS, LANES = "q6.10,g=q4.12", 4


@pytest.mark.parametrize("tokens", daily([9], [3]))
def test_a_loop_in_a_circuit_costs_the_same_however_often_it_runs(tokens: int) -> None:
    """Its start and its result's gradient go in, its result and its start's gradient come out."""
    device = trained(VerilatorDevice(FORMATS), "cell=one,head=cpu", tokens, lanes=LANES)
    assert device.placing.of["relu"] == "one"  # where all comes from that it receives
    each_way = 2 * INSTANCES * MESSAGE
    assert device.carried() == {"one": (each_way, each_way)}
    assert json.loads(device.findings().files["messages.json"])["one"]["keeps"]


def test_inference_brings_no_gradients() -> None:
    device = trained(VerilatorDevice(FORMATS), "cell=one,head=cpu", 4, Mode.INFER, lanes=LANES)
    assert device.carried() == {"one": (INSTANCES * MESSAGE, INSTANCES * MESSAGE)}


@pytest.mark.thorough
def test_a_border_in_the_loop_is_crossed_at_each_trip() -> None:
    """What the cell receives and sends in each of them, and the gradients of that."""
    tokens = 5
    device = trained(VerilatorDevice(FORMATS), "cell=one,relu=cpu,head=cpu", tokens, lanes=LANES)
    each_way = 2 * tokens * INSTANCES * MESSAGE
    assert device.carried() == {"one": (each_way, each_way)}


def test_a_circuit_that_was_built_before_has_the_nodes_that_it_was_built_with() -> None:
    model = get_model("list-reduction")
    graph = model.graph(model.config(hidden=8, batch=1))
    lowered = lower(graph)

    def built() -> VerilatorDevice:
        device = VerilatorDevice(FORMATS)
        device.built = ("cell",)
        return device

    part, rules = HardwarePart(built), {"*": UpdateRule()}
    assert part.refused(graph, lowered.units[lowered.by_name["cell"]], rules) == ""
    told = part.refused(graph, lowered.units[lowered.by_name["relu"]], rules)
    assert told == "its circuit was built for cell alone (amphw rtl --nodes)"


def test_a_circuit_of_another_model_is_told() -> None:
    device = VerilatorDevice(FORMATS)
    device.built = ("leaf", "branch")
    model = get_model("list-reduction")
    graph = model.graph(model.config(hidden=8, batch=1))
    lowered = lower(graph)
    with pytest.raises(
        CircuitError, match="another model: its nodes are leaf, branch, of which this one has none"
    ):
        HardwarePart(lambda: device).refused(graph, lowered.units[lowered.by_name["cell"]], {})
