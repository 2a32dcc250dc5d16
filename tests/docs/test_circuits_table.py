"""The table of several circuits in docs/several-devices.md is that of its record, and within its bar."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("amaranth")

from benchmarks.several_circuits import BAR, RECORD, RUNS, table
from tests.docs.test_commands import ROOT


def test_the_table_of_circuits_is_that_of_the_record() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "several-devices.md").read_text(encoding="utf-8")
    assert table(record) in page
    errors = [each["error"] for name in RUNS for each in (record[name], *record[name]["circuits"])]
    assert len(errors) == 17 and max(map(abs, errors)) <= BAR
