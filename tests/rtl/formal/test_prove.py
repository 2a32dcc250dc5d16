"""The prover answers truly, both ways, and says where it found what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from amaranth.hdl import Assert, Assume, Cover, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from tests.rtl.formal.prove import prove, reach


class Count(wiring.Component):
    """Counts the cycles with `step`; claims never to be at `never`, assumes never to be at `limit`."""

    def __init__(self, never: int, limit: int = 15) -> None:
        self.never, self.limit = never, limit
        super().__init__({"step": In(1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        count = Signal(4)
        m.d.sync += count.eq(count + self.step)
        m.d.comb += [
            Assume(count != self.limit),
            Assert(count != self.never),
            Cover(count == self.never),
        ]
        return m


def test_an_assertion_breaks_at_the_earliest_cycle(tmp_path: Path) -> None:
    proof = prove(Count(5), 10, trace=tmp_path / "trace.vcd")
    assert (proof.holds, proof.step, proof.depth) == (False, 5, 10)
    assert "count" in (tmp_path / "trace.vcd").read_text()


def test_an_assertion_holds_within_the_depth() -> None:
    proof = prove(Count(5), 5)
    assert (proof.holds, proof.step, proof.failure) == (True, None, "")


def test_an_assumption_protects() -> None:
    assert prove(Count(5, limit=4), 10).holds


def test_what_cannot_be_reached_is_reported() -> None:
    assert reach(Count(5), 10).holds
    found = reach(Count(5, limit=4), 10)
    assert not found.holds and found.failure
