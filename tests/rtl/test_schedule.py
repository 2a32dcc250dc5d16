"""The order of commands: what depends on one another stays in order, and less is waited."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amphw.ir.graph import Graph
from amphw.rtl.isa.commands import IndexMode, LaneOp, VectorOp
from amphw.rtl.microcode import compile as compile_module
from amphw.rtl.microcode.abstract import Command, LaneCommand, VectorCommand
from amphw.rtl.microcode.arrays import Array, Home, View
from amphw.rtl.microcode.schedule import scheduled
from amphw.rtl.microcode.scratch import scratch_room
from amphw.rtl.microcode.timing import firing_cycles
from amphw.rtl.plan.records import RowSpaces
from amphw.rtl.plan.stack import ParameterPlace
from tests.graphs.cases import each_name
from tests.rtl.microprograms import graphs, subjects

GRAPHS = dict(graphs())
WIDTH = 4
SPACES = RowSpaces({"rows": 1}, {}, ())
ARRAYS = [Array(name, "rows", WIDTH) for name in "pqrstu"]
PLACE = ParameterPlace(base=0, rows=WIDTH, columns=WIDTH, blocks=1, bias=False)
views = st.builds(
    lambda array, low, width: View(array, low, min(width, WIDTH - low)),
    *(st.sampled_from(ARRAYS), st.integers(0, WIDTH - 1), st.integers(1, WIDTH)),
)
vectors = st.one_of(
    st.builds(lambda d, a, b: VectorCommand(VectorOp.ADD, "rows", d, a, b), views, views, views),
    st.builds(lambda d, a: VectorCommand(VectorOp.SUM, "rows", d, a, across="columns"), views, views),
    st.builds(
        lambda d, a, i: VectorCommand(
            VectorOp.COPY, "rows", d, a.cut(0, 1), mode=IndexMode.A, index=i, scale=1, reach=a
        ),
        *(views, views, views),
    ),
    st.builds(
        lambda d, a, i: VectorCommand(VectorOp.ADD, "rows", d, a, mode=IndexMode.ADD_D, index=i, scale=WIDTH),
        *(views, views, views),
    ),
)
lanes = st.builds(
    lambda y, x, dz: LaneCommand(LaneOp.BACKWARD, "rows", PLACE, x, y, dz, want_dw=True),
    *(st.none() | views, views, views),
)
programs = st.lists(vectors | lanes, max_size=12)


def touched(command: Command) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    """(array, column) that a command reads, and that it writes, from its own fields."""
    if isinstance(command, LaneCommand):
        read, written = [command.x, command.dz], [command.y]
    else:
        adds = [command.d] if command.mode == IndexMode.ADD_D else []
        read, written = [command.reach or command.a, command.b, command.index, *adds], [command.d]
    return tuple(  # type: ignore[return-value]
        {(v.array.name, v.column + k) for v in views if v is not None for k in range(v.width)}
        for views in (read, written)
    )


@given(programs)
def test_what_depends_on_one_another_stays_in_order(commands: Sequence[Command]) -> None:
    found = scheduled(commands, SPACES)
    place = {id(command): at for at, command in enumerate(found)}
    assert sorted(place) == sorted(map(id, commands))
    for at, second in enumerate(commands):
        reads, writes = touched(second)
        for first in commands[:at]:
            both = isinstance(first, LaneCommand) and isinstance(second, LaneCommand)  # sums saturate
            read, written = touched(first)
            if both or written & (reads | writes) or read & writes:
                assert place[id(first)] < place[id(second)]


@pytest.mark.parametrize("name", each_name(GRAPHS))
def test_no_firing_takes_longer_than_in_the_order_of_its_program(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = cycles(GRAPHS[name]())
    monkeypatch.setattr(compile_module, "scheduled", lambda commands, spaces: list(commands))
    given_order = cycles(GRAPHS[name]())
    assert found.keys() == given_order.keys() and found
    assert [key for key, taken in found.items() if taken > given_order[key]] == []


def cycles(graph: Graph) -> dict[tuple[str, bool, int], int]:
    """Of a firing, by node, way and rows."""
    lanes, taken = 4, {}
    for subject in subjects(graph):
        code, _ = subject.compile(lanes)
        for back, program in ((False, code.forward), (True, code.backward)):
            for rows in (1, 3):
                taken[subject.name, back, rows] = firing_cycles(program.words, [rows] * 8, lanes)
    return taken


@given(programs)
def test_no_order_takes_more_scratch(commands: Sequence[Command]) -> None:
    assert scratch_room(scheduled(commands, SPACES), SPACES).fits(scratch_room(commands, SPACES))


def whole(array: Array) -> View:
    return View(array, 0, WIDTH)


def copy(source: Array, target: Array) -> VectorCommand:
    return VectorCommand(VectorOp.COPY, "rows", whole(target), whole(source))


def product(source: Array, target: Array) -> LaneCommand:
    return LaneCommand(LaneOp.FORWARD, "rows", PLACE, whole(source), whole(target))


def test_an_engine_does_all_that_it_can_before_the_other_has_its_turn() -> None:
    p, q, r, s, t, _ = ARRAYS
    begins, first, takes, second = product(p, q), copy(q, r), product(r, s), copy(q, t)
    assert scheduled([begins, first, takes, second], SPACES) == [begins, first, second, takes]


def test_chains_that_do_not_depend_on_one_another_are_woven() -> None:
    """Of two chains of two, one after the other, each second command would wait."""
    p, q, r, s, t, u = (Array(name, "rows", WIDTH, Home(0)) for name in "pqrstu")
    one, two, three, four = copy(p, q), copy(q, r), copy(s, t), copy(t, u)
    assert scheduled([one, two, three, four], SPACES) == [one, three, two, four]


def test_what_gains_nothing_stays_as_it_is() -> None:
    p, q, r, s, *_ = ARRAYS
    commands = [product(p, q), copy(p, r), copy(r, s)]
    assert scheduled(commands, SPACES) == commands
