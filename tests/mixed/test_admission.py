"""Which instances are in flight: those for which every device has room; the others wait in their order."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from amphw.ir.device import Mode
from amphw.ir.errors import DeviceLostError
from amphw.ir.instance import Instance, Schema
from amphw.mixed.admission import Admission


@dataclass
class Part:
    """Stands for a device with room for so many instances."""

    room: int
    patience: float = 10.0
    inside: list[int] = field(default_factory=list)
    lost: str = ""

    def begin(self, slot: int, generation: int, instance: Instance, mode: Mode) -> bool:
        if slot == 13:
            raise DeviceLostError("it stumbles")
        if len(self.inside) == self.room:
            return False
        self.inside.append(slot)
        return True

    def end(self, slot: int) -> None:
        self.inside.remove(slot)

    def lose(self, why: str) -> None:
        self.lost = why


class Plane:
    """Stands for the engine, with room for so many."""

    schema = Schema({})

    def __init__(self, room: int = 99) -> None:
        self.room, self.pumped = room, dict[int, Instance]()

    @property
    def in_flight(self) -> int:
        return len(self.pumped)

    def instance(self, slot: int) -> Instance | None:
        return self.pumped.get(slot)

    def pump(self, offer: Any) -> bool:
        if len(self.pumped) == self.room:
            return False
        self.pumped[offer[0]] = offer[2]
        return True


def made(*parts: Part, room: int = 99) -> tuple[Admission, Plane]:
    plane = Plane(room)
    return Admission(plane, parts, plane.pump), plane  # type: ignore[arg-type]


def offer(admission: Admission, *slots: int) -> None:
    for slot in slots:
        admission.offer((slot, 0, Instance(), Mode.TRAIN))


def test_none_overtakes_an_older_one() -> None:
    part = Part(room=1)
    admission, plane = made(part)
    offer(admission, 4, 2, 7)
    assert list(plane.pumped) == [4] and [o[0] for o in admission.waiting] == [2, 7]
    for leaves, comes in ((4, 2), (2, 7)):
        del plane.pumped[leaves]
        part.end(leaves)
        admission.go_on()
        assert list(plane.pumped) == part.inside == [comes]
    assert not admission.waiting


@pytest.mark.parametrize(("second", "room"), [(0, 99), (5, 0)])
def test_who_had_room_gives_it_back_where_another_has_none(second: int, room: int) -> None:
    """The other is a device, or the engine with its memory."""
    first, other = Part(room=3), Part(room=second)
    admission, plane = made(first, other, room=room)
    offer(admission, 1)
    assert first.inside == other.inside == [] and not plane.pumped and len(admission.waiting) == 1


def test_who_had_room_gives_it_back_where_another_fails() -> None:
    first, other = Part(room=3), Part(room=3)
    other.begin = Part(room=3).begin  # type: ignore[method-assign]
    first.begin = lambda slot, *_: first.inside.append(slot) is None  # type: ignore[method-assign]
    admission, _ = made(first, other)
    with pytest.raises(DeviceLostError, match="it stumbles"):
        offer(admission, 13)
    assert first.inside == [] and not admission.waiting


def test_an_instance_has_its_slot_while_it_waits_and_while_it_is_in_flight() -> None:
    admission, _ = made(Part(room=1))
    offer(admission, 1, 2)
    assert admission.held(1) is not None and admission.held(2) is not None and admission.held(3) is None


def test_a_device_without_room_while_nothing_is_in_flight_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    now = SimpleNamespace(perf_counter=lambda: now.at, at=0.0)
    monkeypatch.setattr("amphw.mixed.admission.time", now)
    part = Part(room=0)
    admission, _ = made(part)
    offer(admission, 1)
    now.at = 9.0
    admission.go_on()
    assert not part.lost
    now.at = 11.0
    admission.go_on()
    assert part.lost == "has had no room for an instance for 11.0 s, though none is in flight"
