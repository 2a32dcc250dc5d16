"""What meters count, and what is concluded from it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from amphw.rtl.fixed.findings import LEAST_UPDATES, findings
from amphw.rtl.fixed.meters import EVERY, FIRST, Meter, Meters, holding, share
from amphw.rtl.fixed.operations import plain
from amphw.rtl.numbers.formats import Format, Formats

FORMATS = Formats.parse("q4.12")


def meter(frac: int = 12) -> Meter:
    return Meter("n", "t", "value", Format(frac))


def test_a_meter_narrows_as_what_counts_nothing() -> None:
    rng, m = np.random.default_rng(0), meter()
    for shift in (0, 3, 12):
        x = rng.integers(-(1 << 29), 1 << 29, (5, 7))
        assert (m(x, shift) == plain(x, shift)).all()
        assert (m(x.astype(np.float64), shift) == plain(x, shift)).all()


@pytest.mark.parametrize("calls", [1, FIRST, FIRST + 2 * EVERY])
def test_everything_is_counted_and_a_sample_stands_for_all_calls(calls: int) -> None:
    m = meter()
    x = np.array([[0, 1, 3, 4096 << 4, 40000 << 4, -(40000 << 4)]])
    for _ in range(calls):
        m(x, 4)  # in steps: 0, 0.06, 0.19, 4096, and two that do not fit
    assert (m.count, m.saturated) == (6 * calls, 2 * calls)
    assert m.range == (-40000 / 4096, 40000 / 4096)
    assert (m.sampled, m.zeros, m.vanished) == (6 * calls, calls, 2 * calls)
    assert m.saturated_share == 1 / 3 and m.vanished_share == 2 / 5
    # 1 and 3 of 2**-16; 1.0; 9.77 twice.
    assert m.magnitudes == {-16: calls, -15: calls, 0: calls, 3: 2 * calls}
    assert m.lost == {-16: calls, -15: calls}


def test_after_the_first_calls_one_in_so_many_is_looked_at() -> None:
    m = meter()
    for _ in range(FIRST):
        m(np.array([1]))
    for k in range(3 * EVERY):
        m(np.array([4 if k % EVERY else 2]))
    assert m.magnitudes == {-12: FIRST, -11: 3 * EVERY}


def test_half_a_step_and_less_vanishes_and_more_becomes_a_step() -> None:
    m = meter()
    assert m(np.array([3, 8, 9, 15]), 4).tolist() == [0, 0, 1, 1]
    assert (m.magnitudes, m.lost) == ({-15: 1, -13: 3}, {-15: 1, -13: 1})


def test_what_saturated_on_the_way_counts_with_its_size() -> None:
    m = Meter("n", "t", "sum", Format(26, 32))
    m.add_saturated(np.array([1 << 31, -(1 << 33)]))
    m.see(np.array([5]), 0, np.array([5]))
    m.add_saturated(np.zeros(0, np.int64))
    assert (m.count, m.saturated, m.sampled) == (3, 2, 3)
    assert m.range == (-128.0, 32.0) and m.magnitudes == {5: 1, 7: 1, -24: 1}


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
    [(-8, 7.9, "q4.12"), (-8.1, 0, "q5.11"), (-7, 8, "q5.11"), (0, 0.001, "q1.15"), (0, 1e9, "q14.2")],
)
def test_the_finest_format_that_holds_a_range(low: float, high: float, expected: str) -> None:
    assert str(holding(low, high)) == expected


def test_formats_are_suggested_by_kind() -> None:
    meters = Meters(FORMATS)
    for kind, top in (("value", 20.0), ("weight", 0.7), ("gradient", 0.01)):
        meters.add("n", kind, kind).quantise(np.array([top, -top / 2]))  # type: ignore[arg-type]
    meters.add("n", "never used", "value")
    assert str(meters.suggested()) == "q6.10,w=q1.15,g=q1.15"
    assert [m.tensor for m in meters.used][0] == "value"  # the one that saturates


def test_what_saturates_comes_first_then_updates_that_vanish_and_weights_last() -> None:
    meters = Meters(FORMATS)
    tiny = 2.0**-40
    places = (
        ("bias", "weight", [tiny, tiny]),
        ("nothing", "value", [1.0, 1.0]),
        ("gradient", "gradient", [tiny, 1.0]),
        ("step", "update", [tiny, 1.0, 1.0, 1.0]),
        ("one of many", "value", [9.0, 1.0, 1.0, 1.0]),
        ("half", "value", [9.0, 1.0]),
    )
    for name, kind, numbers in places:
        given = Format(28, 32) if kind == "update" else None
        meters.add("n", name, kind, given).quantise(np.array(numbers))  # type: ignore[arg-type]
    assert [m.tensor for m in meters.used] == ["half", "one of many", "step", "gradient", "bias", "nothing"]


def updated(meters: Meters, times: int) -> None:
    place = meters.add("cell", "update W", "update", Format(28, 32))
    for _ in range(times):
        place.quantise(np.array([0.5]))


@pytest.mark.parametrize("times", [0, LEAST_UPDATES - 1])
def test_nothing_is_suggested_after_few_updates(times: int) -> None:
    meters = Meters(FORMATS)
    meters.add("cell", "weight W", "weight").quantise(np.array([0.5]))
    updated(meters, times)
    found = findings(FORMATS, meters)
    assert found.remarks[1] == (
        f"formats: none are suggested after {times:,} updates; that takes 1,000, and a run that has "
        "reached its target"
    )
    record = json.loads(found.files["formats.json"])
    assert record["suggested"] is None and record["updates"] == times


def test_formats_that_are_those_of_the_run_are_called_so() -> None:
    meters = Meters(FORMATS)
    for kind, top in (("value", 7.0), ("weight", 7.0), ("gradient", 1.5)):
        meters.add("n", kind, kind).quantise(np.array([top]))  # type: ignore[arg-type]
    updated(meters, LEAST_UPDATES)
    assert findings(FORMATS, meters).remarks[1] == (
        "formats: in 1,000 updates, q4.12 is the finest that holds all that was seen; choose by this only "
        "after a run that has reached its target: until then weights and sums grow"
    )


def test_findings_name_what_loses_most_and_what_to_choose() -> None:
    meters = Meters(FORMATS)
    updated(meters, LEAST_UPDATES)
    meters.add("cell", "forward affine W", "value").quantise(np.array([20.0, 1.0]))
    meters.add("cell", "weight W", "weight").quantise(np.array([0.5]))
    found = findings(FORMATS, meters)
    assert found.rows == (("cell: forward affine W", "q4.12", "1", "20", "50.00 %", "0"),)
    assert found.remarks[1] == (
        "formats: in 1,000 updates, the finest that hold all that was seen are q6.10,w=q1.15 (at least: what "
        "saturates hides how large numbers would have become); choose by this only after a run that has "
        "reached its target: until then weights and sums grow"
    )
    record = json.loads(found.files["formats.json"])
    assert record["formats"] == "q4.12" and record["suggested"] == "q6.10,w=q1.15"
    assert [t["tensor"] for t in record["tensors"]] == ["forward affine W", "update W", "weight W"]
    assert record["tensors"][0]["saturated"] == 1 and record["tensors"][0]["magnitudes"] == {"0": 1, "4": 1}
    assert found.files["formats.png"].startswith(b"\x89PNG") and "formats.png" in found.pictures


def test_without_numbers_there_is_nothing_to_find() -> None:
    assert findings(FORMATS, Meters(FORMATS)).files == {}


def test_a_trace_is_not_nothing() -> None:
    assert [share(0, 0.0), share(1, 1e-9), share(1, 0.5)] == ["0", "< 0.01 %", "50.00 %"]
