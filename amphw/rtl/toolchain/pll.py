"""The PLL of each family of chips: which rates it makes of an oscillator's, and how its cell is set.

A PLL divides what comes in, multiplies that in an oscillator of its own that runs within limits, and divides
again. Rates are exact fractions here, so that what a setting makes is what is said.

Sources of the limits and of the cells' parameters: Lattice FPGA-TN-02200 (ECP5) and FPGA-DS-02012, table
"sysCLOCK PLL timing"; Lattice FPGA-TN-02052 (iCE40) with FPGA-DS-02008; Gowin UG286E (clock) with DS117E
(GW1NR) and DS226E (GW2AR).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import NamedTuple

from amphw.ir.errors import AmphwError

MHZ = 1_000_000

NET = "circuit_clk"
"""The net of a PLL's clock in a mapped design."""


class ClockError(AmphwError):
    """A rate that no setting of a PLL makes of the oscillator's."""


class Bits(NamedTuple):
    """A parameter of so many bits."""

    value: int
    width: int


@dataclass(frozen=True)
class PllSetting:
    """A PLL's cell, set to make one rate of another.

    hz: what it makes. cell, parameters, attributes: as the synthesis names them. reference, output, lock:
    names of the ports that the clock comes in at, goes out of, and that tells whether its rate is right.
    feedback: output and input that are joined outside of the cell, if any. constants: what the other inputs
    are held at, by name. holds: the cell by which the chip holds all registers, if it can.
    """

    hz: Fraction
    cell: str
    parameters: Mapping[str, int | str | Bits]
    reference: str
    output: str
    lock: str
    feedback: tuple[str, str] | None = None
    holds: str = ""
    constants: Mapping[str, Bits] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """Least and highest rates in MHz: of what comes in, what is compared, what oscillates, what goes out."""

    reference: tuple[float, float]
    compared: tuple[float, float]
    oscillates: tuple[float, float]
    output: tuple[float, float]


class Dividers(NamedTuple):
    """What is compared is the reference's rate / reference; `times` of it oscillate; what goes out is that /
    output."""

    reference: int
    times: int
    output: int


Pll = Callable[[Fraction, Fraction], PllSetting]
"""The setting that makes the highest rate up to the second of the first, both in Hz. Raises ClockError."""


def _within(hz: Fraction, limits: tuple[float, float]) -> bool:
    return Fraction(limits[0]) * MHZ <= hz <= Fraction(limits[1]) * MHZ


def _highest(
    reference: Fraction,
    limit: Fraction,
    limits: Limits,
    references: range,
    outputs: Iterable[int],
    times: Callable[[Fraction, Fraction, int], int],
) -> Dividers:
    """Of all dividers, those of the highest rate up to `limit` within all limits; of several, the least of
    the reference, since what is compared more often shakes less.

    times: by what the PLL multiplies, given what is compared, how fast it may oscillate, and the divider of
    what goes out; 0: by nothing.
    """
    low, high = max(limits.reference[0], limits.compared[0]), limits.reference[1]
    if not _within(reference, (low, high)):
        raise ClockError(
            f"The chip's PLL takes a clock of {low:g} to {high:g} MHz, not {_mhz(reference)} MHz. Correct "
            "oscillator_mhz in the board's file, or ask for the oscillator's rate itself."
        )
    best: tuple[Fraction, Dividers] | None = None
    for divider in references:
        compared = reference / divider
        if not _within(compared, limits.compared):
            continue
        for output in outputs:
            most = min(limit * output, Fraction(limits.oscillates[1]) * MHZ)
            factor = times(compared, most, output)
            made = compared * factor / output
            fits = _within(compared * factor, limits.oscillates) and _within(made, limits.output)
            if fits and (best is None or made > best[0]):
                best = made, Dividers(divider, factor, output)
    if best is None:
        raise ClockError(
            f"The chip's PLL makes no clock of at most {_mhz(limit)} MHz out of {_mhz(reference)} MHz; its "
            f"lowest is {limits.output[0]:g} MHz. Ask for a higher rate (--frequency), or for exactly the "
            "oscillator's."
        )
    return best[1]


def _mhz(hz: Fraction) -> str:
    return f"{float(hz / MHZ):.6g}"


def nearest(pll: Pll, reference: Fraction, wanted: Fraction, off: float) -> PllSetting | None:
    """The setting whose rate is the nearest to the wanted one, in Hz; None where that is the reference's.

    off: by how much it may be higher or lower, as a fraction. Raises ClockError where none is that near.
    """
    if reference == wanted:
        return None
    made = []
    for limit in (wanted, wanted * (1 + Fraction(off))):
        try:
            made.append(pll(reference, limit))
        except ClockError:
            continue
    found = min(made, key=lambda setting: abs(setting.hz - wanted), default=None)
    if found is None or abs(found.hz / wanted - 1) > off:
        raise ClockError(
            f"The chip's PLL makes no clock within {off:.2%} of {_mhz(wanted)} MHz out of "
            f"{_mhz(reference)} MHz."
        )
    return found


def none(reference: Fraction, limit: Fraction) -> PllSetting:
    """Of a chip whose clocks somebody else makes."""
    raise ClockError("The clock of this chip is made by the system that the circuit becomes a part of.")


_ECP5 = Limits((8, 400), (10, 400), (400, 800), (3.125, 400))


def ehxplll(reference: Fraction, limit: Fraction) -> PllSetting:
    """ECP5's. Its first output goes back to be compared, the second is the circuit's."""

    def times(compared: Fraction, most: Fraction, output: int) -> int:
        factor = floor(most / compared)
        while factor and not _feedback(factor, compared):
            factor -= 1
        return factor

    found = _highest(reference, limit, _ECP5, range(1, 129), range(1, 129), times)
    compared = reference / found.reference
    back = _feedback(found.times, compared)
    return PllSetting(
        compared * found.times / found.output,
        "EHXPLLL",
        {
            "CLKI_DIV": found.reference,
            "CLKFB_DIV": found.times // back,
            "FEEDBK_PATH": "CLKOP",
            "CLKOP_ENABLE": "ENABLED",
            "CLKOP_DIV": back,
            "CLKOP_CPHASE": back - 1,
            "CLKOP_FPHASE": 0,
            "CLKOS_ENABLE": "ENABLED",
            "CLKOS_DIV": found.output,
            "CLKOS_CPHASE": found.output - 1,
            "CLKOS_FPHASE": 0,
            "PLLRST_ENA": "DISABLED",
            "INTFB_WAKE": "DISABLED",
            "STDBY_ENABLE": "DISABLED",
            "DPHASE_SOURCE": "DISABLED",
            "OUTDIVIDER_MUXA": "DIVA",
            "OUTDIVIDER_MUXB": "DIVB",
        },
        reference="CLKI",
        output="CLKOS",
        lock="LOCK",
        feedback=("CLKOP", "CLKFB"),
        holds="SGSR",
        constants={
            name: Bits(value, 1)
            for name, value in {
                "RST": 0,
                "STDBY": 0,
                "PHASESEL0": 0,
                "PHASESEL1": 0,
                "PHASEDIR": 1,
                "PHASESTEP": 1,
                "PHASELOADREG": 1,
                "PLLWAKESYNC": 0,
                "ENCLKOP": 0,
                "ENCLKOS": 0,
            }.items()
        },
        # Of the analog loop, as Lattice's own tool sets them for any rate.
        attributes={
            "FREQUENCY_PIN_CLKI": _mhz(reference),
            "FREQUENCY_PIN_CLKOP": _mhz(compared * found.times / back),
            "FREQUENCY_PIN_CLKOS": _mhz(compared * found.times / found.output),
            "ICP_CURRENT": "12",
            "LPF_RESISTOR": "8",
            "MFG_ENABLE_FILTEROPAMP": "1",
            "MFG_GMCREF_SEL": "2",
        },
    )


def _feedback(times: int, compared: Fraction) -> int:
    """What the first output divides by, so that it and the divider behind it multiply by `times`; 0: none."""
    for divider in range(1, 129):
        if times % divider == 0 and times // divider <= 128:
            if _within(compared * times / divider, _ECP5.output):
                return divider
    return 0


_ICE40 = Limits((10, 133), (10, 133), (533, 1066), (16, 275))
_FILTERS = ((17, 1), (26, 2), (44, 3), (66, 4), (101, 5), (133, 6))
"""FILTER_RANGE of what is compared, up to so many MHz."""


def sb_pll40(at_pin: bool) -> Pll:
    """iCE40's. at_pin: whether its clock comes in at the PLL's own pin, as it must where that is in use."""

    def times(compared: Fraction, most: Fraction, output: int) -> int:
        return min(128, floor(most / compared))

    def setting(reference: Fraction, limit: Fraction) -> PllSetting:
        powers = [1 << power for power in range(1, 7)]
        found = _highest(reference, limit, _ICE40, range(1, 17), powers, times)
        compared = reference / found.reference
        return PllSetting(
            compared * found.times / found.output,
            "SB_PLL40_PAD" if at_pin else "SB_PLL40_CORE",
            {
                "FEEDBACK_PATH": "SIMPLE",
                "DIVR": Bits(found.reference - 1, 4),
                "DIVF": Bits(found.times - 1, 7),
                "DIVQ": Bits(found.output.bit_length() - 1, 3),
                "FILTER_RANGE": Bits(next(n for most, n in _FILTERS if compared <= most * MHZ), 3),
            },
            reference="PACKAGEPIN" if at_pin else "REFERENCECLK",
            output="PLLOUTGLOBAL",
            lock="LOCK",
            constants={"RESETB": Bits(1, 1), "BYPASS": Bits(0, 1)},
        )

    return setting


_GOWIN = {
    ("GW1NR-LV9", "C6/I5"): Limits((3, 400), (3, 400), (400, 1200), (3.125, 600)),
    ("GW2A-LV18", "C8/I7"): Limits((3, 500), (3, 500), (500, 1250), (3.90625, 625)),
    ("GW2AR-LV18", "C8/I7"): Limits((3, 500), (3, 500), (500, 1250), (3.90625, 625)),
}
"""By how the names of chips begin, and the speed grade with which they end."""
_GOWIN_OUTPUTS = (2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128)


def rpll(device: str) -> Pll:
    """Gowin's, of a device. Its own oscillator runs `ODIV_SEL` times as fast as what goes out."""

    def setting(reference: Fraction, limit: Fraction) -> PllSetting:
        known = (
            of for (chip, grade), of in _GOWIN.items() if device.startswith(chip) and device.endswith(grade)
        )
        limits = next(known, None)
        if limits is None:
            raise ClockError(
                f"Nothing is known of the PLL of {device}, only of {', '.join(map('...'.join, _GOWIN))}. Ask "
                "for exactly the oscillator's rate (--frequency)."
            )

        def times(compared: Fraction, most: Fraction, output: int) -> int:
            return output * min(64, floor(most / compared / output))

        found = _highest(reference, limit, limits, range(1, 65), _GOWIN_OUTPUTS, times)
        zero = {"RESET": 1, "RESET_P": 1, "CLKFB": 1, "FBDSEL": 6, "IDSEL": 6, "ODSEL": 6}
        zero |= {"PSDA": 4, "DUTYDA": 4, "FDLY": 4}
        return PllSetting(
            reference * found.times / found.reference / found.output,
            "rPLL",
            {
                "FCLKIN": _mhz(reference),
                "IDIV_SEL": found.reference - 1,
                "FBDIV_SEL": found.times // found.output - 1,
                "ODIV_SEL": found.output,
                "CLKFB_SEL": "internal",
                "DYN_IDIV_SEL": "false",
                "DYN_FBDIV_SEL": "false",
                "DYN_ODIV_SEL": "false",
            },
            reference="CLKIN",
            output="CLKOUT",
            lock="LOCK",
            constants={name: Bits(0, width) for name, width in zero.items()},
        )

    return setting
