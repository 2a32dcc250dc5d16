"""The sequencer: runs a unit's microprogram, one instruction a cycle, and tells the engines what to do.

Instructions pass four stages: fetch, read registers, multiply, do. What waits (a command for an engine that
is busy, WAIT) holds up all that follow. One engine works at a time, since they share the payload memory's
ports.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from amphw.rtl.gateware.controller.memory import ADDRESS, ControlShape
from amphw.rtl.gateware.controller.ports import Registers, Run
from amphw.rtl.gateware.vector.command import VectorShape
from amphw.rtl.isa.commands import (
    CODE_BITS,
    CONSTANT_BITS,
    INITIAL,
    LAYOUT,
    POINTERS,
    ROW_REGISTERS,
    WORD,
    Code,
    Field,
    Unit,
)

VECTOR_FIELDS = {
    Field.V_OUTER: ("outer",),
    Field.V_INNER: ("inner",),
    Field.V_A: ("a", "base"),
    Field.V_A_OUTER: ("a", "outer"),
    Field.V_A_INNER: ("a", "inner"),
    Field.V_B: ("b", "base"),
    Field.V_B_OUTER: ("b", "outer"),
    Field.V_B_INNER: ("b", "inner"),
    Field.V_D: ("d", "base"),
    Field.V_D_OUTER: ("d", "outer"),
    Field.V_D_INNER: ("d", "inner"),
    Field.V_CONSTANT: ("constant",),
    Field.V_INDEX: ("index", "base"),
    Field.V_SCALE: ("index", "scale"),
}
LANE_FIELDS = {
    Field.L_ROWS: "count",
    Field.L_X: "x",
    Field.L_Y: "y",
    Field.L_DZ: "dz",
    Field.L_BASE: "base",
    Field.L_K: "rows",
    Field.L_BLOCKS: "blocks",
    Field.L_N: "columns",
}


LAYOUTS = {
    code: data.StructLayout({p.name: signed(p.bits) if p.signed else unsigned(p.bits) for p in parts})
    for code, parts in LAYOUT.items()
    if parts
}
"""The parts of an instruction, behind its code."""

DOES = {
    "sets": (Code.SETC, Code.SETP, Code.SETR),
    "issues": (Code.ISSUE,),
    "points": (Code.PTR,),
    "halts": (Code.WAIT, Code.END),
    "ends": (Code.END,),
}
"""What an instruction does in its last stage, and which ones do."""


class Sequencer(wiring.Component):
    """run: firings; each is finished when `finished` is set for a cycle and everything it wrote is in memory.

    microcode: all microprograms; entries: (unit's number, kind) -> where its program begins. registers:
    written by the controller, for the firing that it offers next. busy: a microprogram runs. rows: those of
    `current`.
    """

    def __init__(
        self,
        shape: ControlShape,
        vector: VectorShape,
        lanes: data.StructLayout,
        microcode: list[int],
        entries: dict[tuple[int, Any], int],
    ):
        self.shape, self.microcode, self.entries = shape, microcode, entries
        self.stalled = Signal()
        """Stage 3 must wait."""
        super().__init__(
            {
                "run": In(stream.Signature(Run(shape))),
                "registers": In(Registers()),
                "vector": Out(stream.Signature(vector.command)),
                "lanes": Out(stream.Signature(lanes)),
                "idle": In(1),
                "hold": In(1),
                "busy": Out(1),
                "finished": Out(1),
                "current": Out(Run(shape)),
                "rows": Out(ADDRESS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        begins = Signal()
        m.d.comb += [
            self.run.ready.eq(~self.busy & ~self.hold & self.idle),
            begins.eq(self.run.valid & self.run.ready),
        ]
        # Stage 0 reads an instruction from memory, stage 1 holds it, stage 2 its operands, stage 3 the value
        # and what to do.
        fetched, *there = (Signal(name=f"stage{k}") for k in (0, 1, 2))
        stalled, waits = self.stalled, Signal()  # and stage 1 waits for a pointer
        does = [Signal(name=name) for name in DOES]  # of stage 3, known when it begins
        word = self._fetch(m, begins, ~stalled & ~waits)
        code, operands = word[:CODE_BITS], word[CODE_BITS:]
        base, count = self._registers(m, code, operands)
        codes = [code, Signal(CODE_BITS), Signal(CODE_BITS)]
        rest = [operands, Signal(WORD - CODE_BITS), Signal(WORD - CODE_BITS)]
        base2, count2, imm2 = Signal(ADDRESS), Signal(ADDRESS), Signal(signed(CONSTANT_BITS))
        base3, product, imm3 = Signal(ADDRESS), Signal(signed(ADDRESS + 2)), Signal(signed(CONSTANT_BITS))
        with m.If(~stalled):
            m.d.sync += [
                there[1].eq(there[0] & ~waits),
                codes[1].eq(code),
                rest[1].eq(operands),
                base2.eq(base),
                count2.eq(count),
                codes[2].eq(codes[1]),
                rest[2].eq(rest[1]),
                base3.eq(base2),
                imm3.eq(imm2),
                product.eq(count2 * imm2),
            ]
            m.d.sync += [
                flag.eq(there[1] & codes[1].matches(*those))
                for flag, those in zip(does, DOES.values(), strict=True)
            ]
            with m.Switch(code):
                for c, layout in LAYOUTS.items():
                    if "imm" in layout.members:
                        with m.Case(c):
                            m.d.sync += imm2.eq(data.View(layout, operands[: layout.size]).imm)
            with m.If(~waits):
                m.d.sync += [fetched.eq(self.busy), there[0].eq(fetched)]
        # A pointer is written in stage 3 and read in stage 1: what follows such an instruction waits.
        does_of = dict(zip(DOES, does, strict=True))
        m.d.comb += waits.eq((there[1] & (codes[1] == Code.PTR)) | does_of["points"])
        self._do(m, does_of, codes[2], rest[2], base3, product, imm3, stalled, begins)
        with m.If(self.finished | begins):
            m.d.sync += [self.busy.eq(begins), *(stage.eq(0) for stage in (fetched, *there, *does))]
        return m

    def _fetch(self, m: Module, begins: Any, moves: Any) -> Any:
        """The instruction's word: one after another, from where the unit's program begins."""
        m.submodules.rom = rom = Memory(shape=unsigned(WORD), depth=len(self.microcode), init=self.microcode)
        fetch = rom.read_port()
        pc = Signal(range(len(self.microcode) + 1))
        m.d.comb += [fetch.addr.eq(pc), fetch.en.eq(moves)]
        # While it rests, registers take whatever is offered: so many of them would make `begins` late.
        with m.If(~self.busy):
            with m.If(~self.hold):
                m.d.sync += self.current.eq(self.run.payload)
            with m.Switch(Cat(self.run.payload.kind, self.run.payload.unit)):
                for (unit, kind), at in self.entries.items():
                    with m.Case(kind.value | unit << 2):
                        m.d.sync += pc.eq(at)
        with m.Elif(moves):
            m.d.sync += pc.eq(pc + 1)
        word = Signal(WORD)
        with m.If(moves):
            m.d.sync += word.eq(fetch.data)
        return word

    def _registers(self, m: Module, code: Any, operands: Any) -> tuple[Any, Any]:
        """PTR and ROWS, twice: the controller fills one half while the program uses the other."""
        m.submodules.pointers = pointers = Memory(shape=unsigned(ADDRESS), depth=2 * POINTERS, init=[])
        m.submodules.counts = counts = Memory(shape=unsigned(ADDRESS), depth=2 * ROW_REGISTERS, init=[])
        point, count = pointers.read_port(domain="comb"), counts.read_port(domain="comb")
        self.point_write, count_write = pointers.write_port(), counts.write_port()
        r, bank = self.registers, self.current.bank
        of = {c: data.View(layout, operands[: layout.size]) for c, layout in LAYOUTS.items()}
        moves = code == Code.PTR
        m.d.comb += [
            count_write.en.eq(r.en & r.rows),
            count_write.addr.eq(Cat(r.index[:3], r.bank)),
            count_write.data.eq(r.data),
            point.addr.eq(Cat(Mux(moves, of[Code.PTR].p, of[Code.SETP].p), bank)),
            count.addr.eq(Cat(Mux(moves, of[Code.PTR].r, of[Code.SETR].r), bank)),
        ]
        rows = [Signal(ADDRESS, name=f"rows{b}") for b in (0, 1)]
        for b, register in enumerate(rows):
            with m.If(r.en & r.rows & (r.index == 0) & (r.bank == b)):
                m.d.sync += register.eq(r.data)
        m.d.comb += self.rows.eq(Mux(bank, rows[1], rows[0]))
        return point.data, count.data

    def _do(
        self,
        m: Module,
        does: dict[str, Signal],
        code: Any,
        operands: Any,
        base: Any,
        product: Any,
        imm: Any,
        stalled: Any,
        begins: Any,
    ) -> None:
        """Stage 3: set a field or a pointer, issue a command, wait, or end."""
        of = {c: data.View(layout, operands[: layout.size]) for c, layout in LAYOUTS.items()}
        value = Signal(signed(CONSTANT_BITS + 1))
        m.d.comb += value.eq(product)
        with m.If(code == Code.SETC):
            m.d.comb += value.eq(imm)
        with m.If(code == Code.SETP):
            m.d.comb += value.eq(base + imm)
        fields = {f: Signal(signed(CONSTANT_BITS), init=INITIAL[f], name=f.name.lower()) for f in Field}
        for f, register in fields.items():
            with m.If(~self.busy):
                m.d.sync += register.eq(INITIAL[f])
            with m.Elif(does["sets"] & (of[Code.SETC].field == f)):
                m.d.sync += register.eq(value)
        issue = of[Code.ISSUE]
        self._commands(m, fields, issue)
        issues, points, to_vector = does["issues"], does["points"], issue.unit == Unit.VECTOR
        # The other engine must be through. A command just accepted is not yet seen in `idle`.
        last, fresh, clear, may, accepted = (
            Signal(name=n) for n in ("last", "fresh", "clear", "may", "accepted")
        )
        m.d.comb += [
            clear.eq(self.idle & ~fresh),
            may.eq(clear | (last == issue.unit)),
            self.vector.valid.eq(issues & to_vector & may),
            self.lanes.valid.eq(issues & ~to_vector & may),
            accepted.eq((self.vector.valid & self.vector.ready) | (self.lanes.valid & self.lanes.ready)),
        ]
        m.d.sync += fresh.eq(accepted)
        with m.If(accepted):
            m.d.sync += last.eq(issue.unit)
        r = self.registers
        theirs = r.en & ~r.rows  # the controller's write comes first
        m.d.comb += [
            stalled.eq((issues & ~accepted) | (does["halts"] & ~clear) | (points & theirs)),
            self.point_write.en.eq(theirs | points),
            self.point_write.addr.eq(
                Mux(theirs, Cat(r.index, r.bank), Cat(of[Code.PTR].d, self.current.bank))
            ),
            self.point_write.data.eq(Mux(theirs, r.data, base + product)),
            self.finished.eq(does["ends"] & clear),
        ]

    def _commands(self, m: Module, fields: dict[Field, Any], issue: Any) -> None:
        """The commands' fields: registers, and what stands in the instruction itself."""
        for f, path in VECTOR_FIELDS.items():
            part = self.vector.payload
            for name in path:
                part = part[name]
            m.d.comb += part.eq(fields[f])
        for f, name in LANE_FIELDS.items():
            m.d.comb += self.lanes.payload[name].eq(fields[f])
        for name in ("op", "mode", "overlap", "shift", "table"):
            m.d.comb += data.View.as_value(self.vector.payload)[self._where(self.vector.payload, name)].eq(
                issue[name]
            )
        for name in ("op", "bias", "want_dx", "want_dw"):
            m.d.comb += data.View.as_value(self.lanes.payload)[self._where(self.lanes.payload, name)].eq(
                issue[name]
            )

    @staticmethod
    def _where(view: Any, name: str) -> slice:
        """The bits of a field: an enumeration is set from a plain number that way."""
        field = view.shape()[name]
        return slice(field.offset, field.offset + field.width)
