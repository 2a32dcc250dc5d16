"""Golden logs: one of each graph, as the C++ engine or simulated hardware wrote it once, to be repeated.

    python -m tests.conformance.golden                # record all anew
    python -m tests.conformance.golden tree-all       # some

A log belongs to its graph, to the instances that are drawn for it, and to the names that the engine's units
have; record it anew when one of these changes, and when the form of logs does. That a log repeats the run
that wrote it, whatever the run, is what `test_replay.py` shows; these show that a log of yesterday does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.host.log_file import LogWriter, ServiceLogFile, read_log
from amphw.ir.device import DeviceOptions, Mode, Report
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule
from amphw.rtl.fixed.device import FixedDevice
from tests.conformance.harness import Outcome, run
from tests.graphs.cases import CASES, Case
from tests.rtl.cases import SMALL, problem, rule

FOLDER = Path(__file__).with_name("golden_logs")
RULE = UpdateRule(interval=7, optimizer="momentum", lr=0.02)
RECORDED: dict[str, Any] = {"workers": 2, "frame_cap": 5}
"""How the engine ran: stale gradients, frames of several firings."""
FORMATS, HARDWARE, KEYS, SEED = "q6.10,g=q4.12", "tree-leaves", 4, 3


TOLERANCE = 1e-5
"""Of parameters, absolute. In another order they come out some 1e-3 apart."""


@cache
def instances_of(case: Case, count: int) -> list[Instance]:
    drawn = [instance for seed in range(count) for instance in case.instances(seed)][:count]
    for number, instance in enumerate(drawn):
        instance.number = number
    return drawn


def trained(device: Any, case: Case, count: int = 40, **settings: Any) -> Outcome:
    """Asynchronous training on `count` instances, eight in flight."""
    instances = instances_of(case, count)
    try:
        return run(device, case.build(), instances, keys=8, updates="self", rule=RULE, **settings)
    finally:
        device.close()


def assert_close(found: Outcome, wanted: Outcome) -> None:
    assert found.losses == pytest.approx(wanted.losses, rel=1e-4, abs=1e-5)
    for name, value in wanted.parameters.items():
        np.testing.assert_allclose(found.parameters[name], value, rtol=0, atol=TOLERANCE, err_msg=name)


GOLDEN = 16
"""Instances of a golden log."""


def golden(name: str) -> ServiceLogFile:
    return read_log(FOLDER / f"{name}.jsonl.gz")


def golden_losses(log: ServiceLogFile) -> dict[int, float]:
    return {number: sum(sums["loss"] for sums in found.values()) for number, _, found in log.reports}


def assert_golden(case: Case, log: ServiceLogFile, device: Any, **settings: Any) -> None:
    """The device, which repeats the log, comes to its losses, whose last ones every update has a part in."""
    found = trained(device, case, GOLDEN, **settings).losses
    assert found == pytest.approx(golden_losses(log), rel=1e-4, abs=1e-5)


# --- recording ------------------------------------------------------------------------------------


def _write(name: str, device: str, log: list[Any], reports: Sequence[Report]) -> None:
    path = FOLDER / f"{name}.jsonl.gz"
    with LogWriter(path, name, device) as file:
        file.take(log)
        for report in sorted(reports, key=lambda r: r.number):
            file.reported(report, Instance(number=report.number))
    print(f"{path.name}: {path.stat().st_size} bytes")


def _record(case: Case) -> None:
    device = CpuDevice()
    found = trained(device, case, GOLDEN, log=True, **RECORDED)
    _write(case.name, "cpu", device.log, found.reports)


def hardware_run(device: Any) -> list[Report]:
    """The run of the hardware's golden log, on it or on the model of its arithmetic."""
    from sim.replay import drive

    graph, instances = problem(HARDWARE)
    for number, instance in enumerate(instances):
        instance.number = number
    settings = {"observe": True} if isinstance(device, FixedDevice) else {"watch_writes": True, **SMALL}
    device.load(graph, {"*": rule(HARDWARE)}, DeviceOptions(KEYS, 0, "self", SEED, True, settings))
    reports, _ = drive(device, instances, KEYS, Mode.TRAIN)
    return sorted(reports, key=lambda r: r.number)


def _record_hardware() -> None:
    from amphw.rtl.driver.verilator import VerilatorDevice

    device = VerilatorDevice(FORMATS)
    reports = hardware_run(device)
    log = list(device.log)
    device.close()
    _write(f"verilator-{HARDWARE}", f"verilator:{FORMATS}", log, reports)


def main(names: Sequence[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    for case in CASES:
        if not names or case.name in names:
            _record(case)
    if not names or f"verilator-{HARDWARE}" in names:
        _record_hardware()


if __name__ == "__main__":
    main(sys.argv[1:])
