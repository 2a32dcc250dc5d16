"""One run on several devices: the same as the reference, whatever is placed where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from amphw.cpu_runtime import planes
from amphw.engine.lowering.lower import Unit, lower
from amphw.engine.numpy_plane.float32 import FLOAT32
from amphw.engine.parts.kernel import KernelPart, KernelSetting
from amphw.ir.device import Capabilities, DeviceOptions, Mode
from amphw.ir.errors import ExecutionError, InstanceError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule, initial_parameters
from amphw.mixed.device import MixedDevice
from tests.conformance.harness import assert_same, reference, run
from tests.graphs.cases import CASES, Case, each_case

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")


class NumpyFloats(ReferenceDevice):
    """Offers a part that computes in float32, frame by frame."""

    def part(self) -> KernelPart:
        return KernelPart(Capabilities("numpy", "cpu"), self._chosen)

    def _chosen(
        self, graph: Graph, units: Sequence[Unit], rules: Mapping[str, UpdateRule], options: DeviceOptions
    ) -> KernelSetting:
        owners = {u.name: graph.nodes[u.name].params for u in units if u.owns}
        return KernelSetting(FLOAT32, initial_parameters(owners, dict(rules), options.seed))


def computing(graph: Graph) -> list[str]:
    units = [u for u in lower(graph).units if u.behaviour.program is not None and not u.behaviour.report]
    return [u.name for u in units if u.name in graph.nodes]


def alternately(graph: Graph, first: int) -> dict[str, str]:
    """Neighbours on different devices, as far as the order of the nodes goes."""
    labels = ("cpu", "one", "two")
    return {name: labels[(k + first) % 3] for k, name in enumerate(computing(graph))}


def mixed() -> MixedDevice:
    return MixedDevice({"one": NumpyFloats(), "two": NumpyFloats()})


@pytest.mark.parametrize("first", range(3))
@each_case()
def test_gradients_are_those_of_the_reference(case: Case, first: int) -> None:
    graph, instances = case.build(), case.instances()
    device = mixed()
    found = run(device, graph, instances, place=alternately(graph, first))
    device.close()
    assert found.forward == found.backward
    assert_same(found, reference(graph, instances))


@each_case()
def test_inference_is_that_of_the_reference(case: Case) -> None:
    graph, instances = case.build(), case.instances()
    device = mixed()
    found = run(device, graph, instances, mode=Mode.PREDICT, place=alternately(graph, 1))
    device.close()
    expected = reference(graph, instances, mode=Mode.PREDICT)
    for number, loss in expected.losses.items():
        assert np.isclose(found.losses[number], loss, rtol=1e-5, atol=1e-6)


@each_case()
def test_parameters_after_updates_are_those_of_the_reference(case: Case) -> None:
    """On the controller's word, twice: the second time with what the first has left in the optimiser."""
    graph, instances = case.build(), case.instances()
    rule = UpdateRule(lr=0.05, optimizer="momentum")
    made = []
    for device in (mixed(), ReferenceDevice("fifo", np.float64)):
        place = {"place": alternately(graph, 2)} if isinstance(device, MixedDevice) else {}
        device.load(graph, {"*": rule}, DeviceOptions(8, 0, "controller", 3, False, place))
        for generation in range(2):
            for slot, instance in enumerate(instances[:8]):
                device.submit(slot, generation, instance, Mode.TRAIN)
            device.drain()
            device.update()
        made.append(device.parameters())
        device.close()
    found, expected = made
    assert list(found) == list(expected)
    for node, p in expected.items():
        assert found[node].version == p.version == 2
        for name, value in p.values.items():
            assert np.allclose(found[node].values[name], value, rtol=1e-4, atol=1e-5), (node, name)


@each_case()
def test_a_replayed_run_is_the_same_to_the_bit(case: Case) -> None:
    graph, instances = case.build(), case.instances()
    rule = UpdateRule(interval=3, lr=0.05, optimizer="momentum")
    options = {"keys": 4, "updates": "self", "rule": rule, "place": alternately(graph, 1)}
    first = mixed()
    found = run(first, graph, instances, log=True, **options)
    first.close()
    again = MixedDevice({"one": NumpyFloats(), "two": NumpyFloats()}, replay=list(first.log))
    repeated = run(again, graph, instances, **options)
    again.close()
    assert repeated.losses == found.losses
    for name, value in found.parameters.items():
        assert np.array_equal(repeated.parameters[name], value), name


def test_an_instance_that_is_refused_leaves_nothing_behind() -> None:
    case = CASES[0]
    graph, instances = case.build(), case.instances()
    device = mixed()
    device.load(graph, {"*": UpdateRule()}, DeviceOptions(2, 0, settings={"place": alternately(graph, 0)}))
    good = instances[3]
    (name, table), *_ = good.tables.items()
    bad = Instance(dict(good.attrs), {**good.tables, name: table + 1000}, dict(good.data), 77)
    with pytest.raises(InstanceError, match="instance 77"):
        device.submit(0, 0, bad, Mode.TRAIN)
    for part in device.parts.values():
        assert isinstance(part, KernelPart) and not part._fired
    device.submit(0, 1, good, Mode.TRAIN)
    with pytest.raises(ExecutionError, match="slot 0 still holds"):  # until its report is polled
        device.submit(0, 2, good, Mode.TRAIN)
    assert [r.number for r in device.drain()] == [good.number]
    device.close()
