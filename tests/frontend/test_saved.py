"""A compiled model as JSON, and what instances may leave out."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.frontend.saved import compiled_from_json, compiled_to_json
from amphw.ir.errors import InstanceError
from amphw.ir.serialise import fingerprint

STEPS = fe.Axis("steps", most=5)
SPECS: dict[str, tuple[fe.Spec, Any]] = {
    "record": (fe.Record(a=fe.Int(7), b=fe.Floats(2)), {"a": 3, "b": [0.5, 1.0]}),
    "ragged": (
        fe.Record(s=fe.Sequence(fe.Record(w=fe.Sequence(fe.Int(9), most=4, least=0)), most=3)),
        {"s": [{"w": [1, 2]}, {"w": []}]},
    ),
    "axis": (
        fe.Record(x=fe.Along(STEPS, fe.Floats(2)), y=fe.Along(STEPS, fe.Int(3))),
        {"x": [[1, 2], [3, 4]], "y": [0, 2]},
    ),
    "tree": (
        fe.Record(t=fe.Tree({"word": fe.Int(5)}, {"label": fe.Int(2)}, most=4)),
        {"t": {"label": 1, "children": [{"word": 1, "label": 0}, {"word": 4, "label": 1}]}},
    ),
    "graph": (
        fe.Record(
            g=fe.Graph(
                {"kind": fe.Int(3)},
                {"far": fe.Floats(1)},
                {"y": fe.Floats(1)},
                most_nodes=4,
                most_edges=6,
                types=2,
            )
        ),
        {"g": {"kind": [0, 1], "edges": [(0, 1)], "far": [[2.0]], "type": [1], "y": [0.5]}},
    ),
}


def through_json(compiled: fe.Compiled) -> fe.Compiled:
    return compiled_from_json(json.loads(json.dumps(compiled_to_json(compiled))))


@pytest.mark.parametrize("kind", SPECS)
def test_every_specification_encodes_as_before(kind: str) -> None:
    spec, plain = SPECS[kind]
    compiled = fe.compile(lambda x: fe.loss(fe.Linear(1, name="any")(fe.constant(1, 1.0))), spec)
    again = through_json(compiled)
    assert fingerprint(again.graph) == fingerprint(compiled.graph)
    one, other = compiled.encode(plain), again.encode(plain)
    assert one.attrs == other.attrs
    for part in ("tables", "data"):
        mine, theirs = getattr(one, part), getattr(other, part)
        assert mine.keys() == theirs.keys()
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine)


def test_values_that_were_given_come_along() -> None:
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    embed = fe.Embedding(2, 3, init=table)
    compiled = fe.compile(lambda x: fe.loss(fe.sum_columns(embed(x))), fe.Int(2))
    (found,) = through_json(compiled).parameters().values()
    np.testing.assert_array_equal(found["E"], table)


tag, words = fe.Linear(3), fe.Embedding(9, 4)


def tagger(x: Any) -> None:
    fe.classify(tag(words(x.words.word)), x.words.tag)


TAGGED = fe.Record(words=fe.Sequence(fe.Record(word=fe.Int(9), tag=fe.Int(3)), most=6))


def aligned(x: Any) -> None:
    fe.regress(tag(x.x), x.y)


def test_answers_may_be_missing_wherever_they_are() -> None:
    compiled = fe.compile(tagger, TAGGED)
    assert compiled.answers == {"words_tag"}
    whole = {"words": [{"word": 1, "tag": 2}, {"word": 5, "tag": 0}]}
    predictions = compiled.outputs(whole)["loss"]["prediction"]
    for bare in ({"words": [{"word": 1}, {"word": 5}]}, {"words": {"word": [1, 5]}}):
        np.testing.assert_array_equal(compiled.outputs(bare)["loss"]["prediction"], predictions)
        with pytest.raises(InstanceError, match="is missing"):
            compiled.encode(bare)
    with pytest.raises(InstanceError, match=r"words\[0\]\.word is missing"):
        compiled.encode({"words": [{"tag": 1}]}, answered=False)
    with pytest.raises(InstanceError, match=r"words\[1\]\.tag is missing"):
        compiled.encode({"words": [{"word": 1, "tag": 1}, {"word": 1}]}, answered=False)
    with pytest.raises(InstanceError, match="number is not declared"):
        compiled.encode({"words": [{"word": 1}], "number": 3}, answered=False)


def test_an_answer_is_as_long_as_the_axis_that_it_is_along() -> None:
    steps = fe.Axis("steps", most=5)
    spec = fe.Record(y=fe.Along(steps, fe.Floats(3)), x=fe.Along(steps, fe.Floats(2)))
    compiled = fe.compile(aligned, spec)
    assert compiled.answers == {"y"}
    found = compiled.outputs({"x": [[1, 2], [3, 4], [5, 6]]})
    assert found["loss"]["prediction"].shape == (3, 3)


def test_a_record_of_answers_may_be_missing_as_a_whole() -> None:
    spec = fe.Record(x=fe.Floats(2), wanted=fe.Record(label=fe.Int(3), y=fe.Floats(3)))

    def both(x: Any) -> None:
        fe.classify(tag(x.x), x.wanted.label)
        fe.regress(tag(x.x), x.wanted.y, name="y")

    compiled = fe.compile(both, spec)
    assert compiled.outputs({"x": [1, 2]})["y"]["prediction"].shape == (1, 3)


def test_what_a_model_reads_is_no_answer() -> None:
    def copies(x: Any) -> None:
        fe.classify(tag(words(x.token)), x.token)

    def structure(x: Any) -> None:
        fe.regress(fe.reduce(tag(x.s.item), "sum"), x.y)

    assert fe.compile(copies, fe.Record(token=fe.Int(3))).answers == frozenset()
    spec = fe.Record(s=fe.Sequence(fe.Floats(2), most=3), y=fe.Floats(3))
    assert fe.compile(structure, spec).answers == {"y"}
