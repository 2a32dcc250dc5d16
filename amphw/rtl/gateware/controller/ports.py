"""What goes between the controller and its neighbours: the link, the sequencer, and the payload memory."""

from __future__ import annotations

from amaranth.hdl import Shape
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import Out
from amaranth.utils import ceil_log2

from amphw.engine import numbering
from amphw.rtl.gateware.controller.memory import ADDRESS, ControlShape
from amphw.rtl.gateware.enums import shaped
from amphw.rtl.isa import events
from amphw.rtl.isa.wire import FIELDS

FrameKind = shaped(numbering.FrameKind, events.BITS["kind"])


class PreludeOp(enum.Enum, shape=2):  # type: ignore[call-arg, misc]
    """What the vector unit does for a firing ahead of its program: copy group members, add up gradients."""

    COPY = 0  # words from source to target
    SUM = 1  # `parts` rows, wherever the pointers say, added up into target
    FILL = 2  # zeros to target


class MessageLayout(data.StructLayout):
    """A message's header, as `amphw.rtl.isa.wire` defines it."""

    def __init__(self) -> None:
        super().__init__(dict(FIELDS))


class Job(data.StructLayout):
    """A message to send: its header; the payload's words lie at `source`."""

    def __init__(self) -> None:
        super().__init__({"header": MessageLayout(), "source": ADDRESS})


class Prelude(data.StructLayout):
    def __init__(self) -> None:
        super().__init__(
            {"op": PreludeOp, "source": ADDRESS, "target": ADDRESS, "words": ADDRESS, "parts": 8}
        )


class Run(data.StructLayout):
    """A firing that the engines run. bank: which half of the sequencer's registers it was loaded into."""

    def __init__(self, shape: ControlShape) -> None:
        super().__init__(
            {
                "kind": FrameKind,
                "bank": 1,
                "firing": shape.firing_bits,
                "unit": max(1, ceil_log2(shape.units)),
                "slot": max(1, ceil_log2(shape.slots)),
            }
        )


class Registers(wiring.Signature):
    """Writes into the sequencer's registers: pointers, or rows."""

    def __init__(self) -> None:
        super().__init__(
            {"en": Out(1), "rows": Out(1), "bank": Out(1), "index": Out(5), "data": Out(ADDRESS)}
        )


class Free(wiring.Signature):
    """Payload memory when nobody who must not wait uses it: `done` says that a request was served."""

    def __init__(self, write: bool) -> None:
        members = {"en": Out(1), "addr": Out(ADDRESS), "done": wiring.In(1)}
        word = Shape(16, signed=True)
        super().__init__({**members, "data": Out(word) if write else wiring.In(word)})
