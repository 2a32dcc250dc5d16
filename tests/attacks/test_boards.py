"""Boards that lack something, chosen for a build or for a run: it is said at once, and the advice helps."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("serial")

from serial.tools import list_ports

from amphw.rtl.build import board_files, fit
from amphw.rtl.build.board_sections import Chip, Pins, Resources
from amphw.rtl.build.boards import BOARDS
from tests.cli import conftest as cli

amphw, few_boards = cli.amphw, cli.few_boards

HX8K = replace(
    BOARDS["icebreaker"],
    name="hx8k",
    chip=Chip("ice40", "hx8k", "ct256"),
    resources=Resources(luts=7_680, ffs=7_680, dsps=0, brams=32, bram_bits=4_096),
    pinout=Pins("amaranth_boards.ice40_hx8k_b_evn:ICE40HX8KBEVNPlatform"),
)
"""A chip without multipliers."""

SMALL = replace(
    BOARDS["ulx3s-85f"], name="small", resources=replace(BOARDS["ulx3s-85f"].resources, luts=10_000)
)
"""One with few look-up tables."""

OWN = {each.name: each for each in (HX8K, SMALL)}

WIDE = ("--set", "hidden=128", "--set", "batch=100", "--set", "optimizer=momentum")
LEAST = ("--set", "hidden=2", "--set", "batch=1", "--set", "optimizer=sgd")
SHRINK = "--set batch=1, --set hidden=... (now 128), --set optimizer=sgd"
NO_MULTIPLIERS = (
    "hx8k has no multipliers, and no circuit does without, however small the model; the smallest boards that "
    "have them: icebreaker, tang-nano-9k, ulx3s-85f."
)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long is not reached."""

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("something long has begun")

    monkeypatch.setattr(fit, "fits", refuse)
    monkeypatch.setattr(board_files, "synthesize", refuse)


@pytest.mark.parametrize(
    ("platform", "complaint"),
    [
        (
            "tests.rtl.build.bare:Bare",
            "tests.rtl.build.bare:Bare has no pins for rx, tx. Name them in [pins] of its file, such as "
            'rx = "A1", or a platform',
        ),
        ("tests.rtl.build.bare:Dressed", "there is no pin-out tests.rtl.build.bare:Dressed (module '"),
        (
            "amaranth_boards.ulx4s:Platform",
            "(No module named 'amaranth_boards.ulx4s'). platform in [pins]",
        ),
        ("", "its file names no pins for clk, rx, tx. Name them in [pins]"),
    ],
)
def test_pins_are_looked_up_before_anything_slow(
    amphw: cli.Invoke, monkeypatch: pytest.MonkeyPatch, slow: None, platform: str, complaint: str
) -> None:
    monkeypatch.setitem(BOARDS, "mine", replace(BOARDS["ulx3s-85f"], name="mine", pinout=Pins(platform)))
    done = amphw("rtl", "list-reduction", "--board", "mine", "--out", "hw")
    assert done.exit_code == 1 and done.stderr.startswith("amphw: mine: ") and complaint in done.stderr


@pytest.mark.parametrize(
    ("board", "options", "advice"),
    [
        # No smaller model and no option gives multipliers.
        ("hx8k", LEAST, f"{NO_MULTIPLIERS} What would help: --board ulx3s-85f."),
        ("hx8k", (*LEAST, "--lanes", 16), f"{NO_MULTIPLIERS} What would help: --board ulx3s-85f."),
        (
            "hx8k",
            (*LEAST[:-1], "optimizer=momentum"),
            f"{NO_MULTIPLIERS} What would help: --board ulx3s-85f.",
        ),
        # Nor do settings that are chosen.
        ("hx8k", (), f"{NO_MULTIPLIERS} What would help: --board ulx3s-85f."),
        # Nor is there a board with room for such a model.
        (
            "hx8k",
            (*WIDE, "--set", "clip=5"),
            f"{NO_MULTIPLIERS} What would help: --board ulx3s-85f, and there {SHRINK}, --set clip=0.",
        ),
        # Fewer than the smallest circuit takes are as bad as none.
        (
            "icebreaker",
            ("--set", "hidden=2", "--set", "batch=1", "--set", "optimizer=momentum"),
            "No option lowers the number of look-up tables, flip-flops, multipliers far enough. What would "
            "help: --board ulx3s-85f.",
        ),
        # Here options are enough.
        (
            "small",
            (*LEAST, "--lanes", 16),
            "What would help: fewer lanes (--lanes), --board ulx3s-85f.",
        ),
        ("ulx3s-85f", WIDE, f"What would help: {SHRINK}."),
    ],
)
def test_advice_acts_on_what_is_short(
    amphw: cli.Invoke,
    few_boards: None,
    monkeypatch: pytest.MonkeyPatch,
    board: str,
    options: tuple[object, ...],
    advice: str,
) -> None:
    monkeypatch.setitem(BOARDS, board, OWN.get(board) or BOARDS[board])
    done = amphw("rtl", "list-reduction", "--board", board, "--out", "hw", *options)
    assert done.exit_code == 1 and "It does not fit: with " in done.stderr
    assert done.stderr.endswith(f"). {advice}\n")  # and nothing before it that does not help
    if board == "hx8k":
        assert " multipliers, " in done.stderr and " too many (hx8k has none)" in done.stderr


def listed(amphw: cli.Invoke, command: str, name: str) -> list[dict[str, Any]]:
    """The rows of `amphw devices` or `amphw check` whose name begins so."""
    (rows,) = (v for v in json.loads(amphw(command, "--json").stdout).values() if isinstance(v, list))
    return [row for row in rows if row["name"].startswith(name)]


def ports(*names: str) -> Callable[[], list[SimpleNamespace]]:
    return lambda: [SimpleNamespace(device=name, description="FT231X", vid=0x0403) for name in names]


@pytest.mark.parametrize(
    ("there", "name", "said"),
    [
        (
            (),
            "board:PORT",
            "name a port, such as board:/dev/ttyUSB0,circuit=FOLDER; USB serial ports here: none",
        ),
        (
            ("/dev/null",),
            "board:/dev/null",
            "a circuit on an FPGA board at /dev/null, 1,000,000 baud: FT231X",
        ),
    ],
)
def test_devices_and_check_agree_that_a_board_can_be_used(
    amphw: cli.Invoke, monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...], name: str, said: str
) -> None:
    monkeypatch.setattr(list_ports, "comports", ports(*there))
    (row,) = listed(amphw, "devices", "board")
    assert row["usable"] and row["name"] == name and said in row["notes"]
    (finding,) = listed(amphw, "check", "serial")
    assert finding["ok"] and f"USB serial ports here: {', '.join(there) or 'none'}" in finding["found"]


def test_devices_and_check_agree_that_a_board_cannot_be_used(
    amphw: cli.Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_ports, "comports", ports("/dev/null", "/dev/ttyNONE"))
    rows = {row["name"]: row for row in listed(amphw, "devices", "board")}
    assert rows["board:/dev/null"]["usable"] and not rows["board:/dev/ttyNONE"]["usable"]
    (finding,) = listed(amphw, "check", "serial")
    assert not finding["ok"] and finding["remedy"] == rows["board:/dev/ttyNONE"]["problem"]


def test_devices_and_check_agree_that_pyserial_is_missing(
    amphw: cli.Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("serial", "serial.tools", "serial.tools.list_ports"):
        monkeypatch.setitem(sys.modules, module, None)
    (row,) = listed(amphw, "devices", "board")
    (finding,) = listed(amphw, "check", "serial")
    assert not row["usable"] and not finding["ok"]
    assert "pip install 'amphw[board]'" in row["problem"] and finding["remedy"] == row["problem"]


def test_a_board_without_a_port_is_told_how_it_is_named(amphw: cli.Invoke) -> None:
    done = amphw("train", "list-reduction", "--device", "board", "--out", "run")
    assert done.exit_code == 1
    assert "names no port: write board:PORT,circuit=FOLDER" in done.stderr
    assert "such as board:/dev/ttyUSB0,circuit=FOLDER" in done.stderr
