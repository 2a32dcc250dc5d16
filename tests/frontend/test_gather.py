"""Positions that differ from turn to turn of a loop: what is picked, taken or put there."""

from __future__ import annotations

from typing import Any

import pytest

from amphw import frontend as fe
from amphw.ir.errors import AmphwError
from tests.frontend.running import computed

AXIS = fe.Axis("index", 6)
SPEC = fe.Record(
    xs=fe.Sequence(fe.Floats(1), most=6),
    ts=fe.Sequence(fe.Int(3), most=4),
    where=fe.Along(AXIS, fe.Int(3)),
    n=fe.Int(2),
)
PLAIN = {"xs": [[1.0], [2.0], [4.0]], "ts": [2, 0, 0, 1], "where": [1, 2], "n": 1}


def value(model: Any, plain: Any = PLAIN, spec: fe.Spec = SPEC) -> Any:
    return computed(model, spec, plain)[0].squeeze(1).tolist()


@pytest.mark.parametrize("apart", [False, True], ids=["rows", "messages"])
def test_a_loop_picks_another_position_at_every_turn(apart: bool) -> None:
    def model(x: Any) -> Any:
        xs = fe.ungroup(x.xs.item) if apart else x.xs.item
        return fe.fold(lambda h, i: h * 10.0 + fe.pick(xs, i), fe.constant(1), x.ts)

    assert value(model) == [4112.0]


def test_a_position_of_every_item_is_picked_at_once() -> None:
    assert value(lambda x: fe.group(fe.pick(x.xs, x.ts.item), x.ts)) == [4.0, 1.0, 1.0, 2.0]


def test_a_loop_takes_other_rows_at_every_turn() -> None:
    def model(x: Any) -> Any:
        def step(h: Any, i: Any) -> Any:
            return h * 10.0 + fe.reduce(fe.take(x.xs, fe.minimum(x.where.item + i, 2)))

        return fe.fold(step, fe.constant(1), x.ts)

    # (4 + 4), then twice (2 + 4), then (4 + 4)
    assert value(model) == [8668.0]


def test_a_loop_puts_rows_elsewhere_at_every_turn() -> None:
    def model(x: Any) -> Any:
        def step(h: Any, i: Any) -> Any:
            put = fe.put(fe.number(x.where), fe.minimum(x.where.item - 1 + i, 2), x.xs)
            return h * 10.0 + fe.pick(put, 1)

        return fe.fold(step, fe.constant(1), x.ts)

    # 1 and 2 are put to rows 2 and 2, then twice to 0 and 1, then to 1 and 2
    assert value(model) == [221.0]


def test_what_a_branch_picks_need_not_exist_in_the_other() -> None:
    def model(x: Any) -> Any:
        return fe.cond(x.n, lambda: fe.constant(1, 7.0), lambda: fe.pick(x.xs.item, x.n + 2))

    assert value(model) == [7.0]
    assert value(model, PLAIN | {"n": 0}) == [4.0]


def test_a_constant_is_reduced_over_a_sequence_in_a_sequence() -> None:
    spec = fe.Record(words=fe.Sequence(fe.Sequence(fe.Floats(1), most=5), most=5))

    def model(x: Any) -> Any:
        return fe.group(fe.reduce(fe.constant(1, 2.0), over=x.words.item), x.words)

    assert value(model, {"words": [[[1.0], [2.0]], [[3.0]]]}, spec) == [4.0, 2.0]


@pytest.mark.parametrize("apart", [False, True], ids=["rows", "messages"])
def test_the_first_of_none_is_refused(apart: bool) -> None:
    """A sequence that may be empty has no first position in every instance."""
    spec = fe.Record(
        xs=fe.Sequence(fe.Floats(1), most=3, least=0), ts=fe.Sequence(fe.Int(3), most=3, least=0)
    )

    def model(x: Any) -> Any:
        return fe.pick(fe.ungroup(x.xs.item) if apart else x.xs.item, 0)

    assert value(model, {"xs": [[5.0]], "ts": []}, spec) == [5.0]
    with pytest.raises(AmphwError):
        value(model, {"xs": [], "ts": []}, spec)
    with pytest.raises(AmphwError):
        value(lambda x: fe.number(fe.pick(x.ts.item, 0)), {"xs": [], "ts": []}, spec)


def test_the_first_integer_of_none_is_not_the_next_ones() -> None:
    """Parts lie one behind the other: the first position of an empty word is that of the next word."""
    spec = fe.Record(words=fe.Sequence(fe.Sequence(fe.Int(4), most=3, least=0), most=3))

    def model(x: Any) -> Any:
        return fe.group(fe.number(fe.pick(x.words.item.item, 0)), x.words)

    assert value(model, {"words": [[1], [3, 2]]}, spec) == [1.0, 3.0]
    with pytest.raises(AmphwError):
        value(model, {"words": [[], [3, 2]]}, spec)
