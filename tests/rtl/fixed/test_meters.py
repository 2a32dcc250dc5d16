"""What meters count, and what is concluded from it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from amphw.rtl.fixed.findings import findings
from amphw.rtl.fixed.meters import EVERY, Meter, Meters, holding, share
from amphw.rtl.fixed.operations import plain
from amphw.rtl.formats import Format, Formats

FORMATS = Formats.parse("q4.12")


def meter(frac: int = 12) -> Meter:
    return Meter("n", "t", "value", Format(frac))


def test_a_meter_narrows_as_what_counts_nothing() -> None:
    rng, m = np.random.default_rng(0), meter()
    for shift in (0, 3, 12):
        x = rng.integers(-(1 << 29), 1 << 29, (5, 7))
        assert (m(x, shift) == plain(x, shift)).all()
        assert (m(x.astype(np.float64), shift) == plain(x, shift)).all()


def test_everything_is_counted_and_a_call_in_so_many_looked_at() -> None:
    m = meter()
    x = np.array([[0, 1, 3, 4096 << 4, 40000 << 4, -(40000 << 4)]])
    for _ in range(2 * EVERY):
        m(x, 4)  # in steps: 0, 0.06, 0.19, 4096, and two that do not fit
    assert (m.count, m.saturated) == (2 * EVERY * 6, 2 * EVERY * 2)
    assert m.range == (-40000 / 4096, 40000 / 4096)
    assert (m.sampled, m.zeros, m.vanished) == (12, 2, 4)
    assert m.saturated_share == 1 / 3 and m.vanished_share == 4 / 10
    # 1 and 3 of 2**-16; 1.0; 9.77 twice.
    assert m.magnitudes == {-16: 2, -15: 2, 0: 2, 3: 4}


def test_numbers_in_floats_are_rounded_and_what_is_none_is_nothing() -> None:
    m = meter()
    found = m.quantise(np.array([[1.0, 2**-14, np.nan, np.inf, -np.inf, 1e300]], np.float64))
    assert found.tolist() == [[4096, 0, 0, 32767, -32768, 32767]]
    assert (m.saturated, m.vanished) == (3, 1)


def test_no_rows_are_no_numbers() -> None:
    m = meter()
    assert m(np.zeros((0, 3)), 4).shape == (0, 3) and m.count == 0


@pytest.mark.parametrize(
    "low, high, expected",
    [(-8, 7.9, "q4.12"), (-8.1, 0, "q5.11"), (-7, 8, "q5.11"), (0, 0.001, "q-8.24"), (0, 1e9, "q14.2")],
)
def test_the_finest_format_that_holds_a_range(low: float, high: float, expected: str) -> None:
    assert str(holding(low, high)) == expected


def test_formats_are_suggested_by_kind() -> None:
    meters = Meters(FORMATS)
    for kind, top in (("value", 20.0), ("weight", 0.7), ("gradient", 0.01)):
        meters.add("n", kind, kind).quantise(np.array([top, -top / 2]))  # type: ignore[arg-type]
    meters.add("n", "never used", "value")
    assert str(meters.suggested()) == "q6.10,w=q1.15,g=q-5.21"
    assert [m.tensor for m in meters.used][0] == "value"  # the one that saturates


def test_values_are_never_suggested_finer_than_a_curve_can_be() -> None:
    meters = Meters(FORMATS)
    meters.add("n", "small", "value").quantise(np.array([0.01]))
    assert str(meters.suggested().value) == "q1.15"


def test_findings_name_what_loses_most_and_what_to_choose() -> None:
    meters = Meters(FORMATS)
    meters.add("cell", "forward affine W", "value").quantise(np.array([20.0, 1.0]))
    meters.add("cell", "weight W", "weight").quantise(np.array([0.5]))
    found = findings(FORMATS, meters)
    assert found.rows == (("cell: forward affine W", "q4.12", "1", "20", "50.00 %", "0"),)
    assert found.remarks[1] == (
        "formats: the finest that hold all that was seen are q6.10,w=q1.15 "
        "(at least: what saturates hides how large numbers would have become)"
    )
    record = json.loads(found.files["formats.json"])
    assert record["formats"] == "q4.12" and record["suggested"] == "q6.10,w=q1.15"
    assert [t["tensor"] for t in record["tensors"]] == ["forward affine W", "weight W"]
    assert record["tensors"][0]["saturated"] == 1 and record["tensors"][0]["magnitudes"] == {"0": 1, "4": 1}
    assert found.files["formats.png"].startswith(b"\x89PNG") and "formats.png" in found.pictures


def test_without_numbers_there_is_nothing_to_find() -> None:
    assert findings(FORMATS, Meters(FORMATS)).files == {}


def test_a_trace_is_not_nothing() -> None:
    assert [share(0, 0.0), share(1, 1e-9), share(1, 0.5)] == ["0", "< 0.01 %", "50.00 %"]
