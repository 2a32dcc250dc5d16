"""The circuits whose size and clock rate are watched: one of each part of a device, and a whole one.

Each has the ports `rx` and `tx` of a board, so that figures are those of a circuit that could be loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.build.board_files import device_verilog
from amphw.rtl.build.boards import MARGIN, board
from amphw.rtl.fixed.curves import curve
from amphw.rtl.gateware.lanes.engine import LaneEngine
from amphw.rtl.gateware.lanes.shape import LaneShape
from amphw.rtl.gateware.link.uart import UartLink
from amphw.rtl.gateware.payload_memory import PayloadMemory
from amphw.rtl.gateware.vector.command import VectorShape
from amphw.rtl.gateware.vector.unit import VectorUnit
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.toolchain.synthesis import ClockNet
from amphw.rtl.toolchain.verilog import ports, verilog
from benchmarks.rtl_plans import SMALL_DEVICE, plan_of

FORMATS = Formats.parse("q4.12")


@dataclass(frozen=True)
class Design:
    """what: in words. text: makes its Verilog. seeds: of placements, whose median clock rate counts.

    slower: by how much that may be lower than committed, as a fraction. clocks: with rates of their own.
    """

    name: str
    what: str
    board: str
    frequency_mhz: float
    text: Callable[[], str]
    seeds: tuple[int, ...] = (1, 2, 3)
    slower: float = 0.10
    clocks: Sequence[ClockNet] = ()


class Bench(wiring.Component):
    """An engine ("lanes" or "vector") with payload memory. Its inputs are registers that are filled from
    `rx` one after another; `tx` is the parity of its registered outputs, so that none of them is left out."""

    def __init__(self, engine: Any, kind: str, address_bits: int) -> None:
        self.engine, self.kind, self.address_bits = engine, kind, address_bits
        super().__init__({"rx": In(1), "tx": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.engine = self.engine
        m.submodules.memory = memory = PayloadMemory(self.address_bits, 1 << self.address_bits)
        for port in ("read_a", "read_b", "write"):
            wiring.connect(m, getattr(self.engine, port), getattr(memory, f"{self.kind}_{port}"))
        inputs, outputs = [], []
        for port in ports(self.engine):
            if not port.name.startswith(("read_a", "read_b", "write")):
                (inputs if port.is_input else outputs).append(Value.cast(port.value))
        given, seen = Signal(sum(map(len, inputs))), Signal(sum(map(len, outputs)))
        m.d.sync += [given.eq(Cat(self.rx, given)), seen.eq(Cat(outputs)), self.tx.eq(seen.xor())]
        m.d.comb += Cat(inputs).eq(given)
        return m


class Echo(wiring.Component):
    """The serial link, which sends back what comes."""

    def __init__(self, divisor: int) -> None:
        self.divisor = divisor
        super().__init__({"rx": In(1), "tx": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.link = link = UartLink(self.divisor)
        m.d.comb += [link.rx.eq(self.rx), self.tx.eq(link.tx)]
        m.d.comb += [
            link.i.payload.eq(link.o.payload),
            link.i.valid.eq(link.o.valid),
            link.o.ready.eq(link.i.ready),
        ]
        return m


def lane_engine(lanes: int, size: int, address_bits: int) -> str:
    """For a layer of size x size with bias, trained by plain gradient descent."""
    blocks = -(-size // lanes)
    shape = LaneShape(lanes, (size + 1) * blocks, blocks, address_bits, FORMATS)
    return verilog(Bench(LaneEngine(shape), "lanes", address_bits), reset=False)


def vector_unit(address_bits: int) -> str:
    """With both curves."""
    curves = tuple(curve(name, FORMATS.value.frac) for name in ("sigmoid", "tanh"))
    shape = VectorShape(address_bits, 15, FORMATS, curves)
    return verilog(Bench(VectorUnit(shape), "vector", address_bits), reset=False)


def _device(
    name: str, lanes: int, hidden: int, keys: int, seeds: tuple[int, ...], rounding: str = "nearest"
) -> Design:
    """A whole circuit, for list reduction, at 100 MHz. Placing one takes minutes, and chance alone makes a
    tenth."""
    on, mhz = board("ulx3s-85f"), 100
    clocking = on.clocking(mhz)
    settings = (*SMALL_DEVICE, f"hidden={hidden}")  # the later of two counts
    return Design(
        name,
        f"list reduction, hidden={hidden} batch=1, {lanes} lanes, {keys} keys"
        + (f", round={rounding}" if rounding != "nearest" else ""),
        on.name,
        mhz * MARGIN,
        lambda: device_verilog(
            plan_of("list-reduction", settings, f"{FORMATS},round={rounding}", lanes, keys, on.name),
            on,
            clocking,
        ),
        clocks=clocking.nets(),
        seeds=seeds,
        slower=0.20,
    )


DESIGNS = {
    d.name: d
    for d in (
        Design(
            "lanes-16-ecp5",
            "lane engine, 16 lanes, a layer of 64 x 64",
            "ulx3s-85f",
            100,
            lambda: lane_engine(16, 64, 10),
            seeds=(1,),  # minutes each; chance alone makes a tenth
            slower=0.20,
        ),
        Design(
            "lanes-4-gowin",
            "lane engine, 4 lanes, a layer of 16 x 16",
            "tang-nano-9k",
            50,
            lambda: lane_engine(4, 16, 10),
            seeds=(1, 2),  # placement takes long there
        ),
        Design(
            "vector-ecp5",
            "vector unit with sigmoid and tanh",
            "ulx3s-85f",
            100,
            lambda: vector_unit(10),
        ),
        Design("link-ice40", "serial link", "icebreaker", 24, lambda: verilog(Echo(12), reset=False)),
        _device("device-ecp5", 4, 8, 2, seeds=(1,)),
        _device("device-stochastic-ecp5", 4, 8, 2, seeds=(1,), rounding="stochastic"),
        _device("device-16-ecp5", 16, 32, 16, seeds=(1, 2, 3)),
    )
}
