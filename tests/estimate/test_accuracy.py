"""How right estimates have been: the file is sound, and what is said of it follows from it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from amphw.estimate.accuracy import FILE, Accuracy, as_json, known, read, summary, updated, write
from amphw.ir.errors import AmphwError

ROW = Accuracy("an engine", "rnn", "keys=1", 200.0, 180.0, "words/s", "measure it", "a machine", "2026-11-22")


def test_the_rows_that_are_shipped_have_all_that_a_reader_needs() -> None:
    rows = known()
    assert {row.model for row in rows} >= {"list-reduction", "tree-lstm", "ggnn"}
    for row in rows:
        texts = (row.against, row.setting, row.unit, row.command, row.machine)
        assert all(texts) and len(row.date.split("-")) == 3
        assert row.measured > 0 and row.simulated > 0
    assert len(read(FILE)) == len({(row.against, row.model, row.setting) for row in rows})


def test_an_error_is_that_of_what_is_simulated() -> None:
    assert ROW.error == pytest.approx(-0.1)
    assert as_json(ROW)["error"] == ROW.error


def test_rows_are_written_and_read(tmp_path: Path) -> None:
    rows = [ROW, replace(ROW, setting="keys=2", note="a note")]
    write(tmp_path / "rows.json", rows)
    assert read(tmp_path / "rows.json") == rows


def test_a_new_measurement_replaces_the_same_one() -> None:
    other, again = replace(ROW, setting="keys=2"), replace(ROW, simulated=190.0)
    assert updated([ROW, other], [again, replace(ROW, model="lstm")]) == [
        again,
        other,
        replace(ROW, model="lstm"),
    ]


def test_a_line_for_the_model_or_for_all() -> None:
    rows = [ROW, replace(ROW, simulated=220.0), replace(ROW, model="lstm", simulated=300.0)]
    assert summary(rows, "rnn") == "-10% to +10% beside an engine (2 measured)"
    assert summary(rows, "lstm") == "+50% beside an engine (1 measured)"
    other = "not measured for ggnn; other models -10% to +50% beside an engine (3 measured)"
    assert summary(rows, "ggnn") == other
    assert summary([], "ggnn") == ""


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    with pytest.raises(AmphwError, match=r"cannot read .*rows\.json"):
        read(file)
    for wrong, complaint in (
        ({"error": 0.5}, "row 1: error is 0.5, expected simulated / measured - 1"),
        ({"measured": 0.0}, "row 1: error is"),
        ({"measured": "many"}, "row 1: "),
        ({"colour": "red"}, "row 1: .*colour"),
    ):
        file.write_text(json.dumps({"rows": [as_json(ROW) | wrong]}))
        with pytest.raises(AmphwError, match=complaint):
            read(file)
