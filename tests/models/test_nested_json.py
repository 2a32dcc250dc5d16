"""Deep JSON is read as Python's reader reads what is shallow."""

from __future__ import annotations

import json

import pytest

from amphw.models import nested_json

TEXTS = [
    '{"a": [1, {"b": []}, {}, "x,]"], "c": null, "d": -1.5e3}',
    " [ ] ",
    "3",
    '[{"a":[1 , 2]}, [[["z"]]] ]',
]


@pytest.mark.parametrize("text", TEXTS)
def test_it_reads_what_pythons_reader_reads(text: str) -> None:
    assert nested_json._iteratively(text) == json.loads(text)


@pytest.mark.parametrize(
    "text", ["[1,]", "[1 2]", '{"a" 1}', "{1: 2}", "[1", '{"a": 1', "[] x", "", '{"a": 1,}']
)
def test_it_refuses_what_pythons_reader_refuses(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        nested_json._iteratively(text)


@pytest.mark.parametrize("depth", [5_000, 100_000])
def test_depth_has_no_limit(depth: int) -> None:
    value, found = nested_json.loads('{"t": ' + "[1," * depth + "2" + "]" * depth + "}")["t"], 0
    while isinstance(value, list):
        value, found = value[1], found + 1
    assert (value, found) == (2, depth)
