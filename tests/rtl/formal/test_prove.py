"""The provers answer truly, both ways, and say where they found what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Assert, Assume, Cover, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from amphw.rtl.toolchain.environment import ToolchainError
from tests.rtl.formal.prove import breaks, prove, prove_within, reach


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


class Pair(wiring.Component):
    """Two numbers that go the same way; claims that they are never apart.

    That is what holds of them, but not for what one step from any state says, where `hidden` differs.
    """

    def __init__(self, bits: int = 4) -> None:
        self.bits = bits
        super().__init__({"step": In(1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        one, other, hidden = Signal(self.bits), Signal(self.bits), Signal(self.bits)
        with m.If(self.step):
            m.d.sync += [one.eq(one + 3), hidden.eq(hidden + 3), other.eq(hidden + 3)]
        m.d.comb += Assert(one == other)
        return m


class Multiplied(wiring.Component):
    """Claims that a number is no product of two others, which takes long to find out."""

    def __init__(self) -> None:
        super().__init__({"a": In(32), "b": In(32)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        a, b = Signal(32), Signal(32)
        m.d.sync += [a.eq(self.a), b.eq(self.b)]
        m.d.comb += Assert((a < 2) | (b < 2) | (a * b != PRODUCT))
        return m


PRODUCT = 2147483647 * 2147483629  # of two primes


def test_an_assertion_breaks_at_the_earliest_cycle(tmp_path: Path) -> None:
    proof = prove_within(Count(5), 10, trace=tmp_path / "trace.vcd")
    assert (proof.holds, proof.step, proof.depth) == (False, 5, 10)
    assert "count" in (tmp_path / "trace.vcd").read_text()


def test_when_an_assertion_breaks_is_said_without_a_trace() -> None:
    assert breaks(Count(5), 10) == 5
    assert breaks(Count(5), 5) is None
    with pytest.raises(ToolchainError, match="of 500 cycles .* were searched, no more"):
        breaks(Multiplied(), 500, seconds=1)


def test_an_assertion_holds_within_the_depth() -> None:
    proof = prove_within(Count(5), 5)
    assert (proof.holds, proof.step, proof.failure) == (True, None, "")


def test_what_breaks_late_breaks_in_a_proof_for_all_time(tmp_path: Path) -> None:
    proof = prove(Count(14), trace=tmp_path / "trace.vcd")
    assert (proof.holds, proof.step) == (False, 14) and proof.failure
    assert "count" in (tmp_path / "trace.vcd").read_text()


def test_a_proof_for_all_time_finds_the_invariant() -> None:
    proof = prove(Pair())
    assert (proof.holds, proof.depth, proof.step, proof.failure) == (True, None, None, "")


def test_no_answer_is_no_proof() -> None:
    with pytest.raises(ToolchainError, match="neither proved nor refuted within 1 seconds"):
        prove(Multiplied(), seconds=1)


def test_an_assumption_protects() -> None:
    assert prove(Count(5, limit=4)).holds
    assert prove_within(Count(5, limit=4), 10).holds


def test_what_cannot_be_reached_is_reported() -> None:
    assert reach(Count(5), 10).holds
    found = reach(Count(5, limit=4), 10)
    assert not found.holds and found.failure
