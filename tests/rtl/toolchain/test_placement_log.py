"""What is told while a circuit is placed and routed."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from amphw.rtl.toolchain import placement_log
from amphw.rtl.toolchain.placement_log import LOG, step, watched


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement_log, "_EVERY", 0.01)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Running main analytical placer, max placement attempts per cell = 104936584.", "placing"),
        ("    at iteration #13, type ALL: wirelen solved = 62111, spread = 127614", "placing, round 13"),
        ("iter=190 steplen=1.629030 a=97.140572 penalty=[0.00, 0.00, 0.00, 0.00]", "placing, round 190"),
        ("  at iteration #35: temp = 0.000000, timing cost = 578", "moving single cells, round 35"),
        (
            "    140000 |    37641     101852 |  391   609 |     43882|      18.74     700.84|",
            "routing, 43,882 connections left",
        ),
        ("    iter=8 wires=460928 overused=1053 overuse=1060", "routing, 1,053 wires taken twice"),
    ],
)
def test_a_log_tells_how_far_a_placement_is(line: str, said: str) -> None:
    before = "Info: Packing IOs..\nInfo:     at iteration #1, type ALL: wirelen solved = 9\n"
    assert step(f"{before}Info: {line}\nInfo: something else\n") == said
    assert step(f"{before}Info: {line}") == "placing, round 1"  # it may go on


def test_a_log_that_tells_nothing() -> None:
    assert step("") == step("Info: Packing IOs..\n") == ""


def test_it_is_told_whether_there_is_a_log_or_not_and_as_long_as_it_takes(
    often: None, tmp_path: Path
) -> None:
    told, without, twice = [], Event(), Event()

    def say(text: str) -> None:
        told.append(text)
        without.set()
        if sum(text.startswith("routing, 1,053 wires taken twice") for text in told) == 2:
            twice.set()

    with watched(tmp_path / LOG, say):
        assert without.wait(60)
        (tmp_path / LOG).write_text("Info:     iter=8 wires=460928 overused=1053\n")
        assert twice.wait(60)
    count = len(told)
    assert told[0] == "placing and routing (for 1 min)"
    assert told[-1] == f"routing, 1,053 wires taken twice (for {count} min)"


def test_nobody_has_to_listen(often: None, tmp_path: Path) -> None:
    with watched(tmp_path / LOG, None):
        pass


def test_an_error_of_what_is_watched_ends_it(often: None, tmp_path: Path) -> None:
    told: list[str] = []
    with pytest.raises(RuntimeError, match="mine"), watched(tmp_path / LOG, told.append):
        raise RuntimeError("mine")
