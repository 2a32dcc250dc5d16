"""Running the program: in this process where only the answer counts, as one of its own where streams do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner, Result

from amphw.cli.main import app

if TYPE_CHECKING:
    from amphw.rtl.plan.hardware import HardwarePlan

TINY = ["hidden=8", "batch=20", "train_instances=400", "valid_instances=100", "epochs=1", "target=none"]
ROOT = Path(__file__).resolve().parents[2]

Invoke = Callable[..., Result]
Spawn = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def plots_sketched(sketched: None) -> None:
    """What runs in this process leaves sketches of its plots."""


@pytest.fixture
def tiny() -> list[str]:
    """Options that make a run of list-reduction last a moment."""
    return [word for setting in TINY for word in ("--set", setting)]


@pytest.fixture
def amphw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run a command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AMPHW_DEBUG", raising=False)

    def invoke(*arguments: object, input: str | None = None) -> Result:
        return CliRunner().invoke(app, [str(each) for each in arguments], input=input)

    return invoke


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[HardwarePlan]:
    """Of the circuits that were built, which takes no time."""
    from amphw.rtl.build import board_files
    from amphw.rtl.toolchain.synthesis import Synthesis

    found: list[HardwarePlan] = []

    def synthesize(text: str, target: Any, **options: Any) -> Synthesis:
        bits = tmp_path / "top.bit"
        bits.write_bytes(b"bits")
        return Synthesis(target, 1, 1, 1, 1, 90.0, options["frequency_mhz"], {}, (), {}, bits)

    def device_verilog(plan: HardwarePlan, board: Any, clocking: Any) -> str:
        found.append(plan)
        return ""

    monkeypatch.setattr(board_files, "synthesize", synthesize)
    monkeypatch.setattr(board_files, "device_verilog", device_verilog)
    return found


@pytest.fixture
def few_boards(monkeypatch: pytest.MonkeyPatch) -> None:
    """One board of each family, so that what is said of others stays short."""
    from amphw.rtl.build.boards import BOARDS

    for name in [*BOARDS]:
        if name not in ("ulx3s-85f", "tang-nano-9k", "icebreaker"):
            monkeypatch.delitem(BOARDS, name)


SMALL = ("--set", "hidden=8", "--set", "batch=1", "--set", "optimizer=momentum")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """What was asked of the synthesis, which takes `luts` of 100 a lane and no time."""
    from amphw.rtl.build import board_files
    from amphw.rtl.timing import measure
    from amphw.rtl.toolchain.synthesis import ClockRate, PathStep, Share, Synthesis

    found: list[dict] = []

    def synthesize(text: str, target, **options) -> Synthesis:
        found.append({"text": text, **options})
        bits = tmp_path / "made.bit"
        bits.write_bytes(b"bits")
        placed = options.get("place", True)
        clocks = {net.net: ClockRate(61.3, net.mhz) for net in options.get("clocks", ())[-1:]}
        return Synthesis(
            target,
            luts=int(text) * 2700,
            ffs=2000,
            dsps=39,
            brams=52,
            fmax_mhz=61.3 if placed else None,
            frequency_mhz=options["frequency_mhz"],
            device_share={"DP16KD": Share(52, 208)} if placed else {},
            critical_path=(PathStep("design.device.vector", "design.device.vector.x_LUT4_Z", "logic", 2.5),),
            seconds={"map": 1.0},
            bitstream=bits if options.get("bitstream") else None,
            clocks=clocks,
        )

    monkeypatch.setattr(board_files, "device_verilog", lambda plan, board, clocking: str(plan.sizes.lanes))
    monkeypatch.setattr(board_files, "synthesize", synthesize)
    monkeypatch.setattr(measure, "cycles_per_message", lambda *arguments: 321.5)
    return found


def like(base: str, folder: Path, **resources: int) -> str:
    """The file `mine.toml` of a board that has other amounts of something."""
    from amphw.rtl.build.boards import board

    text = board(base).text
    for name, amount in resources.items():
        text, times = re.subn(rf"(?m)^{name} = .*$", f"{name} = {amount}", text)
        assert times == 1
    (folder / "mine.toml").write_text(text)
    return "mine.toml"


@pytest.fixture
def program() -> list[str]:
    """The command line that starts the program as a process of its own."""
    return [sys.executable, "-m", "amphw.cli"]


@pytest.fixture
def spawn(tmp_path: Path, program: list[str], environment: dict[str, str]) -> Spawn:
    """Run a command as a process of its own, in an empty folder, with stdout and stderr apart."""

    def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*program, *map(str, arguments)],
            cwd=tmp_path,
            env=environment | variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def environment() -> dict[str, str]:
    """What a process of its own needs to find this checkout."""
    kept = {name: value for name, value in os.environ.items() if name != "AMPHW_DEBUG"}
    return kept | {"PYTHONPATH": str(ROOT)}
