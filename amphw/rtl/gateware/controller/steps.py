"""What the controller does at each step of a control program, one group of states after another."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal

from amphw.rtl.gateware.controller.gradients import GradientSteps
from amphw.rtl.gateware.controller.memory import pause
from amphw.rtl.gateware.controller.ports import FrameKind, PreludeOp
from amphw.rtl.isa.memory import READ_LATENCY
from amphw.rtl.isa.steps import StepOp
from amphw.rtl.isa.wire import Fault, Kind
from amphw.rtl.plan.control import Phase


class ControllerSteps(GradientSteps):
    """The states of steps. `self.v` holds the expressions, `self.n`, `self.m` and `self.target` the rest.

    A device has those of its control programs alone.
    """

    def _steps(self: Any, m: Module) -> None:
        self._next_step(m)
        for op, states in (
            (StepOp.READ, self._read),
            (StepOp.GUARD, self._guard),
            (StepOp.LOOP, self._loops),
            (StepOp.AT, self._at),
            (StepOp.FIRST, self._first),
            (StepOp.ROWS, self._rows),
            (StepOp.ADDRESS, self._address),
            (StepOp.POINT, self._point),
            (StepOp.PUT, self._put),
            (StepOp.DECIDE, self._decide),
            (StepOp.COPY, self._copy),
            (StepOp.GRADIENT, self._gradient),
            (StepOp.DELIVER, self._deliver),
            (StepOp.SEND, self._send),
            (StepOp.RETURN, self._return),
        ):
            if op in self.plan.ops:
                states(m)
        self._arrive(m)
        self._join(m)
        self._end(m)

    def _next_step(self: Any, m: Module) -> None:
        """The step's word is read while the one before is done; its expressions settle, then it is done."""
        waited = Signal.like(self.step.wait)
        with m.State("FETCH STEP"):
            m.d.sync += self.pc.eq(self.pc + 1)
            m.next = "NEXT STEP"
        with m.State("NEXT STEP"):
            m.d.sync += [self.step.eq(self.following), waited.eq(0)]
            m.next = "STEP"
        with m.State("STEP"):
            m.d.sync += waited.eq(waited + 1)
            with m.If(waited == self.step.wait):
                m.d.sync += [waited.eq(0), self.pc.eq(self.pc + 1), self.step.eq(self.following)]
                m.d.sync += self.from_link.eq(0)
                m.d.sync += [self.v[k].eq(self.chosen[k]) for k in self.v]
                m.d.sync += self.path.eq(self.step.path)
                m.d.sync += [self.n.eq(self.step.n), self.m.eq(self.step.m), self.target.eq(self.step.target)]
                with m.Switch(self.step.op):
                    for op in sorted(self.plan.ops):
                        with m.Case(op):
                            m.next = op.name

    def _jump(self: Any, m: Module) -> None:
        m.d.sync += self.pc.eq(self.target)
        m.next = "FETCH STEP"

    def _read(self: Any, m: Module) -> None:
        with m.State("READ"):  # the table's address is `a` all the time
            m.next = "READ WORD"
        with m.State("READ WORD"):
            m.d.sync += self.reg[self.n].eq(self.table.data)
            m.next = "STEP"

    def _guard(self: Any, m: Module) -> None:
        a = self.v["a"]
        with m.State("GUARD"):
            with m.If(a == 0):
                self._jump(m)
            with m.Else():
                m.next = "STEP"

    def _loops(self: Any, m: Module) -> None:
        n, a = self.n, self.v["a"]
        # Of each loop, whether this is its last turn; between two steps that change that are other states.
        turns = list(zip(self.counter, self.last, strict=True))
        over = Array([Signal(name=f"over{k}") for k in range(len(turns))])
        m.d.sync += [over[k].eq(now == last) for k, (now, last) in enumerate(turns)]
        with m.State("LOOP"):
            m.d.sync += [self.counter[n].eq(0), self.last[n].eq(a - 1)]
            with m.If(a <= 0):
                self._jump(m)
            with m.Else():
                m.next = "STEP"
        with m.State("NEXT"):
            m.d.sync += self.counter[n].eq(self.counter[n] + 1)
            with m.If(~over[n]):
                self._jump(m)
            with m.Else():
                m.next = "STEP"

    def _at(self: Any, m: Module) -> None:
        with m.State("AT"):
            m.d.sync += self.at.eq(self.v["a"])
            m.next = "STEP"

    def _first(self: Any, m: Module) -> None:
        with m.State("FIRST"):
            m.d.sync += self.copy.eq(0)
            m.next = "STEP"

    def _rows(self: Any, m: Module) -> None:
        with m.State("ROWS"):
            self._register(m, 1, self.v["a"])
            m.next = "STEP"

    def _address(self: Any, m: Module) -> None:
        with m.State("ADDRESS"):
            self._register(m, 0, self.v["a"])
            m.next = "STEP"

    def _register(self: Any, m: Module, rows: int, value: Any) -> None:
        """Write a register of the sequencer, for the firing that is being fetched."""
        r = self.registers
        m.d.sync += [r.en.eq(1), r.rows.eq(rows), r.bank.eq(self.bank), r.index.eq(self.n), r.data.eq(value)]

    def _point(self: Any, m: Module) -> None:
        with m.State("POINT"):
            m.d.comb += self.place.addr.eq(self.v["a"])
            m.next = "POINT COMES"
        pause(m, "POINT COMES", 2, "POINT READ")
        with m.State("POINT READ"):
            self._register(m, 0, self.place.data.address)
            m.next = "STEP"

    def _put(self: Any, m: Module) -> None:
        """A word waits beside the program until memory is free; the firing is offered once it is written."""
        put_at, put = Signal.like(self.put.addr), Signal.like(self.put.data)
        m.d.comb += [self.put.en.eq(self.puts), self.put.addr.eq(put_at), self.put.data.eq(put)]
        m.d.sync += self.puts.eq(self.puts & ~self.put.done)
        with m.State("PUT"), m.If(~self.puts):
            m.d.sync += [self.puts.eq(1), put_at.eq(self.at), put.eq(self.v["a"]), self.at.eq(self.at + 1)]
            m.next = "STEP"

    def _decide(self: Any, m: Module) -> None:
        asks, looked, comes = Signal(), Signal(), Signal(READ_LATENCY)
        # Memory sees a register: whether others are served hangs on it.
        m.d.comb += [
            self.look.en.eq(asks),
            self.look.addr.eq(self.v["a"]),
            looked.eq(asks & self.look.done),
        ]
        m.d.sync += [comes.eq(Cat(looked, comes)), asks.eq(asks & ~looked)]
        with m.State("DECIDE"):
            m.d.sync += asks.eq(1)
            m.next = "DECIDED"
        with m.State("DECIDED"), m.If(comes[-1]):
            m.d.sync += self.decided[self.n].eq(self.look.data)
            m.next = "STEP"

    def _copy(self: Any, m: Module) -> None:
        a, b = self.v["a"], self.v["b"]
        with m.State("COPY"):
            m.d.comb += self.place.addr.eq(a)
            m.next = "COPY COMES"
        pause(m, "COPY COMES", 2, "COPY WORDS", self.place.addr.eq(a))
        with m.State("COPY WORDS"):
            m.d.comb += self.place.addr.eq(a)
            with m.If(self.quiet):
                self._prelude(m, PreludeOp.COPY, self.place.data.address, self.at, b)
                m.d.sync += self.at.eq(self.at + b)
                m.next = "STEP"

    def _prelude(self: Any, m: Module, op: Any, source: Any, target: Any, words: Any) -> None:
        """Offered from the next cycle on, to an engine that does nothing."""
        p = self.prelude
        m.d.sync += [
            p.valid.eq(1),
            p.payload.op.eq(op),
            p.payload.source.eq(source),
            p.payload.target.eq(target),
            p.payload.words.eq(words),
        ]

    def _deliver(self: Any, m: Module) -> None:
        a, place = self.v["a"], self.place
        with m.State("DELIVER"):
            m.d.comb += [
                place.addr.eq(self.v["b"]),
                place.write.eq(1),
                place.value.address.eq(self.v["d"]),
                place.value.link.eq(self.fid),
                place.value.output.eq(self.m),
                self.need.addr.eq(a),
                self.state.addr.eq(a),
            ]
            if self.shape.by_rows:
                m.d.comb += [place.value.row.eq(self.v["e"]), place.value.single.eq(self.n[0])]
            m.d.sync += self.sent.eq(self.sent + 1)
            m.d.comb += self.sent_one.eq(1)
            m.next = "ARRIVES"

    def _arrive(self: Any, m: Module) -> None:
        """A message's operand is in its place: of a step, or of the host."""
        a, last, differs = self.v["a"], Signal(), Signal()
        pause(m, "ARRIVES", 2, "ARRIVE", self.need.addr.eq(a))
        with m.State("ARRIVE"):
            state = self.v["c"][: self.shape.state_bits]
            m.d.comb += [
                self.need.addr.eq(a),
                self.need.arrive.eq(1),
                self.state.addr.eq(a),
                self.state.write.eq(1),
                self.state.value.eq(state),
            ]
            # Operands that meet must agree about the firing's state.
            m.d.sync += [last.eq(self.need.last), differs.eq(self.need.known & (self.state.data != state))]
            m.next = "ARRIVED"
        with m.State("ARRIVED"):
            with m.If(last):
                m.d.comb += [self.forward.push.eq(1), self.forward.value.eq(a)]
                self._activate(m)
            m.next = "STEP"
            with m.If(self.from_link):
                m.next = "IDLE"
            with m.If(differs):
                m.next = "TELL STATE"
        with m.State("TELL STATE"):
            h = self.job.payload.header
            m.d.comb += [
                self.job.valid.eq(1),
                h.kind.eq(Kind.FAULT),
                h.output.eq(Fault.STATE),
                h.slot.eq(self._slot()),
                h.firing.eq(a),
                h.state.eq(self.v["c"]),
            ]
            with m.If(self.job.ready):
                m.next = "STEP"
                with m.If(self.from_link):
                    m.next = "IDLE"

    def _slot(self: Any) -> Any:
        return Mux(self.from_link, self.header.slot[: len(self.current.slot)], self.current.slot)

    def _activate(self: Any, m: Module, retires: bool = False) -> None:
        """One firing of the slot more is ready, or it is done; that is counted in the next cycle."""
        m.d.sync += [
            self.activates.eq(1),
            self.activated.eq(self._slot()),
            self.retires.eq(retires),
        ]

    def _count_active(self: Any, m: Module) -> None:
        m.d.sync += self.activates.eq(0)
        with m.If(self.activates):
            m.d.comb += [
                self.active_write.addr.eq(self.activated),
                self.active_write.en.eq(1),
                self.active_write.data.eq(self.active_read.data + Mux(self.retires, -1, 1)),
            ]

    def _send(self: Any, m: Module) -> None:
        h = self.job.payload.header
        with m.State("SEND"):
            m.d.comb += [
                self.job.valid.eq(1),
                self.job.payload.source.eq(self.v["a"]),
                h.kind.eq(Kind.FORWARD),
                h.output.eq(self.m),
                h.slot.eq(self.current.slot),
                h.unit.eq(self.current.unit),
                h.firing.eq(self.fid),
                h.place.eq(self.n),
                h.words.eq(self.v["b"]),
                h.copy.eq(self.copy),
                h.state.eq(self.v["c"]),
                h.payload.eq(self.v["e"]),
            ]
            with m.If(self.job.ready):
                m.d.comb += self.sent_one.eq(1)
                m.d.sync += [self.copy.eq(self.copy + self.plan.copies), self.sent.eq(self.sent + 1)]
                m.next = "STEP"

    def _end(self: Any, m: Module) -> None:
        output = Signal(range(self.shape.outputs))
        with m.State("END"):
            m.d.sync += output.eq(0)
            with m.Switch(self.phase):
                with m.Case(Phase.FETCH, Phase.FETCH_BACKWARD):
                    with m.If(~self.puts):  # all that it reads is written
                        self._offer(m)
                        m.next = "IDLE"
                with m.Case(Phase.ROUTE):
                    m.next = "SENT"
                    with m.If(self.current.infer):
                        m.next = "DONE"
                with m.Default():
                    m.next = "DONE"
        with m.State("SENT"):  # so many messages are out, and none of their gradients is back
            m.d.comb += [
                self.pending.addr.eq(self.fid),
                self.pending.value.eq(self.sent),
                self.pending.set.eq(1),
                self.head.addr.eq(self._head_addr(self.fid, output)),
                self.head.write.eq(1),
            ]
            m.d.sync += output.eq(output + 1)
            with m.If(output == self.shape.outputs - 1):
                m.next = "DONE"
                with m.If(self.sent == 0):  # nothing to wait for: it goes back at once
                    m.d.comb += [self.backward.push.eq(1), self.backward.value.eq(self.fid)]
                    m.next = "IDLE"
        with m.State("DONE"):
            self._activate(m, retires=True)
            m.next = "IDLE"
            with m.If(self.current.infer & (self.active_now.data == 1)):
                m.next = "TELL IDLE"
        with m.State("TELL IDLE"):
            h = self.job.payload.header
            m.d.comb += [
                self.job.valid.eq(1),
                h.kind.eq(Kind.IDLE),
                h.slot.eq(self.current.slot),
                h.copy.eq(self.taken_now.data),
            ]
            with m.If(self.job.ready):
                m.next = "IDLE"

    def _offer(self: Any, m: Module) -> None:
        """The firing is fetched; the engines take it when they are through with the one before."""
        run = self.run.payload
        m.d.sync += [
            self.run.valid.eq(1),
            run.kind.eq(
                Mux(
                    self.phase == Phase.FETCH_BACKWARD,
                    FrameKind.BACKWARD,
                    Mux(self.current.infer, FrameKind.INFER, FrameKind.FORWARD),
                )
            ),
            run.bank.eq(self.bank),
            run.firing.eq(self.fid),
            run.unit.eq(self.current.unit),
            run.slot.eq(self.current.slot),
            self.bank.eq(~self.bank),
        ]
