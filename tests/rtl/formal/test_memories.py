"""What stands around memories loses nothing, mixes nothing up, and lets everyone have a turn."""

from __future__ import annotations

from amphw.rtl.gateware.activity import Activity
from amphw.rtl.gateware.controller.join_count import JoinCount
from amphw.rtl.gateware.controller.memory import ReadyQueue, Store
from amphw.rtl.gateware.lanes.memory import BeatMemory
from amphw.rtl.gateware.payload_memory import PayloadMemory
from tests.rtl.formal.cases import Case, proofs_of
from tests.rtl.formal.memory_contracts import Joins, KeepsOrder, Recalls, Remembers, Serves

CASES = {
    "payload memory": Case(
        PayloadMemory,
        lambda make: Serves(make(2, 4, bank=2)),
        6,
        (
            ("with m.Elif(self.put.en):", "with m.If(self.put.en):"),  # an engine's word is lost
            (
                "self.put.done.eq(1)",
                "[self.put.done.eq(1), self.receive.done.eq(self.receive.en)]",
            ),  # one of two words is lost
            ("b.eq(self.look.addr)", "b.eq(self.send.addr)"),  # another's word
            (
                "with m.Elif(self.receive.en):",
                "with m.Elif(self.receive.en & ~self.look.en):",
            ),  # waits for reads
        ),
    ),
    "memory of parameters": Case(
        BeatMemory,
        lambda make: Recalls(make(4, 2, 2), 4, parts=2, bits=2, cycles=2),
        6,
        (
            ("write.en.eq(self.write_lanes)", "write.en.eq(self.write_lanes | 1)"),  # a lane too many
            ("write.addr.eq(self.write_addr)", "write.addr.eq(self.addr)"),
            ("read.addr.eq(self.addr)", "read.addr.eq(self.write_addr)"),
        ),
    ),
    "store": Case(
        Store,
        lambda make: Recalls(make(2, 4), 4, parts=1, bits=2, cycles=3),
        8,
        (
            ("write.addr.eq(address)]", "write.addr.eq(self.addr)]"),  # another's word
            ("write.en.eq(self.write)", "write.en.eq(1)"),  # writes what nobody wants written
            ("self.data.eq(read.data)", "self.data.eq(write.data)"),
        ),
    ),
    "ready queue": Case(
        ReadyQueue,
        lambda make: KeepsOrder(make(2)),
        12,
        (
            ("~self.there & ~coming & (stored != 0)", "~self.there & (stored != 0)"),  # overwrites
            ("write.en.eq(pushed)", "write.en.eq(pushed & ~self.pop)"),  # loses
            ("stored + pushed - fetch", "stored + (pushed & ~fetch) - fetch"),  # never comes out
            (
                "self.level + self.push - self.pop",
                "self.level + (self.push & ~self.pop) - self.pop",
            ),  # forgets
        ),
    ),
    "join count": Case(
        JoinCount,
        lambda make: Joins(make(2, marks=True)),
        13,
        (
            ("(left == 1)", "(left <= 1)"),  # tells twice
            ("self.set | self.arrive", "self.set | (self.arrive & ~self.last)"),  # forgets that it told
            ("left - 1", "left"),  # never tells
            ("store.addr.eq(self.addr)", "store.addr.eq(0)"),  # counts for another
            ("store.value.known.eq(self.arrive)", "store.value.known.eq(1)"),
        ),
        {"ADDRESS": 3},
    ),
    "activity": Case(
        Activity,
        lambda make: Remembers(make(2, 3)),
        9,
        (
            ("read.data + 1", "read.data"),
            ("read.addr.eq(self.path)", "read.addr.eq(path)"),  # counts on from another
            ("counter + events[k]", "counter + events[0]"),
            ("now > most", "now >= 0"),  # the latest, not the largest
        ),
        {"BITS": 3},
        every_day=False,
    ),
}
test_the_contract_is_kept, test_a_fault_is_found, test_something_is_left_to_prove = proofs_of(CASES)
