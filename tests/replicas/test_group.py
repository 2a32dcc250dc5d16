"""Asynchronous group synchronisation: what has moved is conserved, and no rank waits for a slower one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw.host.checkpoint import load_checkpoint
from amphw.host.checkpointing import CHECKPOINT, Checkpoints
from amphw.host.controller import Trainer
from amphw.host.run_folder import RunFolder
from amphw.host.session import Session
from amphw.ir.device import Device
from amphw.models import get_model
from amphw.replicas.group import Group
from amphw.replicas.packed import Traffic
from amphw.replicas.run import check_ranks, follow, in_threads, replica
from amphw.replicas.threads import ThreadGroup
from tests.host.training import MODEL
from tests.replicas.test_equivalence import Kept, settings, together
from tests.replicas.training import train_in_threads

GROUP = ["lr=0.05", "replicas.strategy=group"]
LONG = 60.0
"""Seconds after which a test that waits for another thread gives up."""


class Noted(Kept):
    """Remembers the numbers of the instances that it trains on."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[int] = []

    def submit(self, slot: int, generation: int, instance: Any, mode: Any) -> None:
        if mode.value == "train":
            self.numbers.append(instance.number)
        super().submit(slot, generation, instance, mode)


def values(device: Device) -> dict[str, np.ndarray]:
    return {f"{n}.{k}": v.copy() for n, p in device.parameters().items() for k, v in p.values.items()}


def test_copies_in_the_graph_of_each_rank_belong_to_the_group() -> None:
    """Two ranks with two copies of the cell: all four go on from the mean of what they have moved by."""
    model = get_model("list-reduction")
    cfg = settings(model, 1, *GROUP, "hidden=8", "replicas=2", "train_instances=40")
    group, strategies, devices = ThreadGroup(2).transports(), [Group(), Group()], [Kept(), Kept()]
    for transport, strategy, device in zip(group, strategies, devices, strict=True):
        session = Session(model, cfg, device)
        strategy.begin(device, transport, session.graph, session.rules)
    (copies,) = session.graph.replicas
    begun = sum(devices[0].parameters()[node].values["W"] for node in copies) / len(copies)
    for rank, device in enumerate(devices):
        for k, node in enumerate(copies):
            p = device.parameters()[node]
            p.values = {name: value + 10**rank * (k + 1) for name, value in p.values.items()}
    traffic = Traffic()
    for rank in (0, 1, 0):
        assert strategies[rank].pass_on(devices[rank], group[rank], traffic, 1, 99, False) is None
    for device in devices:
        for node in copies:
            found = device.parameters()[node].values["W"]
            np.testing.assert_allclose(found - begun, (1 + 2 + 10 + 20) / 4, rtol=0, atol=1e-12)
    assert not any(name.startswith(f"{node}.") for node in copies[1:] for name in traffic.sent)


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_messages_in_any_order_make_the_mean_of_all_that_has_moved(ranks: int) -> None:
    """Ranks move and exchange in a random order, some of them much more often than others."""
    rng = np.random.default_rng(ranks)
    group = ThreadGroup(ranks).transports()
    devices, strategies, traffic = [], [], [Traffic() for _ in group]
    for transport in group:
        device, strategy = Kept(), Group()
        session = Session(MODEL, settings(MODEL, 1, *GROUP), device)
        strategy.begin(device, transport, session.graph, session.rules)
        devices.append(device)
        strategies.append(strategy)
    expected = values(devices[0])

    def pass_on(rank: int) -> None:
        assert strategies[rank].pass_on(devices[rank], group[rank], traffic[rank], 1, 99, False) is None

    often = rng.dirichlet(np.full(ranks, 0.5))
    for rank in rng.choice(ranks, 60, p=often).tolist():
        for node, p in devices[rank].parameters().items():
            moves = {name: rng.normal(size=value.shape) for name, value in p.values.items()}
            p.values = {name: value + moves[name] for name, value in p.values.items()}
            for name, move in moves.items():
                expected[f"{node}.{name}"] += move / ranks
        if rng.random() < 0.7:
            pass_on(rank)
    for _ in range(2):  # so that all have told all, and then all have heard all
        for rank in range(ranks):
            pass_on(rank)
    for device in devices:
        for name, value in values(device).items():
            np.testing.assert_allclose(value, expected[name], rtol=0, atol=1e-12, err_msg=name)
    assert sum(sum(t.sent.values()) for t in traffic) >= sum(sum(t.received.values()) for t in traffic) > 0


def test_no_rank_waits_for_a_slow_one() -> None:
    """The slow one does not take its second instance before the other has taken all of its own."""
    through = threading.Event()

    class Fast(Noted):
        def submit(self, *arguments: Any) -> None:
            super().submit(*arguments)
            if len(self.numbers) == 6:
                through.set()

    class Slow(Noted):
        def submit(self, *arguments: Any) -> None:
            if self.numbers:
                assert through.wait(LONG), "the fast rank has waited"
            super().submit(*arguments)

    devices = [Fast(), Slow()]
    cfg = settings(MODEL, 1, *GROUP, "replicas.every=1", "epochs=1")
    train_in_threads(2, MODEL, cfg, lambda rank: devices[rank])
    assert len(devices[1].numbers) == 6


@pytest.mark.parametrize("mode", ["async", "pipeline", "sync"])
@pytest.mark.parametrize(("ranks", "every"), [(2, 0), (3, 1), (5, 2)])
def test_every_instance_counts_once_and_ranks_end_alike(mode: str, ranks: int, every: int) -> None:
    """There are 12 batches an epoch, which five ranks cannot share evenly."""
    devices = [Noted() for _ in range(ranks)]
    cfg = settings(MODEL, 2, *GROUP, f"replicas.every={every}", f"mode={mode}")
    train_in_threads(ranks, MODEL, cfg, lambda rank: devices[rank])
    numbers = sorted(n for device in devices for n in device.numbers)
    assert numbers == list(range(numbers[0], numbers[0] + 24))
    for other in devices[1:]:
        for name, value in other.last.items():
            np.testing.assert_array_equal(value, devices[0].last[name])


def test_ranks_pause_together_for_a_checkpoint_that_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = []
    save = Checkpoints.save

    def noted(self: Checkpoints, names: Any, state: Any, *rest: Any) -> None:
        saved.append(state.position)
        save(self, names, state, *rest)

    class Waits(Noted):
        """Makes its second round once it has been called."""

        def submit(self, *arguments: Any) -> None:
            assert not self.numbers or called.wait(LONG)
            super().submit(*arguments)

    called, post = threading.Event(), Group._post

    def posted(self: Group, transport: Any, head: int, arrays: Any) -> None:
        post(self, transport, head, arrays)
        if head >= 0:
            called.set()

    monkeypatch.setattr(Checkpoints, "save", noted)
    monkeypatch.setattr(Group, "_post", posted)
    devices = [Noted(), Waits()]
    cfg = settings(MODEL, 1, *GROUP, "replicas.every=1", "checkpoint_minutes=1e-9")
    train_in_threads(2, MODEL, cfg, lambda rank: devices[rank], RunFolder.create(tmp_path / "run", "toy"))
    assert any(position for position in saved)
    numbers = sorted(n for device in devices for n in device.numbers)
    assert numbers == list(range(numbers[0], numbers[0] + 24))


def test_ranks_stop_within_an_epoch_and_the_run_goes_on_from_there(tmp_path: Path) -> None:
    """All make as many rounds as the fastest, so that what has been trained on is where the epoch began."""

    class Stops(Noted):
        trainer: Trainer

        def update(self, nodes: Any = None) -> None:
            if len(self.numbers) == 2:
                self.trainer.stop()
            super().update(nodes)

    class Waits(Noted):
        """Makes its second round once it has been called."""

        def update(self, nodes: Any = None) -> None:
            super().update(nodes)
            if len(self.numbers) == 1:
                assert called.wait(LONG)

    called = threading.Event()
    first = Stops()
    devices = [first, Waits(), Noted(), Noted()]
    cfg = settings(MODEL, 1, *GROUP, "replicas.every=1")
    folder = RunFolder.create(tmp_path / "run", "toy")

    def prepared(trainer: Trainer) -> None:
        first.trainer = trainer
        stop = trainer.stop

        def told() -> None:
            stop()
            called.set()

        trainer.stop = told  # type: ignore[method-assign]

    found = train_in_threads(2, MODEL, cfg, lambda rank: devices[rank], folder, prepared)
    assert found.stopped_by == "interrupt" and found.epochs == 0
    position = load_checkpoint(tmp_path / "run" / CHECKPOINT, None)[1]["counters"]["position"]
    assert 4 <= position < 12 and position % 2 == 0
    before = sorted(n for device in devices for n in device.numbers)
    assert before == list(range(before[0], before[0] + position))
    check_ranks(2, cfg)
    with in_threads(2, lambda t: follow(MODEL, cfg, devices[3], t, folder.path)) as transport:
        mine = replica(transport, cfg)
        summary = Trainer(MODEL, cfg, devices[2], folder, replication=mine).run(folder.path)
        mine.synchronised(0.0)
        devices[2].close()
    assert summary.epochs == 2
    numbers = sorted(n for device in devices for n in device.numbers)
    assert numbers == list(range(numbers[0], numbers[0] + 24))


def test_an_error_of_one_rank_ends_those_that_go_on() -> None:
    class Fails(Noted):
        def submit(self, *arguments: Any) -> None:
            if self.numbers:
                raise RuntimeError("out of order")
            super().submit(*arguments)

    devices = [Noted(), Fails(), Noted()]
    with pytest.raises(RuntimeError, match="out of order"):
        cfg = settings(MODEL, 1, *GROUP, "replicas.every=1")
        train_in_threads(3, MODEL, cfg, lambda rank: devices[rank])


def test_ranks_learn_together() -> None:
    """Guessing has a loss of log(10) = 2.30; runs ended between 1.47 and 1.61."""
    small = ["hidden=16", "train_instances=2000", "valid_instances=100", "epochs=2", "batch=10", "lr=0.01"]
    group = ("replicas.strategy=group", "replicas.every=2")
    _, summary = together(get_model("list-reduction"), 2, 1, *small, *group)
    assert summary.history[-1].valid["loss"] < 1.9
