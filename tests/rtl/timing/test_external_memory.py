"""The calculation that a decision rests on is the one on record."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("amaranth")

from benchmarks.rtl_external_memory import RECORD, figures


def test_the_record_is_what_is_calculated() -> None:
    recorded = json.loads(RECORD.read_text())
    found = json.loads(json.dumps(figures()))
    assert {key: recorded[key] for key in found} == found
    [sdram, *ddr] = found["external"]
    assert sdram["rows_to_pay"] > 14 and all(each["rows_to_pay"] > 1 for each in ddr)
