"""Items are encoded when they are asked for, once, and every use of one has a number of its own."""

from __future__ import annotations

from typing import Any

from amphw import frontend as fe
from amphw.models.encoded import Encoded


def model() -> fe.Compiled:
    embed = fe.Embedding(5, 3)
    return fe.compile(
        lambda x: fe.classify(embed(x.token), x.label), fe.Record(token=fe.Int(5), label=fe.Int(3))
    )


def test_an_item_is_encoded_once() -> None:
    asked: list[str] = []

    def plain(item: str) -> dict[str, Any]:
        asked.append(item)
        return {"token": int(item), "label": 0}

    encoded = Encoded(model(), ["3", "1", "4"], plain)
    assert (len(encoded), asked) == (3, [])
    first, second = encoded[1], encoded[1]
    assert asked == ["1"]
    first.number = 7
    assert second.number == 0
    assert first.tables["token"] is second.tables["token"]
    assert encoded[2].tables["token"].tolist() == [4]
