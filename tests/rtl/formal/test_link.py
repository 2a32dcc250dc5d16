"""Messages cross the ends of the link whole, once, and in order."""

from __future__ import annotations

import pytest
from amaranth.lib import crc

from amphw.rtl.gateware.controller.memory import ControlShape
from amphw.rtl.gateware.link.ends import Receiver, Sender
from amphw.rtl.gateware.link.framing import WordDecoder, WordEncoder
from tests.rtl.formal.cases import Case, proofs_of, variant
from tests.rtl.formal.contracts import PassesOn
from tests.rtl.formal.link_contracts import SMALL, Receives, Sends, ThereAndBack

pytestmark = pytest.mark.hardware

SHAPE = ControlShape(
    firings=4, places=4, table=4, slots=2, units=2, outputs=1, state_bits=2,
    decisions=1, loops=1, reads=1, by_rows=False, paths=1,
)  # fmt: skip

SHORT = {"CRC32": crc.catalog.CRC3_GSM, "DIGIT": 16}
"""A check that a solver is through with, in one cycle; the benches have the real one."""


def judging() -> type:
    """A decoder that judges the first check too."""
    return variant(
        WordDecoder, "known = Signal(init=1), Signal()", "known = Signal(init=1), Signal(init=1)", SHORT
    )


CASES = {
    "encoder": Case(
        WordEncoder,
        lambda make: PassesOn(ThereAndBack(make, judging()), capacity=1, delay=10, reached=2),
        18,
        (
            ("with m.If(self.o.ready):", "with m.If(1):"),  # loses
            (
                "sequence.eq(Mux(sequence == SEQUENCE - 1, 0, sequence + 1))",
                "sequence.eq(0)",
            ),  # would hide a loss
            ("value[7:14]", "value[6:13]"),
            ("check.crc[:16]", "check.crc[1:16]"),
        ),
        SHORT,
        bounded=True,
    ),
    "decoder": Case(
        WordDecoder,
        lambda make: PassesOn(
            ThereAndBack(variant(WordEncoder, "", "", SHORT), make), capacity=1, delay=10, reached=2
        ),
        18,
        (
            (
                "self.o.valid.eq(1), self.i.ready.eq(self.o.ready)",
                "self.o.valid.eq(1), self.i.ready.eq(1)",
            ),
            ("Cat(byte[:7], middle, head[:2])", "Cat(byte[:7], head, middle[:2])"),
        ),
        SHORT,
        bounded=True,
    ),
    "receiver": Case(
        Receiver,
        lambda make: Receives(make(SHAPE, 4)),
        12,
        (
            ('m.next = "JUDGE"', 'm.next = "CHECK"'),  # judged by the header before
            ("self.receive.en.eq(self.words.valid),", "self.receive.en.eq(self.words.valid & (left != 1)),"),
            ("self.words.ready.eq(self.receive.done)", "self.words.ready.eq(1)"),  # loses
            ("left.eq(left - 1), address.eq(address + 1)", "left.eq(left - 1)"),
            ("with m.If(outside):", "with m.If(outside & (header.kind != Kind.FORWARD)):"),
        ),
        SMALL,
    ),
    "sender": Case(
        Sender,
        lambda make: Sends(make()),
        20,
        (
            ("with m.Elif(fetched.valid & fetched.ready):", "with m.Elif(fetched.ready):"),  # is cut off
            ("fetched.i.payload.eq(self.send.data)", "fetched.i.payload.eq(0)"),
            ("Cat(self.send.done, coming)", "Cat(self.send.en, coming)"),  # takes what was not served
            ("more & fits", "more"),  # has no room for what comes
            ("with m.If(~self.words.valid):", "with m.If(1):"),
            ("(job.header.kind != Kind.VALUE)", "(job.header.kind == Kind.VALUE)"),
        ),
        SMALL | {"AHEAD": 2},
    ),
}
test_the_contract_is_kept, test_a_fault_is_found, test_something_is_left_to_prove = proofs_of(CASES)
