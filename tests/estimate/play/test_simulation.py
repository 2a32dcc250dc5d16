"""Simulated schedules of graphs and costs that are small enough to work out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.engine.lowering.lower import lower
from amphw.engine.lowering.plan import build_plan
from amphw.engine.numpy_plane.slots import finish_plan
from amphw.engine.policy import BACKWARD, FORWARD, PolicyTable
from amphw.estimate.count.firings import DecidesItsRoutes, Shape, shape_of
from amphw.estimate.play.simulation import Costs, Line, Rules, Simulation, Tally, shared_memory
from amphw.ir.device import DeviceOptions
from amphw.ir.errors import AmphwError
from amphw.ir.update import UpdateRule
from tests.cpu_runtime.graphs import mlp, rows
from tests.cpu_runtime.running import pump
from tests.graphs import decide
from tests.graphs.cases import CASES, Case, each_case

# source - a - b - sink, one row each
CHAIN = Shape(
    unit=[0, 1, 2],
    rows=[1, 1, 1],
    need=[1, 1, 1],
    targets=[[1], [2], []],
    origins=[[], [0], [1]],
    returned=[1, 1, 1],
    first=[0],
)


def costs(
    forward: float = 10.0,
    backward: float = 20.0,
    *,
    units: int = 3,
    per_row: float = 0.0,
    delivery: float = 0.0,
    reduce: float = 0.0,
    update: float = 0.0,
    host: float = 0.0,
    waking: float = 0.0,
) -> Costs:
    kinds = {FORWARD: Line(forward, per_row), BACKWARD: Line(backward, per_row)}
    frames = {(u, kind): line for u in range(units) for kind, line in kinds.items()}
    return Costs(
        frames,
        dict.fromkeys(frames, Line(delivery, 0.0)),
        dict.fromkeys(range(units), reduce),
        dict.fromkeys(range(units), update),
        host,
        waking=waking,
    )


def rules(
    intervals: Mapping[int, int] | None = None, *, units: int = 3, cap: int = 64, least: int = 1
) -> Rules:
    table = PolicyTable([[0, 1, 1]] * units, [[least] * 3] * units)
    return Rules(table, list(range(units)), intervals or {}, frame_cap=cap)


def simulate(
    shape: Shape,
    given: Costs,
    order: Rules,
    *,
    workers: int = 1,
    keys: int = 1,
    retired: int = 1,
    processors: int | None = None,
) -> Tally:
    return Simulation([shape], given, order, shared_memory(workers, order, processors), keys).run(retired)


def test_a_chain_on_one_worker_takes_the_sum_of_its_costs() -> None:
    tally = simulate(CHAIN, costs(delivery=1.0), rules())
    assert tally.us == 3 * 11.0 + 3 * 21.0
    assert tally.work == tally.us and tally.frames == 6 and tally.rows == 6


def test_more_workers_do_not_speed_up_a_chain() -> None:
    assert simulate(CHAIN, costs(), rules(), workers=4).us == simulate(CHAIN, costs(), rules()).us


def test_two_independent_instances_on_two_workers_take_half_the_time() -> None:
    one = simulate(CHAIN, costs(), rules(cap=1), keys=2, retired=2)
    two = simulate(CHAIN, costs(), rules(cap=1), keys=2, workers=2, retired=2)
    assert one.us == 180.0 and two.us == 90.0


def test_a_frame_takes_what_waits_and_costs_its_fixed_part_once() -> None:
    wide = replace(CHAIN, rows=[5, 5, 5])
    # The first instance's first frame begins alone; from then on the two go apart, or together.
    apart = simulate(wide, costs(per_row=1.0), rules(cap=1), keys=2, retired=2)
    together = simulate(wide, costs(per_row=1.0), rules(least=10), keys=2, retired=2)
    assert apart.us == 2 * (3 * 15.0 + 3 * 25.0)
    assert together.us < apart.us and together.frames < apart.frames


def test_a_join_waits_for_all_its_messages() -> None:
    # source - a, b - join
    join = Shape([0, 1, 2], [1, 1, 1], [1, 1, 2], [[2], [2], []], [[], [], [0, 1]], [1, 1, 2], [0, 1])
    assert simulate(join, costs(), rules()).us == 90.0
    assert simulate(join, costs(), rules(), workers=2).us == 10 + 10 + 20 + 20


def test_gradients_of_a_fan_out_return_before_the_sender_goes_backward() -> None:
    # source - a - b, c (both sinks)
    fork = Shape([0, 1, 2], [1, 1, 1], [1, 1, 1], [[1, 2], [], []], [[], [0], [0]], [1, 1, 1], [0])
    assert simulate(fork, costs(), rules()).us == 90.0
    assert simulate(fork, costs(), rules(), workers=2).us == 10 + (10 + 20) + 20


def test_an_instance_that_completes_an_interval_retires_after_the_update() -> None:
    given = costs(reduce=2.0, update=100.0)
    assert simulate(CHAIN, given, rules({0: 1})).us == 90 + 2 + 100
    waits = simulate(CHAIN, given, rules({0: 2}), retired=2)
    assert waits.us == 2 * 90 + 2 * 2 + 100 and waits.serial == {0: 104.0}
    assert simulate(CHAIN, given, rules({0: 2}), retired=1).us == 90


def test_one_worker_at_a_time_reduces_a_node() -> None:
    """However many workers there are, updates of 100 follow one another; those of two nodes do not."""
    alone = Shape([0], [1], [1], [[]], [[]], [1], [0])
    given = costs(0.0, 0.0, units=1, update=100.0)
    one_node = simulate(alone, given, rules({0: 1}, units=1, cap=1), workers=4, keys=4, retired=4)
    assert one_node.us == 400.0
    pair = Shape([0, 1], [1, 1], [1, 1], [[], []], [[], []], [1, 1], [0, 1])
    given = costs(0.0, 0.0, units=2, update=100.0)
    two_nodes = simulate(pair, given, rules({0: 1, 1: 1}, units=2, cap=1), workers=2, keys=4, retired=4)
    assert two_nodes.us == 400.0 and two_nodes.serial == {0: 400.0, 1: 400.0}


def test_the_host_submits_one_instance_after_another() -> None:
    busy = simulate(CHAIN, costs(host=1000.0), rules(), workers=8, keys=8, retired=10)
    assert busy.us == pytest.approx(10 * 1000 + 90)


def test_a_host_that_slept_takes_more_for_the_first_instance() -> None:
    """With one key it sleeps while the instance is under way, so each but the first waits for it to wake."""
    tally = simulate(CHAIN, costs(host=30.0, waking=7.0), rules(), retired=3)
    assert tally.us == 3 * (30 + 90) + 2 * 7 and tally.host == 3 * 30 + 2 * 7


def test_a_host_that_limits_never_sleeps() -> None:
    busy = simulate(CHAIN, costs(host=1000.0, waking=500.0), rules(), workers=8, keys=8, retired=100)
    assert busy.us == pytest.approx(100 * 1000 + 90) and busy.host == busy.retired * 1000 + 1000


def test_a_host_wakes_once_for_several_instances() -> None:
    """Two of six keys retire before it is woken; the workers are never without a frame meanwhile."""
    given = costs(host=1.0, waking=10.0)
    tally = simulate(CHAIN, given, rules(cap=1), keys=6, retired=101)
    assert tally.host == 106 + 50 * 10


def test_a_host_that_is_not_woken_looks_again_after_a_millisecond() -> None:
    """It has slept since 0. The first instance retires at 3060 us, so the host finds it at 4000."""
    given = costs(forward=1000.0, waking=5.0)
    simulation = Simulation([CHAIN], given, rules(cap=1), shared_memory(1, rules(cap=1)), 6)
    assert simulation.run(1).host == 0.0
    assert simulation.run(2).host == 5.0


def test_a_host_without_a_processor_of_its_own_takes_time_from_the_workers() -> None:
    own = simulate(CHAIN, costs(host=30.0), rules(cap=1), keys=8, retired=100, processors=2)
    taken = simulate(CHAIN, costs(host=30.0), rules(cap=1), keys=8, retired=100, processors=1)
    assert own.stolen == 0 and taken.stolen > 0
    assert taken.us - own.us == pytest.approx(taken.stolen, rel=0.1)


def test_a_simulation_repeats() -> None:
    def tallies(workers: int) -> list[Tally]:
        order = rules({0: 7, 2: 5}, cap=3, least=2)
        given = costs(11.0, 17.0, per_row=0.3, reduce=0.7, update=31.0, host=3.0)
        shapes = [replace(CHAIN, size=n) for n in range(60)]
        simulation = Simulation(shapes, given, order, shared_memory(workers, order), 6)
        return [simulation.run(20), simulation.run(60)]

    assert tallies(3) == tallies(3)
    first, second = tallies(3)
    assert second.since(first).retired == second.retired - first.retired


def test_a_schedule_that_cannot_go_on_is_an_error() -> None:
    with pytest.raises(AmphwError, match="is stuck"):
        simulate(replace(CHAIN, need=[1, 2, 1]), costs(), rules())


def test_the_shape_of_an_instance_comes_from_its_plan() -> None:
    lowered = lower(mlp())
    (instance,) = rows(1, size=4)
    shape = shape_of(lowered, finish_plan(lowered, build_plan(lowered, instance)))
    names = [lowered.units[u].name for u in shape.unit]
    assert names == ["x", "layer0", "layer1", "head", "loss"]
    assert list(shape.rows)[1:] == [4] * 4 and list(shape.first) == [1]
    assert [list(t) for t in shape.targets[1:]] == [[2], [3], [4], []]
    assert [list(o) for o in shape.origins[1:]] == [[], [1], [2], [3]]


DECIDED = (
    *("decide", "decide-store", "fe-experts", "fe-nested", "fe-ponder", "fe-skip"),
    *("fe-decoder", "fe-hops", "fe-wander"),
)
"""By the network."""


@each_case([c for c in CASES if c.name not in DECIDED])
def test_simulated_messages_are_those_of_the_device(case: Case) -> None:
    graph = case.build()
    instances = case.instances(seed=5)
    device = CpuDevice()
    device.load(graph, {"*": UpdateRule(interval=1 << 30)}, DeviceOptions(1, 0, settings={"fuse": False}))
    try:
        pump(device, instances, keys=1)
        counted = device.statistics()
    finally:
        device.close()
    lowered = lower(graph)
    shapes = [shape_of(lowered, finish_plan(lowered, build_plan(lowered, i))) for i in instances]
    assert sum(len(s.first) + sum(map(len, s.targets)) for s in shapes) == counted.forward
    units = len(lowered.units)
    order = rules(units=units)
    tally = Simulation(shapes, costs(units=units), order, shared_memory(1, order), 1).run(len(shapes))
    assert tally.messages == counted.forward + counted.backward
    assert tally.retired == len(instances)


def test_a_graph_that_decides_by_its_values_is_refused() -> None:
    lowered = lower(decide.build())
    instance = decide.instance(np.random.default_rng(0))
    with pytest.raises(DecidesItsRoutes, match="decides by its values where messages go"):
        shape_of(lowered, finish_plan(lowered, build_plan(lowered, instance)))


@pytest.mark.parametrize(("height", "interval"), [(1, 1), (3, 3), (3, 4), (3, 10), (5, 3)])
def test_rows_beyond_an_interval_do_not_count_for_the_next(height: int, interval: int) -> None:
    """As in the engine: an update takes all rows that are there, and counting begins anew."""
    shape = replace(CHAIN, rows=[height] * 3)
    found = simulate(shape, costs(), rules({1: interval}), keys=1, retired=60)
    device = CpuDevice()
    rule = {"*": UpdateRule(interval=1 << 30), "head": UpdateRule(interval=interval)}
    device.load(mlp(), rule, DeviceOptions(1, 1, "self", 3, False, {"workers": 1}))
    pump(device, rows(60, height), keys=1)
    updates = device.statistics().updates
    device.close()
    assert found.updates[1] == updates == 60 // -(-interval // height)
