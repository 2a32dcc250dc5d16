"""The link over Ethernet as a circuit of real chips: its bitstream, and its clocks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amphw.rtl.build.boards import BOARDS
from amphw.rtl.build.fit import ETHERNET
from amphw.rtl.gateware.link.uart import UartLink
from amphw.rtl.gateware.network.ethernet import EthernetLink
from amphw.rtl.gateware.network.internet import Addresses
from amphw.rtl.gateware.network.rgmii import Rgmii
from amphw.rtl.toolchain import synthesis
from amphw.rtl.toolchain.environment import ToolchainError
from amphw.rtl.toolchain.synthesis import ClockNet, ClockRate, synthesize
from amphw.rtl.toolchain.verilog import verilog
from tests.rtl.network_echo import EchoAtPins

WITH_PHY = [name for name, board in BOARDS.items() if board.ethernet.phy >= 0]


def test_some_boards_have_a_phy() -> None:
    assert {"colorlight-5a-75b", "ecpix5-45f", "ecpix5-85f", "versa-ecp5"} <= set(WITH_PHY)


@pytest.mark.hardware
@pytest.mark.parametrize("name", WITH_PHY)
def test_each_board_with_a_phy_takes_an_echo_over_udp(name: str) -> None:
    """Every clock meets its constraint, which nextpnr has judged it by: the PHY's of 125 MHz as well."""
    board = BOARDS[name].reached_by("ethernet")
    clocking = board.clocking()
    link = EthernetLink(Addresses(*board.link.numbers), 0, clocking.hz)
    rgmii = Rgmii(board.ethernet.rx_delay_ns, board.ethernet.tx_delay_ns, clocking.hz)
    text = verilog(EchoAtPins(link, rgmii), reset=False, pll=clocking.pll)
    clocks = board.clocks(clocking)
    result = synthesize(text, board.target, frequency_mhz=1, pins=board.pins(), clocks=clocks, bitstream=True)
    assert result.meets_frequency and result.bitstream is not None
    rates = sorted(clock.constraint_mhz for clock in result.clocks.values())
    assert rates == pytest.approx(sorted([125.0, clocking.hz / 1e6 * 1.05]), rel=1e-3)
    cells = {"IOLOGIC", "TRELLIS_IO"} if "IOLOGIC" in result.device_share else {"TRELLIS_IO"}
    assert cells <= set(result.device_share)
    serial = synthesize(verilog(UartLink(27), reset=False), board.target, frequency_mhz=1, place=False)
    for what, more in ETHERNET.items():  # which estimates are made with
        assert getattr(result, what) - getattr(serial, what) == pytest.approx(more, rel=0.03), what


def test_a_clock_of_a_phy_that_nextpnr_does_not_know_is_an_error() -> None:
    """It would pass at whatever rate the others have."""
    board = BOARDS["colorlight-5a-75b"].reached_by("ethernet")
    clocks = board.clocks(board.clocking())
    assert [clock.net for clock in clocks if clock.needed] == ["eth_rx_clk"]
    last = clocks[-1]
    made = synthesis.Synthesis(
        board.target, 1, 1, 0, 0, 90.0, 84.0, {}, (), {}, None, {last.net: ClockRate(90, last.mhz)}
    )
    with pytest.raises(ToolchainError, match="nextpnr reports no clock eth_rx_clk, but circuit_clk"):
        synthesis._check_clocks(made, clocks)
    found = replace(made, clocks={**made.clocks, "$glbnet$eth_rx_clk$TRELLIS_IO_IN": ClockRate(130, 125)})
    synthesis._check_clocks(found, clocks)
    with pytest.raises(ToolchainError, match="eth_rx_clk"):
        synthesis._check_clocks(found, [ClockNet("eth_rx_clk", 100, needed=True), last])
