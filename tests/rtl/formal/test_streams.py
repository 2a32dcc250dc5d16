"""The stream components keep their contracts, and the proofs find the faults that are put in."""

from __future__ import annotations

from amphw.rtl.gateware.streams import Hold, Queue, SkidBuffer
from tests.rtl.formal.cases import Case, proofs_of
from tests.rtl.formal.contracts import PassesOn

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
    "hold": Case(
        Hold,
        lambda make: PassesOn(make(3), capacity=1, delay=1),
        9,
        (
            ("self.i.ready.eq(~self.o.valid)", "self.i.ready.eq(1)"),  # loses
            ("with m.Elif(self.o.ready):", "with m.Elif(1):"),  # retracts
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
}
test_the_contract_is_kept, test_a_fault_is_found, test_something_is_left_to_prove = proofs_of(CASES)
