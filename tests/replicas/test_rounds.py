"""Rounds of instances, and of updates: how much a rank trains between two exchanges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from amphw.ir.config_fields import ConfigError
from amphw.ir.device import Statistics
from amphw.replicas.average import Average
from amphw.replicas.outer import Outer
from amphw.replicas.rounds import Rounds
from amphw.replicas.run import STRATEGIES
from tests.host.training import MODEL
from tests.replicas.test_equivalence import differences, settings, together
from tests.replicas.test_own_pace import PACES, Noted
from tests.replicas.training import train_in_threads

INSTANCES = MODEL.training(settings(MODEL, 1).model, 1, 1, 0)


@pytest.mark.parametrize(("ranks", "start"), [(1, 0), (2, 0), (5, 0), (5, 3)])
def test_as_many_instances_of_each_rank_are_the_beginning_of_all(ranks: int, start: int) -> None:
    each = [Rounds(INSTANCES, start, 2, rank, ranks, 100) for rank in range(ranks)]
    taken: list[int] = []
    while len(taken) < len(INSTANCES) - start:
        for rounds in each:
            taken += [instance.number for instance in rounds]
        assert len({rounds.done for rounds in each}) == 1
        end = min(start + each[0].done * ranks, len(INSTANCES))
        assert sorted(taken) == list(range(100 + start, 100 + end))
    assert all(rounds.done == rounds.total for rounds in each)


def test_a_round_ends_once_what_it_is_measured_by_has_grown_enough() -> None:
    measured = iter([0.0, 0.5, 1.9, 2.0, 10.0, 10.0, 12.5, 0.0, 0.0, 0.0, 0.0, 0.0])
    rounds = Rounds(INSTANCES, 0, 2, 0, 1, 0, lambda: next(measured))
    assert [len(list(rounds)) for _ in range(2)] == [2, 1]
    rounds.limit = 7
    assert len(list(rounds)) == 4, "no more than all have agreed on"


@pytest.mark.parametrize("strategy", ["average", "outer"])
@pytest.mark.parametrize(("mode", "depth"), [("pipeline", 2), ("sync", 1)])
def test_where_a_barrier_updates_so_many_updates_are_so_many_windows(
    strategy: str, mode: str, depth: int
) -> None:
    rule = ["lr=0.05", f"replicas.strategy={strategy}", f"mode={mode}"]
    updates, _ = together(MODEL, 2, 2, *rule, "replicas.every_updates=3")
    instances, _ = together(MODEL, 2, 2, *rule, f"replicas.every={3 * depth}")
    assert differences(updates[0], instances[0]) == 0.0


class Counted(Noted):
    """Updates once an instance, and says that it updates so many times as often."""

    def __init__(self, times: float) -> None:
        super().__init__()
        self.times = times

    def statistics(self) -> Statistics:
        found = super().statistics()
        return replace(found, updates=self.times * found.updates)  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", [Average, Outer])
def test_all_take_as_many_as_the_rank_that_needs_the_most_for_so_many_updates(
    strategy: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 12 instances each of two ranks takes 4, then 2: the pump looks one instance ahead, and the slow one
    sees two updates when its fifth is asked for."""
    exchange, lengths = strategy.exchange, []  # type: ignore[attr-defined]

    def noted(self: Any, device: Noted, *rest: Any) -> None:
        lengths.append((device.times, len(device.numbers)))  # type: ignore[attr-defined]
        exchange(self, device, *rest)

    monkeypatch.setattr(strategy, "exchange", noted)
    devices = [Counted(1.0), Counted(0.5)]
    rule = ["mode=async", "max_active_keys=1", "min_update_interval=10", "epochs=1"]
    cfg = settings(MODEL, 1, *rule, f"replicas.strategy={strategy.name}", "replicas.every_updates=2")
    train_in_threads(2, MODEL, cfg, lambda rank: devices[rank])
    ends = {times: [taken for who, taken in lengths if who == times] for times in (1.0, 0.5)}
    assert ends[1.0] == ends[0.5] and ends[1.0][-1] == 6 and len(ends[1.0]) == 2
    assert ends[0.5][0] >= 4, "two updates of the slow rank take four instances"
    numbers = sorted(n for device in devices for n in device.numbers)
    assert numbers == list(range(numbers[0], numbers[0] + 12))
    assert differences(devices[0], devices[1]) == 0.0


@PACES
@pytest.mark.parametrize("mode", ["async", "pipeline"])
def test_at_its_own_pace_every_instance_counts_once_too(
    strategy: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    who: Any = type(STRATEGIES[strategy](settings(MODEL, 1, f"replicas.strategy={strategy}")))
    passed, pass_on = [], who.pass_on

    def noted(self: Any, device: Any, transport: Any, traffic: Any, rounds: Rounds, *rest: Any) -> None:
        passed.append((transport.rank, rounds.done))
        pass_on(self, device, transport, traffic, rounds, *rest)

    monkeypatch.setattr(who, "pass_on", noted)
    devices = [Noted() for _ in range(3)]
    rule = [f"mode={mode}", "max_active_keys=1", "min_update_interval=10", "epochs=1"]
    cfg = settings(MODEL, 1, *rule, f"replicas.strategy={strategy}", "replicas.every_updates=2")
    train_in_threads(3, MODEL, cfg, lambda rank: devices[rank])
    numbers = sorted(n for device in devices for n in device.numbers)
    assert numbers == list(range(numbers[0], numbers[0] + 12))
    assert [done for rank, done in passed if rank == 0][0] in (2, 3)
    for other in devices[1:]:
        for name, value in other.last.items():
            np.testing.assert_array_equal(value, devices[0].last[name])


def test_instances_and_updates_at_once_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"--set replicas.every=2 and --set replicas.every_updates=3: .*one"
    ):
        settings(MODEL, 1, "replicas.strategy=average", "replicas.every=2", "replicas.every_updates=3")
