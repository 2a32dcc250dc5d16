"""Whether throughput stays what it is however much has been pumped: no leak, no table that grows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from amphw.bench.load import UsageMeter
from amphw.bench.plan import Plan, Say
from amphw.bench.processor import processor
from amphw.bench.sides import our_side
from amphw.bench.validity import load_reasons
from amphw.host.run_folder import environment

FIRST = 1000
ALLOWED = 0.10
"""How much the least and the greatest rate may differ, as a share of the greatest."""


def marks(most: int) -> list[int]:
    """1e3, 1e4, ... up to `most`, which is always the last."""
    found = [FIRST]
    while found[-1] * 10 <= most:
        found.append(found[-1] * 10)
    return [n for n in found if n < most] + [most]


def measure_scaling(plan: Plan, most: int, say: Say) -> dict[str, Any]:
    """Pump `most` instances in one go -> the record, with the rate between each mark and the one before."""
    plan.model.prepare(plan.cfg.model, plan.cfg.train.seed)
    every = plan.every[0]
    say(f"amphw: starting, an update every {every} {plan.model.counted}")
    with our_side(plan.our_spec(every), plan.cfg.device.workers) as side:
        (subject,) = side.subjects
        meter = UsageMeter(side.pids)
        subject.send("pump", marks=marks(most))
        # The time for ten times as many instances is not known; the device itself notices when it is stuck.
        found = subject.answer(
            timeout=24 * 3600,
            progress=lambda m: say(
                f"{m['pumped']:,} pumped after {m['seconds']:.1f} s, {m['memory']:.0f} MB"
            ),
        )["marks"]
        usage = meter.read()
        size = side.first["counted_per_instance"]
        first = side.first
    rows = rates(found, size)
    reasons = load_reasons(usage)
    return {
        "workload": plan.workload.name,
        "mode": "scaling",
        "counted": plan.model.counted,
        "marks": rows,
        **steadiness([row["instances_per_s"] for row in rows]),
        "max_active_keys": first["max_active_keys"],
        "min_update_interval": every,
        "foreign_load": usage.foreign,
        "valid": not reasons,
        "invalid_because": reasons,
        "date": date.today().isoformat(),
        "processor": processor(),
        "environment": environment(),
    }


def steadiness(values: Sequence[float]) -> dict[str, Any]:
    """How much rates differ, and whether that is allowed."""
    spread = 1 - min(values) / max(values)
    return {"spread": spread, "allowed": ALLOWED, "flat": spread <= ALLOWED}


def rates(found: Sequence[dict[str, Any]], size: float) -> list[dict[str, Any]]:
    """What the model counts a second between a mark and the one before; size: of an instance, on average."""
    rows, pumped, seconds = [], 0, 0.0
    for mark in found:
        count, passed = (mark["pumped"] - pumped) * size, mark["seconds"] - seconds
        rows.append({**mark, "instances_per_s": count / passed})
        pumped, seconds = mark["pumped"], mark["seconds"]
    return rows
