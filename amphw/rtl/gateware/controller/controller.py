"""The controller: joins, routes, returns and queues of a partition, from its control programs.

It does one thing at a time: take note of a unit that has run, take a message from the link, or fetch what the
next firing needs, while the engines run the one before. Whatever arrives has its place, so nothing here waits
for anything that waits for it.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from amphw.rtl.gateware.controller.join_count import JoinCount
from amphw.rtl.gateware.controller.memory import (
    ADDRESS,
    ControlShape,
    OwnerLayout,
    PlaceLayout,
    ReadyQueue,
    Store,
    pause,
)
from amphw.rtl.gateware.controller.ports import FrameKind, Free, Job, MessageLayout, Prelude, Registers, Run
from amphw.rtl.gateware.controller.step_memory import StepLogic
from amphw.rtl.gateware.controller.steps import ControllerSteps
from amphw.rtl.gateware.ports import NO_COLLISION
from amphw.rtl.isa.steps import StepOp
from amphw.rtl.isa.wire import Kind
from amphw.rtl.plan.control import ControlPlan, Phase


class Controller(ControllerSteps, wiring.Component):
    """event: headers of messages for the controller, their payload in place. job: messages to the host.

    run, ran: firings for the engines, and those that they have run. prelude, pointer: what the vector unit
    does for a firing before; quiet: the engines do nothing. registers: the sequencer's. table_*: writes into
    table memory. put, look: payload memory when it is free. resting: nothing to do. sent_one: a message is
    sent on `path`. ready, ready_backward: how many firings wait for the engines.
    """

    def __init__(self, plan: ControlPlan, shape: ControlShape, sums: int):
        self.plan, self.shape, self.sums = plan, shape, sums
        self.waits = Signal()
        """Its state machine cannot go on: nothing is ready or has come, or the engines are at work."""
        super().__init__(
            {
                "event": In(stream.Signature(MessageLayout())),
                "table_en": In(1),
                "table_addr": In(ceil_log2(shape.table)),
                "table_data": In(signed(16)),
                "job": Out(stream.Signature(Job())),
                "run": Out(stream.Signature(Run(shape))),
                "ran": In(stream.Signature(Run(shape))),
                "quiet": In(1),
                "prelude": Out(stream.Signature(Prelude())),
                "pointer_en": Out(1),
                "pointer_index": Out(8),
                "pointer_data": Out(ADDRESS),
                "registers": Out(Registers()),
                "put": Out(Free(write=True)),
                "look": Out(Free(write=False)),
                "resting": Out(1),
                "sent_one": Out(1),
                "path": Out(16),
                "ready": Out(16),
                "ready_backward": Out(16),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        s = self.shape
        self.fid = Signal(s.firing_bits)
        self.current = Signal(OwnerLayout(s))
        self.firing_record, self.firing_state = Signal(ADDRESS), Signal(s.state_bits)
        self.phase = Signal(Phase)
        self.bank = Signal()
        self.header = Signal(MessageLayout())
        self.sent = Signal(ADDRESS)  # messages of the current firing
        self.copy = Signal(ADDRESS)  # of them, on the current path to the host
        self.at = Signal(ADDRESS)
        self.from_link = Signal()  # the message that is dealt with came from the host
        self.puts = Signal()  # a word is to be written into payload memory
        # A gradient on its way back: to which firing's output, in which place, and where it lies.
        self.origin_fid, self.origin_k = Signal(ADDRESS), Signal(4)
        self.back_place, self.back_at, self.back_full = Signal(ADDRESS), Signal(ADDRESS), Signal()
        self.back_row, self.back_single = Signal(ADDRESS), Signal()
        self.reg = Array([Signal(signed(16), name=f"r{k}") for k in range(max(1, s.reads))])
        self.counter = Array([Signal(ADDRESS, name=f"e{k}") for k in range(max(1, s.loops))])
        self.last = Array([Signal(ADDRESS, name=f"last{k}") for k in range(max(1, s.loops))])
        self.decided = Array([Signal(ADDRESS, name=f"d{k}") for k in range(max(1, s.decisions))])
        # Between a memory's answer and a count there is a register.
        self.activates, self.retires = Signal(), Signal()
        self.activated = Signal.like(self.current.slot)
        self._memories(m)
        self._step_logic(m)
        self._count_active(m)
        m.d.comb += self.table.addr.eq(self.v["a"])  # what a READ wants
        m.d.sync += self.registers.en.eq(0)
        # What is offered to the engines stays until they take it.
        for offered in (self.run, self.prelude):
            with m.If(offered.valid & offered.ready):
                m.d.sync += offered.valid.eq(0)
        with m.FSM(name="controller") as fsm:
            self._idle(m)
            self._context(m)
            self._event(m)
            self._steps(m)
            waiting = self.ran.valid | self.event.valid | self.run.valid
            queued = (self.forward.level != 0) | (self.backward.level != 0)
            m.d.comb += self.resting.eq(fsm.ongoing("IDLE") & ~waiting & ~queued & ~self.puts)
            # It fetches no firing while it offers one.
            nothing = ~self.ran.valid & ~self.event.valid & (self.run.valid | ~queued)
            for_engines = [
                fsm.ongoing(state)
                for op, state in ((StepOp.GRADIENT, "SUM ROW"), (StepOp.COPY, "COPY WORDS"))
                if op in self.plan.ops
            ]
            held = Cat(for_engines).any() & ~self.quiet
            m.d.comb += self.waits.eq((fsm.ongoing("IDLE") & nothing) | held)
        return m

    def _memories(self, m: Module) -> None:
        s = self.shape
        # The host writes the tables of an instance before it begins, and no others read there.
        m.submodules.tables = tables = Memory(shape=signed(16), depth=s.table, init=[], attrs=NO_COLLISION)
        self.table, write = tables.read_port(), tables.write_port()
        m.d.comb += [
            write.en.eq(self.table_en),
            write.addr.eq(self.table_addr),
            write.data.eq(self.table_data),
            self.table.en.eq(1),
        ]
        m.submodules.need = self.need = JoinCount(s.firings, marks=True)
        m.submodules.record = self.record = Store(unsigned(ADDRESS), s.firings)
        m.submodules.owner = self.owner = Store(OwnerLayout(s), s.firings)
        m.submodules.state = self.state = Store(unsigned(s.state_bits), s.firings)
        m.submodules.pending = self.pending = JoinCount(s.firings)
        m.submodules.head = self.head = Store(unsigned(s.place_bits + 1), s.firings << s.output_bits)
        m.submodules.place = self.place = Store(PlaceLayout(s), s.places)
        m.submodules.forward = self.forward = ReadyQueue(s.firings)
        m.submodules.backward = self.backward = ReadyQueue(s.firings)
        # By slot: firings that are ready or run (of an inferred instance), and messages taken since it began.
        m.submodules.active = active = Memory(shape=unsigned(ADDRESS), depth=max(2, s.slots), init=[])
        self.active_read, self.active_write = active.read_port(domain="comb"), active.write_port()
        self.active_now = active.read_port(domain="comb")
        m.submodules.taken = taken = Memory(shape=unsigned(ADDRESS), depth=max(2, s.slots), init=[])
        self.taken_read, self.taken_write = taken.read_port(domain="comb"), taken.write_port()
        self.taken_now = taken.read_port(domain="comb")
        m.d.comb += [
            self.active_read.addr.eq(self.activated),
            self.taken_read.addr.eq(self.header.slot),
            self.active_now.addr.eq(self.current.slot),
            self.taken_now.addr.eq(self.current.slot),
        ]
        m.submodules.infer = infer = Memory(shape=unsigned(1), depth=max(2, s.slots), init=[])
        self.infer_read, self.infer_write = infer.read_port(domain="comb"), infer.write_port()

    def _step_logic(self, m: Module) -> None:
        s = self.shape
        directory = ceil_log2(self.plan.directory.size)
        registers: dict[str, Any] = {
            "$dir": Cat(Const(0, directory), self.current.slot),
            "$fid": self.fid,
            "$record": self.firing_record,
            "$state": self.firing_state,
            "$scratch": Const(0, ADDRESS),
            "$sums": Const(self.sums, ADDRESS),
        }
        registers |= {f"$r{k}": self.reg[k] for k in range(s.reads)}
        registers |= {f"$e{k}": self.counter[k] for k in range(s.loops)}
        registers |= {f"$d{k}": self.decided[k] for k in range(s.decisions)}
        logic = StepLogic(m, registers, self.plan, s)
        layout = logic.layout()
        m.submodules.steps = steps = Memory(shape=layout, depth=len(self.plan.steps), init=logic.words())
        read = steps.read_port()
        self.pc = Signal(range(max(2, len(self.plan.steps))))
        # The step that is done next; meanwhile the memory reads the one behind it, at `pc`.
        self.step: Any = Signal(layout)
        self.following: Any = read.data
        m.d.comb += [read.en.eq(1), read.addr.eq(self.pc)]
        # A message from the link puts its firing and its state there itself.
        self.chosen = logic.chosen(m, self.step, {"a": s.firing_bits, "c": s.state_bits})
        self.v = {k: Signal.like(self.chosen[k], name=f"v{k}") for k in self.chosen}
        self.n, self.m, self.target = Signal(6), Signal(4), Signal.like(self.pc)
        m.d.comb += [self.ready.eq(self.forward.level), self.ready_backward.eq(self.backward.level)]

    # --- what is next -----------------------------------------------------------------------------

    def _idle(self, m: Module) -> None:
        # The link hears a cycle later, from a register, that its message was taken: until then it offers it.
        took = Signal()
        m.d.sync += took.eq(0)
        m.d.comb += self.event.ready.eq(took)
        with m.State("IDLE"):
            m.d.sync += [self.sent.eq(0), self.copy.eq(0)]
            with m.If(self.ran.valid):
                m.d.comb += self.ran.ready.eq(1)
                backward = self.ran.payload.kind == FrameKind.BACKWARD
                m.d.sync += [
                    self.fid.eq(self.ran.payload.firing),
                    self.phase.eq(Mux(backward, Phase.RETURN, Phase.ROUTE)),
                ]
                m.next = "CONTEXT"
            with m.Elif(self.event.valid):
                m.d.sync += [self.header.eq(self.event.payload), took.eq(1)]
                m.next = "EVENT"
            with m.Elif(~self.run.valid & self.backward.there):
                m.d.comb += self.backward.pop.eq(1)
                m.d.sync += [self.fid.eq(self.backward.head), self.phase.eq(Phase.FETCH_BACKWARD)]
                m.next = "CONTEXT"
            with m.Elif(~self.run.valid & self.forward.there):
                m.d.comb += self.forward.pop.eq(1)
                m.d.sync += [self.fid.eq(self.forward.head), self.phase.eq(Phase.FETCH)]
                m.next = "CONTEXT"

    def _context(self, m: Module) -> None:
        """Read whose firing it is, and where its record lies; then its control program begins."""
        with m.State("CONTEXT"):
            m.d.comb += [store.addr.eq(self.fid) for store in (self.owner, self.record, self.state)]
            m.next = "CONTEXT COMES"
        pause(m, "CONTEXT COMES", 2, "CONTEXT READ")
        with m.State("CONTEXT READ"):
            m.d.sync += [
                self.current.eq(self.owner.data),
                self.firing_record.eq(self.record.data),
                self.firing_state.eq(self.state.data),
            ]
            entries = self.plan.entries
            with m.Switch(Cat(self.phase, self.owner.data.unit)):
                for number, unit in enumerate(self.plan.partition.units):
                    for phase in Phase:
                        with m.Case(phase.value | number << 2):
                            m.d.sync += self.pc.eq(entries[unit.index, phase])
            m.next = "FETCH STEP"

    # --- messages ---------------------------------------------------------------------------------

    def _event(self, m: Module) -> None:
        h = self.header
        taken = Signal(ADDRESS)  # messages of the slot, with the one that has come
        m.d.sync += taken.eq(self.taken_read.data + 1)
        with m.State("EVENT"):
            m.d.comb += [self.active_write.addr.eq(h.slot), self.taken_write.addr.eq(h.slot)]
            m.d.comb += [self.infer_write.addr.eq(h.slot), self.infer_write.data.eq(h.output[0])]
            m.d.comb += [store.addr.eq(h.firing) for store in (self.need, self.state, self.pending)]
            m.d.comb += self.head.addr.eq(self._head_addr(h.firing, h.output))
            with m.Switch(h.kind):
                with m.Case(Kind.BEGIN):
                    m.d.comb += [
                        port.en.eq(1) for port in (self.active_write, self.taken_write, self.infer_write)
                    ]
                    m.next = "IDLE"
                with m.Case(Kind.FIRINGS):
                    m.next = "FIRINGS"
                with m.Case(Kind.FORWARD):
                    m.next = "EVENT FORWARD"
                with m.Case(Kind.BACKWARD):
                    m.d.sync += [
                        self.from_link.eq(1),
                        self.back_place.eq(h.place),
                        self.origin_fid.eq(h.firing),
                        self.origin_k.eq(h.output),
                    ]
                    m.d.sync += [self.back_at.eq(h.payload), self.back_full.eq(h.words != 0)]
                    if self.shape.by_rows:
                        m.d.sync += [self.back_row.eq(h.copy), self.back_single.eq(h.state[0])]
                    m.next = "RETURN LINK"
                with m.Default():
                    m.next = "IDLE"
        with m.State("EVENT FORWARD"):
            m.d.comb += [
                self.place.addr.eq(h.place),
                self.place.write.eq(1),
                self.place.value.address.eq(h.payload),
                self.place.value.host.eq(1),
            ]
            m.d.comb += [
                self.taken_write.addr.eq(h.slot),
                self.taken_write.en.eq(1),
                self.taken_write.data.eq(taken),
            ]
            m.d.sync += [self.v["a"].eq(h.firing), self.v["c"].eq(h.state), self.from_link.eq(1)]
            m.d.comb += self.need.addr.eq(h.firing)
            m.next = "ARRIVES 2"
        with m.State("FIRINGS"):
            # place: words of a record, state: messages that complete a firing.
            done = h.copy == 0
            m.d.comb += self.infer_read.addr.eq(h.slot)
            m.d.comb += [
                self.record.addr.eq(h.firing),
                self.record.write.eq(~done),
                self.record.value.eq(h.payload),
                self.need.addr.eq(h.firing),
                self.need.set.eq(~done),
                self.need.value.eq(h.state),
            ]
            m.d.comb += [
                self.owner.addr.eq(h.firing),
                self.owner.write.eq(~done),
                self.owner.value.unit.eq(h.unit),
                self.owner.value.slot.eq(h.slot),
                self.owner.value.infer.eq(self.infer_read.data),
            ]
            m.d.sync += [h.firing.eq(h.firing + 1), h.payload.eq(h.payload + h.place), h.copy.eq(h.copy - 1)]
            with m.If(done):
                m.next = "IDLE"

    def _head_addr(self, firing: Any, output: Any) -> Any:
        return Cat(output[: self.shape.output_bits], firing[: self.shape.firing_bits])
