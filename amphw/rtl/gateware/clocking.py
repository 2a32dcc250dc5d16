"""The clocks of a chip: a PLL's cell, the domain that waits for it, and further clocks."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import ClockDomain, ClockSignal, Const, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out

from amphw.rtl.toolchain.pll import NET, Bits, PllSetting


class Pll(wiring.Component):
    """Makes `clk` of `reference`. `locked` belongs to no clock; while it is low, `clk` may be of any rate."""

    def __init__(self, setting: PllSetting) -> None:
        self.setting = setting
        super().__init__({"reference": In(1), "clk": Out(1), "locked": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        m, s = Module(), self.setting
        ports: dict[str, Any] = {
            **{f"p_{name}": _constant(value) for name, value in s.parameters.items()},
            **{f"a_{name}": value for name, value in s.attributes.items()},
            **{f"i_{name}": _constant(value) for name, value in s.constants.items()},
            f"i_{s.reference}": self.reference,
            f"o_{s.output}": self.clk,
            f"o_{s.lock}": self.locked,
        }
        if s.feedback is not None:
            compared = Signal()
            ports |= {f"o_{s.feedback[0]}": compared, f"i_{s.feedback[1]}": compared}
        m.submodules.cell = Instance(s.cell, **ports)
        return m


def _constant(value: int | str | Bits) -> Any:
    return Const(value.value, value.width) if isinstance(value, Bits) else value


def clocked(m: Module, oscillator: Signal, setting: PllSetting | None) -> None:
    """Give a top module its domain `sync`, out of the oscillator's clock.

    Without a PLL registers begin with their initial values, as in a chip just configured, and nothing resets
    them. With one they are held there until it has locked: before, edges may come closer together than any
    path allows. Where it loses its lock they go back there within two edges, and memories keep what is in
    them, so that a host hears nothing more of what was on its way.
    """
    m.domains.sync = domain = ClockDomain("sync", reset_less=setting is None or bool(setting.holds))
    if setting is None:
        m.d.comb += domain.clk.eq(oscillator)
        return
    m.submodules.pll = pll = Pll(setting)
    # A name of the top module is the one that the tools call the net by, whatever else is joined to it.
    domain.clk = Signal(name=NET, attrs={"keep": 1})
    m.d.comb += [pll.reference.eq(oscillator), domain.clk.eq(pll.clk)]
    # In either way all registers see the release in the same cycle.
    if setting.holds:
        _hold(m, pll.locked, setting.holds)
    else:
        m.submodules.reset = ResetSynchronizer(~pll.locked, domain="sync")


def made(m: Module, oscillator: Signal, setting: PllSetting | None, net: str) -> Signal:
    """A further clock out of the oscillator's, on a net of this name: by a PLL of its own, or that itself.
    Nothing waits for it here."""
    if setting is None:
        return oscillator
    m.submodules[f"pll_{net}"] = pll = Pll(setting)
    clk = Signal(name=net, attrs={"keep": 1})
    m.d.comb += [pll.reference.eq(oscillator), clk.eq(pll.clk)]
    return clk


def _hold(m: Module, released: Signal, cell: str) -> None:
    """Hold all registers of the chip by its own network for that, which costs no logic: a reset that is part
    of the design takes more look-up tables.

    The registers that bring the release into the clock are the only ones that the network leaves alone.
    """
    for number in range(2):
        synchronized = Signal(name=f"released{number}")
        m.submodules += Instance(
            "FD1S3AX",
            p_GSR="DISABLED",
            i_CK=ClockSignal(),
            i_D=released,
            o_Q=synchronized,
        )
        released = synchronized
    m.submodules += Instance(cell, i_CLK=ClockSignal(), i_GSR=released)
