"""State expressions against a naive interpreter that takes one state at a time."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amphw.ir import expr
from amphw.ir.errors import GraphError, StateError
from amphw.ir.expr import (
    Attr,
    Const,
    Expr,
    Field,
    Op,
    Table,
    both,
    either,
    evaluate,
    fields_of,
    from_json,
    lift,
    maximum,
    minimum,
    mixed,
    substitute,
    table,
    tables_of,
    to_json,
    where,
)
from amphw.ir.instance import Instance
from amphw.ir.state import Columns

FIELDS = ("a", "b")
TABLE = np.array([5, -3, 0, 7, 2])
INSTANCE = Instance({"length": 6}, {"T": TABLE}, number=11)

small = st.integers(-6, 6)
leaves = st.one_of(
    small.map(Const), st.sampled_from(FIELDS).map(Field), st.sampled_from(("length", "instance")).map(Attr)
)


def _grow(children: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    binary = st.sampled_from(sorted({*expr._NUMPY, "//", "%"}))
    # Read within the table: an index outside it is another test's business.
    inside = children.map(lambda e: Table("T", (e % len(TABLE),)))
    return st.one_of(
        st.builds(lambda op, x, y: Op(op, (x, y)), binary, children, children),
        st.builds(where, children, children, children),
        inside,
    )


expressions = st.recursive(leaves, _grow, max_leaves=12)


class DividedByZero(Exception):
    pass


def naive(e: Expr, state: dict[str, int]) -> int:
    if isinstance(e, Const):
        return e.value
    if isinstance(e, Field):
        return state[e.name]
    if isinstance(e, Attr):
        return INSTANCE.number if e.name == "instance" else INSTANCE.attrs[e.name]
    if isinstance(e, Table):
        return int(TABLE[naive(e.index[0], state)])
    assert isinstance(e, Op)
    if e.op == "where":
        return naive(e.args[1] if naive(e.args[0], state) else e.args[2], state)
    x, y = (naive(a, state) for a in e.args)
    if e.op in {"//", "%"} and y == 0:
        raise DividedByZero
    if e.op == "hash":
        return murmur(x, y)
    return int(
        {
            "+": lambda: x + y,
            "-": lambda: x - y,
            "*": lambda: x * y,
            "//": lambda: x // y,
            "%": lambda: x % y,
            "<": lambda: x < y,
            "<=": lambda: x <= y,
            "==": lambda: x == y,
            "!=": lambda: x != y,
            "min": lambda: min(x, y),
            "max": lambda: max(x, y),
        }[e.op]()
    )


def murmur(x: int, seed: int) -> int:
    mask = 0xFFFFFFFF
    h = (x + seed * 0x9E3779B9) & mask
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & mask
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & mask
    return h ^ (h >> 16)


def columns(states: list[dict[str, int]]) -> Columns:
    return Columns(
        INSTANCE, {n: np.array([s[n] for s in states], dtype=np.int64) for n in FIELDS}, len(states)
    )


states = st.lists(st.fixed_dictionaries(dict.fromkeys(FIELDS, small)), max_size=6)


@given(expressions, states)
def test_evaluates_as_one_state_at_a_time_would(e: Expr, given_states: list[dict[str, int]]) -> None:
    try:
        wanted = [naive(e, s) for s in given_states]
    except DividedByZero:
        with pytest.raises(StateError, match="divides by zero; guard it with where"):
            evaluate(e, columns(given_states))
        return
    if any(abs(w) >= 2**40 for w in wanted):
        return  # products of hashes leave 64 bits
    got = None
    try:
        got = evaluate(e, columns(given_states))
    except RuntimeWarning:
        return  # an intermediate product of hashes left 64 bits
    except StateError:
        # A constant division is evaluated for no state at all, where the interpreter never comes.
        assert not given_states
        return
    assert got.dtype == np.int64 and got.tolist() == wanted


@given(expressions)
def test_json_round_trip(e: Expr) -> None:
    assert from_json(to_json(e)) == e


@given(expressions, states)
def test_substitution_commutes_with_evaluation(e: Expr, given_states: list[dict[str, int]]) -> None:
    swapped = substitute(e, {"a": Field("b"), "b": Field("a")})
    mirrored = [{"a": s["b"], "b": s["a"]} for s in given_states]
    for one, other in zip(given_states, mirrored, strict=True):
        try:
            wanted = naive(e, other)
        except DividedByZero:
            continue
        assert naive(swapped, one) == wanted


def test_only_the_chosen_branch_reads_its_table() -> None:
    env = columns([{"a": -1, "b": 0}, {"a": 3, "b": 0}])
    a = Field("a")
    assert evaluate(where(lift(0) <= a, table("T")(a), -7), env).tolist() == [-7, 7]
    with pytest.raises(StateError, match=r"^instance 11: T\[-1\] is outside the table's shape \(5,\)$"):
        evaluate(table("T")(a), env)


def test_no_states_at_all() -> None:
    env = columns([])
    assert evaluate(where(Field("a") < 2, table("T")(Field("a")), 4), env).tolist() == []


def test_no_state_divides_by_a_constant_zero() -> None:
    env = columns([])
    for e in (Field("a") // 0, Field("a") % 0, Attr("length") // 0):
        assert evaluate(e, env).tolist() == []


def test_conditions() -> None:
    rows = [{"a": x, "b": y} for x in (0, 2) for y in (0, 3)]
    a, b = Field("a"), Field("b")
    truth = [(bool(r["a"]), bool(r["b"])) for r in rows]
    for name, e, wanted in (
        ("both", both(a, b), [x and y for x, y in truth]),
        ("either", either(a, b), [x or y for x, y in truth]),
        ("both of conditions", both(a.eq(2), b.eq(3)), [r["a"] == 2 and r["b"] == 3 for r in rows]),
    ):
        assert evaluate(e, columns(rows)).tolist() == [int(w) for w in wanted], name


def test_hash_wraps_for_negative_values_and_large_seeds() -> None:
    env = columns([{"a": -1, "b": 2**40 + 3}])
    for a, seed in ((-1, 7), (2**40 + 3, -5), (3, 2**50)):
        e = mixed(Const(a), seed)
        assert evaluate(e, env).tolist() == [murmur(a, seed)]


def test_min_max_and_reflected_operators() -> None:
    a = Field("a")
    env = columns([{"a": 4, "b": 0}])
    for e, wanted in ((1 + a, 5), (10 - a, 6), (3 * a, 12), (minimum(a, 2), 2), (maximum(2, a), 4)):
        assert evaluate(e, env).tolist() == [wanted]


def test_names_that_an_expression_reads() -> None:
    e = where(Field("a").eq(Attr("length")), table("T")(Field("b")), 0)
    assert (fields_of(e), expr.attrs_of(e), tables_of(e)) == ({"a", "b"}, {"length"}, {"T"})


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (Field("t") + 1, "t + 1"),
        (Field("a") - (Field("b") - 1), "a - (b - 1)"),
        ((Field("a") - Field("b")) - 1, "a - b - 1"),
        (Field("a") * (Field("b") + 1), "a * (b + 1)"),
        ((Field("a") + 1).eq(Attr("length")), "a + 1 == length"),
        (where(Field("a") < 2, table("T")(Field("a")), 0), "where(a < 2, T[a], 0)"),
    ],
)
def test_printing(e: Expr, text: str) -> None:
    assert str(e) == text


def test_no_truth_value() -> None:
    with pytest.raises(GraphError) as caught:
        bool(Field("t").eq(3))
    assert str(caught.value) == (
        "the expression 't == 3' has no truth value while the graph is built; use where() or a Cond"
    )


def test_lift_refuses_anything_else() -> None:
    with pytest.raises(GraphError, match=r"^expected a state expression or an integer, got 1.5$"):
        Field("t") + 1.5  # type: ignore[operator]


@pytest.mark.parametrize(
    "data", [None, True, 1.5, [], ["+", 1], ["where", 1, 2], ["field"], ["nope", 1, 2], [3]]
)
def test_damaged_json(data: object) -> None:
    with pytest.raises(GraphError) as caught:
        from_json(data)
    assert str(caught.value) == f"not a state expression: {data!r}"


def test_missing_field_names_what_there_is() -> None:
    with pytest.raises(GraphError) as caught:
        evaluate(Field("c"), columns([{"a": 1, "b": 2}]))
    assert str(caught.value) == "field 'c': the state holds ['a', 'b'], not this"


def test_the_docstring() -> None:
    assert doctest.testmod(expr).failed == 0
