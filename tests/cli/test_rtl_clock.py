"""`amphw rtl`: the clock of a circuit, by what its PLL makes and timing allows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from amphw.rtl.build import board_files
from amphw.rtl.toolchain.synthesis import Synthesis

pytest.importorskip("amaranth")

from tests.cli.conftest import SMALL, like


def test_a_clock_far_below_the_one_asked_for_is_said(amphw, asked) -> None:
    settings = ("list-reduction", *SMALL, "--lanes", 4, "--out", "hw", "--no-simulate")
    done = amphw("rtl", *settings, "--frequency", 10_000)
    assert "ulx3s-85f makes no clock between 400 MHz and the 10000 MHz asked for" in done.stderr
    assert "makes no clock" not in amphw("rtl", *settings, "--frequency", 61).stderr


def test_the_clock_is_what_timing_closes_at(amphw, asked) -> None:
    """With room to spare: what the PLL makes next to a twentieth below what is reached."""
    done = amphw("rtl", "list-reduction", *SMALL, "--out", "hw", "--lanes", 4, "--json", "--frequency", 70)
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["clock_mhz"] == pytest.approx(58.333, abs=1e-3) and facts["meets_frequency"]
    assert "timing closes at 61.3 MHz, which is less than this with 5% to spare" in done.stderr
    assert facts["pll"]["cell"] == "EHXPLLL" and facts["link"] == {"kind": "serial", "baud": 3_000_000}
    dividers = (facts["pll"]["parameters"][name] for name in ("CLKFB_DIV", "CLKOP_DIV", "CLKI_DIV"))
    times, back, reference = dividers
    assert 25 / reference * times * back / facts["pll"]["parameters"]["CLKOS_DIV"] == facts["clock_mhz"]
    # The rate is in the circuit, too: of the serial line's bits, and of the PLL.
    assert [round(each["frequency_mhz"], 2) for each in asked] == [70, 73.5, 61.25]


def test_a_placement_that_allows_a_higher_clock_says_so(amphw, asked, tmp_path: Path, monkeypatch) -> None:
    """Each placement is another one: what was slower than wanted may be faster where less is wanted."""
    placed = board_files.synthesize

    def synthesize(text: str, target, **options) -> Synthesis:
        made = placed(text, target, **options)
        return replace(made, fmax_mhz=80.0) if options["frequency_mhz"] < 70 else made

    monkeypatch.setattr(board_files, "synthesize", synthesize)
    command = ("rtl", "list-reduction", *SMALL, "--out", "hw", "--lanes", 4)
    done = amphw(*command, "--frequency", 90)
    assert done.exit_code == 0, done.stderr
    assert "allows 80 MHz this time: --frequency 75 may close" in " ".join(done.stderr.split())
    slow = like("ulx3s-85f", tmp_path, target_mhz=50)  # not asked for, so nobody knows
    assert "allows 80 MHz this time: --fre" in " ".join(amphw(*command, "--board", slow).stderr.split())
    for tried in (50, 70):  # at once, and in vain
        assert "this time" not in amphw(*command, "--frequency", tried).stderr


def test_the_oscillators_own_clock_needs_no_pll(amphw, asked) -> None:
    done = amphw("rtl", "list-reduction", *SMALL, "--out", "hw", "--lanes", 4, "--frequency", 25)
    assert "clock: 25 MHz, the oscillator; timing allows 61.3 MHz" in done.stdout
    assert [(net.net, net.port) for net in asked[-1]["clocks"]] == [("clk", True)]


def test_a_clock_that_no_pll_makes_is_refused_at_once(amphw, asked) -> None:
    done = amphw("rtl", "list-reduction", *SMALL, "--out", "hw", "--lanes", 4, "--frequency", 2)
    assert done.exit_code == 1 and not asked
    assert "The chip's PLL makes no clock of at most 2 MHz out of 25 MHz" in done.stderr


@pytest.mark.parametrize(
    ("slower", "complaint"),
    [
        (1.3, "Timing does not close at any of the 4 clocks tried, down to 45.31 MHz, where it allows"),
        # The serial line needs 12 MHz.
        (2.5, "Timing closes at 6.72 MHz, and the board has no clock that slow. A serial line of 3,000,000"),
    ],
)
def test_timing_that_closes_nowhere(amphw, asked, monkeypatch, slower: float, complaint: str) -> None:
    made = board_files.synthesize

    def slow(*args, **options) -> Synthesis:
        found = made(*args, **options)
        clocks = {
            name: replace(rate, reached_mhz=rate.constraint_mhz / slower)
            for name, rate in found.clocks.items()
        }
        reached = min((rate.reached_mhz for rate in clocks.values()), default=None)
        return replace(found, clocks=clocks, fmax_mhz=reached)

    monkeypatch.setattr(board_files, "synthesize", slow)
    done = amphw("rtl", "list-reduction", *SMALL, "--out", "hw", "--lanes", 4)
    assert done.exit_code == 1 and complaint in done.stderr
