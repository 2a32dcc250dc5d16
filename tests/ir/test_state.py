"""Key spaces: addresses are the enumeration order, ragged fields waste nothing, layouts pack and unpack."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amphw.ir.errors import GraphError, StateError
from amphw.ir.expr import Attr, Expr, Field, lift, table
from amphw.ir.instance import Instance
from amphw.ir.state import (
    OUT_OF_DOMAIN,
    BitLayout,
    Columns,
    FieldType,
    KeySpace,
    StateType,
    state_field,
    structure_of,
)

WORDS = state_field("w", Attr("words"), 9)
CHARS = state_field("c", table("len")(Field("w")), 9)
RAGGED = StateType((WORDS, CHARS))


def words(lengths: list[int]) -> Instance:
    return Instance({"words": len(lengths)}, {"len": np.array(lengths, dtype=np.int64)}, number=4)


lengths = st.lists(st.integers(0, 5), max_size=6)


@given(lengths, st.integers(0, 3))
def test_addresses_are_the_enumeration_order(given_lengths: list[int], last: int) -> None:
    state = RAGGED.add(state_field("k", last, 3) if last else FieldType("k", lift(0), 3))
    space = KeySpace(state, words(given_lengths))
    naive = [(w, c, k) for w, n in enumerate(given_lengths) for c in range(n) for k in range(last)]
    assert space.size == len(naive)
    assert list(zip(*(space.columns[f].tolist() for f in state.names), strict=True)) == naive
    assert space.address(space.columns, space.size).tolist() == list(range(space.size))


@given(lengths, st.lists(st.tuples(st.integers(-2, 8), st.integers(-2, 8)), min_size=1, max_size=8))
def test_addresses_outside_the_domain(given_lengths: list[int], asked: list[tuple[int, int]]) -> None:
    instance = words(given_lengths)
    space = KeySpace(RAGGED, instance)
    exists = [(w, c) for w, n in enumerate(given_lengths) for c in range(n)]
    wanted = [exists.index(s) if s in exists else OUT_OF_DOMAIN for s in asked]
    columns = {"w": np.array([w for w, _ in asked]), "c": np.array([c for _, c in asked])}
    assert space.address(columns, len(asked), strict=False).tolist() == wanted
    if OUT_OF_DOMAIN in wanted and len(given_lengths):
        with pytest.raises(StateError, match=r"^instance 4: state \{'w': "):
            space.address(columns, len(asked))


def test_ragged_fields_go_through_prefix_sums() -> None:
    space = KeySpace(RAGGED, words([2, 0, 3]))
    assert space.size == 5
    assert space.address({"w": np.array([2]), "c": np.array([1])}, 1).tolist() == [3]


def test_a_state_without_fields_has_one_address() -> None:
    space = KeySpace(StateType(), words([]))
    assert space.size == 1 and space.address({}, 3).tolist() == [0, 0, 0]


def test_the_error_names_state_field_and_extent() -> None:
    space = KeySpace(RAGGED, words([2, 3]))
    with pytest.raises(StateError) as caught:
        space.address({"w": np.array([1, 0]), "c": np.array([2, 2])}, 2)
    assert str(caught.value) == (
        "instance 4: state {'w': 0, 'c': 2}: field 'c' = 2 is outside 0..1 (extent len[w])"
    )


@pytest.mark.parametrize("bad", [10, -1])
def test_an_extent_beyond_its_bound(bad: int) -> None:
    with pytest.raises(StateError) as caught:
        KeySpace(RAGGED, words([1, bad]))
    assert str(caught.value) == (
        f"instance 4: field 'c' has extent len[w] = {bad}, outside 0..9; raise its bound or mend the instance"
    )


def test_an_environment_may_be_narrowed() -> None:
    env = KeySpace(RAGGED, words([2, 0, 3])).env()
    narrowed = env.subset(np.array([0, 4]))
    assert narrowed.size == 2 and narrowed.field("c").tolist() == [0, 2]
    assert narrowed.attr("words") == 3 and narrowed.attr("instance") == 4


bounds = st.lists(st.integers(1, 2**20), min_size=1, max_size=6)


@given(bounds, st.data())
def test_bit_layout_round_trip(given_bounds: list[int], data: st.DataObject) -> None:
    state = StateType(tuple(state_field(f"f{i}", bound) for i, bound in enumerate(given_bounds)))
    layout = BitLayout.of(state)
    assert layout.width == sum(f.bits for f in state.fields)
    rows = data.draw(st.lists(st.tuples(*(st.integers(0, b - 1) for b in given_bounds)), max_size=4))
    columns = {f"f{i}": np.array([r[i] for r in rows], dtype=np.int64) for i in range(len(given_bounds))}
    packed = layout.pack(columns)
    assert len(set(packed)) == len(set(rows)) and all(0 <= word < 1 << layout.width for word in packed)
    unpacked = layout.unpack(packed)
    assert {k: v.tolist() for k, v in unpacked.items()} == {k: v.tolist() for k, v in columns.items()}


def test_layouts_wider_than_a_machine_word() -> None:
    layout = BitLayout.of(StateType(tuple(state_field(f"f{i}", 2**30) for i in range(4))))
    assert layout.width == 120
    columns = {f"f{i}": np.array([2**30 - 1 - i]) for i in range(4)}
    (word,) = layout.pack(columns)
    assert word > 2**64
    assert {k: int(v[0]) for k, v in layout.unpack([word]).items()} == {
        f"f{i}": 2**30 - 1 - i for i in range(4)
    }


def test_the_first_field_is_in_the_low_bits() -> None:
    layout = BitLayout.of(StateType((state_field("a", 5), state_field("b", 2))))
    assert layout.fields == (("a", 0, 3), ("b", 3, 1))
    assert layout.pack({"a": np.array([4]), "b": np.array([1])}) == [0b1100]


def test_a_value_that_does_not_fit_its_bits() -> None:
    with pytest.raises(StateError, match=r"^field 'a' = 8 does not fit 3 bits$"):
        BitLayout.of(StateType((state_field("a", 8),))).pack({"a": np.array([8])})


def test_adding_and_dropping_fields() -> None:
    assert RAGGED.drop(["c"]).names == ("w",)
    assert RAGGED.add(state_field("k", 2)).names == ("w", "c", "k")
    assert RAGGED.bound == 81 and str(RAGGED) == "(w<words, c<len[w])"


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: state_field("t", Attr("n")),
            "field 't': the extent 'n' is not a constant: declare a static bound",
        ),
        (lambda: state_field("t", Attr("n"), 0), "field 't': the bound must be at least 1, got 0"),
        (lambda: state_field("t", 0), "field 't': the bound must be at least 1, got 0"),
        (
            lambda: StateType((WORDS, WORDS)),
            "field 'w': the field occurs twice in one state; rename the inner one",
        ),
        (
            lambda: StateType((CHARS, WORDS)),
            "field 'c': its extent 'len[w]' reads ['w'], which the state does not hold before it",
        ),
        (
            lambda: RAGGED.drop(["w"]),
            "field 'c': its extent 'len[w]' reads ['w'], which the state does not hold before it",
        ),
        (lambda: RAGGED.get("k"), "field 'k': the state (w<words, c<len[w]) has no such field"),
        (lambda: RAGGED.drop(["k"]), "field 'k': the state (w<words, c<len[w]) has no such field"),
    ],
)
def test_errors(build: object, text: str) -> None:
    with pytest.raises(GraphError) as caught:
        build()  # type: ignore[operator]
    assert str(caught.value) == text


def test_structure_that_expressions_read() -> None:
    read: list[Expr] = [Attr("n") + table("a")(Field("t")), table("b")(Attr("m"))]
    assert structure_of(read) == ({Attr("n"), Attr("m")}, {"a", "b"})
    assert structure_of([(Attr("n") % 2).eq(Field("t"))]) == ({Attr("n") % 2}, set())


def test_columns_read_the_instance() -> None:
    env = Columns(words([7]), {"w": np.array([0, 5])}, 2, strict=False)
    assert env.table("len", (env.field("w"),)).tolist() == [7, 0]
