"""Specifications: what cannot be declared, names that collide, and that they stay as they were written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from amphw import frontend as fe
from tests.frontend.running import computed, declared


@pytest.mark.parametrize(
    "declare,message",
    [
        (lambda: fe.Int(2.5), r"Int\(high\) is an integer, got 2.5"),
        (lambda: fe.Int(2**31 + 1), "hold integers of up to 2147483647"),
        (lambda: fe.Floats("3"), r"Floats\(width\) is an integer, got '3'"),
        (lambda: fe.Sequence(int, most=2), "the item of a sequence is <class 'int'>, expected Int"),
        (lambda: fe.Sequence(fe.Int(2), most=2.5), "`most` is an integer, got 2.5"),
        (lambda: fe.Along(fe.Axis("n", 3), 3), "the item of a sequence is 3"),
        (lambda: fe.Along("n", fe.Int(3)), "along an Axis, got 'n'"),
        (lambda: fe.Axis("n", 0), "n has from 1 to 0 items"),
        (lambda: fe.Axis("instance", 3), "a name of its own"),
        (lambda: fe.Axis("", 3), "a name of its own"),
        (lambda: fe.Record(_x=fe.Int(3)), "'_x' is not the name of one"),
        (lambda: fe.Record(**{"a b": fe.Int(3)}), "'a b' is not the name of one"),
        (lambda: fe.Sequence(fe.Record(length=fe.Int(3)), most=2), r"\['length'\] of a sequence's items"),
        (lambda: fe.Along(fe.Axis("n", 3), fe.Record(position=fe.Int(3))), r"\['position'\] of a sequence's"),
    ],
)
def test_what_cannot_be_declared_is_refused(declare: Callable[[], Any], message: str) -> None:
    with pytest.raises(fe.FrontendError, match=message) as refused:
        declare()
    assert refused.value.place.file == __file__


def test_every_attribute_of_a_sequence_is_reserved() -> None:
    seen: list[Any] = []
    fe.compile(
        lambda x: (seen.append(x.xs), fe.loss(fe.Linear(1)(fe.constant(1)))),  # type: ignore[arg-type]
        fe.Record(xs=fe.Sequence(fe.Int(3), most=2)),
    )
    (value,) = seen
    assert {k for k in [*vars(value), *vars(type(value))] if k[0].islower()} == type(value).OWN


AXIS = fe.Axis("n", 3)
COLLIDE: dict[str, tuple[fe.Spec, str]] = {
    "records": (
        fe.Record(a=fe.Record(b=fe.Floats(1)), a_b=fe.Floats(1)),
        "'a_b' would be stored as 'a_b', as is 'a.b'",
    ),
    "integers": (fe.Record(a_b=fe.Int(3), a=fe.Record(b=fe.Int(3))), "'a.b' would be .*, as is 'a_b'"),
    "a graph": (
        fe.Record(g=fe.Graph(most_nodes=3, most_edges=3), g_degree=fe.Int(3)),
        "'g_degree' would be .*, as is 'g.degree'",
    ),
    "within a graph": (
        fe.Graph({"in": fe.Record(first=fe.Int(3))}, most_nodes=3, most_edges=3),
        "'in.first' would be stored as 'in_first', as is 'in_first'",
    ),
    "a tree": (
        fe.Record(t=fe.Tree(most=3), t_parent=fe.Int(3)),
        "'t_parent' would be .*, as is 't.parent'",
    ),
    "lengths": (
        fe.Record(a=fe.Sequence(fe.Sequence(fe.Int(3), most=2), most=2), a_length=fe.Int(3)),
        "'a_length' would be .*, as is 'a.length'",
    ),
    "a part beside lengths": (
        fe.Record(a=fe.Sequence(fe.Sequence(fe.Record(first=fe.Int(3)), most=2), most=2)),
        "'a.first' would be stored as 'a_first', as is a table of the sequence",
    ),
    "an axis": (
        fe.Record(a=fe.Sequence(fe.Int(3), most=2), b=fe.Along(fe.Axis("a_length", 3), fe.Int(3))),
        "'a_length' would be .*, as is 'a.length'",
    ),
    "two axes": (
        fe.Record(a=fe.Along(fe.Axis("n", 3), fe.Int(3)), b=fe.Along(fe.Axis("n", 3), fe.Int(3))),
        "two axes are called 'n'",
    ),
    "an axis within itself": (
        fe.Record(m=fe.Along(AXIS, fe.Along(AXIS, fe.Int(9)))),
        "the axis 'n' is used within itself",
    ),
    "an axis further within itself": (
        fe.Record(m=fe.Along(AXIS, fe.Sequence(fe.Record(x=fe.Along(AXIS, fe.Int(9))), most=2))),
        "the axis 'n' is used within itself",
    ),
}


@pytest.mark.parametrize("name", COLLIDE)
def test_names_that_collide_are_refused_with_their_line(name: str) -> None:
    spec, message = COLLIDE[name]
    with pytest.raises(fe.FrontendError, match=message) as refused:
        declared(spec)
    # The line of the specification, which stands above, and not that of the model.
    assert refused.value.place.file == __file__
    assert refused.value.place.function == "<module>"


def test_kinds_of_tables_have_names_of_their_own() -> None:
    found = declared(fe.Record(a=fe.Record(b=fe.Floats(1)), a_b=fe.Int(9))).encode(
        {"a": {"b": 3.0}, "a_b": 5}
    )
    assert found.data["a_b"].item() == 3 and found.tables["a_b"].item() == 5


def total(x: Any) -> Any:
    """The sum of a sequence of integers, within others or not."""
    return fe.fold(lambda h, i: h + fe.number(i), fe.constant(1), x)


def test_a_specification_may_be_used_several_times() -> None:
    tokens = fe.Sequence(fe.Int(5), most=4)

    def model(x: Any) -> Any:
        return fe.concat(total(x.a), total(x.b), fe.reduce(fe.reduce(fe.number(x.c.item))))

    spec = fe.Record(a=tokens, b=tokens, c=fe.Sequence(tokens, most=3))
    y, _ = computed(model, spec, {"a": [1, 2, 3], "b": [4], "c": [[1, 2], [3, 3, 1]]})
    assert y.tolist() == [[6, 4, 10]]


def test_a_specification_may_be_compiled_several_times() -> None:
    tokens = fe.Sequence(fe.Int(5), most=4)
    first = declared(fe.Record(a=tokens))
    before = first.encode({"a": [1, 2]})
    second = declared(fe.Record(b=tokens))
    assert first.encode({"a": [1, 2]}).attrs == before.attrs == {"a_length": 2}
    assert second.encode({"b": [1, 2]}).attrs == {"b_length": 2}


def test_an_axis_may_be_shared_by_models() -> None:
    axis = fe.Axis("n", 3)
    first = declared(fe.Record(a=fe.Along(axis, fe.Int(3))))
    declared(fe.Record(b=fe.Along(axis, fe.Int(3)), c=fe.Along(axis, fe.Int(3))))
    assert first.encode({"a": [1, 2]}).attrs == {"n": 2}


def test_every_level_of_sequences_has_lengths_of_its_own() -> None:
    def of(depth: int) -> fe.Spec:
        return fe.Sequence(of(depth - 1), most=3) if depth else fe.Int(9)

    def model(x: Any) -> Any:
        every = x.a.item.item
        lengths = [fe.reduce(fe.number(x.a.item.length)), fe.reduce(fe.reduce(fe.number(every.length)))]
        return fe.concat(*lengths, fe.reduce(fe.reduce(fe.reduce(fe.number(every.item)))))

    y, _ = computed(model, fe.Record(a=of(3)), {"a": [[[1, 2], [3]], [[4]]]})
    assert y.tolist() == [[3, 4, 10]]
    found = declared(fe.Record(a=of(4))).encode({"a": [[[[1, 2], [3]], [[4]]], [[[5]]]]})
    assert {k: t.tolist() for k, t in found.tables.items()} == {
        "a_length": [2, 1],
        "a_first": [0, 2],
        "a_item_length": [2, 1, 1],
        "a_item_first": [0, 2, 3],
        "a_item_item_length": [2, 1, 1, 1],
        "a_item_item_first": [0, 2, 3, 4],
        "a_item_item": [1, 2, 3, 4, 5],
    }
    assert found.attrs == {"a_length": 2, "a_total": 3, "a_item_total": 4, "a_item_item_total": 5}


def test_a_number_over_items() -> None:
    y, _ = computed(
        lambda x: fe.reduce(1.0 + x.xs) + fe.reduce(2.0 * x.xs),
        fe.Record(xs=fe.Sequence(fe.Floats(1), most=3)),
        {"xs": [1.0, 2.0]},
    )
    assert y.item() == 11


def test_an_instance_may_be_numbers_alone() -> None:
    compiled = fe.compile(lambda x: fe.loss(fe.sum_columns(fe.Linear(2, name="any")(x))), fe.Floats(3))
    assert compiled.gradients([1, 2, 3])["any"]["W"].tolist() == [[1, 1], [2, 2], [3, 3]]
