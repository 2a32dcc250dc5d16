"""Ranks in simulated time: interfaces and clocks alone, and then the strategies of training over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amphw.host.config import resolve
from amphw.host.run_model import chosen_instances
from amphw.host.session import graph_of, update_rules
from amphw.ir.errors import AmphwError
from amphw.ir.update import initial_parameters
from amphw.models import get_model
from amphw.replicas.collectives import all_reduce
from amphw.replicas.recorded import Compute, Receive, Recorder, Send, Software
from amphw.replicas.rehearsal import Pace, Rehearsed, Work, rehearse
from amphw.replicas.run import STRATEGIES
from amphw.replicas.simulated import Machines, play
from amphw.replicas.windows import size_of
from tests.replicas.test_collectives import on_each


def test_a_message_takes_its_bytes_over_the_rate_and_the_latency() -> None:
    acts = [[Compute(1.0), Send(1, 200, "ring")], [Receive(0)]]
    first, second = play(acts, Machines([0, 1], nic=100, latency=0.5))
    assert (first.compute, first.transfer, first.wait) == (1.0, 0.0, 0.0)
    assert (second.transfer, second.clock) == (3.5, 3.5)


def test_ranks_of_a_machine_share_its_interface_and_have_memory_between_them() -> None:
    to_another = [[Send(2, 100, "ring")], [Send(3, 100, "ring")], [Receive(0)], [Receive(1)]]
    apart = play(to_another, Machines([0, 1, 2, 3], nic=100))
    shared = play(to_another, Machines([0, 0, 1, 1], nic=100))
    assert [each.clock for each in apart[2:]] == [1.0, 1.0]
    assert [each.clock for each in shared[2:]] == [1.0, 2.0]
    inside = play([[Send(1, 100, "ring")], [Receive(0)]], Machines([0, 0], nic=100, memory=1000))
    assert inside[1].clock == pytest.approx(0.1)


def test_an_interface_sends_and_receives_at_once() -> None:
    acts = [[Send(1, 100, "ring"), Receive(1)], [Send(0, 100, "ring"), Receive(0)]]
    assert [each.clock for each in play(acts, Machines([0, 1], nic=100))] == [1.0, 1.0]


def test_a_receiver_takes_one_message_after_the_other() -> None:
    acts = [[Send(2, 100, "ring")], [Send(2, 100, "ring")], [Receive(0), Receive(1)]]
    assert play(acts, Machines([0, 1, 2], nic=100))[2].clock == 2.0


def test_rows_and_what_is_served_are_handled_at_both_ends_and_rings_are_not() -> None:
    def clocks(kind: str) -> list[float]:
        acts = [[Send(1, 100, kind)], [Receive(0)]]  # type: ignore[arg-type]
        return [each.clock for each in play(acts, Machines([0, 1], nic=100, handling=50))]

    assert clocks("served") == clocks("rows") == [2.0, 5.0]
    assert clocks("ring") == [0.0, 1.0]


def test_ranks_of_a_machine_take_turns_in_handling() -> None:
    acts = [[Send(2, 100, "served")], [Send(2, 100, "served", handled=50)], [Receive(0), Receive(1)]]
    spent = play(acts, Machines([0, 0, 1], handling=100))
    assert [each.clock for each in spent] == [1.0, 1.5, 2.5]


def test_an_interface_lets_a_burst_through_after_it_was_idle() -> None:
    acts = [[Compute(9.0), Send(1, 100, "ring"), Send(1, 100, "ring")], [Receive(0), Receive(0)]]
    assert play(acts, Machines([0, 1], nic=10))[1].clock == pytest.approx(29.0)
    assert play(acts, Machines([0, 1], nic=10, burst=150))[1].clock == pytest.approx(14.0)
    assert play(acts, Machines([0, 1], nic=10, burst=500))[1].clock == pytest.approx(9.0)


def test_ranks_of_a_processor_have_equal_shares_of_it() -> None:
    acts = [[Compute(1.0), Software(1.0)], [Compute(3.0)], [Compute(3.0)]]
    apart = play(acts, Machines(range(3)))
    assert [each.clock for each in apart] == [2.0, 3.0, 3.0]
    shared = play(acts, Machines(range(3), processors=[0, 0, 1]))
    assert [each.clock for each in shared] == pytest.approx([4.0, 5.0, 3.0])
    assert (shared[0].compute, shared[0].transfer) == pytest.approx((2.0, 2.0))


def test_a_processor_carries_a_message_while_its_rank_waits_for_it() -> None:
    acts = [[Send(1, 100, "ring")], [Receive(0, 100)]]
    assert play(acts, Machines([0, 1], nic=100, carrying=[(0, 0.0), (200, 1.0)]))[1].clock == 1.0
    assert play(acts, Machines([0, 1], nic=100, carrying=[(0, 0.0), (50, 1.0)]))[1].clock == 2.0
    assert play(acts, Machines([0, 0], nic=100, carrying=[(0, 0.0), (50, 1.0)]))[1].clock == 0.0
    # Whoever computes on the same processor is slower meanwhile.
    acts.append([Compute(2.0)])
    shared = play(acts, Machines([0, 1, 2], nic=100, carrying=[(0, 0.0), (50, 1.0)], processors=[0, 1, 1]))
    assert [each.clock for each in shared] == pytest.approx([0.0, 4.0, 4.0])


def test_what_carrying_a_message_takes_goes_by_its_size() -> None:
    """Below the least size as much as of that one; above the largest in proportion."""
    machines = Machines([0, 1], carrying=[(100, 1.0), (200, 3.0)])
    assert [machines.carries(size) for size in (8, 100, 150, 200, 400)] == [1.0, 1.0, 2.0, 3.0, 6.0]
    assert Machines([0, 1]).carries(100) == 0.0


def test_a_rank_that_waits_holds_up_whoever_computes_on_its_processor() -> None:
    """The first waits for 2 s, which keeps the processor busy for one; the others need it afterwards."""
    acts = [[Receive(1, 1)], [Compute(2.0), Send(0, 1, "ring")], [Compute(3.0)]]
    looking = [(0.0, 0.0), (4.0, 2.0)]
    apart = play(acts, Machines(range(3), looking=looking))
    assert [each.clock for each in apart] == [2.0, 2.0, 3.0]
    shared = play(acts, Machines(range(3), looking=looking, processors=[0, 1, 0]))
    assert [each.clock for each in shared] == pytest.approx([2.0, 2.0, 4.0])


def test_the_end_of_a_wait_is_noticed_late_by_a_share_of_it() -> None:
    acts = [[Compute(8.0), Send(1, 0, "ring")], [Receive(0)], [Compute(9.0), Receive(0)]]
    acts[0].append(Send(2, 0, "ring"))
    spent = play(acts, Machines(range(3), late=0.25))
    assert [each.clock for each in spent] == [8.0, 10.0, 9.0]


def test_the_work_between_messages_is_counted_by_a_clock() -> None:
    found: dict[int, Recorder] = {}

    def one(transport: Any) -> None:
        ticks = iter([0.0, 1.0, 10.0, 12.0, 20.0])
        mine = Recorder(transport, clock=lambda: next(ticks))
        mine.send(1 - transport.rank, np.zeros(2, np.float32))  # after 1 second, until 10
        mine.receive(1 - transport.rank, np.zeros(2, np.float32))  # 2 seconds later
        found[transport.rank] = mine

    on_each(2, one)
    expected = [Software(1.0), Send(1, 8, "served"), Software(2.0), Receive(1, 8)]
    assert found[0].acts == expected


def test_a_pace_grows_with_the_size_of_instances_and_varies() -> None:
    model = get_model("language-model")
    cfg = resolve(model.config, model.defaults, None, SMALL)
    model.prepare(cfg.model, cfg.train.seed)
    instances = [chosen_instances(model, cfg, 20)[k] for k in range(3)]
    sizes, chance = [size_of(each) for each in instances], np.random.default_rng(0)
    assert Pace(2.0).of(instances, chance) == 6.0
    assert Pace(2.0, sizes[0]).of(instances, chance) == pytest.approx(2.0 * sum(sizes) / sizes[0])
    factors = {Pace(1.0, 1.0, (0.5, 1.5)).of(instances, chance) / sum(sizes) for _ in range(50)}
    assert factors == {0.5, 1.5}


def test_what_is_agreed_on_is_waited_for() -> None:
    acts = [[Compute(3.0), Send(1, 8, "agreement")], [Compute(1.0), Receive(0)]]
    assert play(acts, Machines([0, 1]))[1].wait == 2.0


def test_a_message_that_nobody_sends_is_named() -> None:
    with pytest.raises(AmphwError, match="rank 1 waits for a message of rank 0, which sends none"):
        play([[], [Receive(0)]], Machines([0, 1]))


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_ring_takes_as_long_as_its_bytes(ranks: int) -> None:
    """2 (N - 1) / N of them cross each interface, each way (Patarasuk and Yuan, 2009)."""
    recorders: dict[int, Recorder] = {}

    def one(transport: object) -> None:
        recorder = Recorder(transport, scale=10.0)  # type: ignore[arg-type]
        all_reduce(recorder, np.zeros(240, np.float32))
        recorders[recorder.rank] = recorder

    on_each(ranks, one)
    spent = play([recorders[k].acts for k in range(ranks)], Machines(range(ranks), nic=9600, latency=0.25))
    steps = 2 * (ranks - 1)
    assert [each.clock for each in spent] == pytest.approx([steps / ranks + steps * 0.25] * ranks)


SMALL = ["vocabulary=300", "embedding=4", "hidden=4", "samples=8", "sentences=200", "train_instances=40"]
SMALL += ["replicas.sparse_from=0"]


def rehearsed(strategy: str, ranks: int = 4, *settings: str) -> Rehearsed:
    model = get_model("language-model")
    cfg = resolve(
        model.config, model.defaults, None, [*SMALL, *settings, f"replicas.strategy={strategy}", "mode=sync"]
    )
    graph = graph_of(model, cfg)
    rules = update_rules(cfg, graph)
    model.prepare(cfg.model, cfg.train.seed)
    owners = {name: graph.nodes[name].params for name in graph.parameterised}
    work = Work(
        graph,
        rules,
        initial_parameters(owners, rules, 1),
        _Listed(chosen_instances(model, cfg, 20)),
        1,
        Pace(0.125),
    )
    return rehearse(
        ranks, lambda: STRATEGIES[strategy](cfg), work, cfg.replicas.every, wire=cfg.replicas.wire
    )


class _Listed(list):  # type: ignore[type-arg]
    @property
    def size(self) -> int:
        return len(self)


@pytest.mark.parametrize("strategy", ["hybrid", "allreduce", "servers", "average", "outer"])
def test_strategies_take_their_computing_alone_where_nothing_costs(strategy: str) -> None:
    found = rehearsed(strategy).on(Machines(range(4)))
    instances = 1 if STRATEGIES[strategy](resolve_of(strategy)).in_step else 5
    assert found.step == pytest.approx(instances * 0.125)
    assert found.instances_per_s == pytest.approx(4 / 0.125)
    assert found.seconds["compute"] == pytest.approx(instances * 0.125)
    assert all(each["sent"] > 0 for each in found.bytes.values())


def resolve_of(strategy: str) -> object:
    model = get_model("language-model")
    return resolve(model.config, model.defaults, None, [f"replicas.strategy={strategy}"])  # type: ignore


@pytest.mark.parametrize("strategy", ["hybrid", "allreduce", "servers"])
def test_seconds_are_the_same_each_time_and_fall_with_the_rate(strategy: str) -> None:
    slow, fast = Machines([0, 0, 1, 1], nic=1e4, latency=1e-5), Machines([0, 0, 1, 1], nic=1e6)
    one = rehearsed(strategy)
    assert one.on(slow) == one.on(slow) == rehearsed(strategy).on(slow)
    assert one.on(slow).step > one.on(fast).step > 0.125
    spent = one.on(slow).seconds
    assert spent["transfer"] > 0 and sum(spent.values()) <= one.on(slow).step * 1.0001


def test_ranks_that_only_serve_do_not_train() -> None:
    found = rehearsed("hybrid", 4, "replicas.servers=1").on(Machines(range(4)))
    assert found.instances_per_s == pytest.approx(3 / 0.125)


def test_bytes_of_16_bits_are_half() -> None:
    def moved(*settings: str) -> float:
        each = rehearsed("allreduce", 2, *settings).on(Machines(range(2))).bytes
        return sum(way["sent"] for way in each.values())

    assert moved("replicas.wire=bfloat16") == pytest.approx(moved() / 2)
