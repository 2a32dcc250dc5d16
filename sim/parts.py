"""Parts of a device that are tested together, since they mean little alone."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Value, signed, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from amphw.rtl.gateware.controller.memory import ControlShape
from amphw.rtl.gateware.controller.ports import Free, Job, MessageLayout
from amphw.rtl.gateware.device import Device, Watched
from amphw.rtl.gateware.lanes.shape import RESPONSE_BITS, command_layout
from amphw.rtl.gateware.link.ends import Generations, Receiver, Sender
from amphw.rtl.gateware.payload_memory import PayloadMemory
from amphw.rtl.gateware.ports import ReadPort, WritePort
from amphw.rtl.gateware.vector.loops import PointerPort
from amphw.rtl.isa.wire import WORD
from amphw.rtl.plan.hardware import HardwarePlan


class LinkPart(wiring.Component):
    """Both ends of the link, and the payload memory between them, which an engine uses at the same time."""

    def __init__(self, shape: ControlShape, payload: int):
        self.shape, self.payload = shape, payload
        self.address_bits = ceil_log2(payload)
        super().__init__(
            {
                "words_in": In(stream.Signature(unsigned(WORD))),
                "words_out": Out(stream.Signature(unsigned(WORD))),
                "event": Out(stream.Signature(MessageLayout())),
                "request": Out(stream.Signature(MessageLayout())),
                "fault": Out(stream.Signature(MessageLayout())),
                "jobs": In(stream.Signature(Job())),
                "read": In(ReadPort(self.address_bits)),
                "write": In(WritePort(self.address_bits)),
                "table_en": Out(1),
                "table_addr": Out(ceil_log2(shape.table)),
                "table_data": Out(signed(WORD)),
                "resting": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.memory = memory = PayloadMemory(self.address_bits, self.payload)
        m.submodules.receiver = receiver = Receiver(self.shape, self.payload)
        m.submodules.sender = sender = Sender()
        m.submodules.generations = generations = Generations(self.shape.slots)
        for mine, theirs in (
            (self.words_in, receiver.words),
            (self.words_out, sender.words),
            (self.event, receiver.event),
            (self.request, receiver.request),
            (self.fault, receiver.fault),
            (self.jobs, sender.jobs),
            (self.read, memory.lanes_read_b),
            (self.write, memory.lanes_write),
        ):
            wiring.connect(m, wiring.flipped(mine), theirs)
        wiring.connect(m, receiver.receive, memory.receive)
        wiring.connect(m, sender.send, memory.send)
        m.d.comb += [
            generations.en.eq(receiver.begins),
            generations.slot.eq(receiver.slot),
            generations.generation.eq(receiver.begins_generation),
            generations.slot_in.eq(receiver.slot),
            receiver.generation.eq(generations.held),
            generations.slot_out.eq(sender.slot),
            sender.generation.eq(generations.out),
            self.table_en.eq(receiver.table_en),
            self.table_addr.eq(receiver.table_addr),
            self.table_data.eq(receiver.table_data),
            self.resting.eq(receiver.resting & sender.resting),
        ]
        return m


FREE = {"put": True, "receive": True, "look": False, "send": False}
"""Who uses the payload memory when the engines do not, and whether to write."""


class ControlPart(wiring.Component):
    """A device whose engines and payload memory stand outside: the bench plays them.

    lanes, vector: what the engines are told, and say. memory: what the link and the controller ask of the
    payload memory; `grant_*`: whether they get it in this cycle.
    """

    def __init__(self, plan: HardwarePlan):
        self.device = _OpenDevice(plan, self)
        lanes, vector = self.device.lanes_shape, self.device.vector_shape
        members = {name: self.device.signature.members[name] for name in ("words_in", "words_out", "idle")}
        self.engines = {
            "lanes": {
                "command": In(stream.Signature(command_layout(lanes))),
                "response": Out(stream.Signature(signed(RESPONSE_BITS))),
                "idle": Out(1),
            },
            "vector": {
                "command": In(stream.Signature(vector.command)),
                "pointer": In(PointerPort(vector)),
                "idle": Out(1),
            },
        }
        super().__init__(
            {
                **members,
                # Here it is not held to the rules of a stream: nothing waits for whoever watches.
                "event": Out(Watched()),
                "event_valid": Out(1),
                "lanes": In(wiring.Signature(self.engines["lanes"])),
                "vector": In(wiring.Signature(self.engines["vector"])),
                "memory": In(wiring.Signature({name: In(Free(write)) for name, write in FREE.items()})),
                **{f"grant_{name}": In(1) for name in FREE},
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.device = device = self.device
        wiring.connect(m, wiring.flipped(self.words_in), device.words_in)
        wiring.connect(m, wiring.flipped(self.words_out), device.words_out)
        m.d.comb += [
            self.idle.eq(device.idle),
            self.event.eq(device.watched.payload),
            self.event_valid.eq(device.watched.valid),
        ]
        return m


class _OpenDevice(Device):
    def __init__(self, plan: HardwarePlan, part: ControlPart):
        self.part = part
        super().__init__(plan)

    def lane_engine(self) -> Any:
        return _Engine(self.part.engines["lanes"], self.part.lanes, self.vector_shape.address_bits)

    def vector_unit(self) -> Any:
        return _Engine(self.part.engines["vector"], self.part.vector, self.vector_shape.address_bits)

    def payload_memory(self) -> Any:
        return _Memory(self.part, self.vector_shape.address_bits)


def _ports(address_bits: int) -> dict[str, Any]:
    """An engine's ports to the payload memory."""
    read, write = ReadPort(address_bits), WritePort(address_bits)
    return {"read_a": Out(read), "read_b": Out(read), "write": Out(write)}


class _Engine(wiring.Component):
    """Stands for an engine outside; that one uses the memory behind the hardware's back."""

    def __init__(self, members: dict[str, Any], outside: Any, address_bits: int):
        self.members, self.outside = members, outside
        super().__init__({**members, **_ports(address_bits)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for path, member, value in wiring.Signature(self.members).flatten(self):
            other = self.outside
            for name in path:
                other = getattr(other, name)
            m.d.comb += other.eq(value) if member.flow == In else Value.cast(value).eq(other)
        return m


class _Memory(wiring.Component):
    """Stands for the payload memory outside: requests are served in the cycles in which they are granted."""

    def __init__(self, part: ControlPart, address_bits: int):
        self.part = part
        engines = {
            f"{name}_{port}": member.flip()
            for name in ("lanes", "vector")
            for port, member in _ports(address_bits).items()
        }
        super().__init__({**engines, **{name: In(Free(write)) for name, write in FREE.items()}})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for name, write in FREE.items():
            mine, other = getattr(self, name), getattr(self.part.memory, name)
            m.d.comb += [
                other.en.eq(mine.en),
                other.addr.eq(mine.addr),
                mine.done.eq(mine.en & getattr(self.part, f"grant_{name}")),
                other.data.eq(mine.data) if write else mine.data.eq(other.data),
            ]
        return m
