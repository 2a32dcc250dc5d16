"""Simplification keeps the value; proofs go through exactly where the axioms carry them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amphw.ir.algebra import equal, inverse_holds, match, simplify
from amphw.ir.expr import Attr, Const, Expr, Field, Op, Table, evaluate, substitute, table, where
from amphw.ir.instance import Instance, csr_of, inverse_of, permutation
from amphw.ir.state import Columns, state_field

a, b, n, v, j, e = map(Field, ("a", "b", "n", "v", "j", "e"))
length = Attr("length")

leaves = st.one_of(st.integers(-5, 5).map(Const), st.sampled_from((a, b)), st.just(length))


def _grow(children: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    ops = st.sampled_from(("+", "-", "+", "-", "*", "<", "<=", "==", "!=", "min", "max"))
    by_constant = st.sampled_from(("//", "%"))
    constants = st.integers(-4, 4).filter(bool).map(Const)
    return st.one_of(
        st.builds(lambda op, x, y: Op(op, (x, y)), ops, children, children),
        st.builds(lambda op, x, y: Op(op, (x, y)), by_constant, children, constants),
        st.builds(where, children, children, children),
        children.map(lambda x: Table("T", (x % 4,))),
    )


expressions = st.recursive(leaves, _grow, max_leaves=10)


def value(x: Expr, state: dict[str, int]) -> int:
    instance = Instance({"length": 6}, {"T": np.array([3, 0, 2, 1])})
    return int(evaluate(x, Columns(instance, {k: np.array([s]) for k, s in state.items()}, 1))[0])


@given(expressions, st.integers(-9, 9), st.integers(-9, 9))
def test_simplify_keeps_the_value(x: Expr, at_a: int, at_b: int) -> None:
    state = {"a": at_a, "b": at_b}
    assert value(simplify(x), state) == value(x, state)


@given(expressions)
def test_simplify_is_idempotent(x: Expr) -> None:
    once = simplify(x)
    assert simplify(once) == once


@given(expressions, expressions)
def test_equal_is_sound(x: Expr, y: Expr) -> None:
    if equal(x, y):
        for state in ({"a": 0, "b": 1}, {"a": -3, "b": 5}, {"a": 4, "b": 4}):
            assert value(x, state) == value(y, state)


@pytest.mark.parametrize(
    ("x", "text"),
    [
        ((a + 1) - 1, "a"),
        (a + b - a, "b"),
        (2 * a - a, "a"),
        (length - 1 + 1, "length"),
        ((a + 1).eq(1 + a), "1"),
        (a < a, "0"),
        (where(Const(1), a, b), "a"),
        (where(a.eq(2), b, b), "b"),
        (a // 1, "a"),
        (a % 1, "0"),
        (Const(7) // 2, "3"),
        (Op("min", (a, a)), "a"),
        (-1 * a, "a * -1"),
        (3 - a - b, "a * -1 - b + 3"),
    ],
)
def test_normal_forms(x: Expr, text: str) -> None:
    assert str(simplify(x)) == text


N = state_field("n", 8)
PARENT = inverse_of("child", ("parent", "side"), N)
CSR = csr_of("off", "src", state_field("v", 8), state_field("j", 8))
PERMUTATION = permutation("order", "place", N)
parent, side, child = table("parent"), table("side"), table("child")
off, src, order, place = table("off"), table("src"), table("order"), table("place")


WITHIN = {"n": Const(8), "v": Const(8), "j": Const(8), "a": Const(8), "b": Const(8)}
"""Extents of the fields that the axioms are applied to."""


def test_axioms_rewrite_every_instance_of_their_left_side() -> None:
    assert simplify(child(parent(a), side(a)), [PARENT.rule({})], WITHIN) == a
    assert simplify(child(parent(a), side(b)), [PARENT.rule({})], WITHIN) == child(parent(a), side(b))
    assert simplify(place(order(place(order(a)))), [PERMUTATION.rule({})], WITHIN) == a
    # The other way is not stated.
    assert simplify(order(place(a)), [PERMUTATION.rule({})], WITHIN) == order(place(a))


def test_csr_matches_a_sum_in_any_order() -> None:
    rule = CSR.rule({})
    for x in (off(a) + b, b + off(a), b + 1 + off(a) - 1, off(a), off(a) + 7):
        assert simplify(src(x), [rule], WITHIN) == a, str(x)
    assert simplify(src(b + 3), [rule], WITHIN) == src(b + 3)


@pytest.mark.parametrize(
    "x", [off(a) + b + 1, off(a) + 2 * b, off(a) - 1, off(a) + 8, off(a) + Field("unknown"), off(a + 1) + b]
)
def test_an_axiom_says_nothing_beyond_its_extents(x: Expr) -> None:
    read = simplify(src(x))
    assert simplify(read, [CSR.rule({})], WITHIN) == read


def test_extents_are_compared_for_the_states_at_hand() -> None:
    """The extent of j reads v: of `off[a] + b` it is a's own that counts."""
    degree = off(v + 1) - off(v)
    rule = csr_of("off", "src", state_field("v", length, 8), state_field("j", degree, 8)).rule({})
    x = simplify(src(off(a) + b))
    assert simplify(x, [rule], {"a": length, "b": off(a + 1) - off(a)}) == a
    assert simplify(x, [rule], {"a": length - 1, "b": off(1 + a) - off(a) - 1}) == a
    assert simplify(x, [rule], {"a": length, "b": off(v + 1) - off(v)}) == x
    assert simplify(x, [rule], {"a": length + 1, "b": off(a + 1) - off(a)}) == x
    assert simplify(x, [rule]) == x


def test_a_variable_binds_once() -> None:
    both = frozenset({"x"})
    x = Field("x")
    assert match(child(x, x), child(a, b), both) is None
    assert match(child(x, x), child(a + 1, 1 + a), both) == {"x": a + 1}
    # The lone variable and the table agree, or there is no match.
    assert match(x + table("T")(x), 7 + table("T")(Const(5)), both) is None
    assert match(x + table("T")(x), 5 + table("T")(Const(5)), both) == {"x": Const(5)}


def test_a_variable_named_like_a_field_is_bound_to_it() -> None:
    variables = frozenset({"v", "j"})
    pattern = table("T")(off(v) + j, v)
    assert match(pattern, table("T")(off(v) + j, v), variables) == {"v": v, "j": j}
    assert match(pattern, table("T")(off(v) + j, a), variables) is None


def test_a_variable_may_be_bound_to_a_sum_that_is_apart_where_it_occurs_again() -> None:
    variables = frozenset({"v", "j"})
    t = table("T")
    pattern = simplify(t(off(v) + t(off(v) + j)))
    at = length - 1 - a
    for counted in (b, length - 1 - b):
        found = simplify(t(off(at) + t(off(at) + counted)))
        binding = match(pattern, found, variables)
        assert binding is not None and equal(binding["v"], at) and equal(binding["j"], counted)
    assert match(pattern, simplify(t(off(at) + t(off(a) + b))), variables) is None
    assert match(pattern, simplify(t(off(at) + t(off(at) + b) + 1)), variables) is None


def _sums(children: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    sums = st.builds(lambda op, x, y: Op(op, (x, y)), st.sampled_from("+-"), children, children)
    return st.one_of(sums, children.map(lambda x: Table("T", (x % 4,))))


variables = st.sampled_from((Field("x"), Field("y")))
patterns = st.recursive(st.one_of(variables, leaves), _sums, max_leaves=6)


@given(
    patterns, st.recursive(leaves, _sums, max_leaves=3), st.recursive(leaves, _sums, max_leaves=3), st.data()
)
def test_a_match_makes_the_pattern_equal(pattern: Expr, x: Expr, y: Expr, data: st.DataObject) -> None:
    """Of an instance of the pattern, which is in normal form, and of any other expression."""
    instance = simplify(substitute(pattern, {"x": x, "y": y}))
    for e in (instance, data.draw(expressions)):
        binding = match(simplify(pattern), e, frozenset({"x", "y"}))
        if binding is not None:
            for at_a, at_b in ((0, 1), (5, -3), (2, 2)):
                state = {"a": at_a, "b": at_b, "x": 0, "y": 0}
                assert value(substitute(simplify(pattern), binding), state) == value(e, state)


def test_a_position_counted_from_the_end_is_within_the_extent() -> None:
    at = table("T")(length - 1 - a)
    rule = permutation("T", "U", state_field("n", length, 8)).rule({})
    assert equal(table("U")(at), length - 1 - a, [rule], {"a": length})
    assert not equal(table("U")(at), length - 1 - a, [rule], {"a": length + 1})
    assert not equal(table("U")(at), length - 1 - a, [rule], {"b": length})


def test_inverses_that_hold() -> None:
    up = {"n": parent(n), "side": side(n)}
    assert inverse_holds(up, {"n": child(n, Field("side"))}, [PARENT.rule({})], extents=WITHIN) is None
    out = {"e": off(v) + j}
    assert inverse_holds(out, {"v": src(e), "j": e - off(src(e))}, [CSR.rule({})], extents=WITHIN) is None
    assert inverse_holds({"n": order(n)}, {"n": place(n)}, [PERMUTATION.rule({})], extents=WITHIN) is None
    assert inverse_holds({"a": a + 3, "b": b - a}, {"a": a - 3, "b": b + a - 3}) is None


def test_inverses_that_fail_name_the_field() -> None:
    up = {"n": parent(n), "side": side(n)}
    assert inverse_holds(up, {"n": child(n, Field("side"))}, []) == "n"
    assert inverse_holds({"n": place(n)}, {"n": order(n)}, [PERMUTATION.rule({})], extents=WITHIN) == "n"
    assert inverse_holds({"a": a + 3}, {"a": a - 2}) == "a"
    assert inverse_holds({"a": a * 2}, {"a": a // 2}) == "a"  # true, but beyond the closed theory


def test_facts_recover_what_was_dropped() -> None:
    assert inverse_holds({}, {"a": length - 1}) == "a"
    assert inverse_holds({}, {"a": length - 1}, facts={"a": length - 1}) is None
    assert inverse_holds({}, {"a": length}, facts={"a": length - 1}) == "a"
