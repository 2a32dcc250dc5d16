"""PLLs are set within their limits, to the highest rate that is not above what was asked for."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amphw.rtl.build.boards import BOARDS
from amphw.rtl.toolchain.environment import run
from amphw.rtl.toolchain.pll import MHZ, Bits, ClockError, PllSetting, ehxplll, rpll, sb_pll40

GOWIN = "GW1NR-LV9QN88PC6/I5"


def rates(setting: PllSetting, reference: Fraction) -> tuple[Fraction, Fraction, Fraction]:
    """What is compared, what oscillates and what goes out, by what the maker's guide says of parameters."""
    p = {k: v.value if isinstance(v, Bits) else v for k, v in setting.parameters.items()}
    if setting.cell == "EHXPLLL":
        compared = reference / p["CLKI_DIV"]
        oscillates = compared * p["CLKFB_DIV"] * p["CLKOP_DIV"]
        return compared, oscillates, oscillates / p["CLKOS_DIV"]
    if setting.cell.startswith("SB_PLL40_"):
        compared = reference / (p["DIVR"] + 1)
        oscillates = compared * (p["DIVF"] + 1)
        return compared, oscillates, oscillates / 2 ** p["DIVQ"]
    compared = reference / (p["IDIV_SEL"] + 1)
    out = compared * (p["FBDIV_SEL"] + 1)
    return compared, out * p["ODIV_SEL"], out


KINDS = {
    "ecp5": (ehxplll, (10, 400), (400, 800), (3.125, 400)),
    "ice40": (sb_pll40(at_pin=True), (10, 133), (533, 1066), (16, 275)),
    "gowin": (rpll(GOWIN), (3, 400), (400, 1200), (3.125, 600)),
}


@pytest.mark.parametrize("kind", KINDS)
@given(oscillator=st.integers(10, 100), wanted=st.fractions(20, 150, max_denominator=100))
def test_a_setting_is_within_all_limits_and_not_above_what_was_asked_for(
    kind: str, oscillator: int, wanted: Fraction
) -> None:
    pll, compares, oscillates, makes = KINDS[kind]
    reference, limit = Fraction(oscillator * MHZ), wanted * MHZ
    setting = pll(reference, limit)
    found = rates(setting, reference)
    for rate, (low, high) in zip(found, (compares, oscillates, makes), strict=True):
        assert low * MHZ <= rate <= high * MHZ
    assert setting.hz == found[-1] <= limit
    # The next rate above what was found is above what was asked for.
    if setting.hz < limit:
        assert pll(reference, setting.hz + (limit - setting.hz) / 2).hz == setting.hz


TOOLS = {
    "ecp5": ("yowasp-ecppll -i {} -o {}", r"clkout0 frequency: ([\d.]+) MHz"),
    "ice40": ("yowasp-icepll -i {} -o {}", r"F_PLLOUT: +([\d.]+) MHz \(achieved\)"),
    "gowin": (f"gowin_pll -i {{}} -o {{}} -d {GOWIN}", r"Achieved output frequency: +([\d.]+) MHz"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("oscillator", "wanted"), [(12, 47), (25, 99), (27, 75), (48, 61.5)])
def test_no_tool_of_the_family_comes_nearer_from_below(
    tmp_path: Path, kind: str, oscillator: int, wanted: float
) -> None:
    command, says = TOOLS[kind]
    done = run(command.format(oscillator, wanted).split(), tmp_path, doing="PLL")
    theirs = Fraction(re.search(says, done.stdout).group(1)) * MHZ
    ours = KINDS[kind][0](Fraction(oscillator * MHZ), Fraction(wanted) * MHZ).hz
    assert ours <= wanted * MHZ
    assert ours >= theirs - 1000 or theirs > wanted * MHZ  # they print three decimals


def test_the_core_of_ice40_is_set_as_the_pad() -> None:
    reference, limit = Fraction(12 * MHZ), Fraction(47 * MHZ)
    pad, core = sb_pll40(at_pin=True)(reference, limit), sb_pll40(at_pin=False)(reference, limit)
    assert core.parameters == pad.parameters and (pad.reference, core.reference) == (
        "PACKAGEPIN",
        "REFERENCECLK",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_no_setting_makes_is_refused(kind: str) -> None:
    pll = KINDS[kind][0]
    with pytest.raises(ClockError, match="makes no clock of at most 1 MHz out of 25 MHz; its lowest is"):
        pll(Fraction(25 * MHZ), Fraction(MHZ))
    with pytest.raises(ClockError, match="takes a clock of .* MHz, not 1 MHz. Correct oscillator_mhz"):
        pll(Fraction(MHZ), Fraction(50 * MHZ))


def test_a_chip_whose_limits_are_not_known() -> None:
    for chip in ("GW9-X1C9/I9", "GW1N-LV1QN48C6/I5"):  # the second has the grade of one that is known
        with pytest.raises(
            ClockError, match=f"Nothing is known of the PLL of {chip}, only of GW1NR-LV9...C6"
        ):
            rpll(chip)(Fraction(27 * MHZ), Fraction(50 * MHZ))


@pytest.mark.parametrize("name", BOARDS)
def test_every_board_has_its_clocks_to_the_hertz(name: str) -> None:
    """Those that come along name rates that can be made."""
    found = BOARDS[name]
    assert found.clock_hz == found.clock.circuit_mhz * MHZ
    assert 0.98 * found.clock.target_mhz < found.clocking().hz / MHZ <= found.clock.target_mhz
    assert found.clocking(found.clock.oscillator_mhz).pll is None


@pytest.mark.parametrize(
    ("board", "wanted", "made"),
    [
        # Rates that a binary fraction is just below.
        *(("orangecrab-25f", 62.4, 62.4), ("tang-nano-9k", 59.4, 59.4)),
        # Between the oscillator's rate and the least of the PLL, 16 MHz.
        ("icebreaker", 14, 12),
    ],
)
def test_the_highest_rate_up_to_what_is_wanted(board: str, wanted: float, made: float) -> None:
    assert BOARDS[board].clocking(wanted).hz == pytest.approx(made * MHZ, rel=1e-12)


def test_a_clock_that_is_too_slow_for_the_line() -> None:
    with pytest.raises(
        ClockError, match=r"3,000,000 baud needs a clock of at least 12 MHz; this one is 10 MHz"
    ):
        BOARDS["ulx3s-85f"].clocking(10)


def test_an_oscillator_below_what_is_compared() -> None:
    with pytest.raises(ClockError, match="takes a clock of 10 to 400 MHz, not 9 MHz"):
        ehxplll(Fraction(9 * MHZ), Fraction(50 * MHZ))
