"""Boards are found by name, and their tables agree with the pin-outs and the tools."""

from __future__ import annotations

import importlib
from dataclasses import replace

import pytest

from amphw.rtl.boards import BOARDS, BoardError, board
from amphw.rtl.toolchain.families import FAMILIES


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_is_complete(name: str) -> None:
    found = board(name)
    assert found.name == name and found.target.family in FAMILIES
    assert set(found.pins()) == {"clk", "rx", "tx"} and all(found.pins().values())
    module, platform = found.platform
    declared = getattr(importlib.import_module(module), platform)
    clock = next(resource for resource in declared.resources if resource.name == declared.default_clk)
    assert clock.clock.frequency == found.clock_hz
    assert found.frequency_mhz * 1e6 >= found.clock_hz


def test_an_unknown_board_is_an_error_with_near_names() -> None:
    with pytest.raises(BoardError) as error:
        board("ulx3s")
    assert str(error.value) == (
        "There is no board 'ulx3s'. Did you mean ulx3s-85f? Boards: ulx3s-85f, icebreaker, tang-nano-9k. "
        "To add one: python -m pydoc amphw.rtl.boards"
    )


def pins(platform: str) -> dict[str, str]:
    return replace(BOARDS["ulx3s-85f"], platform=("tests.rtl.boards.bare", platform)).pins()


@pytest.mark.parametrize(("platform", "lacks"), [("Bare", "rx, tx"), ("Unwired", "tx"), ("Paired", "clk")])
def test_a_board_without_a_clock_or_a_serial_line_says_so(platform: str, lacks: str) -> None:
    with pytest.raises(BoardError, match=f"tests.rtl.boards.bare.{platform} has no pins for {lacks}. Its"):
        pins(platform)


def test_pins_of_a_connector_are_those_of_the_chip() -> None:
    assert pins("Wired") == {"clk": "A1", "rx": "B7", "tx": "C9"}
