"""The order of commands: what depends on one another stays in order, and less is waited."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from amphw.rtl.isa.commands import LaneOp, VectorOp
from amphw.rtl.microcode.abstract import Command, LaneCommand, VectorCommand, depend
from amphw.rtl.microcode.arrays import Array, Home, View
from amphw.rtl.microcode.schedule import scheduled
from amphw.rtl.microcode.scratch import scratch_room
from amphw.rtl.plan.records import RowSpaces
from amphw.rtl.plan.stack import ParameterPlace

WIDTH = 4
SPACES = RowSpaces({"rows": 1}, {}, ())
ARRAYS = [Array(name, "rows", WIDTH) for name in "pqrstu"]
PLACE = ParameterPlace(base=0, rows=WIDTH, columns=WIDTH, blocks=1, bias=False)
views = st.builds(
    lambda array, low, width: View(array, low, min(width, WIDTH - low)),
    *(st.sampled_from(ARRAYS), st.integers(0, WIDTH - 1), st.integers(1, WIDTH)),
)
vectors = st.builds(lambda d, a, b: VectorCommand(VectorOp.ADD, "rows", d, a, b), views, views, views)
lanes = st.builds(
    lambda y, x, dz: LaneCommand(LaneOp.BACKWARD, "rows", PLACE, x, y, dz, want_dw=True),
    *(st.none() | views, views, views),
)
programs = st.lists(vectors | lanes, max_size=12)


@given(programs)
def test_what_depends_on_one_another_stays_in_order(commands: Sequence[Command]) -> None:
    found = scheduled(commands, SPACES)
    place = {id(command): at for at, command in enumerate(found)}
    assert sorted(place) == sorted(map(id, commands))
    for at, second in enumerate(commands):
        for first in commands[:at]:
            both = isinstance(first, LaneCommand) and isinstance(second, LaneCommand)  # sums saturate
            if both or depend(first, second):
                assert place[id(first)] < place[id(second)]


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
