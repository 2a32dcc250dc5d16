"""What others have updated with, applied beside the workers: by the definition, each exactly once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import planes
from amphw.cpu_runtime.device import CpuDevice
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import NonFiniteError
from amphw.ir.received import Received, Receives, receive
from amphw.ir.update import NodeParameters, UpdateRule
from amphw.models import get_model
from tests.conformance.test_cpu import problem
from tests.graphs.cases import CASES

CASE = next(case for case in CASES if case.name == "rnn-hash")
native = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")

OPTIMIZERS = ["sgd", "momentum", "adam", "nadam", "adagrad", "lazy_adam"]
MODELS = {
    "list-reduction": {"hidden": 8, "batch": 4},  # whose embedding is folded into the cell
    "language-model": {"hidden": 8, "vocabulary": 200},  # whose tables are looked up by rows
}


def loaded(rule: UpdateRule, name: str = "list-reduction", workers: int = 1) -> tuple[CpuDevice, list[Any]]:
    """A device with a model, and some of its instances."""
    model = get_model(name)
    config = model.config(**MODELS[name])
    device = CpuDevice()
    device.load(
        model.graph(config), {"*": rule}, DeviceOptions(8, 0, "self", 3, settings={"workers": workers})
    )
    return device, list(model.training(config, 1, 0, 400))


def trained(device: CpuDevice, instances: list[Any], at_once: int = 8) -> None:
    for first in range(0, len(instances), at_once):
        for slot, instance in enumerate(instances[first : first + at_once]):
            instance.number = first + slot
            device.submit(slot, first, instance, Mode.TRAIN)
        device.drain()


def copies(found: dict[str, NodeParameters]) -> dict[str, NodeParameters]:
    return {node: p.copied() for node, p in found.items()}


def tensors(found: dict[str, NodeParameters]) -> dict[str, np.ndarray]:
    return {f"{node}.{name}": a.copy() for node, p in found.items() for name, a in p.tensors().items()}


def cut(rng: np.random.Generator, found: dict[str, NodeParameters], pieces: int) -> Iterator[Received]:
    """Gradients of all parameters, whole ones that are cut anywhere; some of their rows are zeros."""
    for node, p in sorted(found.items()):
        for name, value in p.values.items():
            gradient = rng.normal(size=value.shape).astype(np.float32)
            gradient[rng.random(len(gradient)) < 0.3] = 0
            ends = [0, *sorted(rng.integers(0, value.size + 1, pieces - 1).tolist()), value.size]
            for start, stop in zip(ends, ends[1:], strict=False):
                yield Received(
                    node, name, slice(start, stop), gradient.reshape(-1)[start:stop], rows=6, updates=2
                )


@native
@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("reduce", ["mean", "sum"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_engine_applies_ranges_by_the_definition_to_the_bit(
    optimizer: str, reduce: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On kernels without fused multiply-adds, which numpy has none of."""
    monkeypatch.setenv("AMPHW_ENGINE", "native")
    monkeypatch.setenv("AMPHW_ISA", "generic")
    schedule = {"schedule": "exponential", "schedule_steps": 3, "warmup": 2}
    rule = UpdateRule(7, optimizer, lr=0.1, reduce=reduce, clip=0.5, weight_decay=0.01, **schedule)
    device, instances = loaded(rule, name)
    trained(device, instances[:8])
    device.update()
    device.drain()
    rng = np.random.default_rng(1)
    for pieces in (1, 5):
        expected = copies(device.parameters())
        given = list(cut(rng, expected, pieces))
        versions = {node: p.version for node, p in expected.items()}
        receive(expected, given)
        device.receive(given)
        found = device.parameters()
        assert {node: p.version for node, p in found.items()} == versions
        assert {node: p.state for node, p in found.items()} == {n: p.state for n, p in expected.items()}
        for tensor, value in tensors(expected).items():
            np.testing.assert_array_equal(tensors(found)[tensor], value, err_msg=tensor)
    device.close()


@native
@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_however_a_gradient_is_cut_the_bits_are_the_same(optimizer: str, name: str) -> None:
    """On the fastest kernels of this machine, and near the definition."""
    found = []
    for pieces in (1, 7):
        device, instances = loaded(UpdateRule(7, optimizer, lr=0.1), name)
        trained(device, instances[:8], at_once=1)  # which can be repeated
        begun = copies(device.parameters())
        given = list(cut(np.random.default_rng(2), begun, 1))
        device.receive([part for each in given for part in parts(each, pieces)])
        found.append(tensors(device.parameters()))
        receive(begun, given)
        for tensor, value in tensors(begun).items():
            np.testing.assert_allclose(found[-1][tensor], value, rtol=1e-4, atol=1e-6, err_msg=tensor)
        device.close()
    for tensor, value in found[0].items():
        np.testing.assert_array_equal(found[1][tensor], value, err_msg=tensor)


def parts(whole: Received, pieces: int) -> Iterator[Received]:
    for values, places in zip(
        np.array_split(whole.values, pieces),
        np.array_split(np.arange(whole.inside.start, whole.inside.stop), pieces),
        strict=True,
    ):
        if len(places):
            inside = slice(int(places[0]), int(places[-1]) + 1)
            yield whole._replace(inside=inside, values=values)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_every_plane_has_the_definition(optimizer: str, plane: str) -> None:
    graph, instances, _ = problem(CASE)
    device = CpuDevice()
    assert isinstance(device, Receives)
    device.load(graph, {"*": UpdateRule(7, optimizer, lr=0.1)}, DeviceOptions(4, 0, "self", 3))
    for slot, instance in enumerate(instances[:4]):
        device.submit(slot, 0, instance, Mode.TRAIN)
    device.drain()
    expected = copies(device.parameters())
    given = list(cut(np.random.default_rng(4), expected, 3))
    receive(expected, given)
    device.receive(given)
    found = tensors(device.parameters())
    for tensor, value in tensors(expected).items():
        np.testing.assert_allclose(found[tensor], value, rtol=1e-4, atol=1e-6, err_msg=tensor)
    node, name = given[0].node, given[0].name
    nan = given[0]._replace(values=np.full_like(given[0].values, np.nan))
    with pytest.raises(NonFiniteError, match=f"node '{node}'.*gradient of '{name}'"):
        device.receive([*given[1:], nan])
    for tensor, value in tensors(device.parameters()).items():
        np.testing.assert_array_equal(found[tensor], value, err_msg=tensor)
    device.close()


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", list(MODELS))
def test_beside_workers_every_update_is_told_once_and_every_range_counts_once(
    name: str, workers: int, plane: str
) -> None:
    """With SGD and sums, parameters move by the rate times what was told and what was received."""
    rule = UpdateRule(3, lr=0.01, reduce="sum")
    device, instances = loaded(rule, name, workers)
    device.tell()
    begun = tensors(device.parameters())
    moved = {tensor: np.zeros(value.shape) for tensor, value in begun.items()}
    counts = dict.fromkeys(device.params, (0, 0))
    shapes = copies(device.parameters())
    over, errors, rounds = threading.Event(), [], [0, 0]
    rng = np.random.default_rng(5)

    def take() -> None:
        for node, applied in device.told().items():
            rows, updates = counts[node]
            counts[node] = rows + applied.rows, updates + applied.updates
            for parameter, array in applied.arrays.items():
                moved[f"{node}.{parameter}"] -= rule.lr * array.astype(np.float64)
            rounds[0] += 1

    def exchange() -> None:
        try:
            while not over.is_set():
                take()
                for each in (given := list(cut(rng, shapes, 3))):
                    each.values[:] *= np.float32(0.1)
                    moved[f"{each.node}.{each.name}"].reshape(-1)[each.inside] -= rule.lr * each.values
                device.receive(given)
                rounds[1] += 1
        except BaseException as error:
            errors.append(error)

    beside = threading.Thread(target=exchange)
    beside.start()
    until = time.monotonic() + 60.0
    try:
        while min(rounds) < 2 and not errors and time.monotonic() < until:
            trained(device, instances[:64])
    finally:
        over.set()
        beside.join()
    assert not errors
    assert min(rounds) > 1, "nothing was exchanged while instances were in flight"
    device.update()
    device.drain()
    take()
    found = device.parameters()
    assert {node: p.version for node, p in found.items()} == {n: u for n, (_, u) in counts.items()}
    for tensor, value in tensors(found).items():
        np.testing.assert_allclose(value, begun[tensor] + moved[tensor], rtol=1e-4, atol=1e-4, err_msg=tensor)
    device.close()
