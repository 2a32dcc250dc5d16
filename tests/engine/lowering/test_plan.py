"""Plans: the compiled tables deliver exactly what the reference delivers."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np
import pytest

from amphw.engine.lowering.lower import Lowered, Unit, lower
from amphw.engine.lowering.plan import Plan, Planner, build_plan, integers, row_starts
from amphw.engine.numpy_plane.slots import SlotPlan, finish_plan
from amphw.ir.behaviour import MEMBER, StateMap
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import StateError
from amphw.ir.expr import Attr, Field, evaluate, lift, table
from amphw.ir.functions import sum_cols
from amphw.ir.graph import Graph
from amphw.ir.grouping import Group
from amphw.ir.in_flight import Message
from amphw.ir.instance import Instance, Schema, TableType
from amphw.ir.nodes import Loss, Source
from amphw.ir.program import trace
from amphw.ir.reference import ReferenceDevice
from amphw.ir.routing import Isu
from amphw.ir.state import OUT_OF_DOMAIN, Columns, StateType, state_field
from amphw.ir.update import UpdateRule
from tests.graphs import decide, rnn, tree
from tests.graphs.cases import Case, each_case

Delivery = tuple[str, str, tuple[int, ...], int]
"""(unit, port, firing state, position in the operand)."""

w, c = Field("w"), Field("c")
WORDS = state_field("w", Attr("words"), 5)
CHARACTERS = state_field("c", table("length")(w), 9)


class Told(ReferenceDevice):
    """Keeps what was delivered."""

    def load(self, graph: Graph, rules: Mapping[str, UpdateRule], options: DeviceOptions) -> None:
        super().load(graph, rules, options)
        self.keys: list[tuple[str, str, str, int, tuple[int, ...]]] = []

    def deliver(self, message: Message) -> None:
        self.keys.append(message.key)
        super().deliver(message)


def sent_by_reference(
    graph: Graph, lowered: Lowered, instance: Instance
) -> tuple[set[Delivery], set[Delivery]]:
    """-> (what reaches computing nodes, what comes from nodes that decide)."""
    device = Told("random")
    device.load(graph, {"*": UpdateRule()}, DeviceOptions(updates="off", seed=3))
    device.submit(0, 0, instance, Mode.TRAIN)
    device.drain()
    found, decided = set(), set()
    for direction, node, port, _, state in device.keys:
        if direction != "forward":
            continue
        if device.graph.sources_of[(node, port)][0] in lowered.by_name:
            decided.add((node, port, state, 0))
        if node not in lowered.by_name:
            continue
        receive = next(r for r in lowered.typed.behaviours[node].receives if r.port == port)
        names = lowered.typed.into(node, port).state.names
        env = Columns(instance, {n: np.array([v]) for n, v in zip(names, state, strict=True)}, 1)
        values = {n: int(evaluate(e, env)[0]) for n, e in receive.key}
        firing = tuple(values[n] for n in lowered.typed.behaviours[node].state.names)
        position = int(evaluate(receive.member, env)[0]) if receive.member is not None else 0
        found.add((node, port, firing, position))
    return found, decided


def outcome(lowered: Lowered, unit: Unit, firing: tuple[int, ...], at: int, decided: set[Delivery]) -> int:
    """Number of the sender's outcome, for a unit that decides: read from what the reference sent."""
    if not unit.behaviour.decides:
        return at
    ((field, _),) = unit.behaviour.decides
    follower = lowered.graph.edges[(unit.name, "out")][0]
    (value,) = (state[-1] for node, _, state, _ in decided if node == follower and state[:-1] == firing)
    return at * field.bound + value


def sent_by_plan(lowered: Lowered, slots: SlotPlan, decided: set[Delivery]) -> set[Delivery]:
    """Fire every unit once its operands are complete, by the tables alone."""
    left = [list(u.need) for u in slots.units]
    ready = deque((u.index, 0) for u in lowered.units if u.behaviour.is_source)
    found: set[Delivery] = set()
    while ready:
        u, at = ready.popleft()
        unit, columns = lowered.units[u], slots.tables.units[u].space.columns
        state = tuple(int(columns[n][at]) for n in unit.behaviour.state.names)
        for target, operand, firing, position, _, _ in slots.units[u].routes[
            outcome(lowered, unit, state, at, decided)
        ]:
            to = lowered.units[target]
            space, starts = slots.tables.units[target].space, slots.units[target].members[operand]
            key = tuple(int(space.columns[n][firing]) for n in to.behaviour.state.names)
            place = position - starts[firing] if starts is not None else 0
            delivery = (to.name, to.operands[operand].port, key, place)
            assert delivery not in found
            found.add(delivery)
            left[target][firing] -= 1
            if left[target][firing] == 0:
                ready.append((target, firing))
    return found


@each_case()
def test_plans_deliver_what_the_reference_delivers(case: Case) -> None:
    lowered = lower(case.build())
    for instance in case.instances(seed=4):
        expected, decided = sent_by_reference(lowered.graph, lowered, instance)
        plan = finish_plan(lowered, build_plan(lowered, instance))
        assert sent_by_plan(lowered, plan, decided) == expected


@each_case()
def test_the_tables_of_a_unit_fit_together(case: Case) -> None:
    lowered = lower(case.build())
    for instance in case.instances():
        plan = build_plan(lowered, instance)
        for u, found in zip(lowered.units, plan.units, strict=True):
            assert len(found.need) == found.space.size
            for path in found.paths:
                assert len(path.start) == found.space.size * u.decisions + 1
                assert path.start[-1] == len(path.firing) == len(path.position) == len(path.row)
            operands, faulty = integers(u, found, instance)
            assert not faulty
            for values, starts in operands:
                assert len(starts) == found.space.size + 1 and starts[-1] == len(values)


def characters() -> Graph:
    """Characters (w, c) of words of unequal length, grouped by word."""
    g = Graph("characters", Schema({"words": 5}, {"length": TableType((Attr("words"),), lift(9))}, {"x": 2}))
    g.add(Source("characters", StateType((WORDS, CHARACTERS)), width=2, data="x"))
    g.add(Group("word", StateMap(drop={"c": Field(MEMBER)}), c, table("length")(w)))
    g.add(Loss("loss", trace(sum_cols, {"y": 2})))
    g.connect("characters", "word", "loss")
    return g


def words(*lengths: int) -> Instance:
    x = np.arange(2 * sum(lengths), dtype=np.float32).reshape(-1, 2)
    return Instance({"words": len(lengths)}, {"length": np.array(lengths)}, {"x": x})


def test_ragged_spaces_are_dense() -> None:
    lowered = lower(characters())
    plan = build_plan(lowered, words(3, 1, 4))
    source, group, loss = (plan.units[lowered.by_name[n]] for n in ("characters", "word", "loss"))
    (path,) = source.paths
    assert path.firing.tolist() == [0, 0, 0, 1, 2, 2, 2, 2]
    assert path.position.tolist() == list(range(8)) and path.row.tolist() == [-1] * 8
    assert path.data is not None
    assert path.data[0].tolist() == list(range(8)) and path.data[1].tolist() == [1] * 8
    (members,) = group.members
    assert members is not None and members.tolist() == [0, 3, 4, 8]
    assert group.need.tolist() == [3, 1, 4]
    np.testing.assert_array_equal(group.spaces["members"], [3, 1, 4])
    np.testing.assert_array_equal(loss.rows[0], [3, 1, 4])
    assert loss.spaces["rows"] is not None and len(loss.need) == 3


def test_equal_counts_are_one_number() -> None:
    lowered = lower(characters())
    group = build_plan(lowered, words(2, 2)).units[lowered.by_name["word"]]
    assert group.spaces["members"] == 2


def test_a_state_outside_its_domain_is_marked() -> None:
    """n = 0 .. 2 becomes 1 .. 3, but the field ends at 2; executors refuse to send the last one."""
    n = Field("n")
    g = Graph("over", Schema())
    g.add(Source("three", StateType((state_field("n", 3),))))
    g.add(Isu("next", StateMap(set={"n": n + 1})))
    g.add(Loss("loss", trace(lambda y: y.builder.emit("to_float", [y.builder.integer(n)]), {"y": 0})))
    g.connect("three", "next", "loss")
    (path,) = build_plan(lower(g), Instance()).units[0].paths
    assert path.firing.tolist() == path.position.tolist() == [1, 2, OUT_OF_DOMAIN]


def test_guards_come_before_addresses() -> None:
    """A tree's root has no parent, and says so before its address is looked up."""
    instance = tree.instance(np.random.default_rng(0), leaves=3)
    for u in build_plan(lower(tree.build()), instance).units:
        assert all((path.firing >= 0).all() for path in u.paths)


def test_an_extent_above_its_bound_is_refused() -> None:
    lowered = lower(characters())
    instance = words(3, 1)
    instance.tables["length"] = np.array([3, 10])
    with pytest.raises(StateError) as caught:
        build_plan(lowered, instance)
    assert str(caught.value) == (
        "instance 0: field 'c' has extent length[w] = 10, outside 0..9; raise its bound or mend the instance"
    )


def planner(graph: Graph, keep: int = 4096) -> Planner[Plan]:
    return Planner(lower(graph), lambda plan: plan, keep)


def test_instances_of_one_structure_share_a_plan() -> None:
    rng = np.random.default_rng(0)
    plans = planner(rnn.build())
    first = plans.plan(rnn.instance(rng, 4, 2))
    other = rnn.instance(rng, 4, 2)
    other.number = 7  # neither the number nor tokens and labels decide a route
    assert plans.plan(other) is first
    assert plans.plan(rnn.instance(rng, 5, 2)) is not first
    assert plans.plan(rnn.instance(rng, 4, 3)) is not first


def test_the_number_is_structure_where_a_route_reads_it() -> None:
    rng = np.random.default_rng(0)
    plans = planner(rnn.build(replicas="hash"))
    one, other = rnn.instance(rng, 4, 2), rnn.instance(rng, 4, 2)
    other.number = 7
    assert plans.plan(one) is not plans.plan(other)


def test_trees_share_a_plan_only_where_their_tables_agree() -> None:
    plans = planner(tree.build())
    a, b = (tree.instance(np.random.default_rng(s), leaves=5) for s in (1, 2))
    assert plans.plan(a) is plans.plan(tree.instance(np.random.default_rng(1), leaves=5))
    assert plans.plan(a) is not plans.plan(b)


def test_the_oldest_plan_is_forgotten_first() -> None:
    plans = planner(decide.build(), keep=2)
    rng = np.random.default_rng(0)
    one, two, three = (decide.instance(rng, size) for size in (1, 2, 3))
    first, second = plans.plan(one), plans.plan(two)
    assert plans.plan(one) is first  # used again: now the second is the oldest
    plans.plan(three)
    assert plans.plan(one) is first
    assert plans.plan(two) is not second


def test_row_starts() -> None:
    assert row_starts(3, 2).tolist() == [0, 3, 6]
    assert row_starts(np.array([2, 0, 1]), 3).tolist() == [0, 2, 2, 3]
    assert row_starts(0, 0).tolist() == [0]
