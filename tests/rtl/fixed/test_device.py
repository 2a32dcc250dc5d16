"""The `fixed` device behind the protocol: what it refuses, what it warns of, and what it keeps to the bit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from amphw.host import snapshots
from amphw.host.devices import make_device
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import GraphError
from amphw.ir.functions import tanh
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.nodes import NPT
from amphw.ir.program import trace
from amphw.ir.start import starting_at
from amphw.ir.update import UpdateRule
from amphw.rtl.fixed.clipping import FormatWarning
from amphw.rtl.fixed.device import FixedDevice
from amphw.rtl.numbers.formats import DEFAULT, FormatError, Formats
from amphw.rtl.plan.hardware import Sizes, hardware_plan
from tests.cpu_runtime.graphs import mlp, rows

RULE = UpdateRule(interval=7, optimizer="momentum", lr=0.05)
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def device() -> Iterator[FixedDevice]:
    made = FixedDevice("q4.12")
    yield made
    made.close()


def loaded(
    device: FixedDevice, graph: Graph | None = None, updates: str = "self", **settings: object
) -> FixedDevice:
    device.load(graph or mlp(), {"*": RULE}, DeviceOptions(4, 4, updates, 3, settings=settings))
    return device


def train(device: FixedDevice, instances: list[Instance]) -> None:
    """One at a time, so that runs can be compared bit by bit."""
    for instance in instances:
        device.submit(0, 0, instance, Mode.TRAIN)
        device.drain()


def integers(device: FixedDevice) -> dict[str, np.ndarray]:
    found = {}
    for held in device.plane.held.values():
        if hasattr(held, "fixed"):
            for name, a in held.fixed.arrays.items():
                found |= {f"{held.node}.{name}": a.master, f"{held.node}.{name} sums": a.sums}
                found[f"{held.node}.{name} velocity"] = a.velocity
    return found


def assert_same(one: FixedDevice, other: FixedDevice) -> None:
    expected = integers(other)
    for name, a in integers(one).items():
        np.testing.assert_array_equal(a, expected[name], err_msg=name)


# --- formats --------------------------------------------------------------------------------------


def test_formats_are_given_with_the_name() -> None:
    made = make_device("fixed:q4.12,g=q1.15,master=24,round=stochastic")
    about = made.capabilities()
    assert isinstance(made, FixedDevice)
    assert about.name == "fixed:q4.12,g=q1.15,master=24,round=stochastic"
    assert about.formats == ("q4.12,g=q1.15,master=24,round=stochastic",)
    assert Formats.parse(about.formats[0]) == made.formats
    assert make_device("fixed").capabilities().name == f"fixed:{DEFAULT}"
    with pytest.raises(FormatError, match="'q4.13' is no number format; write qM.N with M"):
        make_device("fixed:q4.13")


@pytest.mark.parametrize(
    "given, told",
    [
        ("acc=20", "acc=20, allowed is 39 .. 48"),
        ("sum=40", "sum=40, allowed is 32 .. 36"),
        ("master=16", "master=16, allowed is 24, 32"),
        ("round=up", "round=up, allowed is nearest, stochastic"),
    ],
)
def test_a_setting_that_is_not_allowed_is_named_as_it_was_typed(given: str, told: str) -> None:
    with pytest.raises(FormatError) as error:
        make_device(f"fixed:q4.12,{given}")
    assert str(error.value) == f"number formats: {told}"


def test_no_hardware_tools_are_needed() -> None:
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('amaranth', 'cocotb', 'amaranth_boards')))\n"
        "from amphw.host.devices import make_device; make_device('fixed:q4.12')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": f"{ROOT}"}, timeout=60)


# --- refusals -------------------------------------------------------------------------------------


def test_an_accumulator_that_is_too_narrow_is_refused() -> None:
    wide = mlp(hidden=600)
    with pytest.raises(GraphError) as error:
        FixedDevice("q4.12,acc=40").check(wide, {"*": RULE})
    assert str(error.value) == (
        "node 'layer1': sums of 601 products take 41 bits, the accumulator has 40: "
        "give it acc=41 in the number formats, or a narrower layer"
    )
    FixedDevice("q4.12,acc=41").check(wide, {"*": RULE})


def test_without_one_an_accumulator_is_as_wide_as_the_widest_layer_takes() -> None:
    wide, rules = mlp(hidden=600), {"*": RULE}
    FixedDevice("q4.12").check(wide, rules)
    assert hardware_plan(wide, rules, Formats.parse("q4.12"), Sizes()).formats == Formats.parse(
        "q4.12,acc=41"
    )
    assert hardware_plan(mlp(), rules, Formats(), Sizes()).formats == Formats()
    with pytest.raises(GraphError, match="the accumulator has 48: choose a narrower layer"):
        FixedDevice().check(mlp(hidden=1 << 17), rules)


def test_a_curve_that_values_are_too_fine_for_is_refused() -> None:
    g = mlp()
    g.nodes["layer1"] = NPT("layer1", trace(tanh, {"x": 5}))
    with pytest.raises(
        GraphError, match="^node 'layer1': tanh of values with 16 bits behind the point: 2 to 15"
    ):
        loaded(FixedDevice("q0.16"), g)


def test_rules_are_refused_before_anything_runs(device: FixedDevice) -> None:
    with pytest.raises(
        GraphError, match="^node 'layer0': the hardware updates with sgd or momentum, not with adam"
    ):
        device.load(mlp(), {"*": UpdateRule(optimizer="adam")}, DeviceOptions())
    both = {"*": RULE, "head": UpdateRule(optimizer="sgd")}
    with pytest.raises(GraphError, match="share the momentum's coefficient"):
        device.load(mlp(), both, DeviceOptions())


# --- weights outside of their format --------------------------------------------------------------


def with_large_weights() -> Graph:
    w = np.zeros((5, 4), np.float32)
    w[0] = [9.0, -20.0, 7.9, 0.5]
    return starting_at(mlp(), {"head": {"W": w}})


WARNING = (
    "node 'head': 2 of 20 weights of 'W' lie outside q4.12, which holds -8 .. 7.99976: they go from -20 to 9 "
    "and were clipped; w=q6.10 in the number formats holds them"
)


def test_a_weight_outside_its_format_is_clipped_with_a_warning(device: FixedDevice) -> None:
    with pytest.warns(FormatWarning) as told:
        loaded(device, with_large_weights())
    assert [str(each.message) for each in told] == [WARNING]
    assert device.parameters()["head"].values["W"][0] == pytest.approx([8.0, -8.0, 7.9, 0.5], abs=2**-20)


def test_a_strict_device_refuses_it(device: FixedDevice) -> None:
    with pytest.raises(GraphError) as error:
        loaded(device, with_large_weights(), strict=True)
    assert str(error.value) == WARNING.replace(" and were clipped", "")


def test_formats_that_hold_the_weights_say_nothing() -> None:
    device = loaded(FixedDevice("q4.12,w=q6.10"), with_large_weights(), strict=True)
    device.close()


def test_a_checkpoint_that_does_not_fit_is_clipped_too(device: FixedDevice) -> None:
    head = loaded(device).parameters()["head"]
    head.values = {"W": np.full_like(head.values["W"], 100.0)}
    with pytest.warns(FormatWarning, match="20 of 20 weights of 'W' lie outside q4.12"):
        train(device, rows(1))


# --- what the host reads and writes ---------------------------------------------------------------


@pytest.mark.parametrize("formats", ["q4.12", "q4.12,master=24,g=q4.12", "q4.12,round=stochastic"])
def test_looking_at_the_parameters_changes_nothing(formats: str) -> None:
    one, other = loaded(FixedDevice(formats)), loaded(FixedDevice(formats))
    for instance in rows(12):
        train(one, [instance])
        train(other, [instance])
        other.parameters()
    assert_same(one, other)
    one.close()
    other.close()


@pytest.mark.parametrize("formats", ["q4.12", "q4.12,round=stochastic"])
def test_a_run_goes_on_from_a_checkpoint_with_the_same_bits(formats: str, tmp_path: Path) -> None:
    """In the middle of an interval: gradients that no update has taken yet are in the file, too."""
    graph, instances = mlp(), rows(13)
    one, other = loaded(FixedDevice(formats), graph), loaded(FixedDevice(formats), graph)
    train(one, instances[:7])
    saved = one.parameters()
    assert saved["head"].rows > 0 and saved["head"].version > 0
    snapshots.save(tmp_path / "c", saved, graph, "mlp", "", {})
    snapshots.load(tmp_path / "c", other, graph)
    train(one, instances[7:])
    train(other, instances[7:])
    assert one.parameters()["head"].version == other.parameters()["head"].version
    assert_same(one, other)
    one.close()
    other.close()


def test_what_the_host_writes_is_used(device: FixedDevice) -> None:
    loaded(device, updates="off")
    train(device, rows(1))
    head = device.parameters()["head"]
    head.values = {"W": np.zeros_like(head.values["W"])}
    head.gradients["W"][...] = 0
    train(device, rows(2)[1:])
    assert not device.parameters()["head"].values["W"].any()
    assert not device.parameters()["layer1"].gradients["W"].all()  # of a head without weights


def test_all_devices_start_at_the_same_values(device: FixedDevice) -> None:
    reference = make_device("reference")
    reference.load(mlp(), {"*": RULE}, DeviceOptions(seed=3))
    start = loaded(device).parameters()
    for node, p in reference.parameters().items():
        for name, value in p.values.items():
            np.testing.assert_allclose(start[node].values[name], value, atol=2**-29, err_msg=node)


# --- where sums saturate --------------------------------------------------------------------------


def test_a_saturated_sum_depends_on_nothing_but_the_order_of_rows() -> None:
    """Frames of one instance each, or of many: rows are added one after another all the same."""
    narrow = "q4.12,g=q-8.24,sum=32"  # sums of +-0.03
    one, many = FixedDevice(narrow), FixedDevice(narrow)
    for each, cap in ((one, 1), (many, 64)):
        each.load(mlp(layers=0), {"*": RULE}, DeviceOptions(8, 0, "off", 3, settings={"frame_cap": cap}))
        for slot, instance in enumerate(rows(8, size=8)):
            instance.data["x"] = np.abs(instance.data["x"])
            each.submit(slot, 0, instance, Mode.TRAIN)
        each.drain()
        # Oldest first, so rows come in the same order.
        place = next(m for m in each.arithmetic.meters.all if m.tensor == "summed gradient W")
        end = place.format.bits - 1 - place.format.frac
        assert place.saturated and max(place.magnitudes) >= end  # before saturation
        assert place.low < place.format.low or place.high > place.format.high
        each.close()
    assert_same(one, many)


def test_training_learns(device: FixedDevice) -> None:
    """What the labels are is no matter of luck: the loss falls by a third."""
    instances = rows(60, size=8)
    for instance in instances:
        instance.tables["label"] = (instance.data["x"] > 0).sum(axis=1)
    loaded(device)
    losses = []
    for _ in range(6):
        losses.append(0.0)
        for instance in instances:
            device.submit(0, 0, instance, Mode.TRAIN)
            losses[-1] += sum(r.sums["loss"]["loss"] for r in device.drain())
    assert losses[-1] < 0.7 * losses[0]


def test_nothing_is_found_before_anything_ran(device: FixedDevice) -> None:
    assert device.findings().files == {}
    assert loaded(device).findings().files == {}
