"""Figures add up: by row, by node, by phase."""

from __future__ import annotations

import math

import pytest

from amphw.host.meters import DeviceMeter, KeysInFlight, Tally, percentile
from amphw.ir.device import Mode, Report, Statistics


def report(rows: int, **sums: float) -> Report:
    return Report(0, 1, 0, Mode.TRAIN, {"loss": sums, "other": {"loss": 99.0}}, {"loss": rows, "other": 1})


def test_means_are_over_rows() -> None:
    tally = Tally("loss", ("loss", "accuracy"))
    assert tally.means() == {}
    assert tally.add(report(1, loss=4.0, accuracy=1.0, prediction=7.0))
    assert tally.add(report(3, loss=0.0, accuracy=2.0, prediction=9.0))
    assert tally.means() == {"loss": 1.0, "accuracy": 0.75}


def test_a_report_without_the_sink_counts_for_nothing() -> None:
    tally = Tally("loss", ("loss",))
    assert tally.add(Report(0, 1, 0, Mode.TRAIN)) and tally.rows == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_noticed(value: float) -> None:
    assert not Tally("loss", ("loss",)).add(report(1, loss=value))
    assert Tally("loss", ("loss",)).add(report(1, loss=1.0, prediction=value)), "not a figure"


def test_a_tally_survives_as_json() -> None:
    tally, other = (Tally("loss", ("loss",)) for _ in range(2))
    tally.add(report(3, loss=0.1))
    other.restore(tally.to_json())
    assert other == tally


def several() -> Tally:
    return Tally("loss", ("loss",), beside=(Tally("parts", ("loss", "accuracy")),))


def of_both(rows: int, loss: float, parts: float) -> Report:
    sums = {"loss": {"loss": loss}, "parts": {"loss": parts, "accuracy": 1.0}}
    return Report(0, 1, 0, Mode.TRAIN, sums, {"loss": 1, "parts": rows})


def test_other_losses_are_counted_by_their_own_rows() -> None:
    tally = several()
    assert tally.add(of_both(4, 2.0, 8.0)) and tally.add(of_both(1, 4.0, 2.0))
    assert tally.means() == {"loss": 3.0, "parts.loss": 2.0, "parts.accuracy": 0.4}
    assert not tally.add(of_both(1, 1.0, math.nan)), "that of another loss is noticed, too"
    assert tally.empty() == several()


def test_other_losses_add_up_over_parts_and_survive_as_json() -> None:
    one, other = several(), several()
    one.add(of_both(4, 2.0, 8.0))
    other.add(of_both(2, 3.0, 1.0))
    together = one.filled([a + b for a, b in zip(one.figures(), other.figures(), strict=True)])
    one.include(other)
    assert together == one
    again = several()
    again.restore(one.to_json())
    assert again == one
    before = several()
    before.restore({"rows": 3, "sums": {"loss": 6.0}})  # of a checkpoint from before they were counted
    assert before.means() == {"loss": 2.0}


@pytest.mark.parametrize(
    ("histogram", "share", "expected"),
    [
        ({}, 0.5, math.nan),
        ({0: 0}, 0.5, math.nan),
        ({3: 1}, 0.99, 3.0),
        ({0: 50, 1: 50}, 0.5, 0.0),
        ({0: 49, 1: 51}, 0.5, 1.0),
        ({5: 1, 0: 99}, 0.99, 0.0),
        ({5: 2, 0: 98}, 0.99, 5.0),
    ],
)
def test_percentiles_weigh_by_rows(histogram: dict[int, int], share: float, expected: float) -> None:
    assert percentile(histogram, share) == pytest.approx(expected, nan_ok=True)


def test_keys_in_flight_weigh_by_time() -> None:
    keys = KeysInFlight(10.0)
    assert math.isnan(keys.mean())
    for count, at in ((4, 10.0), (2, 13.0), (0, 14.0)):
        keys.change(count, at)
    assert keys.mean() == pytest.approx((4 * 3 + 2 * 1) / 4)


class Counting:
    """A device of which only the counters are there; each reading hands out the next."""

    def __init__(self, *readings: Statistics) -> None:
        self.readings = list(readings)
        self.read = 0

    def statistics(self) -> Statistics:
        self.read += 1
        return self.readings.pop(0) if self.readings else Statistics()


def make(*readings: Statistics) -> tuple[DeviceMeter, Counting, list[float]]:
    device, clock = Counting(Statistics(forward=99), *readings), [0.0]
    return DeviceMeter(device, clock=lambda: clock[0]), device, clock  # type: ignore[arg-type]


def test_a_phase_sums_its_readings_and_nothing_before() -> None:
    meter, _, clock = make(
        Statistics(5, 4, 2, 1, {"a": {0: 3, 2: 1}}, [0.5]),
        Statistics(1, 2, 2, 1, {"a": {2: 1}, "b": {1: 4}}, [0.5, 3.0]),
    )
    clock[0] = 1.0
    meter.collect()
    assert meter.utilisation() == [0.5] == meter.utilisation_lately()
    clock[0] = 2.0
    meter.collect()
    assert (meter.forward, meter.backward, meter.updates) == (6, 6, 2)
    assert meter.staleness == {"a": {0: 3, 2: 2}, "b": {1: 4}}
    assert meter.staleness_overall() == {0: 3, 1: 4, 2: 2}
    assert meter.utilisation() == [0.5, 1.0], "clocks are not exact; no worker is more than busy"
    assert meter.utilisation_lately() == [0.5, 1.0]
    meter.start()
    assert (meter.forward, meter.staleness, meter.utilisation()) == (0, {}, [])


def test_a_device_that_does_not_measure_its_workers_is_not_idle() -> None:
    meter, _, clock = make(Statistics(1, 1, busy=[0.0]), Statistics(0, 0, busy=[0.0]))
    for _ in range(2):
        clock[0] += 1.0
        meter.collect()
        assert math.isnan(*meter.utilisation()) and math.isnan(*meter.utilisation_lately())


def test_a_device_that_measures_may_be_idle() -> None:
    meter, _, clock = make(Statistics(busy=[0.0]), Statistics(1, 1, busy=[0.5]), Statistics(1, 1, busy=[0.0]))
    lately = []
    for _ in range(3):
        clock[0] += 1.0
        meter.collect()
        lately += meter.utilisation_lately()
    assert lately == [0.0, 0.5, 0.0]


def test_rows_per_instance_are_read_when_they_are_old() -> None:
    meter, device, clock = make(
        Statistics(staleness={"a": {0: 6}}), Statistics(staleness={"a": {0: 2}}), Statistics()
    )
    assert meter.rows_per_instance() is None
    meter.retired()
    meter.retired()
    assert meter.rows_per_instance() == {"a": 3.0}
    assert meter.rows_per_instance() == {"a": 3.0} and device.read == 2
    clock[0] = 0.5
    assert meter.rows_per_instance() == {"a": 4.0} and device.read == 3
