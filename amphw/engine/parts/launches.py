"""What a run says of the launches of its executors: how many a frame takes, by unit and direction."""

from __future__ import annotations

from collections.abc import Mapping

from amphw.engine.policy import KINDS
from amphw.ir.device import Findings

Launches = Mapping[str, Mapping[str, Mapping[str, int]]]
"""By unit and direction, as `Executor.launches` counts them."""


def launches_found(executors: Mapping[str, Launches]) -> Findings:
    """executors: the launches of each, by what the device is called."""
    rows = [
        (unit, device, *(_each(directions.get(kind)) for kind in KINDS))
        for device, units in executors.items()
        for unit, directions in units.items()
    ]
    units = {unit: told for each in executors.values() for unit, told in each.items()}
    if not any("frames" in told for of_unit in units.values() for told in of_unit.values()):
        return Findings()
    return Findings(
        heading="launches of a frame, by unit and direction",
        columns=("unit", "device", *KINDS),
        rows=tuple(rows),
        figures={"launches": units},
    )


def _each(told: Mapping[str, int] | None) -> str:
    return f"{told['launches'] / told['frames']:.2f}" if told and told["frames"] else ""
