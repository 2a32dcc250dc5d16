"""What a device tells whoever watches it: the host reads what the hardware lays out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("amaranth")

from amphw.engine.numbering import FrameKind
from amphw.ir.errors import AmphwError
from amphw.rtl.gateware import device
from amphw.rtl.gateware.controller import ports as controller_ports
from amphw.rtl.isa.events import FIELDS, What, pack, unpack

numbers = {name: st.integers(0, (1 << bits) - 1) for name, bits in FIELDS}
known = {"what": st.sampled_from(What), "kind": st.sampled_from(FrameKind)}


@given(fields=st.fixed_dictionaries({**numbers, **known}))
def test_an_event_is_read_as_the_hardware_lays_it_out(fields: dict[str, int]) -> None:
    event = device.Watched().const({name: int(value) for name, value in fields.items()}).as_bits()
    assert unpack(event) == fields
    assert pack(**fields) == event  # type: ignore[arg-type]


def test_the_hardware_has_the_same_kinds() -> None:
    for here, there in ((What, device.What), (FrameKind, controller_ports.FrameKind)):
        assert {m.name: m.value for m in here} == {m.name: m.value for m in there}


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(AmphwError, match=r"an event's 'unit' = 256 does not fit 8 bits"):
        pack(What.UPDATE, unit=256)
    with pytest.raises(AmphwError, match="an event has no field 'colour'"):
        pack(What.UPDATE, colour=1)
