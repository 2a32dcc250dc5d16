"""Gradients out of a device and into it again, before its nodes update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import planes
from amphw.cpu_runtime.device import CpuDevice
from amphw.host.gradients import accumulated, give, keep, put, readable, tell, told
from amphw.ir.device import Device, DeviceOptions, Mode
from amphw.ir.errors import AmphwError, StateError
from amphw.ir.exchange import NodeGradient, Rows
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice
from amphw.ir.sparse import sparse_parameters
from amphw.ir.update import UpdateRule
from amphw.models import get_model
from amphw.rtl.fixed.device import FixedDevice
from tests.conformance.test_cpu import problem
from tests.graphs.cases import CASES
from tests.rtl.cases import problem as in_fixed_point

CASE = next(case for case in CASES if case.name == "rnn-hash")
RULE = UpdateRule(interval=10**6, lr=0.05, optimizer="adam", clip=0.5)


def stepped(device: Device, factor: int = 1) -> dict[str, np.ndarray]:
    """Parameters after two updates, each of which gets `factor` times the sums and rows of six instances."""
    graph, instances, _ = problem(CASE)
    device.load(graph, {"*": RULE}, DeviceOptions(8, 0, "controller", 3))
    for step in range(2):
        for slot, instance in enumerate(instances[6 * step : 6 * step + 6]):
            device.submit(slot, step, instance, Mode.TRAIN)
        device.drain()
        if factor > 1:
            found = accumulated(device, {})
            assert all(g.rows > 0 for g in found.values())
            for gradient in found.values():
                gradient.rows *= factor
                for array in gradient.arrays.values():
                    array *= factor
            give(device, found)
            again = accumulated(device, {})
            for node, gradient in found.items():
                assert again[node].rows == gradient.rows
                for name, array in gradient.arrays.items():
                    assert np.array_equal(again[node].arrays[name], array), (node, name)
        device.update()
        device.drain()
    values = {f"{n}.{k}": v.copy() for n, p in device.parameters().items() for k, v in p.values.items()}
    device.close()
    return values


@pytest.mark.parametrize("make", [ReferenceDevice, CpuDevice], ids=["reference", "cpu"])
def test_a_mean_over_twice_the_rows_and_sums_is_the_same(make: Callable[[], Device], plane: str) -> None:
    once, twice = stepped(make()), stepped(make(), factor=2)
    for name, value in once.items():
        np.testing.assert_allclose(twice[name], value, rtol=1e-6, atol=1e-7, err_msg=name)


@pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")
def test_tables_and_folded_layers_keep_what_they_are_given() -> None:
    """Of list reduction: the embedding is folded into the cell, and its gradient is of touched rows."""
    model = get_model("list-reduction")
    config = model.config(hidden=8, batch=4)
    instances = list(model.training(config, 1, 0, 48))[:12]
    found = []
    for exchange in (False, True):
        device = CpuDevice()
        device.load(
            model.graph(config), {"*": UpdateRule(10**6, lr=0.1)}, DeviceOptions(4, 0, "controller", 3)
        )
        for step in range(3):
            for slot, instance in enumerate(instances[4 * step : 4 * step + 4]):
                instance.number = 4 * step + slot
                device.submit(slot, step, instance, Mode.TRAIN)
            device.drain()
            if exchange:
                give(device, accumulated(device, {}))
            device.update()
        found.append(
            {f"{n}.{k}": v.copy() for n, p in device.parameters().items() for k, v in p.values.items()}
        )
        device.close()
    for name, value in found[0].items():
        np.testing.assert_allclose(found[1][name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "lazy_adam"])
@pytest.mark.parametrize("make", [ReferenceDevice, CpuDevice], ids=["reference", "cpu"])
def test_tables_go_out_by_rows_and_stay_as_they_are_put(
    make: Callable[[], Device], optimizer: str, plane: str
) -> None:
    """Over several updates, as values have several buffers; what is not kept is updated as ever."""
    model = get_model("tree-lstm")
    config = model.config(sample=True, hidden=6, embedding=4, vocabulary=50)
    instances = list(model.training(config, 1, 0, 12))
    rule = {"*": UpdateRule(10**6, optimizer, lr=0.05, weight_decay=0.0 if optimizer == "sgd" else 0.01)}
    devices = [make(), make()]
    graph = model.graph(config)
    by_rows = {"embed": ["E"]}
    rng = np.random.default_rng(3)
    for device in devices:
        device.load(graph, rule, DeviceOptions(4, 0, "controller", 3))
    kept, free = devices
    keep(kept, by_rows)
    expected = kept.parameters()["embed"].values["E"].copy()
    for step in range(5):
        for device in devices:
            for slot, instance in enumerate(instances[2 * step : 2 * step + 2]):
                instance.number = 2 * step + slot
                device.submit(slot, step, instance, Mode.TRAIN)
            device.drain()
        whole = accumulated(kept, {})["embed"].arrays["E"]
        found = accumulated(kept, by_rows)
        rows = found["embed"].tables["E"]
        assert not found["embed"].arrays and 0 < len(rows.numbers) < 50
        assert rows.numbers.tolist() == np.flatnonzero(whole.any(axis=1)).tolist()
        assert np.array_equal(rows.values, whole[rows.numbers])
        given = rng.normal(size=(len(rows.numbers), 4)).astype(np.float32)
        found["embed"].tables["E"] = Rows(rows.numbers, given)
        give(free, found)
        again = accumulated(free, by_rows)["embed"].tables["E"]
        assert np.array_equal(again.values, given) and np.array_equal(again.numbers, rows.numbers)
        found["embed"].tables.clear()
        give(kept, found)
        assert not np.any(accumulated(kept, {})["embed"].arrays["E"])
        for device in devices:
            device.update()
            device.drain()
        assert np.array_equal(kept.parameters()["embed"].values["E"], expected)
        assert not np.array_equal(free.parameters()["embed"].values["E"], expected)
        some = np.sort(rng.choice(50, 7, replace=False)).astype(np.int32)
        new = rng.normal(size=(7, 4)).astype(np.float32)
        expected[some] = new
        put(kept, {"embed": {"E": Rows(some, new)}})
        assert np.array_equal(kept.parameters()["embed"].values["E"], expected)
        put(free, {"embed": {"E": expected}})  # so that both go on with the same network
        assert np.array_equal(free.parameters()["embed"].values["E"], expected)
    for node in ("leaf", "branch", "head"):  # which saw the same rows, and are updated as ever
        for name, value in kept.parameters()[node].values.items():
            assert np.array_equal(value, free.parameters()[node].values[name]), (node, name)
    for device in devices:
        device.close()


@pytest.mark.parametrize("make", [ReferenceDevice, CpuDevice], ids=["reference", "cpu"])
def test_a_table_that_is_away_is_what_was_put_last(make: Callable[[], Device], plane: str) -> None:
    """Losses and gradients are to the bit those of a device that has the whole table."""
    model = get_model("tree-lstm")
    config = model.config(sample=True, hidden=6, embedding=4, vocabulary=50)
    graph, instances = model.graph(config), list(model.training(config, 1, 0, 12))
    (table,) = sparse_parameters(graph)
    by_rows, rule = {"embed": ["E"]}, {"*": UpdateRule(10**6, "adam", lr=0.05)}
    devices = [make(), make()]
    for device in devices:
        device.load(graph, rule, DeviceOptions(1, 0, "controller", 3, settings={"workers": 1}))
    whole, away = devices
    values = whole.parameters()["embed"].values["E"].copy()
    rng = np.random.default_rng(3)
    for step in range(4):
        window = instances[2 * step : 2 * step + 2]
        if step:  # the gradient of the first window is there already when the table goes
            numbers = table.rows(window)
            put(away, {"embed": {"E": Rows(numbers, values[numbers])}})
            put(whole, {"embed": {"E": values}})
        reports = [trained(device, step, window) for device in devices]
        assert reports[0] == reports[1]
        if not step:
            keep(away, by_rows, by_rows)
            keep(whole, by_rows)
        gradients = [accumulated(device, by_rows) for device in devices]
        assert same(*gradients)
        assert len(gradients[1]["embed"].tables["E"].numbers)
        assert same(*(accumulated(device, {}) for device in devices))
        for device, gradient in zip(devices, gradients, strict=True):
            give(device, gradient)
            assert same(accumulated(device, by_rows), gradients[0])
            device.update()
            device.drain()
            assert not len(accumulated(device, by_rows)["embed"].tables["E"].numbers)
        values += rng.normal(size=values.shape).astype(np.float32)
    for device in devices:
        device.close()


def trained(device: Device, step: int, window: Sequence[Instance]) -> list[Any]:
    """One instance after the other, so that sums are taken in the same order every time."""
    found = []
    for k, instance in enumerate(window):
        instance.number = 2 * step + k
        device.submit(0, instance.number, instance, Mode.TRAIN)
        found += [report.sums for report in device.drain()]
    return found


def same(a: Mapping[str, NodeGradient], b: Mapping[str, NodeGradient]) -> bool:
    """To the bit."""
    return a.keys() == b.keys() and all(
        a[node].rows == b[node].rows
        and a[node].arrays.keys() == b[node].arrays.keys()
        and a[node].tables.keys() == b[node].tables.keys()
        and all(np.array_equal(array, b[node].arrays[name]) for name, array in a[node].arrays.items())
        and all(
            np.array_equal(rows.numbers, b[node].tables[name].numbers)
            and np.array_equal(rows.values, b[node].tables[name].values)
            for name, rows in a[node].tables.items()
        )
        for node in a
    )


@pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")
def test_a_table_that_is_away_takes_the_room_of_the_rows_that_were_put() -> None:
    """However many it has, and as little again after more were put; a row that was not is an error."""
    model = get_model("tree-lstm")
    rule = {"*": UpdateRule(10**6, "adam", lr=0.05)}
    room = {}
    for vocabulary in (2_000, 20_000):
        config = model.config(sample=True, hidden=6, embedding=64, vocabulary=vocabulary)
        graph, instances = model.graph(config), list(model.training(config, 1, 0, 2))
        device = CpuDevice()
        device.load(graph, rule, DeviceOptions(4, 0, "controller", 3))
        keep(device, {"embed": ["E"]}, {"embed": ["E"]})
        assert "E" not in device.parameters()["embed"].values
        room[vocabulary] = [device.parameter_bytes()]
        for count in (0, 400, 1600, 400):
            numbers = np.arange(count, dtype=np.int32)
            put(device, {"embed": {"E": Rows(numbers, np.ones((count, 64), np.float32))}})
            assert device.pulled()["embed"]["E"].numbers.tolist() == numbers.tolist()
            room[vocabulary].append(device.parameter_bytes())
        (table,) = sparse_parameters(graph)
        read = table.rows(instances)
        put(device, {"embed": {"E": Rows(read[1:], np.ones((len(read) - 1, 64), np.float32))}})
        held = readable(device)["embed"].values["E"]
        assert held.shape == (vocabulary, 64) and held.any(axis=1).sum() == len(read) - 1
        says = f"reads row {read[0]} of 'E', which its owner has not sent since the last update; put the rows"
        with pytest.raises(StateError, match=says):
            trained(device, 0, instances)
        device.close()
    assert room[2_000] == room[20_000]
    nothing, none, few, many, again = room[20_000]
    assert nothing == none and few == again
    row = 4 * 64
    assert 400 * row <= few - none <= 400 * (row + 32) and 1600 * row <= many - none <= 1600 * (row + 32)


@pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")
@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_the_gradient_of_a_table_takes_the_room_of_the_rows_that_have_one(optimizer: str) -> None:
    """Three versions and the optimiser's arrays are whole."""
    model, rows, width = get_model("tree-lstm"), 5_000, 64
    config = model.config(sample=True, hidden=6, embedding=width, vocabulary=rows)
    graph, instances = model.graph(config), list(model.training(config, 1, 0, 2))
    rule = UpdateRule(10**6, optimizer, lr=0.05)
    device = CpuDevice()
    device.load(graph, {"*": rule}, DeviceOptions(4, 0, "controller", 3))
    trained(device, 0, instances)
    found = device.parameter_bytes() - sum(p.bytes() for p in device.params.values())
    device.close()
    table = 4 * rows * width
    whole = (3 + rule.slots()) * table
    assert whole < found < whole + table / 4


def test_a_device_without_a_way_of_its_own_is_asked_for_everything() -> None:
    graph, instances = in_fixed_point("tree-leaves")
    device = FixedDevice("q6.10,g=q4.12")
    device.load(graph, {"*": UpdateRule(10**6, lr=0.05)}, DeviceOptions(8, 0, "controller", 3))
    for slot, instance in enumerate(instances[:6]):
        device.submit(slot, 0, instance, Mode.TRAIN)
    device.drain()
    found = accumulated(device, {})
    assert any(np.any(a) for g in found.values() for a in g.arrays.values())
    give(device, found)
    again = accumulated(device, {})
    for node, gradient in found.items():
        assert all(np.array_equal(again[node].arrays[n], a) for n, a in gradient.arrays.items())
    device.close()


def told_and_moved(device: Device, graph: Any, instances: Sequence[Any], rule: UpdateRule) -> None:
    """With SGD and sums, parameters move by the rate times what updates are told to have applied."""
    device.load(graph, {"*": rule}, DeviceOptions(4, 0, "self", 3))
    tell(device)
    for step in range(3):
        begun = {
            f"{n}.{k}": v.astype(np.float64)
            for n, p in device.parameters().items()
            for k, v in p.values.items()
        }
        versions = {n: p.version for n, p in device.parameters().items()}
        for slot, instance in enumerate(instances[4 * step : 4 * step + 4]):
            instance.number = 4 * step + slot
            device.submit(slot, step, instance, Mode.TRAIN)
        device.drain()
        if step == 2:
            # Rows have to be left. How many frames there are is chance, unless instances come one by one.
            one_by_one = iter(instances)
            while not any(p.rows for p in device.parameters().values()):
                device.submit(0, 3, next(one_by_one), Mode.TRAIN)
                device.drain()
            device.update()  # what an update on demand applies is told as well
            device.drain()
        found = told(device)
        assert found
        for node, p in device.parameters().items():
            updates = p.version - versions[node]
            assert updates == (found[node].updates if node in found else 0)
            for name, value in p.values.items():
                applied = found[node].arrays[name] if node in found else 0.0
                moved = begun[f"{node}.{name}"] - value
                np.testing.assert_allclose(moved, rule.lr * applied, rtol=0, atol=2e-6, err_msg=name)
    assert not told(device)
    device.close()


@pytest.mark.parametrize("clip", [0.0, 0.02])
@pytest.mark.parametrize("make", [ReferenceDevice, CpuDevice], ids=["reference", "cpu"])
def test_what_nodes_update_with_by_themselves_is_told(
    make: Callable[[], Device], plane: str, clip: float
) -> None:
    graph, instances, _ = problem(CASE)
    told_and_moved(make(), graph, instances, UpdateRule(7, lr=0.1, reduce="sum", clip=clip))


@pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")
@pytest.mark.parametrize("name", ["list-reduction", "language-model"])
def test_of_tables_and_folded_layers_too(name: str) -> None:
    """Of list reduction the embedding is folded into the cell; a language model looks rows of tables up."""
    model = get_model(name)
    small = {"hidden": 8, "batch": 4} if name == "list-reduction" else {"hidden": 8, "vocabulary": 200}
    config = model.config(**small)
    instances = list(model.training(config, 1, 0, 48))[:12]
    told_and_moved(CpuDevice(), model.graph(config), instances, UpdateRule(7, lr=0.01, reduce="sum"))


def test_a_device_that_cannot_tell_says_what_to_do() -> None:
    with pytest.raises(AmphwError, match="does not say with what; write --set train.mode=pipeline"):
        tell(FixedDevice())
