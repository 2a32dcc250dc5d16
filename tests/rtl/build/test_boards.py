"""Boards are found by name, and their tables agree with the pin-outs and the tools."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from amphw.engine.lowering.lower import lower
from amphw.engine.parts.costs import NodeTime
from amphw.ir.device import DeviceOptions
from amphw.ir.update import UpdateRule
from amphw.library.estimating.network import circuit, circuit_origins
from amphw.library.estimating.said import Said
from amphw.rtl.build.board_files import check_tools
from amphw.rtl.build.board_sections import Clock, Pins
from amphw.rtl.build.boards import BOARDS, Board, BoardError, assumed, board, folder, read_board
from amphw.rtl.driver import verilator
from amphw.rtl.driver.part import HardwarePart
from amphw.rtl.toolchain import environment
from amphw.rtl.toolchain.families import FAMILIES, Pin
from amphw.rtl.toolchain.pll import ClockError
from tests.rtl.cases import SMALL, case


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_is_complete(name: str) -> None:
    found = board(name)
    assert found.name == name and found.target.family in FAMILIES and found.notes.tried
    assert "clk" in found.pins() and all(found.pins().values())
    assert found.link.kind != "serial" or set(found.pins()) == {"clk", "rx", "tx"}
    if found.pinout.platform:
        module, platform = found.pinout.platform.split(":")
        declared = getattr(importlib.import_module(module), platform)
        clock = next(resource for resource in declared.resources if resource.name == declared.default_clk)
        assert clock.clock.frequency == found.clock.oscillator_mhz * 1e6
    if not found.pinout.platform or found.usb.supply_volts:
        assert found.notes.tried.startswith("Unverified")
    levels = FAMILIES[found.target.family].levels
    assert not levels or all(pin.attributes[levels].startswith("LV") for pin in found.pins().values())


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch) -> Board:
    """The board of circuits that name none, with three rates that differ; simulations of it are not built."""
    made = replace(assumed(), clock=Clock(oscillator_mhz=25, target_mhz=60, circuit_mhz=40))
    monkeypatch.setitem(BOARDS, made.name, made)
    monkeypatch.setattr(verilator, "missing", lambda *_: "")
    monkeypatch.setattr(verilator, "SimulatedLink", lambda *given, lanes: SimpleNamespace(clock=given[-1]))
    return made


def placed() -> NodeTime:
    """What `amphw place` takes a node to need on a circuit."""
    graph = case("tree-leaves").build()
    lowered = lower(graph)
    unit = lowered.units[lowered.by_name["branch"]]
    rows = {space: 1.0 for space, _ in unit.behaviour.spaces}
    found = HardwarePart(partial(verilator.VerilatorDevice, "q4.12")).node_time(
        graph, unit, {"*": UpdateRule()}, rows
    )
    assert found is not None
    return found


def linked(**settings: str) -> float:
    """The clock that a simulated link is made with."""
    device = verilator.VerilatorDevice("q4.12")
    settings = {"links": "verilator=1Mb/s", **settings}
    device.load(case("tree-leaves").build(), {"*": UpdateRule()}, DeviceOptions(4, settings=SMALL | settings))
    assert isinstance(device.link, SimpleNamespace)
    return float(device.link.clock)


def estimated(clock: float | None = None) -> float:
    """The clock that `amphw estimate --lanes` takes circuits to have."""
    return circuit(Said(lanes=4), 4, clock).clock


def test_circuits_run_at_the_clock_of_their_board_wherever_nothing_states_another(
    clocked: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Placed, behind a simulated link and estimated: neither the oscillator's nor what a build aims at."""
    assert linked() == estimated() == clocked.clock_hz == 40e6
    found = placed()
    assert "at 40 MHz (assumed, as of the ulx3s-85f" in found.how
    once = replace(clocked, clock=replace(clocked.clock, circuit_mhz=20))
    monkeypatch.setitem(BOARDS, clocked.name, once)
    assert placed().forward == pytest.approx(2 * found.forward)
    assert linked() == estimated() == 20e6


def test_another_clock_may_be_stated(clocked: Board) -> None:
    assert (linked(clock="70MHz"), estimated(70e6)) == (70e6, 70e6)


def test_an_estimate_tells_the_clock_and_whose_it_is(clocked: Board) -> None:
    runs = "40 MHz, of large circuits on the ulx3s-85f"
    for said, origin, how in (
        ({"lanes": "--lanes 4"}, "assumed", runs),
        ({"lanes": "--lanes 4", "clock": "--clock 9MHz"}, "stated", "--clock 9MHz"),
        ({"listed": "--network a.toml"}, "stated", f"--network a.toml, and where that says none: {runs}"),
    ):
        found = circuit_origins(said)["clock"]
        assert (found.origin, found.how) == (origin, how)


def test_an_unknown_board_is_an_error_with_near_names() -> None:
    with pytest.raises(BoardError) as error:
        board("icebraker")
    assert str(error.value).startswith(
        "There is no board 'icebraker'. Did you mean icebreaker or ice40-hx8k? Boards: "
        f"{', '.join(BOARDS)}, or a file of your own, such as mine.toml: "
    )
    assert (folder() / "README.md").is_file()


def edited(path: Path, old: str, new: str) -> Path:
    """The ULX3S's file with one piece exchanged."""
    text = BOARDS["ulx3s-85f"].text
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    return path


def test_a_file_of_ones_own_is_a_board(tmp_path: Path) -> None:
    path = edited(tmp_path / "mine.toml", "oscillator_mhz = 25", "oscillator_mhz = 48")
    mine = board(str(path))
    assert mine.name == "mine" and mine.clocking().oscillator == 48_000_000 and mine.clock_hz == 50e6
    assert mine.pins() == BOARDS["ulx3s-85f"].pins() and mine.resources == BOARDS["ulx3s-85f"].resources


def sites(**ports: str) -> dict[str, Pin]:
    """Pins of the levels that are assumed where nothing names others."""
    return {port: Pin(site, {"IO_TYPE": "LVCMOS33"}) for port, site in ports.items()}


PLATFORM = 'platform = "amaranth_boards.ulx3s:ULX3S_85F_Platform"'


def test_pins_in_a_file_stand_for_those_that_the_platform_lacks(tmp_path: Path) -> None:
    bare = 'platform = "tests.rtl.build.bare:Bare"\nrx = "B7"\ntx = "C9"'
    whole = 'clk = "A1"\nrx = "B7"\ntx = "C9"'
    for written in (bare, whole):
        mine = board(str(edited(tmp_path / "mine.toml", PLATFORM, written)))
        assert mine.pins() == sites(clk="A1", rx="B7", tx="C9")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("luts = 83_640", "luts = 0", "[resources]: luts is 0, expected an integer of 1 or more."),
        ("luts = 83_640\n", "", "[resources]: luts is missing; it is an integer of 1 or more."),
        (
            "luts = 83_640",
            "lut = 83_640",
            "[resources]: unknown key lut. Did you mean luts? It has: luts,",
        ),
        (
            'family = "ecp5"',
            'family = "ecp6"',
            "[chip]: family is 'ecp6', expected one of ecp5, ice40, ",
        ),
        ("[clock]", "[clocks]", "unknown section [clocks]. Sections: chip, resources, clock,"),
        ("[clock]", "[clock", "the board's file is not valid TOML ("),
        (
            "oscillator_mhz = 25",
            'oscillator_mhz = "25MHz"',
            "is '25MHz', expected a number above 0",
        ),
    ],
)
def test_what_a_file_cannot_mean_is_named(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    path = edited(tmp_path / "mine.toml", old, new)
    with pytest.raises(BoardError) as error:
        board(str(path))
    assert str(error.value).startswith(f"{path}: ") and complaint in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BoardError, match="mine.toml: the board's file cannot be read \\(No such file"):
        board(str(tmp_path / "mine.toml"))


def pins(platform: str, of: str = "ulx3s-85f") -> dict[str, Pin]:
    mine = replace(BOARDS[of], pinout=Pins(f"tests.rtl.build.bare:{platform}"))
    return mine.pins()


@pytest.mark.parametrize(
    ("platform", "of", "lacks"),
    [("Bare", "ulx3s-85f", "rx, tx"), ("Unwired", "ulx3s-85f", "tx"), ("Paired", "icebreaker", "clk")],
)
def test_a_board_without_a_clock_or_a_serial_line_says_so(platform: str, of: str, lacks: str) -> None:
    with pytest.raises(BoardError, match=f"bare:{platform} has no pins for {lacks}. Name them in"):
        pins(platform, of)


def test_pins_of_a_connector_are_those_of_the_chip() -> None:
    assert pins("Wired") == sites(clk="A1", rx="B7", tx="C9")


def test_a_pair_is_named_by_its_positive_half_and_has_its_own_levels() -> None:
    found = pins("Paired")
    assert found == sites(rx="B7", tx="C9") | {"clk": Pin("A1", {"IO_TYPE": "LVDS"})}
    assert FAMILIES["ecp5"].constraints("clk", found["clk"]) == (
        'LOCATE COMP "clk" SITE "A1";\nIOBUF PORT "clk" IO_TYPE=LVDS;'
    )


# --- in a network -----------------------------------------------------------------------------------


WITH_PHY = [name for name in BOARDS if board(name).ethernet.phy >= 0]


@pytest.mark.parametrize("name", WITH_PHY)
def test_a_board_with_a_phy_has_all_its_pins(name: str) -> None:
    found = board(name).reached_by("ethernet").pins()
    data = {f"eth_{way}_data[{bit}]" for way in ("rx", "tx") for bit in range(4)}
    others = {f"eth_{way}_{what}" for way in ("rx", "tx") for what in ("clk", "ctl")}
    assert set(found) == {"clk", "eth_reset"} | data | others
    assert len({pin.site for pin in found.values()}) == len(found) and all(found.values())
    levels = {pin.attributes["IO_TYPE"] for port, pin in found.items() if port != "clk"}
    assert len(levels) == 1 and levels <= {"LVCMOS33", "LVCMOS25"}


def test_a_circuit_in_a_network_has_the_clock_of_its_phy() -> None:
    made = board("ecpix5-85f").reached_by("ethernet")
    first, *others = made.clocks(made.clocking())
    assert (first.net, first.mhz, first.needed) == ("eth_rx_clk", 125.0, True)
    assert others == made.clocking().nets() == board("ecpix5-85f").clocks(made.clocking())


def test_an_address_is_written_into_the_file_of_a_circuit(tmp_path: Path) -> None:
    """So that it says what is in the board, whatever the file that it was built with says."""
    made = board("versa-ecp5").reached_by("ethernet", "10.0.0.7")
    (tmp_path / "versa-ecp5.toml").write_text(made.text)
    again = board(str(tmp_path / "versa-ecp5.toml"))
    assert again == made and again.link.numbers == (0x024D_0A00_0007, 0x0A00_0007, 19_761)
    assert replace(again, link=board("versa-ecp5").link, text="") == replace(board("versa-ecp5"), text="")
    assert again.reached_by("serial").link.kind == "serial" and again.reached_by() is again


@pytest.mark.parametrize(
    ("name", "kind", "address", "complaint"),
    [
        ("ulx3s-85f", "ethernet", "", "ulx3s-85f cannot be driven over Ethernet: its file names no PHY"),
        ("icebreaker", "ethernet", "", "icebreaker cannot be driven over Ethernet: its chip is no ECP5"),
        ("ecpix5-85f", "", "10.0.0.7", "is driven over a serial line, which has no address: ask for --link"),
        ("ecpix5-85f", "ethernet", "10.0.0", "'10.0.0' is no IPv4 address, such as 192.168.1.50"),
        ("zynq-7020", "ethernet", "", "zynq-7020 has two AXI4-Streams and no other link"),
        ("ecpix5-85f", "token-ring", "", "There is no link 'token-ring': --link is serial, ethernet or usb."),
        (
            "colorlight-5a-75b",
            "usb",
            "",
            "cannot be driven over USB of the chip's own: its file names no port",
        ),
        ("icebreaker", "usb", "", "cannot be driven over USB of the chip's own: its chip is neither an ECP5"),
        (
            "ulx3s-85f",
            "usb",
            "10.0.0.7",
            "ulx3s-85f is driven over USB, which has no address: ask for --link",
        ),
    ],
)
def test_a_link_that_a_board_has_not(name: str, kind: str, address: str, complaint: str) -> None:
    with pytest.raises(BoardError, match=re.escape(complaint)):
        board(name).reached_by(kind, address)


def test_a_link_that_a_file_writes_in_its_own_way(tmp_path: Path) -> None:
    text = board("versa-ecp5").text
    (tmp_path / "mine.toml").write_text(text.replace("[link]\n", "[link]   # over USB\n"))
    made = read_board(tmp_path / "mine.toml").reached_by("ethernet", "10.0.0.7", 4000)
    (tmp_path / "again.toml").write_text(made.text)
    assert read_board(tmp_path / "again.toml").link == made.link and made.link.port == 4000
    assert made.link.url == "udp://10.0.0.7:4000"
    assert board("versa-ecp5").reached_by("ethernet", "10.0.0.7").link.url == "udp://10.0.0.7"
    rest = re.sub(r"^\[link\]\n.*?(?=^\[)", "", text, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "inline.toml").write_text('link = {kind = "serial"}\n' + rest)
    with pytest.raises(BoardError, match=r"write \[link\] of its file as a section of its own"):
        read_board(tmp_path / "inline.toml").reached_by("ethernet")


def test_a_phy_that_the_pin_out_has_not() -> None:
    made = board("ecpix5-85f").reached_by("ethernet")
    with pytest.raises(BoardError, match=r"its pin-out has no eth_rgmii number 3: see phy in \[ethernet\]"):
        replace(made, ethernet=replace(made.ethernet, phy=3)).pins()


@pytest.mark.parametrize("mac", ["02:00:00:00:00", "03:00:00:00:00:01", "02-00-00-00-00-01"])
def test_an_ethernet_address_that_is_none(mac: str) -> None:
    link = replace(board("ecpix5-85f").link, kind="ethernet", mac=mac)
    with pytest.raises(ValueError, match="is no address of one Ethernet port"):
        _ = link.numbers
    assert replace(link, mac="02:00:00:00:00:0A").numbers[0] == 0x0200_0000_000A


# --- over USB ---------------------------------------------------------------------------------------


WITH_USB = [name for name in BOARDS if board(name).usb.resource]


@pytest.mark.parametrize("name", WITH_USB)
def test_a_board_with_usb_has_all_its_pins(name: str) -> None:
    found = board(name).reached_by("usb")
    pins, usb = found.pins(), found.usb
    wires = {"usb_p", "usb_n", "usb_pullup"}
    ulpi = {
        f"ulpi_{each}" for each in ("clk", "dir", "nxt", "stp", "reset", *(f"data[{k}]" for k in range(8)))
    }
    if usb.drives_clock:
        ulpi = ulpi - {"ulpi_clk"} | {"ulpi_clk_out"}
    supplies = {f"supply_pdm[{k}]" for k in range(3)} | {"supply_on"}
    expected = (wires if usb.speed == "full" else ulpi) | (supplies if usb.supply_volts else set())
    assert set(pins) == {"clk"} | expected
    assert len({pin.site for pin in pins.values()}) == len(pins) and all(pins.values())
    assert {pins[port].attributes["IO_TYPE"] for port in expected - supplies} == {usb.levels or "LVCMOS33"}


@pytest.mark.parametrize("name", [name for name in WITH_USB if board(name).usb.speed == "high"])
def test_a_phy_of_usb_is_as_its_pin_out_says(name: str) -> None:
    """Who makes its clock, and which level resets it: the file says so, since the circuit is made of it."""
    found = board(name)
    module, platform = found.pinout.platform.split(":")
    declared = getattr(importlib.import_module(module), platform)
    resource = next(each for each in declared.resources if each.name == found.usb.resource)
    lines = {line.name: line.ios[0] for line in resource.ios}
    assert (lines["clk"].dir == "o") == found.usb.drives_clock
    assert lines["rst"].invert == found.usb.reset_low


@pytest.mark.parametrize(
    ("name", "clocks"),
    [
        # The nearest that the PLL makes of 25 MHz, within what devices at full speed may be off.
        ("ulx3s-85f", {"usb_clk": 625 / 13 * 1.05}),
        # The oscillator's own.
        ("orangecrab-85f", {"clk": 48 * 1.05}),
        # The PHY's, which is as exact as its crystal.
        ("ecpix5-85f", {"ulpi_clk": 60.0}),
        ("butterstick", {"ulpi_clk": 60.0 * 1.05}),
    ],
)
def test_a_circuit_behind_usb_has_the_clock_of_its_phy(name: str, clocks: dict[str, float]) -> None:
    made = board(name).reached_by("usb")
    needed = {net.net: net.mhz for net in made.clocks(made.clocking()) if net.needed}
    assert needed == pytest.approx(clocks)
    assert made.clocks(made.clocking())[-1].net == "circuit_clk"


def test_a_chip_that_makes_no_clock_for_usb(tmp_path: Path) -> None:
    path = edited(tmp_path / "mine.toml", "oscillator_mhz = 25", "oscillator_mhz = 11.9")
    with pytest.raises(ClockError, match=r"makes no clock within 0\.24% of 48 MHz out of 11\.9 MHz"):
        board(str(path)).reached_by("usb").clocking()
    assert board(str(path)).clocking().further == {}


def test_what_is_said_of_a_link_over_usb() -> None:
    full, high = board("ulx3s-85f").reached_by("usb"), board("ecpix5-85f").reached_by("usb")
    assert full.told_link() == {"kind": "usb", "speed": "full"}
    assert high.told_link() == {"kind": "usb", "speed": "high"}
    assert (full.baud, high.baud, board("ulx3s-85f").baud) == (12_000_000, 200_000_000, 3_000_000)
    assert str(full.link) == "USB, where it is a serial port"


def test_a_port_of_usb_that_the_pin_out_has_not() -> None:
    made = board("ulx3s-85f").reached_by("usb")
    for resource in ("usb_c", "button_fire"):
        with pytest.raises(
            BoardError, match=rf"has no {resource} of number 0 that is a port of USB: see reso"
        ):
            replace(made, usb=replace(made.usb, resource=resource)).pins()


def test_what_a_link_over_usb_needs_is_asked_for_before_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    found = environment.importlib.util.find_spec
    monkeypatch.setattr(
        environment.importlib.util, "find_spec", lambda name: None if name == "luna" else found(name)
    )
    with pytest.raises(environment.ToolchainError, match="links over USB: not installed: the Python package"):
        check_tools(board("ulx3s-85f").reached_by("usb"), simulate=False)
    check_tools(board("ulx3s-85f"), simulate=False)
