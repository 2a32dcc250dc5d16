"""Strategies of which each rank goes at its own pace: all instances count once, and ranks end alike."""

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
from amphw.replicas.own_pace import BODY
from amphw.replicas.run import check_ranks, follow, in_threads, replica
from amphw.replicas.threads import ThreadTransport
from tests.host.training import MODEL
from tests.replicas.test_equivalence import Kept, settings
from tests.replicas.training import train_in_threads

LONG = 60.0
"""Seconds after which a test that waits for another thread gives up."""
UNANSWERED = ["group", "ako", "all-to-all"]
"""Those of which no rank waits for what another one says."""
PACES = pytest.mark.parametrize("strategy", [*UNANSWERED, "servers-async"])


def asked(strategy: str) -> list[str]:
    return ["lr=0.05", f"replicas.strategy={strategy}"]


class Noted(Kept):
    """Remembers the numbers of the instances that it trains on."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[int] = []

    def submit(self, slot: int, generation: int, instance: Any, mode: Any) -> None:
        if mode.value == "train":
            self.numbers.append(instance.number)
        super().submit(slot, generation, instance, mode)


@PACES
@pytest.mark.parametrize("mode", ["async", "pipeline", "sync"])
@pytest.mark.parametrize(("ranks", "every"), [(2, 0), (3, 1), (5, 2)])
def test_every_instance_counts_once_and_ranks_end_alike(
    strategy: str, mode: str, ranks: int, every: int
) -> None:
    """There are 12 batches an epoch, which five ranks cannot share evenly."""
    devices = [Noted() for _ in range(ranks)]
    cfg = settings(MODEL, 2, *asked(strategy), f"replicas.every={every}", f"mode={mode}")
    train_in_threads(ranks, MODEL, cfg, lambda rank: devices[rank])
    numbers = sorted(n for device in devices for n in device.numbers)
    assert numbers == list(range(numbers[0], numbers[0] + 24))
    for other in devices[1:]:
        for name, value in other.last.items():
            np.testing.assert_array_equal(value, devices[0].last[name])


@PACES
def test_ranks_pause_together_for_a_checkpoint_that_is_due(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = []
    save = Checkpoints.save

    def noted(self: Checkpoints, names: Any, state: Any, *rest: Any) -> None:
        saved.append(state.position)
        save(self, names, state, *rest)

    monkeypatch.setattr(Checkpoints, "save", noted)
    called = threading.Event()
    post = ThreadTransport.post

    def heard(self: ThreadTransport, to: int, values: np.ndarray) -> None:
        post(self, to, values)
        if int(values[:8].view(np.int64)[0]) != BODY:
            called.set()

    class Waits(Noted):
        """Takes its second instance once all have been called together."""

        def submit(self, *arguments: Any) -> None:
            if self.numbers:
                assert called.wait(LONG)
            super().submit(*arguments)

    monkeypatch.setattr(ThreadTransport, "post", heard)
    devices = [Noted(), Waits()]
    cfg = settings(MODEL, 1, *asked(strategy), "replicas.every=1", "checkpoint_minutes=1e-9")
    train_in_threads(2, MODEL, cfg, lambda rank: devices[rank], RunFolder.create(tmp_path / "run", "toy"))
    assert any(position for position in saved)
    numbers = sorted(n for device in devices for n in device.numbers)
    assert numbers == list(range(numbers[0], numbers[0] + 24))


@pytest.mark.parametrize("strategy", UNANSWERED)
def test_ranks_stop_within_an_epoch_and_the_run_goes_on_from_there(strategy: str, tmp_path: Path) -> None:
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
    cfg = settings(MODEL, 1, *asked(strategy), "replicas.every=1")
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


@PACES
def test_an_error_of_one_rank_ends_those_that_go_on(strategy: str) -> None:
    class Fails(Noted):
        def submit(self, *arguments: Any) -> None:
            if self.numbers:
                raise RuntimeError("out of order")
            super().submit(*arguments)

    devices = [Noted(), Fails(), Noted()]
    with pytest.raises(RuntimeError, match="out of order"):
        cfg = settings(MODEL, 1, *asked(strategy), "replicas.every=1")
        train_in_threads(3, MODEL, cfg, lambda rank: devices[rank])
