"""Ranks with asynchronous parameter servers, of their own or beside training: what is pushed counts once."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from amphw.host.checkpoint import load_checkpoint
from amphw.host.checkpointing import CHECKPOINT
from amphw.host.controller import Trainer
from amphw.host.devices import make_device
from amphw.host.null_device import NullDevice
from amphw.host.run_folder import RunFolder
from amphw.ir.config_fields import ConfigError
from amphw.ir.exchange import Names, NodeGradient, Rows, put_values
from amphw.models import get_model
from amphw.replicas.async_servers.server import Server
from amphw.replicas.run import check_ranks, follow, in_threads, replica
from tests.daily import daily
from tests.host.training import MODEL
from tests.replicas.ako.test_strategy import LEARNT, exchanged
from tests.replicas.test_equivalence import RAGGED, RULES, Kept, alone, differences, settings, together
from tests.replicas.test_own_pace import LONG, Noted
from tests.replicas.training import train_in_threads

ASYNC = "replicas.strategy=servers-async"
SGD = ["optimizer=sgd", "lr=0.05", ASYNC]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule[0])
@pytest.mark.parametrize("depth", [1, 3])
def test_one_worker_and_one_server_are_one_process(rule: list[str], depth: int) -> None:
    """Also where an epoch's last window is not full."""
    more = ["train_instances=110"]
    one, expected = alone(MODEL, depth, *rule, *more)
    every, found = together(MODEL, 2, depth, *rule, *more, ASYNC, "replicas.servers=1")
    assert differences(every[0], one) < (1e-10 if "clip=0.02" in rule else 1e-300)
    assert found.valid["loss"] == pytest.approx(expected.valid["loss"], rel=1e-9)
    assert differences(every[0], every[1]) == 0.0


@pytest.mark.parametrize("name", daily(["tree-lstm"], ["list-reduction", "ggnn"]))
def test_so_they_are_with_instances_of_all_sizes(name: str) -> None:
    model, rule = get_model(name), ["optimizer=adam", "lr=0.01", "clip_norm=0.5"]
    one, _ = alone(model, 2, *RAGGED[name], *rule)
    every, _ = together(model, 2, 2, *RAGGED[name], *rule, ASYNC, "replicas.servers=1")
    assert differences(every[0], one) < 1e-10


class Fixed(NullDevice):
    """The gradient of an instance is a function of its number, whatever the parameters are."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.taken: list[int] = []

    def submit(self, slot: int, generation: int, instance: Any, mode: Any) -> None:
        super().submit(slot, generation, instance, mode)
        if mode.value == "train":
            self.numbers.append(instance.number)

    def gradients(self, by_rows: Names) -> dict[str, NodeGradient]:
        found = {}
        for node, p in self.parameters().items():
            sums = {name: np.zeros(v.shape, v.dtype) for name, v in p.values.items()}
            for total in sums.values():
                for number in self.numbers:
                    total += gradient_of(number, total.shape).astype(total.dtype)
            found[node] = NodeGradient(len(self.numbers), sums)
        return found

    def update(self, nodes: Sequence[str] | None = None) -> None:
        self.taken += self.numbers
        self.numbers = []
        super().update(nodes)

    def give(self, gradients: Mapping[str, NodeGradient]) -> None:
        raise AssertionError("nothing is applied here")

    def keep(self, names: Names, away: Names) -> None:
        assert not away and names.keys() == self.parameters().keys()

    def put(self, values: Mapping[str, Mapping[str, np.ndarray | Rows]]) -> None:
        put_values(self.parameters(), values)

    def pulled(self) -> dict[str, dict[str, Rows]]:
        return {}


def gradient_of(number: int, shape: tuple[int, ...]) -> np.ndarray:
    """Integers, whose sums are exact."""
    return np.random.default_rng(number).integers(-8, 9, shape).astype(np.float64)


@given(
    ranks=st.integers(2, 4),
    servers=st.integers(0, 2),
    every=st.integers(0, 5),
    tau=st.integers(0, 3),
    depth=st.integers(1, 3),
)
@hypothesis_settings(max_examples=12)
def test_every_gradient_is_applied_exactly_once(
    ranks: int, servers: int, every: int, tau: int, depth: int
) -> None:
    """What servers end with is the start and the sum of all gradients, up to rounding."""
    wanted = ["optimizer=sgd", "lr=0.0009765625", "reduce=sum", ASYNC, f"replicas.staleness={tau}"]
    wanted += [
        f"replicas.every={every}",
        f"replicas.servers={min(servers, ranks - 1)}",
        "train_instances=110",
    ]
    devices = [Fixed() for _ in range(ranks)]
    cfg = settings(MODEL, depth, *wanted)
    train_in_threads(ranks, MODEL, cfg, lambda rank: devices[rank])
    taken = sorted(n for device in devices for n in device.taken)
    assert taken == list(range(taken[0], taken[0] + 22))
    begun = Fixed()
    Trainer(MODEL, settings(MODEL, depth, *wanted[:3]), begun, None)._begin(None)
    for node, p in begun.parameters().items():
        for name, start in p.values.items():
            moved = sum(gradient_of(number, start.shape) for number in taken)
            expected = start - np.float32(0.0009765625) * np.asarray(moved).astype(np.float32)
            for device in devices:
                found = device.parameters()[node].values[name]
                np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("tau", [0, 1])
def test_the_fast_one_is_held_by_the_bound_and_nobody_for_ever(
    tau: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow rank takes its next instance only when the server holds the fast one, as far as it may go."""
    moved, total = threading.Condition(), 6
    pushed, seen = {0: 0}, {0: 0}  # rounds of the fast rank: that have come, and that were to be answered

    class Watched(Server):
        def push(self, worker: int, round: int, *arguments: Any) -> None:
            super().push(worker, round, *arguments)
            pushed[worker] = round

        def answers(self, now: float) -> list[tuple[int, int, float]]:
            found = super().answers(now)
            for worker, round, _ in found:
                assert round - min(self.clocks.tolist()) <= tau or round == total, (worker, round)
            with moved:
                seen.update(pushed)
                moved.notify_all()
            return found

    class Fast(Noted):
        def submit(self, *arguments: Any) -> None:
            super().submit(*arguments)
            assert len(self.numbers) <= len(slow.numbers) + tau + 1

    class Slow(Noted):
        def submit(self, *arguments: Any) -> None:
            with moved:
                ahead = min(len(self.numbers) + tau + 1, total)
                assert moved.wait_for(lambda: seen[0] >= ahead, LONG)
            super().submit(*arguments)

    monkeypatch.setattr("amphw.replicas.async_servers.strategy.Server", Watched)
    fast, slow = Fast(), Slow()
    wanted = [*SGD, "mode=sync", "epochs=1", "replicas.servers=1", f"replicas.staleness={tau}"]
    devices = [fast, slow, Noted()]
    _, found = exchanged(3, MODEL, settings(MODEL, 1, *wanted), lambda rank: devices[rank])
    assert found.own["bound"] == tau and found.own["clocks"] == [total, total]
    assert found.own["staleness_max"] == tau + 1
    assert sum(found.own["staleness_rounds"].values()) <= 2 * total
    assert found.own["blocked"] > 0


def test_a_rank_serves_while_its_device_is_at_work() -> None:
    """The first instance of one does not return before the other has had an answer of it, twice."""
    answered = threading.Event()

    class Fast(Noted):
        def submit(self, *arguments: Any) -> None:
            super().submit(*arguments)
            if len(self.numbers) == 3:
                answered.set()

    class Slow(Noted):
        def poll(self, timeout: float = 0.0) -> Any:
            if self.numbers and not answered.wait(timeout):
                return []
            return super().poll(timeout)

    devices = [Fast(), Slow()]
    cfg = settings(MODEL, 1, *SGD, "mode=sync", "epochs=1")
    train_in_threads(2, MODEL, cfg, lambda rank: devices[rank])
    assert answered.is_set() and len(devices[0].numbers) == len(devices[1].numbers) == 6


@pytest.mark.parametrize("servers", [0, 1])
def test_a_checkpoint_goes_on_under_any_strategy_and_number_of_ranks(servers: int, tmp_path: Path) -> None:
    rule = ["optimizer=adam", "lr=0.01", "epochs=1"]
    cfg = settings(MODEL, 1, *rule, ASYNC, f"replicas.servers={servers}")
    folder = RunFolder.create(tmp_path / "run", "toy")
    ranks = 2 + servers
    train_in_threads(ranks, MODEL, cfg, lambda rank: Kept(), folder)
    saved = load_checkpoint(tmp_path / "run" / CHECKPOINT, None)[0]
    assert any("#slot" in name and np.abs(value).max() > 0 for name, value in saved.items())

    def goes_on(ranks: int, *wanted: str) -> Kept:
        devices = [Kept() for _ in range(ranks)]
        cfg = settings(MODEL, 1, *rule[:2], *wanted)
        with in_threads(ranks, lambda t: follow(MODEL, cfg, devices[t.rank], t, folder.path)) as transport:
            mine = replica(transport, cfg)
            found = Trainer(MODEL, cfg, devices[0], None, replication=mine).run(folder.path)
            mine.synchronised(0.0)
            devices[0].close()
        assert found.epochs == 2
        return devices[0]

    alone = goes_on(1, "replicas.strategy=allreduce")
    assert differences(goes_on(2, ASYNC, "replicas.servers=1"), alone) < 1e-10
    for wanted in (["replicas.strategy=hybrid"], [ASYNC, "replicas.servers=2"], [ASYNC]):
        goes_on(3, *wanted)


def test_ranks_stop_within_an_epoch_and_the_run_goes_on_from_there(tmp_path: Path) -> None:
    class Stops(Noted):
        trainer: Trainer

        def submit(self, *arguments: Any) -> None:
            super().submit(*arguments)
            if len(self.numbers) == 2:
                self.trainer.stop()

    first = Stops()
    devices = [first, Noted(), Noted()]
    cfg = settings(MODEL, 1, *SGD, "mode=sync", "replicas.staleness=1", "replicas.servers=1")
    folder = RunFolder.create(tmp_path / "run", "toy")

    def prepared(trainer: Trainer) -> None:
        first.trainer = trainer

    found = train_in_threads(3, MODEL, cfg, lambda rank: devices[rank], folder, prepared)
    assert found.stopped_by == "interrupt" and found.epochs == 0
    position = load_checkpoint(tmp_path / "run" / CHECKPOINT, None)[1]["counters"]["position"]
    assert 4 <= position < 12 and position % 2 == 0
    taken = sorted(n for device in devices for n in device.numbers)
    assert taken == list(range(taken[0], taken[0] + position))


def test_half_the_bytes_move_ranks_about_as_far() -> None:
    found = {}
    for wire in ("full", "bfloat16"):
        wanted = [*SGD, "replicas.servers=1", "mode=sync", f"replicas.wire={wire}", "epochs=1"]
        devices = [Kept(), Kept()]
        _, kept = exchanged(2, MODEL, settings(MODEL, 1, *wanted), lambda rank: devices[rank])  # noqa: B023
        found[wire] = np.concatenate([v.reshape(-1) for v in devices[0].last.values()]), kept.bytes
    np.testing.assert_allclose(found["bfloat16"][0], found["full"][0], rtol=0, atol=0.02)
    assert (found["bfloat16"][0] != found["full"][0]).any()


def test_copies_of_a_node_meet_at_the_end_of_an_epoch() -> None:
    model = get_model("list-reduction")
    small = [*RAGGED["list-reduction"], "replicas=2", "epochs=1", *SGD]
    devices = [Kept(), Kept(), Kept()]
    cfg = settings(model, 1, *small, "replicas.servers=1")
    train_in_threads(3, model, cfg, lambda rank: devices[rank])
    for other in devices[1:]:
        assert differences(devices[0], other) == 0.0


@pytest.mark.parametrize(
    ("ranks", "servers", "name"),
    daily([(2, 0, "ako-mnist")], [(3, 1, "ako-mnist"), (2, 0, "list-reduction"), (3, 1, "list-reduction")]),
)
def test_models_are_learnt_on_the_cpu(name: str, ranks: int, servers: int) -> None:
    from amphw.host.config import resolve

    model, (wanted, below) = get_model(name), LEARNT[name]
    common = ["valid_instances=200", "target=none", "device.workers=1", "mode=pipeline", "pipeline_depth=2"]
    wanted = [*common, *wanted, ASYNC, f"replicas.servers={servers}"]
    cfg = resolve(model.config, model.defaults, None, wanted)
    summary, found = exchanged(ranks, model, cfg, lambda rank: make_device("cpu"))
    assert summary.history[-1].valid["loss"] < below
    assert found.own["staleness_max"] <= found.own["bound"] + 1
    assert found.parameter_bytes["servers"] > 0


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (["replicas.servers=2"], "take fewer servers, as at least one rank has to train"),
        (["device.replicate_every=3"], "brings the copies of a node together on a rank's device"),
        (["train.average=0.9"], "no rank has the latest"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(wanted: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_ranks(2, settings(MODEL, 1, *SGD, *wanted))
