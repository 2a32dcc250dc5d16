"""Models of cells of a chip that take and give a bit at both edges of a clock; its maker knows all of them.

They are what the ECP5's data sheet says of IDDRX1F and ODDRX1F, in whole cycles; delays are nothing here.
"""

from __future__ import annotations

from amaranth.hdl import ClockDomain, Module, Mux, Signal, Value

from amphw.rtl.gateware.network.rgmii import Ddr


def _clocked(m: Module, clock: Value, edge: str) -> str:
    """The name of a domain of that clock's edge, made where the module has none yet."""
    name = f"ddr_{edge}"
    if not hasattr(m, "_ddr_made"):
        m._ddr_made = set()  # type: ignore[attr-defined]
    if name not in m._ddr_made:  # type: ignore[attr-defined]
        m._ddr_made.add(name)  # type: ignore[attr-defined]
        domain = ClockDomain(name, clk_edge=edge, reset_less=True, local=True)
        setattr(m.domains, name, domain)
        m.d.comb += domain.clk.eq(clock)
    return name


def _take(m: Module, clock: Value, bit: Value, steps: int) -> tuple[Value, Value]:
    pos, neg = _clocked(m, clock, "pos"), _clocked(m, clock, "neg")
    first, second, rising, falling = Signal(), Signal(), Signal(), Signal()
    m.d[pos] += [first.eq(bit), rising.eq(first), falling.eq(second)]
    m.d[neg] += second.eq(bit)
    return rising, falling


def _give(m: Module, clock: Value, high: Value, low: Value, steps: int) -> Value:
    pos = _clocked(m, clock, "pos")
    first, second, out = Signal(), Signal(), Signal()
    m.d[pos] += [first.eq(high), second.eq(low)]
    m.d.comb += out.eq(Mux(clock, first, second))
    return out


MODEL = Ddr(_take, _give)
