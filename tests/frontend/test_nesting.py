"""Loops, choices and trees within one another, against plain Python; and what is refused while it runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from amphw import frontend as fe
from amphw.ir.errors import AmphwError
from tests.frontend.running import computed

SPEC = fe.Record(
    words=fe.Sequence(fe.Sequence(fe.Int(10), most=4), most=4),
    xs=fe.Sequence(fe.Floats(1), most=4, least=0),
    ts=fe.Sequence(fe.Int(9), most=4),
    n=fe.Int(9),
    y=fe.Floats(1),
    tree=fe.Tree({"word": fe.Int(9)}, most=4),
)
PLAIN = {
    "words": [[1], [2, 4], [3]],
    "xs": [[1.0], [2.0]],
    "ts": [3, 8, 5],
    "n": 3,
    "y": [2.0],
    "tree": [1, [2, 3]],
}


def value(model: Any, **changed: Any) -> list[float]:
    found: list[float] = computed(model, SPEC, {**PLAIN, **changed})[0][:, 0].tolist()
    return found


def test_a_loop_over_integers_within_a_loop_counts_each_once() -> None:
    """Digits, word by word."""

    def letters(h: Any, word: Any) -> Any:
        return fe.fold(lambda g, i: g * 10.0 + fe.number(i), h, word)

    assert value(lambda x: fe.fold(letters, fe.constant(1), x.words)) == [1243.0]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lambda h, i: fe.number(i), 5.0),
        (lambda h, i: fe.number(i) + h * 0.0, 5.0),
        (lambda h, i: fe.constant(1, 4.0), 4.0),
        (lambda h, i: h, 1.0),
    ],
    ids=["the item", "the item with the carry", "a constant", "the carry"],
)
def test_a_loop_ends_with_what_its_body_gave_last(body: Any, expected: float) -> None:
    assert value(lambda x: fe.fold(body, fe.constant(1, 1.0), x.ts)) == [expected]


def test_a_loop_carries_what_depends_on_its_item_alone_beside_other_values() -> None:
    def step(carry: Any, i: Any) -> Any:
        total, last = carry
        return (total + last, fe.number(i)), fe.number(i) * 2.0

    def model(x: Any) -> Any:
        (total, last), ys = fe.scan(step, (fe.constant(1), fe.constant(1)), x.ts)
        return fe.concat(total, last, fe.reduce(ys))

    assert computed(model, SPEC, PLAIN)[0].tolist() == [[11.0, 5.0, 32.0]]


class State(NamedTuple):
    first: Any
    second: Any


def test_a_carry_may_be_a_dict_in_any_order_or_a_named_tuple() -> None:
    def swapped(h: Any, i: Any) -> Any:
        return {"b": h["b"] * 10.0, "a": h["a"] + i}

    def model(x: Any) -> Any:
        end = fe.fold(swapped, {"a": fe.constant(1), "b": fe.constant(1, 1.0)}, x.xs)
        named = fe.fold(lambda s, i: State(s.second, s.first + i), State(x.y, x.y), x.xs)
        return fe.concat(end["a"], end["b"], named.first, named.second)

    assert computed(model, SPEC, PLAIN)[0].tolist() == [[3.0, 100.0, 3.0, 4.0]]


def test_branches_may_return_dicts_in_any_order() -> None:
    def model(x: Any) -> Any:
        taken = fe.cond(x.y, lambda: {"a": x.y, "b": x.y * 3.0}, lambda: {"b": x.y, "a": x.y})
        return fe.concat(taken["a"], taken["b"])

    assert computed(model, SPEC, PLAIN)[0].tolist() == [[2.0, 6.0]]


INSIDE: dict[str, tuple[Any, float]] = {
    "an outside value": (lambda x: x.y, 2.0),
    "a constant": (lambda x: fe.constant(1, 7.0), 7.0),
    "a sum of items": (lambda x: fe.reduce(x.xs), 3.0),
    "a loop over values": (lambda x: fe.fold(lambda h, i: h + i * x.y, fe.constant(1), x.xs), 6.0),
    "a loop over integers": (lambda x: fe.fold(lambda h, i: h + fe.number(i), x.y, x.ts), 18.0),
    "a loop of a length": (lambda x: fe.fold(lambda h: h + x.y, fe.constant(1), length=x.n), 6.0),
    "a scan": (lambda x: fe.reduce(fe.scan(lambda h, i: (h + i, h), x.y, x.xs)[1]), 5.0),
    "a tree": (lambda x: fe.root(fe.fold_tree(fe.number(x.tree.word), _plus(x.y), x.tree), x.tree), 10.0),
    "leaves that read outside": (
        lambda x: fe.root(fe.fold_tree(fe.number(x.tree.word) + x.y, _plus(x.y), x.tree), x.tree),
        16.0,
    ),
    "rows that are taken": (lambda x: fe.reduce(fe.take(x.xs.item, fe.choose(x.ts.position > 0, 1, 0))), 5.0),
    "a picked item": (lambda x: fe.pick(fe.ungroup(x.xs.item), 1), 2.0),
    "a known choice": (lambda x: fe.cond(x.n > 2, lambda: x.y * 3.0, lambda: fe.constant(1)), 6.0),
    "another decision": (lambda x: fe.cond(x.y - 1.0, lambda: x.y * 3.0, lambda: x.y), 6.0),
    "a loop that the network ends": (
        lambda x: fe.while_loop(lambda s: 5.0 - s, lambda s: s + x.y, fe.constant(1), most=9),
        6.0,
    ),
}


def _plus(y: Any) -> Any:
    return lambda a, b: a + b + y


@pytest.mark.parametrize("what", INSIDE)
@pytest.mark.parametrize("at", range(3))
def test_any_branch_that_the_network_chooses_may_hold(what: str, at: int) -> None:
    inside, expected = INSIDE[what]

    def model(x: Any, chosen: int) -> Any:
        branches = [lambda: x.y * 10.0, lambda: x.y * 20.0]
        branches.insert(at, lambda: inside(x))
        scores = [x.y * float(k == chosen) for k in range(3)]
        return fe.switch(fe.concat(*scores), branches)

    assert value(lambda x: model(x, at)) == pytest.approx([expected])
    assert value(lambda x: model(x, 2 if at == 0 else 0)) == [40.0 if at == 0 else 20.0]


@pytest.mark.parametrize("what", ["another decision", "a loop over integers", "a loop of a length"])
def test_a_condition_of_a_loop_may_hold(what: str) -> None:
    inside, expected = INSIDE[what]

    def model(x: Any) -> Any:
        return fe.while_loop(lambda s: inside(x) + 0.5 - s, lambda s: s + 1.0, fe.constant(1), most=99)

    assert value(model) == [expected + 1]


@pytest.mark.parametrize("what", INSIDE)
def test_a_loop_that_the_network_ends_may_hold(what: str) -> None:
    inside, expected = INSIDE[what]

    def model(x: Any) -> Any:
        return fe.while_loop(lambda s: 100.0 - s, lambda s: s + inside(x), fe.constant(1, 0.5), most=2)

    assert value(model) == pytest.approx([2 * expected + 0.5])


def test_decisions_within_a_loop_read_values_from_several_places() -> None:
    """Which of them a branch reads is found out branch by branch."""

    def model(x: Any) -> Any:
        def body(h: Any) -> Any:
            return fe.cond(h - 5.0, lambda v: v + x.y, lambda v: v + x.y * 2.0 + fe.reduce(x.xs), h)

        return fe.while_loop(lambda h: x.y * 10.0 - h, body, fe.constant(1), most=9)

    now = 0.0
    while 20 - now > 0:
        now = now + 2 if now > 5 else now + 4 + 3
    assert value(model) == [now]


def test_a_tree_within_a_loop_reads_what_the_loop_gives() -> None:
    def model(x: Any) -> Any:
        def step(h: Any, i: Any) -> Any:
            nodes = fe.fold_tree(fe.number(x.tree.word), lambda a, b: a + b + i, x.tree)
            return h * 100.0 + fe.root(nodes, x.tree)

        return fe.fold(step, fe.constant(1), x.xs)

    assert value(model) == [810.0]  # 6 + 2 * 1, then 6 + 2 * 2


def test_a_loop_that_the_network_ends_for_each_position_keeps_the_position() -> None:
    def grown(v: Any) -> Any:
        return fe.while_loop(lambda s: 5.0 - s, lambda s: s * 2.0, v, most=9)

    expected = [6.0, 8.0, 5.0]
    assert value(lambda x: fe.group(grown(fe.number(x.ts)), x.ts)) == expected
    assert (
        value(lambda x: fe.group(fe.scan(lambda h, i: (h, grown(fe.number(i))), x.y, x.ts)[1], x.ts))
        == expected
    )


def test_a_scan_within_a_scan_gives_a_value_for_each_position_of_both() -> None:
    """Sums so far, of letters within words."""

    def model(x: Any) -> Any:
        def word(h: Any, letters: Any) -> Any:
            return fe.scan(lambda g, i: (g + fe.number(i),) * 2, h, letters)

        _, sums = fe.scan(word, fe.constant(1), x.words)
        return fe.reduce(fe.reduce(sums * fe.number(x.words.item.length), over=x.words.item), over=x.words)

    # 1 | 3 7 | 10, times the lengths 1, 2 and 1
    assert value(model) == [1 + 2 * (3 + 7) + 10]


LINES = fe.Record(
    lines=fe.Sequence(
        fe.Record(
            words=fe.Sequence(fe.Record(letters=fe.Sequence(fe.Int(10), most=3)), most=3),
            marks=fe.Sequence(fe.Int(10), most=3),
        ),
        most=3,
    )
)
TEXT = {
    "lines": [
        {"words": [{"letters": [1]}, {"letters": [2, 3]}], "marks": [4]},
        {"words": [{"letters": [5, 6]}], "marks": [7, 8]},
    ]
}


@pytest.mark.parametrize("reverse", [False, True])
def test_three_loops_over_records_within_records(reverse: bool) -> None:
    def letters(h: Any, word: Any) -> Any:
        return fe.fold(lambda g, i: g * 10.0 + fe.number(i), h, word.letters, reverse=reverse)

    def model(x: Any) -> Any:
        line = lambda h, line: fe.fold(letters, h, line.words, reverse=reverse)  # noqa: E731
        return fe.fold(line, fe.constant(1), x.lines, reverse=reverse)

    found = computed(model, LINES, TEXT)[0].tolist()
    assert found == [[65321.0 if reverse else 12356.0]]


def test_a_scan_gives_a_value_for_each_item_of_the_sequences_inside() -> None:
    """Where it comes from Integers alone, and where two sequences are beside one another."""

    def model(x: Any) -> Any:
        marks = fe.scan(lambda h, line: (h, fe.number(line.marks)), fe.constant(1), x.lines)[1]

        def crossed(h: Any, line: Any) -> Any:
            return h, fe.ungroup(fe.number(line.marks)) * fe.ungroup(fe.number(line.words.position))

        pairs = fe.scan(crossed, fe.constant(1), x.lines)[1]
        total = pairs + fe.number(x.lines.marks)  # not crossed with the marks again
        for over in (x.lines.words, x.lines.marks, x.lines):
            total = fe.reduce(total, over=over)
        return fe.concat(total, fe.reduce(fe.reduce(marks, over=x.lines.marks), over=x.lines))

    # line 1: words 0 and 1 with the mark 4; line 2: word 0 with the marks 7 and 8
    expected = (0 + 4) + (4 + 4) + (0 + 7) + (0 + 8)
    assert computed(model, LINES, TEXT)[0].tolist() == [[expected, 19.0]]


def test_an_integer_is_not_picked_from_the_next_sequence() -> None:
    def model(x: Any) -> Any:
        return fe.reduce(fe.number(fe.pick(x.lines.marks.item, 1, over=x.lines.marks)), over=x.lines)

    both = {"lines": [{**line, "marks": [1, 2]} for line in TEXT["lines"]]}
    assert computed(model, LINES, both)[0].tolist() == [[4.0]]
    with pytest.raises(AmphwError, match="outside the table"):
        computed(model, LINES, TEXT)


def test_a_branch_gets_all_children_where_one_decision_is_about_all() -> None:
    def model(x: Any) -> Any:
        def branch(xs: Any) -> Any:
            return fe.reduce(xs, "max") * 100.0 + fe.reduce(xs)

        return fe.cond(fe.reduce(x.xs) - x.y, branch, lambda xs: fe.reduce(xs), x.xs.item)

    assert value(model) == [203.0]
    assert value(model, y=[4.0]) == [3.0]


def test_a_scan_does_not_give_all_positions_for_each() -> None:
    with pytest.raises(fe.FrontendError, match="depends on all of them; reduce it to one value"):
        value(lambda x: fe.scan(lambda h, i: (h + i, x.xs.item + i), x.y, x.xs)[1])


# --- indices that do not exist --------------------------------------------------------------------------

OUT_OF_RANGE: dict[str, Any] = {
    "branches of constants": lambda x: fe.switch(x.n + 0, [lambda: fe.constant(1)] * 2),
    "branches of values": lambda x: fe.switch(x.n + 0, [lambda v: v, lambda v: v * 2.0], x.y) + x.y,
    "a position of messages": lambda x: fe.pick(fe.ungroup(x.xs.item), x.n),
    "a position of rows": lambda x: fe.pick(x.xs.item, x.n),
    "a position of messages that are there": lambda x: fe.pick(fe.number(x.ts.item) * x.y, x.n),
    "a turn beyond the bound": lambda x: fe.fold(lambda h: h + x.y, x.y, length=x.n, most=2),
}


@pytest.mark.parametrize("what", OUT_OF_RANGE)
def test_an_index_that_does_not_exist_is_refused(what: str) -> None:
    assert value(OUT_OF_RANGE[what], n=1)
    for n in (3, 8):
        with pytest.raises(AmphwError, match="instance 0|outside"):
            value(OUT_OF_RANGE[what], n=n)


def test_nothing_is_picked_of_none() -> None:
    with pytest.raises(AmphwError, match="outside"):
        value(lambda x: fe.pick(fe.ungroup(x.xs.item), 0), xs=[])
