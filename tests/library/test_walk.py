"""What a report walks through, beside the messages that the plans of instances have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.engine.lowering.plan import Planner
from amphw.engine.numpy_plane.slots import finish_plan
from amphw.estimate.count.firings import DecidesItsRoutes, walk
from amphw.host.recent import MOST, Recent
from amphw.host.records import Slice
from amphw.ir.device import Mode, Report
from amphw.ir.instance import Instance
from amphw.library.walk import walkthrough
from amphw.page.walk.section import Walked, Walkthrough
from tests.conformance.golden import instances_of, trained
from tests.graphs.cases import CASES, Case, each_case

each = each_case()
COUNT = 6
(TREES,) = (case for case in CASES if case.name == "tree-all")


def walked(
    case: Case, slices: Sequence[Slice] = (), count: int = COUNT, most: int = MOST
) -> tuple[Walkthrough, CpuDevice]:
    """The first instances of a case, trained with a log of which about `most` firings are kept."""
    device, recent = CpuDevice(), Recent(most)
    found = trained(device, case, count, log=True, frame_cap=5)
    for event in device.log:
        recent.take([event])
    for report in found.reports:
        recent.reported(report, instances_of(case, count)[report.number])
    made = walkthrough(recent, case.build(), device, slices)
    assert made is not None
    return made, device


def edges(of: Walked, kind: str) -> Counter[tuple[str, tuple[int, ...], str, tuple[int, ...]]]:
    """Messages of a direction: from which firing to which."""
    found: Counter[tuple[str, tuple[int, ...], str, tuple[int, ...]]] = Counter()
    for firing in of.firings:
        for origin in firing.origins:
            by = of.firings[origin]
            if firing.frame.kind == kind == by.frame.kind:
                found[by.frame.node, tuple(by.state), firing.frame.node, tuple(firing.state)] += 1
    return found


@each
def test_messages_are_those_of_the_plan_and_gradients_go_the_other_way(case: Case) -> None:
    made, device = walked(case)
    instances, lowered = instances_of(case, COUNT), device.lowered
    planner = Planner(lowered, lambda plan: plan)
    assert len(made.instances) == COUNT
    for one in made.instances:
        ahead, back = edges(one, "forward"), edges(one, "backward")
        assert all(k > origin >= 0 for k, f in enumerate(one.firings) for origin in f.origins)
        assert {(c, d, a, b) for a, b, c, d in back} <= set(ahead)
        plan = planner.plan(instances[one.number])
        try:
            shape = walk(lowered, finish_plan(lowered, plan)).shape
        except DecidesItsRoutes:
            continue
        named = [
            (unit.name, table.space.state(k))
            for unit, table in zip(lowered.units, plan.units, strict=True)
            for k in range(table.space.size)
        ]
        sent = ((source, target) for source, all_of in enumerate(shape.targets) for target in all_of)
        assert set(ahead) == {(*named[source], *named[target]) for source, target in sent}


@each
def test_versions_grow_and_the_loss_is_the_report_s(case: Case) -> None:
    made, _ = walked(case)
    seen: dict[str, list[int]] = {}
    for number in sorted({f.frame.number for one in made.instances for f in one.firings}):
        frame = next(f.frame for one in made.instances for f in one.firings if f.frame.number == number)
        seen.setdefault(frame.node, []).append(frame.version)
    assert all(a <= b for versions in seen.values() for a, b in pairwise(versions))
    assert all(one.loss == one.loss for one in made.instances)


def test_frames_have_the_times_of_their_slices() -> None:
    made, _ = walked(TREES, [Slice(1, "cell", "forward", 10.0, 2.0, 3, None, 1)])
    times = {f.frame.number: f.frame.when for one in made.instances for f in one.firings}
    assert times[1] == (1, 10.0, 2.0)
    assert all(when is None for number, when in times.items() if number != 1)


def log_of(*numbers: int) -> list[tuple[object, ...]]:
    """Instances that fire twice each, one behind the other, with an update between any two."""
    events: list[tuple[object, ...]] = []
    for number in numbers:
        events += [("submit", number, "train")]
        for k, kind in enumerate(("forward", "backward")):
            frame = 2 * number + k + 1
            events += [("start", frame, "cell", kind, ((number, "train", ()),)), ("end", frame)]
        events += [("reduced", "cell"), ("retire", number, "train")]
    return events


def test_old_events_go_and_the_updates_before_them_are_counted() -> None:
    recent = Recent(most=10)
    for number in range(30):
        recent.take(log_of(number))
        recent.reported(Report(0, 0, number, Mode.TRAIN, {"loss": {"loss": 1.0}}), Instance(number=number))
    firings = [event for event in recent.events if event[0] == "start"]
    assert 10 <= len(firings) <= 20
    first = firings[0][4][0][0]
    before = recent.events[: recent.events.index(firings[0])]
    assert recent.updates["cell"] + sum(event[0] == "reduced" for event in before) == first
    assert {(number, "train") for number in range(first, 30)} <= set(recent.instances)
    assert len(recent.instances) <= 30 - first + 1
    assert set(recent.losses) == set(recent.instances)


def test_only_instances_whose_whole_way_is_kept_are_shown() -> None:
    def firings(most: int) -> dict[int, int]:
        return {one.number: len(one.firings) for one in walked(TREES, count=60, most=most)[0].instances}

    whole = firings(MOST)
    some = firings(sum(whole.values()) // 3)
    assert 0 < len(some) < len(whole)
    assert all(whole[number] == count for number, count in some.items())


def test_validation_takes_a_quarter_of_the_room_at_most() -> None:
    recent = Recent(most=40)
    recent.take(log_of(*range(10)))
    for number in range(100):
        firing = ((number, "infer", ()),)
        about = (number, "infer")
        recent.take(
            [("submit", *about), ("start", 100 + number, "cell", "infer", firing), ("retire", *about)]
        )
    modes = Counter(event[2] for event in recent.events if event[0] == "submit")
    assert modes == {"train": 10, "infer": 10}
    assert Counter(event[2] for event in recent.events if event[0] == "retire") == modes
    recent.take(log_of(*range(10, 20)))
    assert {event[1] for event in recent.events if event[0] == "submit" and event[2] == "train"} == set(
        range(20)
    )


@pytest.mark.parametrize("log", [[], [("submit", 0, "train")]])
def test_without_a_whole_instance_there_is_nothing_to_walk_through(log) -> None:
    recent = Recent()
    recent.take(log)
    assert walkthrough(recent, TREES.build(), CpuDevice(), []) is None
