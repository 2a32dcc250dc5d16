"""Ranks with partial gradient exchange: replicas become alike, nobody is too far ahead, and they learn."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np
import pytest

from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.host.devices import make_device
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import Device
from amphw.ir.errors import AmphwError
from amphw.models import get_model
from amphw.replicas.ako import settings as ako_settings
from amphw.replicas.ako.strategy import UNDER_WAY
from amphw.replicas.replica import Synchronised
from amphw.replicas.run import check_ranks, follow, in_threads, replica
from amphw.replicas.threads import ThreadTransport
from amphw.replicas.transport import Transport
from tests.daily import daily
from tests.host.training import MODEL
from tests.replicas.test_equivalence import Kept, settings
from tests.replicas.test_own_pace import LONG, Noted
from tests.replicas.training import train_in_threads

SGD = ["optimizer=sgd", "lr=0.05", "replicas.strategy=ako"]


def exchanged(
    ranks: int, model: Any, cfg: Any, make: Callable[[int], Device] = lambda rank: Kept()
) -> tuple[Any, Synchronised]:
    """A run with ranks that are threads -> its summary, and what keeping together took."""
    check_ranks(ranks, cfg)
    with in_threads(ranks, lambda t: follow(model, cfg, make(t.rank), t)) as transport:
        device, mine = make(0), replica(transport, cfg)
        try:
            summary = Trainer(model, cfg, device, None, replication=mine).run()
            return summary, mine.synchronised(0.0)
        finally:
            device.close()


@pytest.mark.parametrize("mode", ["async", "sync", "pipeline"])
@pytest.mark.parametrize(("ranks", "partitions"), [(2, "1"), (2, "5"), (3, "2"), (3, "3"), (3, "auto")])
def test_with_sgd_replicas_are_alike_before_they_are_averaged(mode: str, ranks: int, partitions: str) -> None:
    """Each applies all gradients once, its own and the others', in whatever order; so all move as far."""
    wanted = [
        *SGD,
        f"replicas.partitions={partitions}",
        f"mode={mode}",
        "min_update_interval=15",
        "clip=0.05",
    ]
    _, found = exchanged(ranks, MODEL, settings(MODEL, 2, *wanted, "replicas.every=1"))
    assert found.own["drift"] < 1e-13
    assert found.own["partitions"] == (ranks if partitions == "auto" else int(partitions))
    assert found.own["clocks"] == [2 * (12 // ranks)] * ranks


def test_after_one_round_everybody_has_made_everybodys_updates() -> None:
    """Against the sum of what single ranks do in a first step: lr times the mean gradient of each batch."""
    one_step = ["epochs=1", "train_instances=20", "mode=sync", "replicas.every=1"]
    moved = []
    for batch in range(2):  # what a rank alone makes of its batch
        device = Kept()
        trainer = Trainer(
            MODEL, settings(MODEL, 1, *SGD[:2], "epochs=1", "mode=sync", "train_instances=20"), device, None
        )
        trainer._begin(None)
        begun = {f"{n}.{k}": v for n, p in device.parameters().items() for k, v in p.values.items()}
        instances = MODEL.training(trainer.cfg.model, trainer.cfg.train.seed, 1, 20)
        device.submit(0, 1, instances[batch], _train())
        device.drain()
        device.update()
        device.close()
        moved.append({name: device.last[name] - begun[name] for name in begun})
    devices = [Kept(), Kept()]
    train_in_threads(2, MODEL, settings(MODEL, 1, *SGD, *one_step), lambda rank: devices[rank])
    for name, start in begun.items():
        for device in devices:
            np.testing.assert_allclose(
                device.last[name] - start, moved[0][name] + moved[1][name], rtol=1e-9, atol=1e-13
            )


def _train() -> Any:
    from amphw.ir.device import Mode

    return Mode.TRAIN


@pytest.mark.parametrize("apply", ["paper", "mean"])
@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_other_optimisers_drift_apart_and_are_averaged_where_ranks_meet(optimizer: str, apply: str) -> None:
    wanted = ["replicas.strategy=ako", f"optimizer={optimizer}", "lr=0.01", f"replicas.apply={apply}"]
    devices = [Kept() for _ in range(3)]
    cfg = settings(MODEL, 1, *wanted, "mode=pipeline", "replicas.every=1")
    summary, found = exchanged(3, MODEL, cfg, lambda rank: devices[rank])
    assert 0 < found.own["drift"] < 0.1
    for other in devices[1:]:
        for name, value in other.last.items():
            np.testing.assert_array_equal(value, devices[0].last[name])
    assert summary.history[-1].valid["loss"] < summary.history[0].valid["loss"]


@pytest.mark.parametrize("tau", [0, 1])
def test_the_fast_one_is_held_by_the_bound_and_nobody_for_ever(tau: int) -> None:
    """The slow rank takes its next instance only when the fast one has gone as far as it may."""
    moved = threading.Condition()
    bound, total = 1 + tau, 6

    class Fast(Noted):
        def submit(self, *arguments: Any) -> None:
            with moved:
                super().submit(*arguments)
                assert len(self.numbers) <= len(slow.numbers) + bound + 1
                moved.notify_all()

    class Slow(Noted):
        def submit(self, *arguments: Any) -> None:
            with moved:
                ahead = min(len(self.numbers) + bound + 1, total)
                assert moved.wait_for(lambda: len(fast.numbers) >= ahead, LONG)
            time.sleep(0.1)  # the fast one's round is to end before this one's can be heard of
            with moved:
                super().submit(*arguments)

    fast, slow = Fast(), Slow()
    wanted = [*SGD, "mode=sync", "epochs=1", "replicas.every=1"]
    cfg = settings(MODEL, 1, *wanted, "replicas.partitions=1", f"replicas.staleness={tau}")
    devices = [fast, slow]
    _, found = exchanged(2, MODEL, cfg, lambda rank: devices[rank])
    assert found.own["bound"] == bound
    assert found.own["staleness_max"] == bound + 1
    assert sum(found.own["staleness_rounds"].values()) <= 2 * total


def test_all_to_all_is_one_partition() -> None:
    wanted = ["optimizer=sgd", "replicas.strategy=all-to-all", "replicas.every=1"]
    _, found = exchanged(3, MODEL, settings(MODEL, 1, *wanted, "mode=sync"))
    assert (found.own["partitions"], found.own["bound"]) == (1, 4)
    assert found.own["drift"] < 1e-13


def test_half_the_bytes_move_ranks_about_as_far() -> None:
    wanted = [*SGD, "replicas.every=1", "mode=sync", "replicas.partitions=2"]
    found = {}
    for wire in ("full", "bfloat16"):
        devices = [Kept(), Kept()]
        cfg = settings(MODEL, 1, *wanted, f"replicas.wire={wire}")
        train_in_threads(2, MODEL, cfg, lambda rank: devices[rank])  # noqa: B023
        found[wire] = np.concatenate([v.reshape(-1) for v in devices[0].last.values()])
    np.testing.assert_allclose(found["bfloat16"], found["full"], rtol=0, atol=0.02)
    assert (found["bfloat16"] != found["full"]).any()


def test_partitions_are_cut_again_within_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the partitions before still owe is sent in full, so that nothing is lost or counts twice."""

    class Turning:
        def __init__(self, *settings: Any) -> None:
            self.next = cycle([5, None, 1, 3, None])

        def probe(self, transport: Transport) -> None:
            pass

        def round(self, size: float, ranks: int, sent: float, waits: bool, held: float) -> int | None:
            return next(self.next)

        def pause(self) -> None:
            pass

    monkeypatch.setattr(ako_settings, "Measured", Turning)
    cfg = settings(MODEL, 1, *SGD, "mode=sync", "replicas.every=1", "replicas.bandwidth=1Gb/s")
    _, found = exchanged(3, MODEL, cfg)
    assert found.own["partitions"] == 5  # three changes in each epoch, of which the last one is the next
    assert found.own["bound"] == 8
    assert found.own["drift"] < 1e-13


def test_what_a_slow_link_has_not_taken_is_merged_and_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Links take something now and then; ranks go on meanwhile, and what is left goes out where they meet."""
    asked = Counter[tuple[int, int]]()

    def posted(self: ThreadTransport, to: int) -> int:
        asked[self.rank, to] += 1
        return 0 if asked[self.rank, to] % 7 == 0 else UNDER_WAY

    monkeypatch.setattr(ThreadTransport, "posted", posted)
    wanted = [*SGD, "mode=sync", "replicas.every=1", "replicas.partitions=2", "replicas.staleness=20"]
    _, found = exchanged(3, MODEL, settings(MODEL, 1, *wanted))
    assert found.own["drift"] < 1e-13
    assert found.own["clocks"] == [8, 8, 8]


LEARNT = {
    # chance is ln 10, 2.30
    "list-reduction": (["hidden=16", "train_instances=8000", "batch=10", "lr=0.01", "epochs=12"], 1.8),
    "ako-mnist": (["sample=true", "train_instances=6000", "optimizer=sgd", "lr=0.002", "epochs=2"], 1.8),
}


EXCHANGES = [
    (ranks, strategy, name)
    for ranks, strategy in ((2, "ako"), (4, "ako"), (2, "all-to-all"))
    for name in LEARNT
]


@pytest.mark.parametrize(("ranks", "strategy", "name"), daily(EXCHANGES[:1], EXCHANGES[1:]))
def test_models_are_learnt_on_the_cpu(name: str, ranks: int, strategy: str) -> None:
    model, (wanted, below) = get_model(name), LEARNT[name]
    common = ["valid_instances=200", "target=none", "device.workers=1", "mode=async", "replicas.every=4"]
    cfg = resolve(model.config, model.defaults, None, [*common, *wanted, f"replicas.strategy={strategy}"])
    summary, found = exchanged(ranks, model, cfg, lambda rank: make_device("cpu"))
    # Of the best epoch, which a run keeps: without a clip, Adam leaps for an epoch in one run of thirty.
    assert min(epoch.valid["loss"] for epoch in summary.history) < below
    assert found.own["drift"] < 0.2
    assert found.own["staleness_max"] <= found.own["bound"] + 1


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (["replicas.partitions=0"], "replicas.partitions is '0', expected auto or an integer of 1 or more"),
        (["replicas.bandwidth=probed"], "replicas.bandwidth: 'probed' is no number of bits a second"),
        (["replicas.bandwidth=fast"], "replicas.bandwidth: 'fast' is no number of bits a second"),
        (["replicas.partitions=3", "replicas.bandwidth=1Gb/s"], "replicas.partitions=3 says already"),
        (["replicas.apply=mean", "mode=async"], "train.mode=pipeline .or sync., or leave replicas.apply out"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(wanted: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_ranks(2, settings(MODEL, 1, *SGD, *wanted))


def test_a_device_whose_nodes_do_not_say_what_they_update_with_is_refused() -> None:
    class Silent(Kept):
        def tell(self) -> bool:
            return False

    with pytest.raises(AmphwError, match="does not say with what; write --set train.mode=pipeline"):
        exchanged(2, MODEL, settings(MODEL, 1, *SGD, "mode=async"), lambda rank: Silent())
    exchanged(2, MODEL, settings(MODEL, 1, *SGD, "mode=sync"), lambda rank: Silent())
