"""The strategies of own pace, rehearsed in simulated time: rounds, bytes, and how far ranks are ahead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from amphw.host.config import resolve
from amphw.replicas.at_own_pace import play_at_own_pace
from amphw.replicas.measured import work_of
from amphw.replicas.rehearsal import Pace, Simulated, Work
from amphw.replicas.run import STRATEGIES
from amphw.replicas.simulated import Machines
from amphw.replicas.splits import best_split
from tests.host.training import MODEL

SECONDS = 0.1
"""Of an instance."""
WIDE = "hidden=300"
"""So that messages are long beside their headers."""


def work(**varied: Any) -> tuple[Work, float]:
    """What a rank trains, and how many bytes its parameters have."""
    cfg = resolve(MODEL.config, MODEL.defaults, None, ["mode=sync", WIDE])
    found = replace(work_of(MODEL, cfg), pace=Pace(SECONDS, **varied))
    return found, sum(v.nbytes for p in found.parameters.values() for v in p.values.values())


def rehearsed(strategy: str, ranks: int, machines: Machines, *settings: str, **varied: Any) -> Simulated:
    wanted = ["mode=sync", WIDE, f"replicas.strategy={strategy}", *settings]
    cfg = resolve(MODEL.config, MODEL.defaults, None, wanted)
    of, every = work(**varied)[0], cfg.replicas.every
    return play_at_own_pace(ranks, lambda: STRATEGIES[strategy](cfg), of, machines, every)


@pytest.mark.parametrize("strategy", ["ako", "all-to-all", "servers-async", "group"])
def test_rounds_take_their_computing_alone_where_nothing_costs(strategy: str) -> None:
    found = rehearsed(strategy, 3, Machines(range(3)), "replicas.every=2")
    assert found.step == pytest.approx(2 * SECONDS)
    assert found.instances_per_s == pytest.approx(3 / SECONDS)
    assert found.seconds == pytest.approx({"compute": 2 * SECONDS, "wait": 0.0, "transfer": 0.0})


def test_a_worker_waits_until_its_push_has_come_back() -> None:
    """Both ways all parameters cross the link, and a little more."""
    size = work()[1]
    machines = Machines(range(2), nic=size / 0.3, latency=0.01)
    found = rehearsed("servers-async", 2, machines, "replicas.servers=1")
    assert found.step == pytest.approx(SECONDS + 2 * (0.3 + 0.01), rel=0.05)
    assert found.step >= SECONDS + 2 * (0.3 + 0.01)
    assert sum(each["sent"] for each in found.bytes.values()) == size
    assert sum(each["received"] for each in found.bytes.values()) == size


def test_a_server_that_many_push_to_is_as_fast_as_its_link() -> None:
    size = work()[1]
    machines = Machines(range(5), nic=size / 0.3)
    found = rehearsed("servers-async", 5, machines, "replicas.servers=1")
    assert found.instances_per_s == pytest.approx(1 / 0.3, rel=0.05)
    assert found.instances_per_s <= 1 / 0.3
    more = rehearsed("servers-async", 6, Machines(range(6), nic=size / 0.3), "replicas.servers=2")
    assert more.instances_per_s > 1.5 * found.instances_per_s


@pytest.mark.parametrize("strategy", ["ako", "all-to-all", "servers-async"])
def test_a_slow_rank_lets_others_go_as_far_as_the_bound(strategy: str) -> None:
    """Instances differ, so that ranks do."""
    varied = {"varies": (0.2, 0.2, 0.2, 3.0)}
    settings = ["replicas.staleness=1"] + ["replicas.partitions=2"] * (strategy == "ako")
    found = rehearsed(strategy, 4, Machines(range(4)), *settings, **varied)
    assert found.own["bound"] == 1 + {"ako": 2, "all-to-all": 1, "servers-async": 0}[strategy]
    assert 1 <= found.own["staleness_max"] <= found.own["bound"] + 1
    assert sum(found.own["staleness_rounds"].values()) <= sum(found.own["clocks"])
    assert found.own["blocked"] > 0


def test_what_a_slow_link_has_not_taken_is_merged() -> None:
    size = work()[1]
    slow, fast = (Machines(range(3), nic=size / seconds) for seconds in (1.0, 0.001))
    moved = {
        machines.nic: sum(each["sent"] for each in rehearsed("all-to-all", 3, machines).bytes.values())
        for machines in (slow, fast)
    }
    assert moved[fast.nic] == 2 * size
    assert 0 < moved[slow.nic] < 0.7 * moved[fast.nic]


@pytest.mark.parametrize("strategy", ["ako", "servers-async"])
def test_a_rehearsal_is_the_same_each_time(strategy: str) -> None:
    machines = Machines([0, 0, 1, 1], nic=1e4, latency=1e-4, handling=1e5, carrying=[(0.0, 0.0), (1e5, 1.0)])
    varied = {"varies": (0.5, 1.5)}
    one = rehearsed(strategy, 4, machines, **varied)
    assert one == rehearsed(strategy, 4, machines, **varied)
    assert one.seconds["transfer"] > 0 and one.own["clocks"] == [17] * 4


@pytest.mark.parametrize("peak", [1, 3, 10, 15])
def test_the_split_with_the_highest_throughput_is_found(peak: int) -> None:
    nothing = rehearsed("servers-async", 1, Machines([0]))
    asked: list[int] = []

    def simulated(servers: int) -> Simulated:
        asked.append(servers)
        return replace(nothing, instances_per_s=50.0 - abs(servers - peak) if servers else 1.0)

    found = best_split(16, simulated)
    assert (found.best.servers, found.best.workers) == (peak, 16 - peak)
    assert found.found.instances_per_s == found.best.throughput == 50.0
    assert len(asked) == len(set(asked)) == len(found.tried) < 14
    everywhere = best_split(16, lambda servers: replace(nothing, instances_per_s=1.0 + (servers == 0)))
    assert (everywhere.best.servers, everywhere.best.workers) == (0, 16)
