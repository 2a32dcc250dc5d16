"""The reference executor: orders, conservation, what it raises, replay, and the modes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from amphw.ir.behaviour import StateMap
from amphw.ir.device import DeviceOptions, Mode, Report
from amphw.ir.errors import ExecutionError, InstanceError, NonFiniteError, StateError
from amphw.ir.expr import Attr, Field, lift, table
from amphw.ir.functions import log, sum_cols
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance, Schema, TableType
from amphw.ir.nodes import NPT, Loss, Source
from amphw.ir.program import trace
from amphw.ir.reference import ReferenceDevice
from amphw.ir.routing import Bcast, Cond, Isu, Phi
from amphw.ir.service_log import ReplayDiffers
from amphw.ir.state import StateType, state_field
from amphw.ir.update import UpdateRule
from tests.ir.graphs import counting_loop, features, sequence

ORDERS = ("fifo", "lifo", "random")
RNG = np.random.default_rng(5)
TOKENS = [RNG.integers(0, 5, n) for n in (1, 8, 3, 0, 5)]


def sentence(number: int) -> Instance:
    return Instance({"length": len(TOKENS[number])}, {"tokens": TOKENS[number]}, number=number)


def opened(
    graph: Graph,
    order: str = "fifo",
    dtype: type = np.float64,
    replay: Sequence | None = None,
    **options: object,
) -> ReferenceDevice:
    device = ReferenceDevice(order, dtype, replay)
    device.load(graph, {"*": UpdateRule(interval=3)}, DeviceOptions(seed=2, **options))  # type: ignore[arg-type]
    return device


def submit_all(device: ReferenceDevice, mode: Mode = Mode.TRAIN) -> list[Report]:
    for number in range(len(TOKENS)):
        device.submit(number, 0, sentence(number), mode)
    return device.drain()


def gradients(device: ReferenceDevice) -> dict[str, np.ndarray]:
    return {f"{n}.{k}": g for n, p in device.parameters().items() for k, g in p.gradients.items()}


@pytest.mark.parametrize("graph", [counting_loop, sequence])
def test_every_order_gives_the_same_gradients(graph: object) -> None:
    found = []
    for order in ORDERS:
        device = opened(graph(), order, updates="off")  # type: ignore[operator]
        if graph is sequence:
            submit_all(device)
        else:
            for slot in range(4):
                device.submit(slot, 0, features([[0.3 * slot, -0.2]], slot), Mode.TRAIN)
            device.drain()
        found.append(gradients(device))
    for other in found[1:]:
        assert other.keys() == found[0].keys()
        for key, g in found[0].items():
            assert np.abs(g).max() > 0
            np.testing.assert_allclose(other[key], g, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("order", ORDERS)
def test_every_message_comes_back_once(order: str) -> None:
    device = opened(sequence(), order)
    reports = submit_all(device)
    assert sorted(r.number for r in reports) == list(range(len(TOKENS)))
    assert device.sent == device.returned and sum(device.sent.values()) > 0
    assert not (device.queue or device.pending or device.fired or device.emitted or device.active)
    stats = device.statistics()
    total = sum(map(len, TOKENS))
    assert stats.forward == stats.backward == 3 * total
    assert sum(sum(h.values()) for h in stats.staleness.values()) == 2 * total
    assert device.statistics().forward == 0  # counted since the last call


def test_an_instance_without_messages_retires_at_once() -> None:
    device = opened(sequence())
    device.submit(0, 9, sentence(3), Mode.TRAIN)
    (report,) = device.poll()
    assert (report.number, report.generation, report.sums) == (3, 9, {})


def test_updates_by_the_node_by_the_controller_or_not_at_all() -> None:
    for updates, versions in (("self", True), ("controller", False), ("off", False)):
        device = opened(sequence(), updates=updates)
        submit_all(device)
        assert (device.parameters()["embed"].version > 0) == versions
        if updates == "controller":
            rows = device.parameters()["embed"].rows
            assert rows == sum(map(len, TOKENS))
            device.update(["embed"])
            assert device.parameters()["embed"].version == 1 and device.parameters()["head"].version == 0
            device.update()
            assert device.parameters()["head"].version == 1


def test_a_replayed_log_gives_the_same_bits() -> None:
    first = opened(sequence(), "random", np.float32, log=True)
    submit_all(first)
    again = opened(sequence(), "fifo", np.float32, replay=first.log)
    submit_all(again)
    for node, p in first.parameters().items():
        for name, value in p.values.items():
            assert np.array_equal(value, again.parameters()[node].values[name])
    other = opened(sequence(), "fifo", np.float32)
    submit_all(other)
    assert not np.array_equal(
        other.parameters()["embed"].values["E"], first.parameters()["embed"].values["E"]
    )


def test_a_log_that_does_not_fit_is_named() -> None:
    log = [("submit", 0, "train"), ("start", 1, "embed", "backward", ((0, "train", (0,)),))]
    device = opened(sequence(), replay=log)
    with pytest.raises(ReplayDiffers) as caught:
        submit_all(device)
    assert str(caught.value) == (
        "replay: the log asks for the backward firing of node 'embed' for instance 0 at (0,), which is not "
        "ready; it belongs to another graph or to other instances"
    )
    found = caught.value
    assert (found.node, found.kind, found.instance, found.state) == ("embed", "backward", 0, (0,))


def test_a_log_that_ends_early_is_told() -> None:
    """Instances that it never began are in flight, too."""
    device = opened(sequence(), replay=[("submit", 0, "train")])
    message = rf"^replay: the log ends while {len(TOKENS)} instance\(s\) are in flight; "
    with pytest.raises(ExecutionError, match=message):
        submit_all(device)


@pytest.mark.parametrize("mode", [Mode.INFER, Mode.PREDICT])
def test_inference_returns_no_messages(mode: Mode) -> None:
    device = opened(sequence())
    trained = {r.number: r for r in submit_all(opened(sequence(), updates="off"))}
    reports = submit_all(device, mode)
    stats = device.statistics()
    assert stats.backward == 0 and stats.updates == 0 and not device.fired
    assert all(p.version == 0 and p.rows == 0 for p in device.parameters().values())
    for r in reports:
        assert r.sums.get("loss", {}).get("loss", 0.0) == pytest.approx(
            trained[r.number].sums.get("loss", {}).get("loss", 0.0), rel=1e-12
        )
        assert bool(r.outputs) == (mode is Mode.PREDICT and len(TOKENS[r.number]) > 0)


def test_predictions_come_in_the_order_of_the_states() -> None:
    for order in ORDERS:
        device = opened(sequence(), order)
        report = next(r for r in submit_all(device, Mode.PREDICT) if r.number == 1)
        outputs = report.outputs["loss"]
        p = device.parameters()
        logits = p["embed"].values["E"][TOKENS[1]] @ p["head"].values["W"]
        assert outputs["guess"].tolist() == logits.argmax(axis=1).tolist()
        assert outputs["loss"].shape == (8, 1) and report.rows == {"loss": 8}
        assert outputs["loss"].sum() == pytest.approx(report.sums["loss"]["loss"])


def test_a_state_that_occurs_twice_raises() -> None:
    """Both copies of a Bcast into one Phi without a site: the second message carries the same state."""
    g = Graph("twice", Schema(data={"x": 2}))
    g.add(Source("x", width=2, data="x"))
    g.add(Bcast("fork"))
    g.add(Phi("phi"))
    g.add(Loss("loss", trace(sum_cols, {"y": 2})))
    g.connect("x", "fork")
    g.connect("fork.out0", "phi.a")
    g.connect("fork.out1", "phi.b")
    g.connect("phi", "loss")
    device = opened(g)
    device.submit(0, 0, features([[1.0, 2.0]], 6), Mode.TRAIN)
    with pytest.raises(ExecutionError) as caught:
        device.drain()
    assert str(caught.value) == (
        "node 'phi' fires twice for state () of instance 6; "
        "what leads here must add a field that tells the two apart (a Phi: its site)"
    )
    device = opened(g)
    device.submit(0, 0, features([[1.0, 2.0]], 6), Mode.INFER)
    with pytest.raises(ExecutionError) as caught:
        device.drain()
    assert str(caught.value) == (
        "node 'loss' port 'y': instance 6 brings the state () a second time; "
        "a loop or region must add a field that tells the two apart"
    )


def test_a_nan_names_the_first_node() -> None:
    g = Graph("nan", Schema(data={"x": 2}))
    g.add(Source("x", width=2, data="x"))
    g.add(NPT("good", trace(lambda x: x * 2.0, {"x": 2})))
    g.add(NPT("bad", trace(log, {"x": 2})))
    g.add(Loss("loss", trace(sum_cols, {"y": 2})))
    g.connect("x", "good", "bad", "loss")
    device = opened(g)
    device.submit(0, 0, features([[1.0, -1.0]]), Mode.TRAIN)
    with np.errstate(invalid="ignore"), pytest.raises(NonFiniteError) as caught:
        device.drain()
    assert (caught.value.node, caught.value.direction) == ("bad", "forward")
    assert str(caught.value) == (
        "node 'bad' produced a non-finite value in its forward direction (output 0); "
        "lower the learning rate, set update.clip, or look at the instance's data"
    )


def _ends(g: Graph, width: int = 0) -> None:
    g.add(Loss("loss", trace(lambda y: sum_cols(y), {"y": width})))


def test_a_choice_without_a_port_raises() -> None:
    g = Graph("choice", Schema({"kind": 5}, data={"x": 2}))
    g.add(Source("x", width=2, data="x"))
    g.add(Cond("kind", Attr("kind"), ("a", "b")))
    g.add(Phi("phi"))
    _ends(g, 2)
    g.connect("x", "kind")
    g.connect("kind.a", "phi.a")
    g.connect("kind.b", "phi.b")
    g.connect("phi", "loss")
    device = opened(g)
    for kind in (0, 1):
        device.submit(0, 0, Instance({"kind": kind}, data={"x": np.ones((1, 2), np.float32)}), Mode.TRAIN)
        assert len(device.drain()) == 1
    device.submit(0, 0, Instance({"kind": 2}, data={"x": np.ones((1, 2), np.float32)}), Mode.TRAIN)
    with pytest.raises(ExecutionError) as caught:
        device.drain()
    assert str(caught.value) == (
        "node 'kind': no out-port takes the message of instance 0 with state {} (the choices: kind == 0, "
        "kind == 1); give every value of its index a port"
    )


def test_a_state_outside_its_domain_names_node_and_port() -> None:
    g = Graph("outside", Schema({"far": 9}, data={"x": 2}))
    g.add(Source("x", width=2, data="x"))
    g.add(Isu("enter", StateMap(add=((state_field("k", 3), Attr("far")),))))
    _ends(g, 2)
    g.connect("x", "enter", "loss")
    device = opened(g)
    device.submit(0, 0, Instance({"far": 3}, data={"x": np.ones((1, 2), np.float32)}, number=8), Mode.TRAIN)
    with pytest.raises(StateError) as caught:
        device.drain()
    assert str(caught.value) == "node 'enter' port 'out': instance 8: field 'k' = 3 is outside 0..2"


def test_row_counts_follow_the_state_through_a_step() -> None:
    """A row count that reads a field keeps its meaning when an Isu changes that field."""
    n, t = Field("n"), Field("t")
    schema = Schema({"length": 4}, {"size": TableType((Attr("length"),), lift(4))})
    g = Graph("rows", schema)
    T = state_field("t", Attr("length"), 4)
    g.add(Source("x", StateType((T,)), rows=table("size")(t)))
    N = state_field("n", Attr("length") + 1, 5)
    g.add(Isu("shift", StateMap(add=((N, t + 1),), drop={"t": n - 1})))
    g.add(NPT("ones", trace(lambda x: x.builder.emit("zeros", [], space="rows", width=1) + 1.0, {"x": 0})))
    _ends(g, 1)
    g.connect("x", "shift", "ones", "loss")
    device = opened(g)
    device.submit(0, 0, Instance({"length": 3}, {"size": np.array([3, 0, 2])}), Mode.PREDICT)
    (report,) = device.drain()
    assert report.rows == {"loss": 5} and report.sums == {"loss": {"loss": 5.0}}


def test_slots_and_schemas_are_checked() -> None:
    device = opened(sequence())
    device.submit(0, 0, sentence(1), Mode.TRAIN)
    with pytest.raises(ExecutionError) as caught:
        device.submit(0, 1, sentence(2), Mode.TRAIN)
    assert str(caught.value) == "slot 0 still holds instance 1"
    with pytest.raises(InstanceError, match=r"^instance 4: the table 'tokens' is missing$"):
        device.submit(1, 0, Instance({"length": 2}, number=4), Mode.TRAIN)


def test_a_closed_device_holds_nothing_back() -> None:
    device = opened(sequence())
    device.submit(0, 0, sentence(1), Mode.TRAIN)
    device.close()
    assert not device.queue
