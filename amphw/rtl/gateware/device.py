"""A device: the hardware of one partition, between two streams of link words."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from amphw.rtl.fixed.curves import curve
from amphw.rtl.gateware.activity import Activity
from amphw.rtl.gateware.controller.controller import Controller
from amphw.rtl.gateware.controller.keeper import Keeper, Owner, Segment
from amphw.rtl.gateware.controller.memory import ControlShape
from amphw.rtl.gateware.controller.ports import FrameKind, Job, MessageLayout, PreludeOp
from amphw.rtl.gateware.controller.sequencer import Sequencer
from amphw.rtl.gateware.enums import shaped
from amphw.rtl.gateware.lanes.engine import LaneEngine
from amphw.rtl.gateware.lanes.shape import LaneShape, command_layout
from amphw.rtl.gateware.link.ends import Generations, Receiver, Sender
from amphw.rtl.gateware.payload_memory import PayloadMemory
from amphw.rtl.gateware.streams import Hold
from amphw.rtl.gateware.vector.command import VectorShape
from amphw.rtl.gateware.vector.unit import VectorUnit
from amphw.rtl.isa import events
from amphw.rtl.isa.commands import IndexMode, VectorOp
from amphw.rtl.isa.counters import CYCLES
from amphw.rtl.isa.wire import WORD
from amphw.rtl.microcode.compile import CURVES
from amphw.rtl.plan.hardware import JOBS, HardwarePlan, widest

What = shaped(events.What, events.BITS["what"])


class Watched(data.StructLayout):
    """An event, as `amphw.rtl.isa.events` defines it."""

    def __init__(self) -> None:
        super().__init__({**events.BITS, "what": What, "kind": FrameKind})


def control_shape(plan: HardwarePlan) -> ControlShape:
    sizes, partition = plan.sizes, plan.partition
    reads, loops = widest(plan.control.steps)
    return ControlShape(
        firings=sizes.firings,
        places=sizes.places,
        table=sizes.table,
        slots=sizes.slots,
        units=len(partition.units),
        outputs=max(1, *(len(u.derivative.float_outputs) if u.derivative else 0 for u in partition.units)),
        state_bits=partition.state_bits,
        decisions=partition.decisions,
        loops=loops,
        reads=reads,
        by_rows=partition.by_rows,
        paths=len(partition.outbound),
    )


def lane_shape(plan: HardwarePlan) -> LaneShape:
    widest_blocks = max((p.blocks for of in plan.stack.places.values() for p in of.values()), default=1)
    momentum = next((r.mu for r in plan.rules.values() if r.mu is not None), None)
    return LaneShape(
        lanes=plan.sizes.lanes,
        beats=max(2, plan.stack.beats),
        widest_blocks=widest_blocks,
        address_bits=ceil_log2(plan.sizes.payload),
        formats=plan.formats,
        momentum=momentum is not None,
        mu=momentum or 0,
        s1=plan.shifts.s1,
        s2=plan.shifts.s2,
        clips=any(r.limit for r in plan.rules.values()),
    )


class Device(wiring.Component):
    """words_in, words_out: the link. watched: what happens; it never waits. idle: nothing is left to do.

    writes: whether the engines' writes are watched, too.
    """

    def __init__(self, plan: HardwarePlan, writes: bool = False):
        self.plan, self.writes = plan, writes
        self.waiting = Signal()
        """The controller's messages that have not been taken by the sender."""
        self.shape = control_shape(plan)
        self.lanes_shape = lane_shape(plan)
        used = {
            o.attr()["curve"] for d in plan.fixed.values() for _, o in d.forward.numbered() if o.op == "curve"
        }
        curves = tuple(curve(name, plan.formats.value.frac) for name in CURVES) if used else ()
        self.vector_shape = VectorShape(
            ceil_log2(plan.sizes.payload), 15, plan.formats, curves, plan.sizes.fan_in
        )
        super().__init__(
            {
                "words_in": In(stream.Signature(unsigned(WORD))),
                "words_out": Out(stream.Signature(unsigned(WORD))),
                "watched": Out(stream.Signature(Watched(), always_ready=False)),
                "idle": Out(1),
            }
        )

    # Others may stand here, so that a bench can play them.

    def lane_engine(self) -> Any:
        return LaneEngine(self.lanes_shape)

    def vector_unit(self) -> Any:
        return VectorUnit(self.vector_shape)

    def payload_memory(self) -> Any:
        return PayloadMemory(self.vector_shape.address_bits, self.plan.sizes.payload)

    def place(self, m: Module, name: str, part: Any) -> Any:
        """Make a component a part of the device -> the component."""
        m.submodules[name] = part
        return part

    def elaborate(self, platform: object) -> Module:
        m = Module()
        plan, shape = self.plan, self.shape
        lanes = self.place(m, "lanes", self.lane_engine())
        vector = self.place(m, "vector", self.vector_unit())
        memory = self.place(m, "memory", self.payload_memory())
        controller = self.place(m, "controller", Controller(plan.control, shape, plan.sums))
        microcode, entries = microprograms(plan)
        layout = command_layout(self.lanes_shape)
        sequencer = self.place(
            m, "sequencer", Sequencer(shape, self.vector_shape, layout, microcode, entries)
        )
        keeper = self.place(m, "keeper", Keeper(shape, owners(plan), layout))
        receiver = self.place(m, "receiver", Receiver(shape, plan.sizes.payload))
        sender = self.place(m, "sender", Sender())
        generations = self.place(m, "generations", Generations(shape.slots))
        for engine, name in ((lanes, "lanes"), (vector, "vector")):
            for port in ("read_a", "read_b", "write"):
                wiring.connect(m, getattr(engine, port), getattr(memory, f"{name}_{port}"))
        for source, name in (
            (controller, "put"),
            (controller, "look"),
            (receiver, "receive"),
            (sender, "send"),
        ):
            wiring.connect(m, getattr(source, name), getattr(memory, name))
        wiring.connect(m, wiring.flipped(self.words_in), receiver.words)
        wiring.connect(m, wiring.flipped(self.words_out), sender.words)
        wiring.connect(m, receiver.event, controller.event)
        wiring.connect(m, receiver.request, keeper.request)
        wiring.connect(m, controller.run, sequencer.run)
        wiring.connect(m, keeper.ran, controller.ran)
        wiring.connect(m, controller.registers, sequencer.registers)
        wiring.connect(m, lanes.response, keeper.response)
        engines_idle = Signal()
        m.d.comb += [
            engines_idle.eq(lanes.idle & vector.idle),
            sequencer.idle.eq(engines_idle),
            sequencer.hold.eq(keeper.hold),
            keeper.finished.eq(sequencer.finished),
            keeper.current.eq(sequencer.current),
            keeper.rows.eq(sequencer.rows),
            keeper.busy.eq(sequencer.busy),
            keeper.idle.eq(engines_idle),
            controller.quiet.eq(
                ~sequencer.busy & ~controller.run.valid & ~controller.prelude.valid & engines_idle
            ),
            controller.table_en.eq(receiver.table_en),
            controller.table_addr.eq(receiver.table_addr),
            controller.table_data.eq(receiver.table_data),
            generations.en.eq(receiver.begins),
            generations.slot.eq(receiver.slot),
            generations.slot_in.eq(receiver.slot),
            generations.generation.eq(receiver.begins_generation),
            receiver.generation.eq(generations.held),
            generations.slot_out.eq(sender.slot),
            sender.generation.eq(generations.out),
            vector.pointer.en.eq(controller.pointer_en),
            vector.pointer.index.eq(controller.pointer_index),
            vector.pointer.data.eq(controller.pointer_data),
            self.idle.eq(
                ~sequencer.busy
                & engines_idle
                & controller.resting
                & receiver.resting
                & sender.resting
                & ~self.waiting
                & ~keeper.hold
            ),
        ]
        self._lane_commands(m, lanes, sequencer, keeper)
        self._vector_commands(m, vector, sequencer, controller)
        self._jobs(m, controller, keeper, receiver, sender)
        self._watch(m, sequencer, keeper, memory)
        if plan.sizes.counters:
            self._count(m, lanes, vector, controller, sequencer, keeper)
        return m

    def _count(
        self, m: Module, lanes: Any, vector: Any, controller: Any, sequencer: Any, keeper: Any
    ) -> None:
        """What the counters count, in the order of their names."""
        paths = len(self.plan.lowered.paths)
        m.submodules.activity = activity = Activity(paths, 16)
        ready = (controller.ready != 0) | (controller.ready_backward != 0) | controller.run.valid
        idle = ~sequencer.busy & ~keeper.hold
        events = {
            "cycles": Const(1),
            "lanes_busy": ~lanes.idle,
            "vector_busy": ~vector.idle,
            "sequencer_busy": sequencer.busy,
            "starved": idle & ~ready & controller.resting,
            "fetching": idle & (ready | ~controller.resting),
            "updating": keeper.takes,
            "link_in_words": self.words_in.valid & self.words_in.ready,
            "link_in_back_pressured": self.words_in.valid & ~self.words_in.ready,
            "link_out_words": self.words_out.valid & self.words_out.ready,
            "link_out_back_pressured": self.words_out.valid & ~self.words_out.ready,
            "sending_back_pressured": controller.job.valid & ~controller.job.ready,
        }
        m.d.comb += [
            activity.events.eq(Cat(*(events[name] for name in CYCLES))),
            activity.forward_ready.eq(controller.ready),
            activity.backward_ready.eq(controller.ready_backward),
            activity.sent.eq(controller.sent_one),
            activity.path.eq(controller.path),
            activity.index.eq(keeper.counter),
            keeper.counted.eq(activity.value),
        ]

    def _lane_commands(self, m: Module, lanes: Any, sequencer: Any, keeper: Any) -> None:
        with m.If(keeper.takes):
            wiring_of(m, keeper.lanes, lanes.command)
        with m.Else():
            wiring_of(m, sequencer.lanes, lanes.command)

    def _vector_commands(self, m: Module, vector: Any, sequencer: Any, controller: Any) -> None:
        """The sequencer's, or while it is still, what a firing needs before it runs."""
        asked, command = controller.prelude, vector.command.payload
        with m.If(sequencer.busy):
            wiring_of(m, sequencer.vector, vector.command)
        with m.Else():
            p = asked.payload
            m.d.comb += [
                vector.command.valid.eq(asked.valid),
                asked.ready.eq(vector.command.ready),
                command.outer.eq(Mux(p.op == PreludeOp.SUM, p.words, 1)),
                command.inner.eq(Mux(p.op == PreludeOp.SUM, p.parts, p.words)),
                command.a.base.eq(p.source),
                command.a.inner.eq(Mux(p.op == PreludeOp.SUM, 0, 1)),
                command.a.outer.eq(1),
                command.d.base.eq(p.target),
                command.d.inner.eq(1),
                command.d.outer.eq(1),
                command.op.eq(VectorOp.COPY),
            ]
            with m.Switch(p.op):
                with m.Case(PreludeOp.SUM):
                    m.d.comb += [command.op.eq(VectorOp.SUM), command.mode.eq(IndexMode.POINTERS)]
                with m.Case(PreludeOp.FILL):
                    m.d.comb += command.op.eq(VectorOp.FILL)

    def _jobs(self, m: Module, controller: Any, keeper: Any, receiver: Any, sender: Any) -> None:
        """Messages wait in a queue; answers and faults come first."""
        width = Job().size
        m.submodules.jobs = jobs = SyncFIFOBuffered(width=width, depth=JOBS)
        m.submodules.told = told = Hold(MessageLayout())
        # States choose what controller and keeper send: that takes a cycle of its own.
        m.submodules.job = job = Hold(Job())
        wiring.connect(m, controller.job, job.i)
        m.d.comb += [
            jobs.w_data.eq(job.o.payload),
            jobs.w_en.eq(job.o.valid),
            job.o.ready.eq(jobs.w_rdy),
            self.waiting.eq(job.o.valid | (jobs.level != 0) | told.o.valid),
        ]
        with m.If(keeper.answer.valid):
            wiring_of(m, keeper.answer, told.i)
        with m.Else():
            wiring_of(m, receiver.fault, told.i)
        with m.If(told.o.valid):
            m.d.comb += [
                sender.jobs.valid.eq(1),
                sender.jobs.payload.header.eq(told.o.payload),
                told.o.ready.eq(sender.jobs.ready),
            ]
        with m.Else():
            m.d.comb += [
                sender.jobs.valid.eq(jobs.r_rdy),
                sender.jobs.payload.as_value().eq(jobs.r_data),
                jobs.r_en.eq(sender.jobs.ready),
            ]

    def _watch(self, m: Module, sequencer: Any, keeper: Any, memory: Any) -> None:
        told = self.watched.payload
        begins = sequencer.run.valid & sequencer.run.ready
        current = Mux(begins, sequencer.run.payload.as_value(), sequencer.current.as_value())
        run = data.View(sequencer.current.shape(), current)
        m.d.comb += [told.kind.eq(run.kind), told.unit.eq(run.unit), told.slot.eq(run.slot)]
        m.d.comb += told.firing.eq(run.firing)
        with m.If(begins | sequencer.finished):
            m.d.comb += [self.watched.valid.eq(1), told.what.eq(Mux(begins, What.BEGIN, What.END))]
        with m.Elif(keeper.updated):
            m.d.comb += [self.watched.valid.eq(1), told.what.eq(What.UPDATE), told.unit.eq(keeper.unit)]
        with m.Elif(int(self.writes) & (memory.lanes_write.en | memory.vector_write.en)):
            write = Mux(memory.lanes_write.en, Cat(memory.lanes_write.addr), Cat(memory.vector_write.addr))
            m.d.comb += [
                self.watched.valid.eq(1),
                told.what.eq(What.WRITE),
                told.firing.eq(write),
                told.data.eq(Mux(memory.lanes_write.en, memory.lanes_write.data, memory.vector_write.data)),
            ]


def wiring_of(m: Module, source: Any, target: Any) -> None:
    """Connect two streams of one layout, within a condition."""
    m.d.comb += [
        target.valid.eq(source.valid),
        target.payload.eq(source.payload),
        source.ready.eq(target.ready),
    ]


def microprograms(plan: HardwarePlan) -> tuple[list[int], dict[tuple[int, Any], int]]:
    """All microprograms in one memory, and where each begins."""
    words: list[int] = []
    entries: dict[tuple[int, Any], int] = {}
    for number, unit in enumerate(plan.partition.units):
        code = plan.codes[unit.index]
        for kind, program in (
            (FrameKind.FORWARD, code.forward),
            (FrameKind.INFER, code.inference),
            (FrameKind.BACKWARD, code.backward),
        ):
            entries[number, kind] = len(words)
            words += program.words
    return words, entries


def owners(plan: HardwarePlan) -> dict[int, Owner]:
    """The units with parameters, by their number on the device."""
    found: dict[int, Owner] = {}
    for number, unit in enumerate(plan.partition.units):
        if unit.index not in plan.rules:
            continue
        places = plan.stack.places[unit.name]
        program = unit.behaviour.program
        assert program is not None
        segments = []
        for k, spec in enumerate(program.params):
            place = places[spec.name]
            rows = spec.shape[0] if len(spec.shape) == 2 else 1
            segments.append(Segment(place.base, rows, place.blocks, place.columns, k))
        rows_space = plan.codes[unit.index].spaces.constant.get("rows")
        found[number] = Owner(plan.rules[unit.index], tuple(segments), rows_space)
    return found
