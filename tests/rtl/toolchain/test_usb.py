"""The link over USB as a circuit of real chips: its bitstream, its clocks, and what it takes."""

from __future__ import annotations

from fractions import Fraction

import pytest

pytest.importorskip("luna")

from amphw.rtl.build.board_files import at_usb_pins
from amphw.rtl.build.boards import BOARDS
from amphw.rtl.build.fit import of_link
from amphw.rtl.gateware.link.uart import UartLink
from amphw.rtl.gateware.streams import GatewareError
from amphw.rtl.gateware.usb.link import link_of
from amphw.rtl.gateware.usb.pins import Supplies
from amphw.rtl.toolchain.pll import MHZ, ehxplll, nearest
from amphw.rtl.toolchain.synthesis import synthesize
from amphw.rtl.toolchain.verilog import verilog
from tests.rtl.network_echo import Echo

WITH_USB = [name for name, board in BOARDS.items() if board.usb.resource]


def test_some_boards_have_a_port_of_usb() -> None:
    assert {"butterstick", "ecpix5-85f", "orangecrab-25f", "tang-primer-20k", "ulx3s-85f"} <= set(WITH_USB)


@pytest.mark.hardware
@pytest.mark.parametrize("name", WITH_USB)
def test_each_board_with_usb_takes_an_echo(name: str) -> None:
    """Every clock meets its constraint, which nextpnr has judged it by: that of USB as well."""
    board = BOARDS[name].reached_by("usb")
    clocking = board.clocking()
    link = link_of(board.usb.speed, clocking.hz, "0123456789abcdef")
    top = at_usb_pins(Echo(link, link.PORTS), board, clocking)
    text = verilog(top, reset=False, pll=clocking.pll, made=clocking.further)
    clocks = board.clocks(clocking)
    result = synthesize(text, board.target, frequency_mhz=1, pins=board.pins(), clocks=clocks, bitstream=True)
    assert result.meets_frequency and result.bitstream is not None
    rates = sorted(clock.constraint_mhz for clock in result.clocks.values())
    wanted = [net.mhz for net in clocks if net.needed or net is clocks[-1]]
    assert len(rates) == 2 and rates == pytest.approx(sorted(wanted), rel=1e-3)
    serial = synthesize(verilog(UartLink(27), reset=False), board.target, frequency_mhz=1, place=False)
    for what, more in of_link(board).items():  # which estimates are made with
        assert getattr(result, what) - getattr(serial, what) == pytest.approx(more, rel=0.03), what


@pytest.mark.parametrize(
    ("oscillator", "wanted", "off", "made"),
    [
        (25, 48, 0.0024, Fraction(625, 13)),  # rather than 575 / 12, which is further off
        (100, 48, 0.0024, Fraction(48)),
        (30, 60, 0.0004, Fraction(60)),
        (48, 48, 0.0024, None),
    ],
)
def test_the_nearest_rate(oscillator: int, wanted: int, off: float, made: Fraction | None) -> None:
    found = nearest(ehxplll, Fraction(oscillator * MHZ), Fraction(wanted * MHZ), off)
    assert (found and found.hz) == (made and made * MHZ)


def test_the_supply_of_a_bank_of_pins() -> None:
    """As much current as its regulator takes for it; and none for what it cannot be set to."""
    for volts in (1.2, 1.8, 2.5, 3.3):
        at_chip = Supplies.share(volts) / Supplies.STEPS * 3.3
        back = 0.6 + 53.6e3 * (0.6 / 13e3 - (at_chip - 0.6) / 68e3)
        assert back == pytest.approx(volts, abs=0.003)
    with pytest.raises(GatewareError, match="cannot be set to 5 V"):
        Supplies.share(5)
