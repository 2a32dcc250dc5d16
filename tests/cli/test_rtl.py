"""`amphw rtl`: what it asks for, what it reports, and what it refuses before anything takes long."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from amphw.ir.update import UpdateRule
from amphw.models import get_model
from amphw.models.list_reduction import ListReductionConfig
from amphw.rtl import board_build, measure
from amphw.rtl.boards import board
from amphw.rtl.fit import fits
from amphw.rtl.formats import Formats
from amphw.rtl.toolchain.synthesis import Share, Step, Synthesis

pytest.importorskip("amaranth")

SMALL = ("--set", "hidden=8", "--set", "batch=1", "--set", "optimizer=momentum")
CONTRACT = ("luts", "ffs", "dsps", "brams", "fmax_mhz", "cycles_per_message")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict]:
    """What was asked of the synthesis, which takes `luts` of 100 a lane and no time."""
    found: list[dict] = []

    def synthesize(text: str, target, **options) -> Synthesis:
        found.append({"text": text, **options})
        bits = tmp_path / "made.bit"
        bits.write_bytes(b"bits")
        placed = options.get("place", True)
        return Synthesis(
            target,
            luts=int(text) * 2700,
            ffs=2000,
            dsps=39,
            brams=52,
            fmax_mhz=61.25 if placed else None,
            frequency_mhz=options["frequency_mhz"],
            device_share={"DP16KD": Share(52, 208)} if placed else {},
            critical_path=(Step("design.device.vector", "design.device.vector.x_LUT4_Z", "logic", 2.5),),
            seconds={"map": 1.0},
            bitstream=bits if options.get("bitstream") else None,
        )

    monkeypatch.setattr(board_build, "device_verilog", lambda plan, board: str(plan.sizes.lanes))
    monkeypatch.setattr(board_build, "synthesize", synthesize)
    monkeypatch.setattr(measure, "cycles_per_message", lambda *arguments: 321.5)
    return found


def test_the_contract_of_the_json(amphw, asked) -> None:
    done = amphw("rtl", "list-reduction", *SMALL, "--out", "hw", "--json", "--lanes", 4)
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    assert all(isinstance(facts[key], int | float) for key in CONTRACT)
    assert facts["fmax_mhz"] == 61.25 and facts["cycles_per_message"] == 321.5
    assert facts["device_share"] == {
        "luts": 10_800 / 83_640,
        "ffs": 2000 / 83_640,
        "dsps": 39 / 156,
        "brams": 52 / 208,
    }
    assert (facts["board"], facts["lanes"], facts["keys"]) == ("ulx3s-85f", 4, 16)
    assert facts["critical_path"][0]["module"] == "design.device.vector"


def test_the_table_and_the_files(amphw, asked, tmp_path: Path) -> None:
    done = amphw(
        "rtl", "list-reduction", *SMALL, "--out", "hw", "--lanes", 4, "--bitstream", "--frequency", 70
    )
    assert done.exit_code == 0, done.stderr
    assert "61.25 MHz (70 MHz asked for: MISSED)" in done.stdout
    assert "cycles per message: 321.5" in done.stdout and "critical path: vector.x\n" in done.stdout
    names = {path.name for path in (tmp_path / "hw").iterdir()}
    assert names == {"top.v", "top.lpf", "amphw_wire.h", "made.bit"}
    assert 'LOCATE COMP "clk"' in (tmp_path / "hw" / "top.lpf").read_text()
    assert [each["frequency_mhz"] for each in asked] == [70, 70]


def test_fewer_lanes_are_taken_where_the_chip_is_too_small_after_all(amphw, asked) -> None:
    done = amphw("rtl", "list-reduction", *SMALL, "--out", "hw", "--json", "--no-simulate")
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["lanes"] == 16 and facts["cycles_per_message"] is None
    assert "32 lanes do not fit after all: mapped they take 86,400 look-up tables" in done.stderr
    assert [each.get("place", True) for each in asked] == [False, False, True]


def test_nothing_fits_after_all(amphw, asked) -> None:
    done = amphw("rtl", "list-reduction", *SMALL, "--out", "hw", "--lanes", 32)
    assert done.exit_code == 1 and "2,760 fewer" in done.stderr and "--keys" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--board", "ulx3s"), "There is no board 'ulx3s'. Did you mean ulx3s-85f?"),
        (("--board", "icebreaker"), "It does not fit: with 2 lanes and 1 key it needs"),
        (("--formats", "q3.12"), "'q3.12' is no number format"),
        (("--set", "optimizer=adam"), "adam"),
        (("--set", "hidden=512"), "node 'cell': sums of 1025 products"),
        (("--lanes", "6"), "power of two"),
    ],
)
def test_refused_before_anything_is_built(amphw, asked, arguments, message) -> None:
    done = amphw("rtl", "list-reduction", *SMALL, "--out", "hw", *arguments)
    assert done.exit_code == 1 and message in done.stderr and asked == []


def test_nodes_that_the_hardware_lacks(amphw, asked) -> None:
    done = amphw("rtl", "babi15", "--out", "hw", "--set", "optimizer=sgd")
    assert done.exit_code == 1 and asked == []
    assert done.stderr.startswith("amphw: node 'max': the hardware cannot compute 'div'")


def test_missing_programs(amphw, asked, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
    done = amphw("rtl", "list-reduction", *SMALL, "--out", "hw")
    assert done.exit_code == 1 and asked == []
    assert "apt install g++ make perl" in done.stderr


@pytest.mark.slow
def test_a_real_build(amphw, tmp_path: Path) -> None:
    """The smallest device, with a bitstream; the estimates are near what is built."""
    tiny = ("--lanes", 2, "--keys", 1, "--set", "hidden=4", "--set", "batch=1", "--set", "optimizer=sgd")
    done = amphw("rtl", "list-reduction", *tiny, "--out", "hw", "--bitstream", "--json", "--frequency", 25)
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    assert all(isinstance(facts[key], int | float) for key in CONTRACT)
    assert facts["meets_frequency"] and facts["fmax_mhz"] > 25
    assert 10 < facts["cycles_per_message"] < 2000
    assert all(0 < share < 0.5 for share in facts["device_share"].values())
    assert all(name.startswith("design.") for name in facts["critical_signals"])
    assert Path(facts["files"]["bitstream"]).stat().st_size > 500_000
    graph = get_model("list-reduction").graph(ListReductionConfig(hidden=4, batch=1))
    (fit,) = fits(graph, {"*": UpdateRule()}, Formats.parse("q4.12"), board("ulx3s-85f"), 1, 1, 1, 2)
    assert abs(fit.estimate.brams - facts["brams"]) <= 2
    assert facts["luts"] == pytest.approx(fit.estimate.luts, rel=0.3)
    assert facts["ffs"] == pytest.approx(fit.estimate.ffs, rel=0.3)
    assert facts["dsps"] == pytest.approx(fit.estimate.dsps, abs=4)
