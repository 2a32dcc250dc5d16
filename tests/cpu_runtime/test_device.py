"""The CPU device as its host sees it: updates, placement, statistics, memory, closing."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.engine.numpy_plane.frames import ForwardRecord, Frame
from amphw.engine.numpy_plane.slots import Slot
from amphw.engine.policy import POLICIES
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import ExecutionError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice
from amphw.ir.state import state_field
from amphw.ir.update import UpdateRule
from tests.conformance.harness import run
from tests.cpu_runtime.graphs import mlp, rows
from tests.cpu_runtime.running import Loader, assert_equal, gradients, pump, values
from tests.graphs import decide, rnn
from tests.graphs.cases import CASES

pytestmark = pytest.mark.usefixtures("plane")

# --- updates ------------------------------------------------------------------------------------


def test_the_controller_updates_like_on_the_reference(load: Loader) -> None:
    rule = UpdateRule(optimizer="adam", lr=0.01)
    device, expected = load(mlp(), rule, updates="controller"), ReferenceDevice()
    expected.load(mlp(), {"*": rule}, DeviceOptions(8, 0, "controller", 3))
    instances = rows(12)
    for part in (instances[:5], instances[5:], []):
        for instance in part:
            for each in (device, expected):
                each.submit(instance.number % 8, 0, instance, Mode.TRAIN)
        for each in (device, expected):
            assert len(each.drain()) == len(part)
            each.update()
    assert {n: p.version for n, p in device.parameters().items()} == {"layer0": 2, "layer1": 2, "head": 2}
    found = values(device)
    for name, value in values(expected).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    assert not any(g.any() for g in gradients(device).values())


def test_one_node_can_be_updated_alone(load: Loader) -> None:
    device = load(mlp(), updates="controller")
    pump(device, rows(3))
    device.update(["head"])
    assert {n: p.version for n, p in device.parameters().items()} == {"layer0": 0, "layer1": 0, "head": 1}


def test_off_accumulates_and_changes_nothing(load: Loader) -> None:
    device = load(mlp(), UpdateRule(interval=1))
    before = values(device)
    pump(device, rows(100))
    assert_equal(values(device), before)
    assert device.statistics().updates == 0
    assert all(p.rows == 400 and p.version == 0 for p in device.parameters().values())


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_one_active_key_is_synchronous_training_bit_for_bit(load: Loader, workers: int) -> None:
    rule = UpdateRule(interval=4, optimizer="momentum", lr=0.05)
    instances = rows(40)
    synchronous = load(mlp(), rule, updates="controller", workers=1)
    for instance in instances:
        synchronous.submit(0, 0, instance, Mode.TRAIN)
        synchronous.drain()
        synchronous.update()
    asynchronous = load(mlp(), rule, updates="self", workers=workers)
    pump(asynchronous, instances, keys=1)
    assert_equal(values(asynchronous), values(synchronous))
    assert asynchronous.parameters()["head"].version == len(instances)


def test_a_replay_of_controller_updates_gives_the_same_bits() -> None:
    options = DeviceOptions(8, 0, "controller", 3, True, {"workers": 2})
    rule = {"*": UpdateRule(optimizer="adam", lr=0.01)}

    def train(device: CpuDevice) -> dict[str, np.ndarray]:
        device.load(mlp(), rule, options)
        for part in (rows(20)[:8], rows(20)[8:16], rows(20)[16:]):
            assert len(pump(device, part, keys=4)) == len(part)
            device.update()
        device.drain()
        device.close()
        return values(device)

    logged = CpuDevice()
    expected = train(logged)
    assert_equal(train(CpuDevice(replay=logged.log)), expected)


# --- instances -----------------------------------------------------------------------------------


def strided(a: np.ndarray) -> np.ndarray:
    """The same numbers, with others between them."""
    return np.stack([a, np.full_like(a, 99)], -1)[..., 0]


FORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "bytes": lambda a: a.astype(np.uint8),
    "unsigned": lambda a: a.astype(np.uint64),
    "other byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "strided": strided,
}


@pytest.mark.parametrize("form", FORMS)
def test_tables_may_be_of_any_integer_type(load: Loader, form: str) -> None:
    case = next(c for c in CASES if c.name == "tree-leaves")

    def trained(convert: Callable[[np.ndarray], np.ndarray]) -> dict[str, np.ndarray]:
        instances = case.instances()
        for instance in instances:
            instance.tables = {name: convert(table) for name, table in instance.tables.items()}
        device = load(case.build(), updates="off", workers=1)
        assert len(pump(device, instances, keys=1)) == len(instances)
        return gradients(device)

    assert_equal(trained(FORMS[form]), trained(lambda a: a.astype(np.int64)))


@pytest.mark.parametrize("form", FORMS)
def test_memory_is_planned_for_tables_of_any_integer_type(load: Loader, form: str) -> None:
    case = next(c for c in CASES if c.name == "tree-leaves")
    device, instance = load(case.build()), case.instances()[0]
    wanted = device.planned_bytes(instance, Mode.TRAIN)
    instance.tables = {name: FORMS[form](table) for name, table in instance.tables.items()}
    assert device.planned_bytes(instance, Mode.TRAIN) == wanted


def test_a_frame_without_rows_keeps_its_place_in_the_log(load: Loader) -> None:
    """Others go on while it is on its way. The sanitizers see what happens to its memory."""
    rng = np.random.default_rng(0)

    def learned(**settings: Any) -> dict[str, np.ndarray]:
        instances = [decide.instance(rng, batch) for batch in (0, 7, 0, 7)]
        device = load(decide.build(), updates="off", **settings)
        assert len(pump(device, instances, keys=2)) == len(instances)
        return gradients(device)

    slow = learned(workers=2, frame_cap=1, sleep={"mix": 0.05})
    assert slow.keys() and all(np.isfinite(g).all() for g in slow.values())
    rng = np.random.default_rng(0)
    for name, gradient in learned(workers=1).items():
        np.testing.assert_allclose(slow[name], gradient, rtol=1e-5, atol=1e-6, err_msg=name)


# --- scheduling ---------------------------------------------------------------------------------

Call = tuple[int, str, str, float, float, int, int | None, int | None]


def traced(graph: Graph, instances: Sequence[Instance], load: Loader, **settings: Any) -> list[Call]:
    calls: list[Call] = []
    device = load(graph, UpdateRule(interval=4), updates="self", trace=lambda *c: calls.append(c), **settings)
    pump(device, instances)
    device.close()
    return calls


def test_pinned_nodes_stay_with_their_workers(load: Loader) -> None:
    calls = traced(mlp(layers=3), rows(30), load, workers=3, placement="pinned")
    workers: dict[str, set[int]] = {}
    for worker, node, *_ in calls:
        workers.setdefault(node, set()).add(worker)
    assert workers.keys() == {"layer0", "layer1", "layer2", "head"}
    assert all(len(w) == 1 for w in workers.values())
    assert set().union(*workers.values()) == {0, 1, 2}


def test_nodes_run_where_a_placement_puts_them(load: Loader) -> None:
    calls = traced(mlp(), rows(20), load, workers=3, placement={"layer0": 1, "head": 2})
    assert {(node, worker) for worker, node, *_ in calls} == {
        ("layer0", 1),
        ("head", 2),
        ("layer1", 0),
    }


def test_a_pinned_worker_without_work_sleeps(load: Loader, gate: threading.Event) -> None:
    """Work that only others may serve must not keep it spinning."""
    device = load(mlp(), workers=2, placement={"layer0": 1})
    for instance in rows(2):
        device.submit(instance.number, 0, instance, Mode.TRAIN)
    began = time.monotonic()
    device.plane.wait(0, 0.1)  # all there is to do is in the queue of layer0
    assert time.monotonic() - began >= 0.09
    gate.set()
    assert len(device.drain()) == 2


def test_a_policy_may_be_edited_while_workers_go_by_it(load: Loader) -> None:
    device = load(mlp(layers=3), UpdateRule(interval=4), workers=3)
    tables = [POLICIES[name].table(device.lowered, k) for k, name in enumerate(POLICIES, 1)]
    stop = threading.Event()

    def edit() -> None:
        while not stop.is_set():
            for table in tables:
                device.plane.edit_policy(table)
                time.sleep(1e-4)

    editor = threading.Thread(target=edit)
    editor.start()
    try:
        assert len(pump(device, rows(300))) == 300
    finally:
        stop.set()
        editor.join()


def test_trace_slices(load: Loader) -> None:
    calls = traced(mlp(layers=1), rows(5), load, workers=2)
    by_kind = {kind: [c for c in calls if c[2] == kind] for kind in ("forward", "backward", "update")}
    assert sum(map(len, by_kind.values())) == len(calls)
    for node in ("layer0", "head"):  # the loss is a part of `head`
        for kind in ("forward", "backward"):
            assert sum(c[5] for c in by_kind[kind] if c[1] == node) == 5 * 4  # payload rows
    numbers = [c[7] for c in by_kind["forward"] + by_kind["backward"]]
    assert len(set(numbers)) == len(numbers) and None not in numbers
    number_of = {c[7]: c for c in by_kind["forward"]}
    for c in by_kind["forward"]:
        assert (c[6] is None) == (c[1] == "layer0")  # a source is no frame
        if c[6] is not None:
            assert number_of[c[6]][1] == {"head": "layer0"}[c[1]]
    assert {c[1] for c in by_kind["update"]} == {"layer0", "head"}
    for c in calls:
        assert c[0] in (0, 1) and c[3] > 0 and c[4] >= 0


def test_sleep_takes_its_time_for_every_message(load: Loader) -> None:
    device = load(mlp(layers=1), workers=1, sleep={"layer0": 0.02, "*": 0.0})
    began = time.monotonic()
    pump(device, rows(3))
    assert time.monotonic() - began > 3 * 2 * 0.02
    assert device.statistics().busy[0] > 3 * 2 * 0.02


# --- statistics, memory, closing ----------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3])
def test_statistics_add_up(load: Loader, workers: int) -> None:
    device = load(mlp(), UpdateRule(interval=6), updates="self", workers=workers)
    began = time.monotonic()
    pump(device, rows(50))
    stats, elapsed = device.statistics(), time.monotonic() - began
    assert stats.forward == stats.backward == 50 * 3
    assert stats.updates == sum(p.version for p in device.parameters().values()) > 0
    assert {node: sum(h.values()) for node, h in stats.staleness.items()} == dict.fromkeys(
        ("layer0", "layer1", "head"), 50 * 4
    )
    assert len(stats.busy) == workers and all(0 <= b < elapsed for b in stats.busy) and sum(stats.busy) > 0
    again = device.statistics()
    assert again.forward == again.frames == 0 and again.busy == [0.0] * workers


def test_messages_add_up_where_a_node_decides(load: Loader) -> None:
    """A loss's frame sends nothing, whatever the frame before it has decided."""
    device = load(decide.build(exit="store"), workers=2, frame_cap=7)
    rng = np.random.default_rng(0)
    instances = [decide.instance(rng, 5) for _ in range(50)]
    for number, instance in enumerate(instances):
        instance.number = number
    pump(device, instances)
    stats = device.statistics()
    assert 50 < stats.forward == stats.backward < 50 * 100


def test_inference_beside_training_leaves_the_gradients_alone(load: Loader) -> None:
    rng = np.random.default_rng(0)
    instances = [rnn.instance(rng, batch=3) for _ in range(40)]
    for number, instance in enumerate(instances):
        instance.number = number
    alone, mixed = load(rnn.build(), workers=3), load(rnn.build(), workers=3)
    pump(alone, instances)
    free, waiting, inferred = list(range(8)), list(instances), 0
    while waiting or len(free) < 8:
        while waiting and free:
            slot = free.pop()
            mode = Mode.TRAIN if slot < 4 else (Mode.INFER, Mode.PREDICT)[slot % 2]
            instance = waiting.pop(0) if mode is Mode.TRAIN else instances[inferred % 40]
            inferred += mode is not Mode.TRAIN
            mixed.submit(slot, 0, instance, mode)
        free += [r.slot for r in mixed.poll(0.05)]
    mixed.drain()
    assert inferred > 10
    for name, g in gradients(alone).items():
        error = np.linalg.norm(gradients(mixed)[name] - g)
        assert error <= 1e-5 * np.linalg.norm(g), name


def kept() -> int:
    """Number of the numpy plane's slots and frames; what failed earlier keeps some, in its traceback."""
    return sum(isinstance(o, Slot | Frame | ForwardRecord) for o in gc.get_objects())


def test_nothing_of_an_instance_stays(load: Loader, plane: str) -> None:
    rng = np.random.default_rng(0)
    gc.collect()
    before = kept()
    device = load(decide.build(exit="store"), UpdateRule(interval=9), updates="self", workers=2)
    instances = [decide.instance(rng, 5) for _ in range(200)]
    seen = [weakref.ref(i) for i in instances]
    for number, instance in enumerate(instances):
        instance.number = number
    reports = pump(device, instances)
    del instances, instance
    gc.collect()
    assert len(reports) == 200 and device.plane.in_flight == 0
    if plane == "native":
        assert not any(ref() for ref in seen)
        assert device.plane.engine.in_flight() == 0 and device.plane.engine.pending() == []
        return
    assert kept() == before
    assert not device.plane.slots and not any(
        q.heap or q.rows for kinds in device.plane.queues for q in kinds
    )
    assert not any(log.entries or log.waiting or log.busy for log in device.plane.logs.values())
    # A plan may keep the one instance that it was made from.
    assert sum(ref() is not None for ref in seen) <= 1


@pytest.mark.parametrize("plane", ["native"], indirect=True)
def test_memory_of_the_slots_is_bounded_by_the_largest_instance(load: Loader, plane: str) -> None:
    device = load(rnn.build(), UpdateRule(interval=9), updates="self", workers=2)
    rng = np.random.default_rng(0)
    instances = [rnn.instance(rng, batch=1 + k % 4) for k in range(60)]
    for number, instance in enumerate(instances):
        instance.number = number
    largest = max(device.planned_bytes(i, Mode.TRAIN) for i in instances)
    grown = []
    for _ in range(3):
        pump(device, instances, keys=4)
        grown.append(device.plane.engine.slot_bytes())
    assert 0 < max(grown) <= 4 * largest
    pump(device, instances[:1], keys=4, mode=Mode.INFER)
    assert device.plane.engine.slot_bytes() == grown[-1], "inference needs no more than training"


@pytest.mark.parametrize("plane", ["native"], indirect=True)
def test_an_instance_has_no_room_for_scores_of_a_wide_layer_before_a_loss(load: Loader, plane: str) -> None:
    def planned(classes: int) -> int:
        device = load(mlp(classes=classes), UpdateRule(interval=4), updates="self", workers=2)
        instances = rows(8)
        wanted = int(device.planned_bytes(instances[0], Mode.TRAIN))
        losses = [report.sums["loss"]["loss"] for report in pump(device, instances)]
        assert all(0.0 < loss < 100.0 for loss in losses) and device.parameters()["head"].version > 0
        return wanted

    assert planned(5_000) == planned(5)


def test_close_and_load_again(load: Loader) -> None:
    device = CpuDevice()
    device.close()  # never loaded
    found = []
    for _ in range(2):
        found.append(
            run(device, mlp(), rows(10), keys=1, updates="self", rule=UpdateRule(interval=4)).parameters
        )
        device.close()
        device.close()
    assert_equal(found[0], found[1])
    assert device.parameters()["head"].version == 10  # they can still be read
    with pytest.raises(ExecutionError, match="^the device is closed; load a graph first$"):
        device.submit(0, 0, rows(1)[0], Mode.TRAIN)
    assert not [t for t in threading.enumerate() if t.name.startswith("amphw-worker")]


def test_load_stops_the_workers_of_the_graph_before(load: Loader) -> None:
    device = load(mlp(), workers=3)
    device.load(mlp(), {"*": UpdateRule()}, DeviceOptions(settings={"workers": 2}))
    assert len([t for t in threading.enumerate() if t.name.startswith("amphw-worker")]) == 2


def test_close_comes_back_while_instances_are_in_flight(load: Loader, gate: threading.Event) -> None:
    device = load(mlp(), workers=2)
    for instance in rows(8):
        device.submit(instance.number, 0, instance, Mode.TRAIN)
    device.close()
    assert device.plane.in_flight == 8
    assert not [t for t in threading.enumerate() if t.name.startswith("amphw-worker")]


def test_drain_of_a_closed_device_does_not_wait_for_workers_that_are_gone(
    load: Loader, gate: threading.Event
) -> None:
    device = load(mlp(), workers=1)
    for instance in rows(4):
        device.submit(instance.number, 0, instance, Mode.TRAIN)
    device.close()
    with pytest.raises(ExecutionError, match=r"^closed with 4 instance\(s\) in flight; drain first$"):
        device.drain()


def test_a_decision_with_a_bound_above_its_extent(load: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound sizes bits; what the network can decide is the extent."""
    found = []
    for bound in (decide.EXPERTS, 5):
        monkeypatch.setattr(decide, "EXPERT", state_field("expert", decide.EXPERTS, bound))
        device = load(decide.build(), workers=1)
        found.append(pump(device, [decide.instance(np.random.default_rng(1), 6)])[0].sums)
    assert found[0] == found[1]


def test_poll_waits_for_a_report_and_no_longer_than_asked(load: Loader, gate: threading.Event) -> None:
    device = load(mlp(), UpdateRule(interval=1), updates="self", workers=1)
    device.submit(0, 0, rows(1)[0], Mode.TRAIN)
    assert device.poll(0.0) == []
    began = time.monotonic()
    assert device.poll(0.05) == [] and time.monotonic() - began >= 0.04
    gate.set()
    assert [r.number for r in device.poll(60.0)] == [0]


def test_data_of_another_precision_is_converted(load: Loader) -> None:
    device = load(mlp(), workers=1)
    (instance,) = rows(1)
    single = pump(device, [instance])[0].sums
    instance.data["x"] = instance.data["x"].astype(np.float64)
    assert pump(device, [instance])[0].sums == single
