"""What the receiver takes up to the last place that there is, it takes; one place further, nothing of it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("amaranth")

from amphw.rtl.gateware.controller.memory import ControlShape
from amphw.rtl.gateware.link.ends import Receiver
from amphw.rtl.isa.wire import FIELDS, Fault, Kind, pack, parted
from tests.rtl.gateware.benches import send, simulate

DEPTH = 100
SHAPE = ControlShape(
    firings=8, places=16, table=32, slots=3, units=5, outputs=2, state_bits=8, decisions=1, loops=1,
    reads=1, by_rows=False, paths=2,
)  # fmt: skip

LAST = [
    ("payload", Kind.FORWARD, {"payload": DEPTH - 3, "words": 3}),
    ("payload", Kind.BACKWARD, {"payload": DEPTH - 3, "words": 3}),
    ("words", Kind.FORWARD, {"payload": 0, "words": DEPTH}),
    ("payload", Kind.FORWARD, {"payload": DEPTH, "words": 0}),
    ("firing", Kind.FORWARD, {"firing": 7}),
    ("place", Kind.FORWARD, {"place": 15}),
    ("output", Kind.FORWARD, {"output": 1}),
    ("slot", Kind.FORWARD, {"slot": 2}),
    ("slot", Kind.BEGIN, {"slot": 2}),
    ("firing", Kind.FIRINGS, {"firing": 5, "copy": 3}),
    ("copy", Kind.FIRINGS, {"firing": 5, "copy": 3}),
    ("unit", Kind.FIRINGS, {"unit": 4}),
    ("unit", Kind.UPDATE, {"unit": 4}),
]
"""What may not become larger by one, of a message that reaches as far as it may."""


def taken(kind: Kind, fields: dict[str, int]) -> tuple[dict[str, int], list[int]]:
    """Header of what the receiver tells of the message, and the addresses that its payload went to."""
    design = Receiver(SHAPE, DEPTH)
    told: list[int] = []
    addresses: list[int] = []

    async def words(ctx: Any) -> None:
        ctx.set(design.receive.done, 1)
        await send(ctx, design.words, [*pack(kind, **fields), *range(fields.get("words", 0))])

    async def parties(ctx: Any) -> None:
        while not told:
            for port in (design.event, design.request, design.fault):
                if ctx.get(port.valid):
                    told.append(ctx.get(port.payload.as_value()))
                    return
            if ctx.get(design.receive.en):
                addresses.append(ctx.get(design.receive.addr))
            await ctx.tick()

    simulate(design, words, parties)
    return parted(FIELDS, told[0]), addresses


@pytest.mark.parametrize(
    ("field", "kind", "fields"), LAST, ids=[f"{kind.name}-{field}" for field, kind, _ in LAST]
)
def test_messages_reach_as_far_as_the_memories_and_no_further(
    field: str, kind: Kind, fields: dict[str, int]
) -> None:
    at, count = fields.get("payload", 0), fields.get("words", 0)
    found, addresses = taken(kind, fields)
    assert found["kind"] == kind and found[field] == fields[field]
    assert addresses == list(range(at, at + count))
    found, addresses = taken(kind, fields | {field: fields[field] + 1})
    assert (found["kind"], found["output"], addresses) == (Kind.FAULT, Fault.OUTSIDE, [])
