"""The record of a simulation for many workers, from costs and figures made up for it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import ANY

import pytest

from amphw.bench.errors import BenchError
from amphw.bench.many_workers import (
    TRACED_KEYS,
    OurRates,
    measure_workers,
    rows,
    settings,
)
from amphw.bench.plan import Plan
from amphw.bench.report import workers_report
from amphw.bench.simulated_workers import Setting, Simulated, limit, shapes_of, simulate
from amphw.bench.traced import Profile
from amphw.bench.workloads import WORKLOADS
from amphw.cpu_runtime.planes import built
from amphw.engine.lowering.lower import lower
from amphw.engine.policy import KINDS, POLICIES
from amphw.estimate.count.firings import Shape
from amphw.estimate.play.simulation import Costs, Line, Rules, Tally
from tests.cpu_runtime import graphs

NAMES = ("a", "b")


def tally(
    *, host: float = 0.0, serial: Sequence[float] = (0.0, 0.0), work: float, stolen: float = 0.0
) -> Tally:
    """Of 1000 us, in which 10 retired and `work` was computed, less what was serial."""
    left = work - sum(serial)
    return Tally(
        us=1000.0,
        retired=10,
        counted=10,
        frames=10,
        rows=100,
        computing=left,
        host=host,
        stolen=stolen,
        serial=dict(enumerate(serial)),
        reducing=dict(enumerate(serial)),
    )


ONE = Simulated(Setting(1, 4), tally(work=1000.0))


@pytest.mark.parametrize(
    ("workers", "given", "expected"),
    [
        (1, tally(work=1000.0), "workers"),
        (4, tally(work=900.0, host=990.0), "the host"),
        (4, tally(work=1900.0, serial=(100.0, 950.0)), "reducing b"),
        (4, tally(work=1000.0), "few keys"),
        (4, tally(work=3900.0), "few rows"),
        (1, tally(work=800.0, host=200.0, stolen=200.0), "the host takes turns"),
    ],
)
def test_what_limits(workers: int, given: Tally, expected: str) -> None:
    assert limit(Simulated(Setting(workers, 4), given), ONE, NAMES) == expected


def test_keys_are_the_workloads_and_as_many_for_each_worker() -> None:
    assert settings([1, 2, 4], keys=64, configured=2) == [
        Setting(1, 64),
        Setting(1, 32),
        Setting(2, 64),
        Setting(4, 64),
        Setting(4, 128),
    ]
    assert settings([8], keys=1, configured=2) == [Setting(1, 1), Setting(8, 1), Setting(8, 4)]


def profile() -> tuple[list[Shape], Profile]:
    lowered = lower(graphs.mlp())
    units = range(len(lowered.units))
    keys = [(u, k) for u in units for k in range(len(KINDS))]
    owners = [u.index for u in lowered.units if u.owns]
    given = Costs(
        dict.fromkeys(keys, Line(20.0, 1.0)),
        dict.fromkeys(keys, Line(1.0, 0.0)),
        dict.fromkeys(owners, 0.1),
        dict.fromkeys(owners, 5.0),
        2.0,
    )
    order = Rules(
        POLICIES["default"].table(lowered, 1), [u.depth for u in lowered.units], dict.fromkeys(owners, 64)
    )
    instances = graphs.rows(3)
    return shapes_of(lowered, instances, [4] * 3), Profile({8: given}, 1.0, lowered, order)


def test_costs_are_those_with_as_many_keys_for_a_worker() -> None:
    shapes, given = profile()
    slow = replace(given.traced[8], frame=dict.fromkeys(given.traced[8].frame, Line(40.0, 2.0)))
    given = replace(given, traced={2: given.traced[8], 8: slow})
    for setting, factor in ((Setting(1, 2), 1.0), (Setting(4, 8), 1.0), (Setting(1, 8), 2.0)):
        tally = simulate(shapes, given, setting, setting.workers).tally
        assert tally.computing == pytest.approx(factor * (20.0 * tally.frames + tally.rows))


def test_more_workers_do_more_until_something_limits_them() -> None:
    shapes, given = profile()
    rates = [simulate(shapes, given, Setting(w, 8 * w), w).instances_per_s for w in (1, 2, 4)]
    assert rates[0] < rates[1] < rates[2] <= 4.1 * rates[0]


def test_rows_say_what_was_measured_and_what_was_not() -> None:
    shapes, given = profile()
    wanted = [Setting(1, 8), Setting(2, 8), Setting(4, 8)]
    simulated = {s: simulate(shapes, given, s, s.workers) for s in wanted}
    rate = simulated[wanted[1]].instances_per_s
    measured = {
        wanted[0]: OurRates.of([{"count": 100, "seconds": 1.0, "cpu": 0.5}]),
        wanted[1]: OurRates.of([{"count": rate, "seconds": 1.25, "cpu": 1.0}]),
    }
    names = [u.name for u in given.lowered.units]
    found = rows(measured, simulated, names)
    assert [(r["workers"], r["simulated"]) for r in found] == [(1, False), (2, False), (4, True)]
    assert found[0]["speed_up"] == 1.0 and found[1]["speed_up"] == pytest.approx(rate / 125)
    assert found[1]["simulation"]["error"] == pytest.approx(0.25)
    assert found[0]["cpu_us"]["median"] == 5000.0
    assert found[0]["simulation"]["cpu_error"] == found[0]["simulation"]["cpu_us"] / 5000 - 1
    last = found[2]
    assert last["measured"] is None and last["simulation"]["error"] is None
    assert last["instances_per_s"] == simulated[wanted[2]].instances_per_s
    assert last["speed_up"] == last["simulation"]["speed_up"]
    json.dumps(found)


def plan(device: str = "cpu") -> Plan:
    return Plan(
        WORKLOADS["list-reduction"],
        ["hidden=4", "batch=20", "train_instances=400"],
        (20,),
        [],
        sys.executable,
        seconds=0.1,
        rounds=1,
        device=device,
    )


@pytest.mark.skipif(not built(), reason="needs the C++ data plane")
@pytest.mark.thorough
def test_a_workload_from_its_instances_to_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amphw.bench.many_workers.processors", lambda: 1)
    told: list[str] = []
    record = measure_workers(plan(), [1, 3], told.append)
    assert [(r["workers"], r["max_active_keys"]) for r in record["workers"]][:2] == [(1, 8), (1, 4)]
    assert [r["simulated"] for r in record["workers"]] == [r["workers"] > 1 for r in record["workers"]]
    assert all(r["instances_per_s"] > 0 for r in record["workers"])
    assert set(record["scaling"]) == {"1", "3"} and record["scaling"]["3"]["simulated"]
    assert record["scaling"]["1"] == {"speed_up": 1.0, "simulated": False, "keys": ANY, "sgemm": 1.0}
    assert record["sgemm_gflops"]["1"] > 0
    bandwidth = record["bandwidth"]
    assert bandwidth["gb_s"]["1"] > 0 and bandwidth["assumed_gb_s"]["3"] >= bandwidth["assumed_gb_s"]["1"]
    assert all(r["simulation"]["memory"]["wanted_gb_s"] > 0 for r in record["workers"])
    assert list(record["costs_us"]) == [str(keys) for keys in TRACED_KEYS]
    for costs in record["costs_us"].values():
        assert {f["kind"] for f in costs["frames"]} == {"forward", "backward"}
        assert all(f["frame"]["fixed"] + f["frame"]["per_row"] > 0 for f in costs["frames"])
        assert costs["host_instance"] > 0 and costs["host_waking"] >= 0
    assert any("round 1 of 1" in line for line in told)
    json.dumps({k: v for k, v in record.items() if k != "environment"})
    workers_report(record)


def test_another_device_is_refused() -> None:
    with pytest.raises(BenchError, match="--workers is about the device cpu, not null"):
        measure_workers(plan("null"), [2], lambda line: None)
