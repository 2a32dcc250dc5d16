"""The stream components keep their contracts, and the proofs find the faults that are put in."""

from __future__ import annotations

import pytest
from amaranth.lib import data

from amphw.rtl.gateware.counters import Counters
from amphw.rtl.gateware.streams import Arbiter, Demultiplexer, Join, Queue, SkidBuffer
from tests.rtl.formal.cases import Case, proofs_of
from tests.rtl.formal.contracts import Counts, Pairs, PassesOn, Refuses, Sorts, TakesTurns

WORD = data.StructLayout({"destination": 2, "last": 1, "body": 1})


CASES = {
    "skid buffer": Case(
        SkidBuffer,
        lambda make: PassesOn(make(3), capacity=2, delay=1),
        12,
        (
            ("self.i.ready.eq(~spare_valid)", "self.i.ready.eq(1)"),  # loses
            ("spare_valid.eq(0)", "spare_valid.eq(spare_valid)"),  # repeats
            ("self.o.ready | ~self.o.valid", "self.o.ready | ~self.o.valid | spare_valid"),  # retracts
        ),
    ),
    "queue of logic": Case(
        Queue,
        lambda make: PassesOn(make(3, 3, "lut"), capacity=3, delay=1),
        9,
        (
            ("self.level != self.depth)", "1)"),  # overflows
            ("pointer == self.depth - 1", "pointer == self.depth - 2"),  # overtakes
        ),
    ),
    "queue of block memory": Case(
        Queue,
        lambda make: PassesOn(make(3, 3, "block"), capacity=3, delay=2),
        9,
        (
            ("(stored != 0) & ", ""),  # invents
            ("& (self.o.ready | ~self.o.valid)", ""),  # changes the payload on offer
            ("stored + push - fetch", "stored + push - pop"),  # repeats
        ),
    ),
    "arbiter": Case(
        Arbiter,
        lambda make: TakesTurns(make(2, 3)),
        8,
        (
            ("locked.eq(~(self.o.ready & over))", "locked.eq(0)"),  # changes its mind
            ("reversed(range(turn + 1, turn + 1 + count))", "range(count)"),  # starves
        ),
    ),
    "arbiter of packets": Case(
        Arbiter,
        lambda make: TakesTurns(make(WORD, 2, packets=True)),
        8,
        (("self.o.payload.last if self.packets else 1", "1"),),  # mixes packets
    ),
    "demultiplexer": Case(
        Demultiplexer,
        lambda make: Sorts(make(WORD, 3)),
        6,
        (
            ("self.stray.eq(self.i.valid)", "self.stray.eq(0)"),  # hides a loss
            ("self.i.ready.eq(port.ready)", "self.i.ready.eq(1)"),  # loses
        ),
    ),
    "join": Case(
        Join,
        lambda make: Pairs(make(2, 2, 2)),
        8,
        (
            ("self.a.ready.eq(self.o.valid & self.o.ready)", "self.a.ready.eq(self.o.ready)"),  # loses
            ("payload.a.eq(self.a.payload.body)", "payload.a.eq(self.b.payload.body)"),  # mixes up
        ),
    ),
    "join of different headers": Case(
        Join,
        lambda make: Refuses(make(2, 2, 2)),
        3,
        (("self.o.valid.eq(both & equal)", "self.o.valid.eq(both)"),),
        covers=False,
    ),
    "counters": Case(
        Counters,
        lambda make: Counts(make(3, 2)),
        8,
        (
            (" & ~counter.all()", ""),  # wraps
            ("~self.valid & self.ready", "self.ready"),  # counts transfers as starved cycles
        ),
    ),
}
kept, test_a_fault_is_found, test_something_is_left_to_prove = proofs_of(CASES)
test_the_contract_is_kept = pytest.mark.thorough(kept)
