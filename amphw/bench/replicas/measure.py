"""The record of `amphw bench replicas`.

These keys are what other programs rely on; there are more.

    equivalence {strategy: largest relative difference}, bytes_exact, two_ranks {workload: ratio},
    waiting_cores (null without MPI)
"""

from __future__ import annotations

from datetime import date
from typing import Any

from amphw.bench.plan import Say
from amphw.bench.processor import processor
from amphw.bench.replicas import byte_counts, equivalence, pair
from amphw.bench.validity import load_reasons, round_reasons
from amphw.host.run_folder import environment


def measure_replicas(seconds: float, rounds: int, say: Say) -> dict[str, Any]:
    """Everything. seconds: of an epoch of the throughputs, about."""
    sides, usage = pair.compare(say, seconds, rounds)
    waits = pair.waiting_cores()
    told = f"a rank that waits uses {waits:.3f} of a core" if waits is not None else "MPI is not installed"
    say(told)
    same = equivalence.record(equivalence.compare(say))
    moved = byte_counts.record(byte_counts.count(say))
    throughput = {each.pair.model: each.to_json() for each in sides}
    reasons = load_reasons(usage) + round_reasons(rounds)
    return {
        "workload": "replicas",
        "equivalence": same["equivalence"],
        "bytes_exact": moved["bytes_exact"],
        "two_ranks": {model: each["ratio"]["median"] for model, each in throughput.items()},
        "waiting_cores": waits,
        "carrier": pair.carrier(),
        "throughput": throughput,
        **same,
        **moved,
        "rounds": rounds,
        "foreign_load": usage.foreign,
        "valid": not reasons,
        "invalid_because": reasons,
        "date": date.today().isoformat(),
        "processor": processor(),
        "environment": environment(),
    }
