"""Nothing comes into a circuit's clock but through what makes it safe."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import ClockDomain, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.build.board_files import at_usb_pins, device_verilog
from amphw.rtl.build.boards import BOARDS
from amphw.rtl.gateware.network.ethernet import EthernetLink
from amphw.rtl.gateware.network.internet import Addresses
from amphw.rtl.gateware.usb.link import link_of
from amphw.rtl.toolchain.verilog import verilog
from benchmarks.rtl_plans import SMALL_DEVICE, plan_of
from tests.rtl.crossings import Crossing, crossings
from tests.rtl.network_echo import Echo

LINE = Crossing("port rx", "design.link.receiver.synchronizer.stage0", alone=True, asynchronous=False)


def resets(cell: str) -> set[Crossing]:
    """The two registers that bring the release of a reset into the clock."""
    return {Crossing(f"{cell}.LOCK", to, alone=True, asynchronous=True) for to in ("reset.stage0", "rst")}


@pytest.mark.parametrize(
    ("board", "lock"),
    [
        ("ulx3s-85f", {Crossing("EHXPLLL.LOCK", "released0", alone=True, asynchronous=False)}),
        ("icebreaker", resets("SB_PLL40_PAD")),
        ("tang-nano-9k", resets("rPLL")),
    ],
)
def test_only_the_serial_line_and_the_lock_cross(tmp_path: Path, board: str, lock: set[Crossing]) -> None:
    """On each family: the line through a synchroniser, the lock through one or as its asynchronous reset."""
    plan = plan_of("list-reduction", SMALL_DEVICE, "q4.12", 2, 1, board)
    made = BOARDS[board]
    found = crossings(device_verilog(plan, made, made.clocking()), made.target.family, tmp_path)
    assert found == {LINE} | lock


def test_queues_alone_lead_to_the_clocks_of_a_phy_and_from_them(tmp_path: Path) -> None:
    """Positions in Gray's code through synchronisers, and words that have long been written; the PHY's own
    signals come with its clock."""
    link = EthernetLink(Addresses(0x024D_0000_0032, 0xC0A8_0132), 0, 80e6)
    found = crossings(verilog(Echo(link), reset=False), "ecp5", tmp_path)
    expected = {
        Crossing(f"port rx_{name}", f"design.link.hears.{to}", alone=True, asynchronous=False)
        for name, to in (("data", "byte"), ("valid", "there"), ("error", "bad"))
    }
    for queue in ("inward", "outward"):
        own = f"design.link.{queue}.unbuffered"
        for source, to in (("produce_w_gry", "produce_cdc"), ("consume_r_gry", "consume_cdc")):
            expected.add(Crossing(f"{own}.{source}", f"{own}.{to}.stage0", alone=True, asynchronous=False))
    words = found - expected
    assert found >= expected
    assert {crossing.sink.partition("$")[0] for crossing in words} == {
        "design.link.inward.r_data",
        "design.link.outward.r_data",
    }
    assert all("unbuffered" in crossing.source and not crossing.asynchronous for crossing in words), words


def test_a_board_in_a_network_has_these_crossings_alone(tmp_path: Path) -> None:
    """What the PHY's pins say comes with its clock, out of cells that take it at both edges."""
    plan = plan_of("list-reduction", SMALL_DEVICE, "q4.12", 2, 1, "ecpix5-85f")
    made = BOARDS["ecpix5-85f"].reached_by("ethernet")
    found = crossings(device_verilog(plan, made, made.clocking()), "ecp5", tmp_path)
    pins = {each for each in found if each.source.startswith("IDDRX1F.")}
    assert {each.sink for each in pins} == {f"design.top.link.hears.{to}" for to in ("byte", "there", "bad")}
    lock = {Crossing("EHXPLLL.LOCK", "released0", alone=True, asynchronous=False)}
    queues = {each for each in found if "ward.unbuffered." in each.source.replace("\\", "")}
    assert found == pins | lock | queues and len(queues) == 6
    assert all(each.alone for each in queues if each.source.endswith("_gry"))


WITH_USB = ("ulx3s-85f", "orangecrab-85f", "ecpix5-85f", "butterstick")


@pytest.mark.parametrize("name", WITH_USB)
def test_queues_alone_lead_to_the_clock_of_usb_and_from_it(tmp_path: Path, name: str) -> None:
    """And its reset. The wires come in through synchronisers; a PHY's signals come with its clock, which is
    that of what takes them."""
    board = BOARDS[name].reached_by("usb")
    clocking = board.clocking()
    link = link_of(board.usb.speed, clocking.hz, "0")
    top = at_usb_pins(Echo(link, link.PORTS), board, clocking)
    found = crossings(verilog(top, reset=False, pll=clocking.pll, made=clocking.further), "ecp5", tmp_path)
    own = "design.top.link"
    expected = {Crossing("EHXPLLL.LOCK", "released0", alone=True, asynchronous=False)}
    # The reset is synchronised, as are those of the queues' ends that it reaches.
    resets = {each for each in found if each.asynchronous}
    queued = {f"{own}.crossed.inward.unbuffered.{end}" for end in ("rst_cdc.stage0", "r_rst")}
    own_reset = "usb_rst" if board.usb.speed == "full" else "ulpi_reset"  # the PHY's, too
    others = {each.sink for each in resets} - queued - {f"{own}.reset.stage0"}
    assert len(resets) == 4 and len(others) == 1 and own_reset in others.pop()
    for queue in ("inward", "outward"):
        at = f"{own}.crossed.{queue}.unbuffered"
        for source, to in (("produce_w_gry", "produce_cdc"), ("consume_r_gry", "consume_cdc")):
            expected.add(Crossing(f"{at}.{source}", f"{at}.{to}.stage0", alone=True, asynchronous=False))
    if board.usb.speed == "full":
        for wire in ("p", "n"):
            to = f"{own}.phy.synchronizer_{wire}.stage0"
            expected.add(Crossing("BB.O", to, alone=True, asynchronous=False))
        phys: set[Crossing] = set()
    else:
        phys = {each for each in found if each.source in ("BB.O", "port ulpi_dir", "port ulpi_nxt")}
        assert all(each.sink.startswith(f"{own}.crossed.port.") for each in phys)
    words = found - expected - resets - phys
    assert found >= expected
    assert {each.sink.partition("$")[0] for each in words} == {
        f"{own}.crossed.inward.r_data",
        f"{own}.crossed.outward.r_data",
    }
    assert all("unbuffered" in each.source for each in words), words


class Careless(wiring.Component):
    """Two clocks, and a sum of numbers of both."""

    def __init__(self) -> None:
        super().__init__({"other": In(1), "rx": In(4), "tx": Out(4)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains.other = other = ClockDomain("other", reset_less=True)
        m.d.comb += other.clk.eq(self.other)
        there = Signal(4)
        here = Signal(4)
        m.d.other += there.eq(there + 1)
        m.d.sync += [here.eq(self.rx), self.tx.eq(here + there)]
        return m


def test_what_crosses_without_a_synchroniser_is_found(tmp_path: Path) -> None:
    found = crossings(verilog(Careless(), reset=False), "ecp5", tmp_path)
    assert Crossing("design.there", "tx", alone=False, asynchronous=False) in found
    assert Crossing("port rx", "design.here", alone=True, asynchronous=False) in found
