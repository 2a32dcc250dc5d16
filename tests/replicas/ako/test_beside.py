"""Partial gradient exchange beside the workers: nobody drains for it, nothing is lost, no thread stays."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime.device import CpuDevice
from amphw.host.checkpoint import load_checkpoint
from amphw.host.checkpointing import CHECKPOINT
from amphw.host.controller import Trainer
from amphw.host.divergence import DivergedError
from amphw.host.run_folder import RunFolder
from amphw.host.session import Session
from amphw.ir.device import Mode, Report
from amphw.ir.errors import AmphwError
from amphw.ir.received import Received
from amphw.ir.update import Applied
from amphw.replicas.run import check_ranks, replica
from amphw.replicas.threads import ThreadGroup
from tests.host.training import MODEL
from tests.replicas.ako.test_strategy import exchanged
from tests.replicas.test_equivalence import Kept, settings
from tests.replicas.test_own_pace import LONG
from tests.replicas.training import train_in_threads

SUMS = ["optimizer=sgd", "lr=0.002", "update.reduce=sum", "min_update_interval=2"]
FLOWS = ["mode=async", "device.workers=1", "batch=1", "max_active_keys=4"]  # 120 instances an epoch


def asynchronous(*wanted: str) -> Any:
    return settings(MODEL, 1, *SUMS, *FLOWS, "replicas.strategy=ako", *wanted)


class Watched(CpuDevice):
    """Notes what is asked of it while instances are in flight, and where."""

    def __init__(self) -> None:
        super().__init__()
        self.drained = self.taken = self.applied = 0
        self.threads: set[str] = set()

    def poll(self, timeout: float = 0.0) -> list[Report]:
        time.sleep(1e-3)  # instances take longer than messages
        return super().poll(timeout)

    def drain(self) -> list[Report]:
        self.drained += 1
        return super().drain()

    def told(self) -> dict[str, Applied]:
        self.taken += self.plane.in_flight > 0
        self.threads.add(threading.current_thread().name)
        return super().told()

    def receive(self, ranges: Sequence[Received]) -> None:
        self.applied += self.plane.in_flight > 0
        super().receive(ranges)


def test_the_trace_has_what_goes_on_beside_the_workers() -> None:
    """One thing after the other, as it is a thread of a rank that does it."""
    _, found = exchanged(2, MODEL, asynchronous("trace=true", "replicas.every=4"), lambda rank: Watched())
    assert len(found.traces) == 2
    for trace in found.traces:
        beside = [phase for phase in trace.phases if phase.name in ("exchange", "receive")]
        assert any(phase.name == "exchange" and sum(phase.bytes.values()) for phase in beside)
        for one, other in pairwise(sorted(beside, key=lambda phase: phase.start_us)):
            assert one.start_us + one.duration_us <= other.start_us + 0.01  # of rounding


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("ranks", "partitions"), [(2, "1"), (3, "2"), (3, "4")])
def test_with_sgd_and_sums_replicas_are_alike_before_they_are_averaged(
    ranks: int, partitions: str, workers: int, plane: str
) -> None:
    """Each has applied all gradients once, its own and the others'."""
    devices = [Watched() for _ in range(ranks)]
    cfg = asynchronous(f"replicas.partitions={partitions}", "replicas.every=2", f"workers={workers}")
    _, found = exchanged(ranks, MODEL, cfg, lambda rank: devices[rank])
    assert found.own["drift"] < 1e-5
    assert found.own["staleness_max"] <= found.own["bound"] + 1
    assert found.own["clocks"] == [2 * (120 // ranks // 2)] * ranks
    assert any("amphw-exchanger" in device.threads for device in devices)


def test_instances_stay_in_flight_while_ranks_exchange() -> None:
    """The device is drained where all meet, and not once a round."""
    devices = [Watched(), Watched()]
    long = ["replicas.staleness=1000", "epochs=6"]
    _, found = exchanged(2, MODEL, asynchronous("replicas.every=1", *long), lambda rank: devices[rank])
    rounds = min(found.own["clocks"])
    for device in devices:
        assert device.taken > 5 and device.applied > 5
        assert device.drained < rounds / 2


def test_every_instance_counts_once_and_ranks_end_alike() -> None:
    class Noted(Watched):
        def __init__(self) -> None:
            super().__init__()
            self.numbers: list[int] = []

        def submit(self, slot: int, generation: int, instance: Any, mode: Mode) -> None:
            if mode is Mode.TRAIN:
                self.numbers.append(instance.number)
            super().submit(slot, generation, instance, mode)

    devices = [Noted() for _ in range(3)]
    exchanged(3, MODEL, asynchronous("replicas.every=1", "optimizer=adam"), lambda rank: devices[rank])
    numbers = sorted(n for device in devices for n in device.numbers)
    assert numbers == list(range(numbers[0], numbers[0] + 240))
    first, *others = (device.parameters() for device in devices)
    for other in others:
        for node, p in other.items():
            for name, value in p.values.items():
                np.testing.assert_array_equal(value, first[node].values[name])


def test_the_bound_holds_the_pump_and_lets_it_go_on() -> None:
    """The slow rank's first instances return once the fast one has been held."""
    held = threading.Event()

    class Slow(Watched):
        def poll(self, timeout: float = 0.0) -> list[Report]:
            assert held.wait(LONG)
            return super().poll(timeout)

    class Fast(Watched):
        def drain(self) -> list[Report]:
            held.set()  # there is nothing else for which it would be drained before its share has ended
            return super().drain()

    devices = [Fast(), Slow()]
    wanted = ["replicas.every=1", "replicas.partitions=1", "replicas.staleness=0"]
    _, found = exchanged(2, MODEL, asynchronous(*wanted, "epochs=1"), lambda rank: devices[rank])
    assert found.own["staleness_max"] == found.own["bound"] + 1 == 2
    assert found.own["drift"] < 1e-5


def test_rounds_of_updates() -> None:
    cfg = asynchronous("replicas.every_updates=3", "min_update_interval=5")
    devices = [Watched(), Watched()]
    _, found = exchanged(2, MODEL, cfg, lambda rank: devices[rank])
    assert found.own["drift"] < 1e-5
    assert min(found.own["clocks"]) > 4


def test_a_run_that_is_to_stop_does_so_within_the_epoch(tmp_path: Path) -> None:
    """All take as many instances as the rank that has taken the most, and those count."""

    class Stops(Watched):
        trainer: Trainer

        def submit(self, slot: int, generation: int, instance: Any, mode: Mode) -> None:
            super().submit(slot, generation, instance, mode)
            if instance.number == 20:
                self.trainer.stop()

    devices = [Stops(), Watched()]
    folder = RunFolder.create(tmp_path / "run", "toy")

    def prepared(trainer: Trainer) -> None:
        devices[0].trainer = trainer  # type: ignore[attr-defined]

    cfg = asynchronous("replicas.every=1")
    found = train_in_threads(2, MODEL, cfg, lambda rank: devices[rank], folder, prepared)
    assert found.stopped_by == "interrupt" and found.epochs == 0
    position = load_checkpoint(tmp_path / "run" / CHECKPOINT, None)[1]["counters"]["position"]
    assert 20 <= position < 120 and position % 2 == 0


@pytest.mark.parametrize("what", ["told", "receive"])
def test_what_goes_wrong_in_the_thread_ends_the_run(what: str) -> None:
    class Fails(Watched):
        def _fail(self, *arguments: Any) -> Any:
            raise AmphwError("it went wrong")

    setattr(Fails, what, Fails._fail)
    cfg = asynchronous("replicas.every=1")
    with pytest.raises(AmphwError, match="it went wrong"):
        exchanged(2, MODEL, cfg, lambda rank: Fails() if rank == 1 else Watched())
    assert not [t for t in threading.enumerate() if t.name == "amphw-exchanger"]


def test_no_thread_outlives_a_run_that_diverges() -> None:
    cfg = asynchronous("replicas.every=1", "lr=1e30")
    with pytest.raises(DivergedError):
        exchanged(2, MODEL, cfg, lambda rank: Watched())
    assert not [t for t in threading.enumerate() if t.name == "amphw-exchanger"]


@pytest.mark.parametrize(("make", "mode"), [(Kept, "async"), (CpuDevice, "async"), (Kept, "sync")])
def test_a_device_that_returns_its_instances_first_says_so(make: Any, mode: str) -> None:
    cfg = settings(MODEL, 1, "replicas.strategy=ako", f"mode={mode}")
    check_ranks(2, cfg)
    found = replica(ThreadGroup(2).transports()[0], cfg)
    device = make()
    session = Session(MODEL, cfg, device)
    found.strategy.begin(device, found.transport, session.graph, session.rules)
    said = found.explained()
    device.close()
    if (make, mode) == (Kept, "async"):
        (line,) = said
        assert "'reference' takes in nothing while instances are in flight" in line
    else:
        assert not said
