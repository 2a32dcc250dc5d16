"""What the controller does with gradients: it sums those of an output, and gives an operand's back."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal

from amphw.rtl.gateware.controller.memory import ADDRESS, pause
from amphw.rtl.gateware.controller.ports import PreludeOp
from amphw.rtl.isa.wire import Kind


class GradientSteps:
    """The states of GRADIENT and RETURN, for `ControllerSteps`."""

    def _gradient(self: Any, m: Module) -> None:
        """One that came back whole is read where it lies; others are added up, by row if rows went alone."""
        whole, target, row_words = self.v["b"], self.v["d"], self.v["e"]
        row, parts = Signal(ADDRESS), Signal(8)
        head = self.head.data
        place = self.place.data
        first = self.head.addr.eq(self._head_addr(self.fid, self.m))
        # What is decided about rows is known cycles before: they change where a memory is asked next.
        next_row, last, one = Signal(ADDRESS + 1), Signal(), Signal()
        by_rows = self.shape.by_rows
        if by_rows:
            m.d.sync += [next_row.eq(row + row_words), last.eq(next_row >= whole), one.eq(row_words == whole)]
        else:
            m.d.comb += [last.eq(1), one.eq(1)]
        alone = place.single if by_rows else Const(0)
        with m.State("GRADIENT"):
            m.d.comb += first
            m.d.sync += row.eq(0)
            m.next = "HEAD COMES"
        pause(m, "HEAD COMES", 1, "SUM ROW", first)
        with m.State("SUM ROW"):
            m.d.comb += first
            m.d.sync += parts.eq(0)
            with m.If(self.quiet):
                m.next = "SUM FIRST"
        with m.State("SUM FIRST"):
            m.d.comb += self.place.addr.eq(head >> 1)
            m.next = "SUM ISSUE"
            with m.If(head[0]):
                m.next = "SUM COMES"
        pause(m, "SUM COMES", 2, "SUM NEXT")
        with m.State("SUM NEXT"):
            m.d.comb += self.place.addr.eq(place.link)
            m.d.comb += [self.pointer_index.eq(parts), self.pointer_data.eq(place.address)]
            with m.If(~alone):
                m.d.comb += self.pointer_data.eq(place.address + row)
            with m.If(~alone | (place.row == row if by_rows else 0)):
                m.d.comb += self.pointer_en.eq(1)
                m.d.sync += parts.eq(parts + 1)
            with m.If((parts == 0) & ~place.more & ~alone & one):
                self._register(m, 0, place.address)
                m.next = "STEP"
            with m.Elif(~place.more):
                m.next = "SUM ISSUE"
            with m.Else():
                m.next = "SUM COMES"
        with m.State("SUM ISSUE"):
            m.d.comb += first
            self._prelude(m, Mux(parts == 0, PreludeOp.FILL, PreludeOp.SUM), 0, target + row, row_words)
            m.d.sync += [self.prelude.payload.parts.eq(parts), row.eq(next_row)]
            m.next = "HEAD COMES"
            with m.If(last):
                m.next = "SUM DONE"
        with m.State("SUM DONE"):
            self._register(m, 0, target)
            m.next = "STEP"

    def _return(self: Any, m: Module) -> None:
        """A gradient goes back to where the operand came from: to an output's list, or to the host."""
        place = self.place
        with m.State("RETURN"):
            m.d.comb += place.addr.eq(self.v["a"])
            m.next = "RETURN COMES"
        pause(m, "RETURN COMES", 2, "RETURN READ")
        with m.State("RETURN READ"):
            origin, output = place.data.link, place.data.output
            m.d.comb += [self.head.addr.eq(self._head_addr(origin, output)), self.pending.addr.eq(origin)]
            m.d.sync += [
                self.back_place.eq(self.v["a"]),
                self.back_at.eq(self.at),
                self.back_full.eq(self.n[0]),
                self.origin_fid.eq(origin),
                self.origin_k.eq(output),
            ]
            if self.shape.by_rows:
                m.d.sync += [self.back_row.eq(place.data.row), self.back_single.eq(place.data.single)]
            m.next = "RETURN LINK"
            with m.If(place.data.host):
                m.next = "RETURN HOST"
        with m.State("RETURN HOST"):
            h = self.job.payload.header
            m.d.comb += [
                self.job.valid.eq(1),
                self.job.payload.source.eq(self.at),
                h.kind.eq(Kind.BACKWARD),
                h.slot.eq(self.current.slot),
                h.place.eq(self.back_place),
                h.words.eq(Mux(self.back_full, self.v["b"], 0)),
            ]
            with m.If(self.job.ready):
                self._returned(m)

    def _join(self: Any, m: Module) -> None:
        """A gradient joins the list of those of the output; the last one makes the firing ready."""
        place = self.place
        # What is known of the output comes.
        pause(m, "RETURN LINK", 2, "RETURN STORE", self.pending.addr.eq(self.origin_fid))
        with m.State("RETURN STORE"):
            head = self.head
            m.d.comb += [
                head.addr.eq(self._head_addr(self.origin_fid, self.origin_k)),
                head.write.eq(self.back_full),
                head.value.eq(self.back_place << 1 | 1),
                place.addr.eq(self.back_place),
                place.write.eq(self.back_full),
                place.value.address.eq(self.back_at),
                place.value.link.eq(head.data >> 1),
                place.value.more.eq(head.data[0]),
                self.pending.addr.eq(self.origin_fid),
                self.pending.arrive.eq(1),
            ]
            if self.shape.by_rows:
                m.d.comb += [place.value.row.eq(self.back_row), place.value.single.eq(self.back_single)]
            with m.If(self.pending.last):
                m.d.comb += [self.backward.push.eq(1), self.backward.value.eq(self.origin_fid)]
                self._activate(m)
            with m.If(self.from_link):
                m.next = "IDLE"
            with m.Else():
                self._returned(m)

    def _returned(self: Any, m: Module) -> None:
        with m.If(self.back_full):
            m.d.sync += self.at.eq(self.at + self.v["b"])
        m.next = "STEP"
