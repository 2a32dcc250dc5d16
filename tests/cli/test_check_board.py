"""`amphw check --board`, which somebody with a board runs first. Circuit and serial line are simulated."""

from __future__ import annotations

import json
import os
import tty
from pathlib import Path

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("serial")

from serial.tools import list_ports

from amphw.library import board_check
from amphw.rtl.build import flash
from amphw.rtl.build.boards import board
from amphw.rtl.plan.hardware import HardwarePlan
from sim.board import SimulatedBoard


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing here is the circuit of a board that somebody has."""
    monkeypatch.setenv("AMPHW_CACHE", str(tmp_path / "cache"))


def made(plans: list[HardwarePlan], folder: Path) -> HardwarePlan:
    board_check.make(board("ulx3s-85f"), lambda text: None, folder)
    return plans[-1]


@pytest.mark.hardware
@pytest.mark.timeout(1800)
def test_a_board_that_works_and_one_that_does_not(
    amphw, plans: list[HardwarePlan], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = made(plans, tmp_path / "hw")
    monkeypatch.delenv("AMPHW_CACHE")  # of the simulation
    command = ("check", "--board", "ulx3s-85f", "--circuit", "hw", "--no-flash", "--instances", 5)
    with SimulatedBoard(plan) as there:
        done = amphw(*command, there.port, "--json")
        assert done.exit_code == 0, done.stderr + done.stdout
        found = json.loads(done.stdout)
        assert found["ok"] and found["board"] == "ulx3s-85f" and found["port"] == there.port
        steps = {each["name"]: each for each in found["steps"]}
        assert list(steps) == ["link", "memory", "training"] and not any(s["wrong"] for s in steps.values())
        assert steps["link"]["figures"]["baud"] == 3_000_000
        assert 0 < steps["link"]["figures"]["latency_ms"] <= steps["link"]["figures"]["latency_worst_ms"]
        weights = 8 * 8 + 8 + 16  # at least
        assert steps["memory"]["figures"]["numbers"] > 4 * weights
        assert steps["training"]["figures"]["instances"] == 5

        # Two bytes come back as others, while its memory is tested.
        there.damage = {there.sent + 4_000: 0xFF, there.sent + 4_001: 0xFF}
        done = amphw(*command, there.port)
        assert done.exit_code == 1
        assert done.stdout.startswith("WRONG") or "\nWRONG" in done.stdout
        assert "is bad" in done.stdout and "works" not in done.stdout


def test_arithmetic_that_differs_is_found() -> None:
    right = [{"loss": {"loss": 1.0}}, {"loss": {"loss": 2.0}}]
    wrong = [{"loss": {"loss": 1.0}}, {"loss": {"loss": 2.5}}]
    said = board_check._differs(wrong, right, {}, {})
    assert said.startswith(
        "instance 2 says loss: loss 2.5 where the model of the arithmetic says loss: loss 2:"
    )
    assert board_check._differs(right, right, {}, {}) == ""


def test_what_is_asked_before_anything_takes_long(
    amphw, plans: list[HardwarePlan], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(list_ports, "comports", list)
    for arguments, complaint in (
        (["/dev/ttyUSB0"], "which board is it? Say --board BOARD"),
        (
            ["--board", "ulx3s-85f"],
            "at which port is the board? Name one (amphw check --board ulx3s-85f PORT)",
        ),
        (["--board", "ulx3s", "/dev/ttyUSB9"], "There is no board 'ulx3s'. Did you mean"),
        (["--board", "ulx3s-85f", "/dev/ttyUSB9"], "there is no serial port /dev/ttyUSB9"),
        (
            ["--board", "ulx3s-85f", "--link", "usb"],
            "Name the one that appears when a circuit is in it, such",
        ),
        (
            ["--board", "ulx3s-85f", "--link", "usb", "--no-flash", "/dev/ttyACM9"],
            "there is no serial port /dev/ttyACM9",
        ),
    ):
        done = amphw("check", *arguments)
        assert done.exit_code == 1 and complaint in " ".join(done.stderr.split()), done.stderr
    assert not plans


def test_a_board_that_has_no_room_says_so(amphw, plans: list[HardwarePlan], tmp_path: Path) -> None:
    master, slave = os.openpty()
    tty.setraw(slave)
    done = amphw("check", "--board", "icebreaker", "--no-flash", os.ttyname(slave))
    os.close(master)
    os.close(slave)
    assert done.exit_code == 1 and "It does not fit: with 2 lanes and 1 key it needs" in done.stderr


def test_a_board_that_is_silent(amphw, plans: list[HardwarePlan], tmp_path: Path) -> None:
    made(plans, tmp_path / "hw")
    master, slave = os.openpty()
    tty.setraw(slave)
    done = amphw(
        "check", "--board", "ulx3s-85f", "--circuit", "hw", "--no-flash", os.ttyname(slave), "--json"
    )
    os.close(master)
    os.close(slave)
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert not found["ok"] and [s["name"] for s in found["steps"]] == ["link"]
    assert found["steps"][0]["wrong"].startswith(("nothing comes from", "the serial port"))


def test_the_circuit_is_put_into_the_board(
    amphw, plans: list[HardwarePlan], monkeypatch, tmp_path: Path
) -> None:
    """What a loader is called with, and that nothing is asked of the board before."""
    made(plans, tmp_path / "hw")
    called: list[tuple[Path, str, bool]] = []
    monkeypatch.setattr(board_check, "flash", lambda path, on, keep: called.append((path, on.name, keep)))
    monkeypatch.setattr(flash.shutil, "which", lambda name: name)
    monkeypatch.setattr(
        board_check.SelfTest, "link", lambda self: board_check.Step("link", "", wrong="it is mute")
    )
    master, slave = os.openpty()
    done = amphw("check", "--board", "ulx3s-85f", "--circuit", "hw", os.ttyname(slave))
    os.close(master)
    os.close(slave)
    assert done.exit_code == 1
    assert done.stdout == f"ok  flash: {Path('hw') / 'top.bit'} is in the board\nWRONG  link: it is mute\n"
    assert called == [(Path("hw") / "top.bit", "ulx3s-85f", False)]


def test_a_port_of_usb_appears_when_the_circuit_is_in_the_board(
    amphw, plans: list[HardwarePlan], monkeypatch, tmp_path: Path
) -> None:
    """It is not looked for before; behind it the test goes on."""
    made(plans, tmp_path / "hw")
    monkeypatch.setattr(flash.shutil, "which", lambda name: name)
    port = tmp_path / "ttyACM0"
    master, slave = os.openpty()
    monkeypatch.setattr(board_check, "flash", lambda path, on, keep: port.symlink_to(os.ttyname(slave)))
    monkeypatch.setattr(
        board_check.SelfTest, "link", lambda self: board_check.Step("link", "", wrong="it is mute")
    )
    done = amphw("check", "--board", "ulx3s-85f", "--link", "usb", "--circuit", "hw", str(port))
    os.close(master)
    os.close(slave)
    assert done.exit_code == 1
    assert done.stdout == f"ok  flash: {Path('hw') / 'top.bit'} is in the board\nWRONG  link: it is mute\n"


def test_a_loader_that_fails_is_a_step_that_is_wrong(
    amphw, plans: list[HardwarePlan], monkeypatch, tmp_path: Path
) -> None:
    """What it prints is no part of what other programs read."""
    made(plans, tmp_path / "hw")
    loader = tmp_path / "bin" / flash.LOADER
    loader.parent.mkdir()
    loader.write_text("#!/bin/sh\necho noise\nexit 3\n")
    loader.chmod(0o755)
    monkeypatch.setenv("PATH", f"{loader.parent}:{os.environ['PATH']}")
    master, slave = os.openpty()
    done = amphw("check", "--board", "ulx3s-85f", "--circuit", "hw", os.ttyname(slave), "--json")
    os.close(master)
    os.close(slave)
    found = json.loads(done.stdout)
    assert done.exit_code == 1 and [step["name"] for step in found["steps"]] == ["flash"]
    assert "ended with status 3" in found["steps"][0]["wrong"]


def test_a_board_that_no_loader_knows(amphw, plans: list[HardwarePlan], tmp_path: Path) -> None:
    master, slave = os.openpty()
    done = amphw("check", "--board", "versa-ecp5", os.ttyname(slave))
    os.close(master)
    os.close(slave)
    assert done.exit_code == 1 and not plans
    assert "does not say what openFPGALoader calls it" in done.stderr and "--no-flash" in done.stderr
