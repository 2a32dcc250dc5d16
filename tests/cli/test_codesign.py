"""`amphw codesign`: what it prints, writes and refuses, with trainings that take no time."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("amaranth")

from amphw.library.codesign import making
from amphw.library.codesign.trials import FLOAT32, Result, Trial
from amphw.rtl.build import board_files
from amphw.rtl.build.fit import FitError
from amphw.rtl.numbers.formats import Formats
from tests.cli.conftest import like

SMALL = ("codesign", "list-reduction", "--set", "hidden=8", "--set", "epochs=6", "--board", "ulx3s-85f")


class Played:
    """In the place of the processes: finer values are better, and four bits before the point the least."""

    processes = 2

    def __init__(self, model: str, cfg: Any) -> None:
        assert model == "list-reduction" and cfg.model.hidden == 8 and cfg.model.batch > 1

    def __enter__(self) -> Played:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def run(self, trials: Sequence[Trial]) -> Iterator[Result]:
        for trial in trials:
            held = "" if trial.device == FLOAT32 else "q3.13,w=q3.13,g=q4.12"
            yield Result(trial, self._score(trial), 0.0, held)

    def _score(self, trial: Trial) -> float:
        if trial.device == FLOAT32:
            return 0.9
        frac = Formats.parse(trial.formats).value.frac
        return 0.8 + 0.0078 * frac if frac <= 12 else math.nan


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "Trainers", Played)


def test_the_contract_of_the_json(amphw, tmp_path: Path) -> None:
    done = amphw(*SMALL, "--loss", 1, "--json")
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["float32"] == {"median": 0.9, "seeds": [0.9] * 3} and facts["files"] == {}
    for point in facts["front"]:
        assert {"accuracy", "instances_per_s", "luts", "formats", "lanes", "keys"} <= point.keys()
        assert Formats.parse(point["formats"]) and point["instances_per_s"] > 0 and point["luts"] > 0
    rates = [point["instances_per_s"] for point in facts["front"]]
    assert rates == sorted(rates, reverse=True)
    assert facts["chosen"] == facts["front"][0]
    assert facts["chosen"]["formats"].startswith("q4.12") and len(facts["chosen"]["seeds"]) == 3
    assert {each["formats"] for each in facts["tried"]} > {"float32", "q10.6,w=q5.11,g=q6.10"}


def test_the_table_and_the_files(amphw, tmp_path: Path) -> None:
    done = amphw(*SMALL, "--out", "design", "--lanes", 4)
    assert done.exit_code == 0, done.stderr
    assert "float32: accuracy 0.9, median of 3 seeds" in done.stdout
    assert "chosen (*): q4.12" in done.stdout and "4 lanes" in done.stdout and "gives up" in done.stdout
    assert "formats to the end, 4 of 4" in done.stderr
    written = json.loads((tmp_path / "design" / "codesign.json").read_text())
    assert {p["lanes"] for p in written["front"]} == {4}
    assert (tmp_path / "design" / "front.png").read_bytes().startswith(b"\x89PNG")
    assert written["files"] == {"front": "design/codesign.json", "picture": "design/front.png"}


def test_a_circuit_that_only_the_mapping_can_refuse_is_named(amphw, tmp_path: Path) -> None:
    sure = amphw(*SMALL, "--lanes", 4, "--json")
    most = max(point["luts"] for point in json.loads(sure.stdout)["front"])
    assert "may be too large" not in amphw(*SMALL, "--lanes", 4).stdout
    nearly = like("ulx3s-85f", tmp_path, luts=most - 1)
    done = amphw(*SMALL[:-1], nearly, "--lanes", 4)
    assert done.exit_code == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert (
        f"by the estimate it needs about {most:,} look-up tables, 1 too many (mine has {most - 1:,})" in said
    )


def test_circuits_are_built(amphw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chosen one with its bitstream; one that cannot be placed is told, and loses nothing."""
    asked: list[tuple[int, Path, bool]] = []

    def build(fits: Any, board: Any, out: Path, pins: Any, mhz: Any, bitstream: bool, *others: Any) -> Any:
        [fit] = fits
        asked.append((fit.plan.sizes.lanes, out, bitstream))
        if not bitstream and fit.plan.sizes.lanes > 2:
            raise FitError("it does not fit after all")
        out.mkdir()
        return SimpleNamespace(synthesis=SimpleNamespace(luts=2 * fit.estimate.luts, fmax_mhz=71.5))

    monkeypatch.setattr(board_files, "build", build)
    done = amphw(*SMALL, "--out", "design", "--build")
    assert done.exit_code == 0, done.stderr
    (chosen, *others) = asked
    assert chosen[1:] == (Path("design/circuit"), True) and len(others) == 2
    assert not any(bitstream for *_, bitstream in others)
    assert len({lanes for lanes, *_ in asked}) == 3
    assert "the estimate was -50.0% off; timing allows 71.5 MHz" in done.stdout
    assert "not built: " in done.stdout and "it does not fit after all" in done.stdout
    built = json.loads((tmp_path / "design" / "codesign.json").read_text())["built"]
    assert [each["error"] for each in built if not each["refused"]] == [-0.5, -0.5]
    assert (tmp_path / "design" / "circuit" / "run.toml").is_file()


def test_a_folder_that_cannot_be_written(amphw, tmp_path: Path) -> None:
    (tmp_path / "design").write_text("")
    done = amphw(*SMALL, "--out", "design")
    assert done.exit_code == 1 and "design is a file, not a folder" in done.stderr


def test_nothing_is_within_the_loss(amphw) -> None:
    done = amphw(*SMALL, "--loss", 0)
    assert done.exit_code == 0 and "chosen: none, all lose more than --loss allows" in done.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--build",), "--build writes files: say where (--out DIR)"),
        (("--board", "ulx4s"), "There is no board 'ulx4s'. Did you mean ulx3s"),
        (("--set", "optimizer=adam"), "adam"),
        (("--lanes", 3), "3 lanes cannot be built"),
    ],
)
def test_what_is_refused(amphw, options: tuple[Any, ...], said: str) -> None:
    done = amphw(*SMALL, *options)
    assert done.exit_code == 1 and said in done.stderr and not done.stdout
