"""The record of a comparison: the JSON that `amphw bench --json` prints, and whether its figures hold.

These keys are what other programs rely on; there are more.

    workload, ours, peers [{name, threads, processes, instances_per_s}], ratio_best_single_process,
    ratio_two_processes, sgemm_share, max_active_keys, min_update_interval, precision, processor, valid

`ours` is our training throughput, a second of what the model counts; `min_update_interval` the counted
instances between two updates, on both sides; `precision` what our products are computed in; `processor` what
`amphw.bench.processor` tells. With more than one such interval all of these are about the
first, and `comparisons` has every one.

`inference` is that of the peers' forms which are fastest in training: none is chosen by its inference, so its
ratios are to these forms, not to the best that a peer can do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from amphw.bench.calibrate import Calibrated
from amphw.bench.figures import Figure, paired, ratio
from amphw.bench.forms import BFLOAT16, FLOAT32, FORMS
from amphw.bench.load import Usage, total
from amphw.bench.plan import Plan
from amphw.bench.processor import processor
from amphw.bench.rounds import Entrant
from amphw.bench.sides import PeerInterpreter
from amphw.bench.validity import load_reasons, round_reasons
from amphw.host.run_folder import environment

KEYS = (
    "workload",
    "ours",
    "peers",
    "ratio_best_single_process",
    "ratio_two_processes",
    "sgemm_share",
    "max_active_keys",
    "min_update_interval",
    "precision",
    "processor",
    "valid",
)


@dataclass
class Measured:
    """Everything that came of the rounds. interpreter: None where no peer was asked for. unstarted: why
    strongest forms could not be started for the rounds, by label."""

    plan: Plan
    ours: Sequence[Entrant]
    peers: Sequence[Entrant]
    peak: Entrant
    interpreter: PeerInterpreter | None
    calibrated: Sequence[Calibrated] = ()
    remarks: list[str] = field(default_factory=list)
    unstarted: Mapping[str, str] = field(default_factory=dict)


def make_record(m: Measured) -> dict[str, Any]:
    """The record; see the module's docstring."""
    first = m.ours[0]
    comparisons = [_comparison(m, ours) for ours in m.ours]
    figure = first.figure()
    invalid = why_invalid(m)
    return {
        "workload": m.plan.workload.name,
        "mode": "per instance" if m.plan.keys == 1 else "throughput",
        "counted": m.plan.model.counted,
        "ours": figure.median if figure else None,
        "peers": [_peer(m, each) for each in m.peers],
        **{k: comparisons[0][k] for k in ("ratio_best_single_process", "ratio_two_processes", "sgemm_share")},
        "max_active_keys": first.side.first["max_active_keys"],
        "min_update_interval": first.every,
        "precision": m.plan.precision,
        "valid": not invalid,
        "invalid_because": invalid,
        "foreign_load": whole_usage(m).foreign,
        "comparisons": comparisons,
        "inference": _inference(m),
        "sgemm_gflops": _gflops(m.peak),
        "our_side": {key: value for key, value in first.side.first.items() if key != "flops"},
        "flops_per_instance": first.side.first["flops"],
        "others": [each.to_json() for each in m.calibrated if each.form not in m.plan.forms(each.setup.peer)],
        "calibration": [each.to_json() for each in m.calibrated],
        "absent": absent(m),
        "lost": {**m.unstarted, **{each.label: each.lost for each in m.peers if each.lost is not None}},
        "rounds": m.plan.rounds,
        "seconds_per_round": m.plan.seconds,
        "remarks": m.remarks,
        "date": date.today().isoformat(),
        "versions": dict(m.interpreter.versions) if m.interpreter else {},
        "processor": processor(),
        "environment": environment(),
    }


def whole_usage(m: Measured) -> Usage:
    """Who used the processors while anything was measured."""
    return total(each.usage for each in (*m.ours, *m.peers, m.peak))


def absent(m: Measured) -> dict[str, str]:
    """Peers that were asked for and are not there, with the reason."""
    if m.interpreter is None:
        return {}
    have = m.interpreter.versions
    missing = {p: m.interpreter.absent.get(p, "not installed") for p in m.plan.peers if p not in have}
    without = {
        p: f"has no form of {m.plan.workload.name} that counts here"
        for p in m.plan.peers
        if p in have and not m.plan.forms(p)
    }
    return missing | without


def why_invalid(m: Measured) -> list[str]:
    """What speaks against relying on the figures; empty if nothing does."""
    reasons = load_reasons(whole_usage(m)) + round_reasons(m.plan.rounds)
    primary = m.ours[0].every
    if not any(e.figure() for e in m.peers if e.every == primary and e.side.setup.processes == 1):
        reasons.append("no peer was measured")
    reasons += [f"{label}, the fastest when tried, could not be started again" for label in m.unstarted]
    reasons += [f"{each.label} was lost on the way" for each in m.peers if each.lost is not None]
    most = 2 if m.plan.precision == BFLOAT16 else 1  # its instructions do twice as many operations
    if any((_sgemm_share(m, ours) or 0) > most for ours in m.ours):
        reasons.append(f"the share of the peak is above {most}: the peak was measured under load")
    return reasons


def best(peers: Sequence[Entrant], every: int, several: bool, mode: str = "train") -> Entrant | None:
    """The fastest peer at an interval, in one process or in several."""
    found = [
        e for e in peers if e.every == every and (e.side.setup.processes > 1) == several and e.figure(mode)
    ]
    return max(found, key=lambda e: e.figure(mode).median, default=None)  # type: ignore[union-attr]


def _comparison(m: Measured, ours: Entrant) -> dict[str, Any]:
    figure = ours.figure()
    single, several = (best(m.peers, ours.every, flag) for flag in (False, True))
    return {
        "every": ours.every,
        "intervals": ours.side.first["intervals"],
        "ours": figure.to_json() if figure else None,
        "best_single_process": _peer(m, single) if single else None,
        "best_several_processes": _peer(m, several) if several else None,
        "ratio_best_single_process": ratio(figure, single.figure() if single else None),
        "ratio_two_processes": ratio(figure, several.figure() if several else None),
        "ratio_best_single_process_rounds": _json(paired(figure, single.figure() if single else None)),
        "ratio_two_processes_rounds": _json(paired(figure, several.figure() if several else None)),
        "sgemm_share": _sgemm_share(m, ours),
    }


def _sgemm_share(m: Measured, ours: Entrant) -> float | None:
    """What our training does of the floating-point operations that sgemm, which is of float32 whatever our
    precision, does in the same time."""
    figure, peak = ours.figure(), _gflops(m.peak)
    flops = ours.side.first["flops"]
    per_instance = flops["forward"] + flops["backward"]
    return figure.median * per_instance / (peak * 1e9) if figure and peak else None


def _inference(m: Measured) -> dict[str, Any] | None:
    """Of the same forms as training; see the module's docstring."""
    ours = m.ours[0].figure("infer")
    if ours is None:
        return None
    single, several = (best(m.peers, m.ours[0].every, flag, "infer") for flag in (False, True))
    return {
        "ours": ours.to_json(),
        "ratio_best_single_process": ratio(ours, single.figure("infer") if single else None),
        "ratio_two_processes": ratio(ours, several.figure("infer") if several else None),
    }


def _peer(m: Measured, e: Entrant) -> dict[str, Any]:
    setup, figure, infer = e.side.setup, e.figure(), e.figure("infer")
    return {
        "name": setup.peer,
        "threads": setup.threads,
        "processes": setup.processes,
        "instances_per_s": figure.median if figure else None,
        "form": e.form,
        "note": _note(m.plan.workload.name, e.form),
        "precision": _precision(m.plan.workload.name, e.form),
        "every": e.every,
        "training": figure.to_json() if figure else None,
        "inference": infer.to_json() if infer else None,
        "foreign_load": e.usage.foreign,
    }


def _precision(workload: str, name: str) -> str:
    return next((f.precision for f in FORMS.get(workload, ()) if f.name == name), FLOAT32)


def _note(workload: str, name: str) -> str:
    """Workloads may have forms of the same name."""
    return next((f.note for f in FORMS.get(workload, ()) if f.name == name), "")


def _gflops(peak: Entrant) -> float | None:
    """The best round: what a peak is."""
    figure = peak.figure()
    return figure.high / 1e9 if figure else None


def _json(figure: Figure | None) -> dict[str, Any] | None:
    return figure.to_json() if figure else None
