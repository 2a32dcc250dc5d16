"""Time to an accuracy: both sides train the model, and validate it after every epoch.

They begin with the same initial parameters, follow the same update rules, train on the same instances and
validate on the same others. The clock runs while they train.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Any

from amphw.bench.calibrate import calibrate, strongest
from amphw.bench.errors import BenchError
from amphw.bench.load import Usage, UsageMeter, total
from amphw.bench.plan import Plan, Say, write_inputs
from amphw.bench.processor import processor
from amphw.bench.sides import Side, our_side, peer_side
from amphw.bench.subject import SubjectError
from amphw.bench.throughput import probed
from amphw.bench.validity import load_reasons
from amphw.host.records import higher_is_better
from amphw.host.run_folder import environment

_EPOCH_S = 3600.0
"""The longest that an epoch may take."""


def time_to_accuracy(plan: Plan, target: float | None, say: Say) -> dict[str, Any]:
    """Train both sides until the target -> the record. Raises BenchError without a target."""
    cfg, metric = plan.cfg, plan.model.metric
    target = cfg.train.target if target is None else target
    if target is None:
        raise BenchError(f"the model {plan.model.name} has no target of its own; name one with --target")
    higher = higher_is_better(metric)
    request = {"target": target, "epochs": cfg.train.epochs, "seed": cfg.train.seed, "higher": higher}
    every = plan.every[0]
    remarks: list[str] = []
    usages: list[Usage] = []
    lost: dict[str, str] = {}

    def train(side: Side, label: str, form: str) -> dict[str, Any]:
        (subject,) = side.subjects
        meter = UsageMeter(side.pids)
        subject.send("train", form=form, batch=every, **request)
        say(f"{label}: training to {metric} {target}, an update every {every} {plan.model.counted}")
        told = subject.answer(
            _EPOCH_S,
            lambda e: say(f"{label}: epoch {e['epoch']}, {e['seconds']:.1f} s, {metric} {e['metric']:.4g}"),
        )
        usages.append(meter.read())
        return {"label": label, "form": form, **told}

    with tempfile.TemporaryDirectory(prefix="amphw-bench-") as name:
        folder = Path(name)
        interpreter = probed(plan, say, remarks)
        with our_side(plan.our_spec(every), cfg.device.workers) as side:
            our_run = train(side, "amphw", "")
            keys = side.first["max_active_keys"]
        peer_runs = []
        if interpreter is not None and interpreter.versions:
            spec = write_inputs(plan, folder, whole=True)
            best = strongest(calibrate(plan, interpreter, spec, folder, say), plan)
            # Processes that do not synchronise train models of their own.
            for each in [b for b in best if b.setup.processes == 1]:
                try:
                    with ExitStack() as stack:
                        side = stack.enter_context(peer_side(interpreter.python, each.setup, spec, folder))
                        peer_runs.append(train(side, str(each.setup), each.form.name))
                except SubjectError as error:
                    lost[each.label] = str(error)
                    say(f"{each.label} is lost, the run goes on without it: {error}")
    return _record(plan, our_run, peer_runs, target, keys, total(usages), remarks, lost)


def _record(
    plan: Plan,
    our_run: dict[str, Any],
    peer_runs: list[dict[str, Any]],
    target: float,
    keys: int,
    usage: Usage,
    remarks: list[str],
    lost: Mapping[str, str],
) -> dict[str, Any]:
    reasons = load_reasons(usage) + [f"{label} was lost on the way" for label in lost]
    ours = seconds_to(our_run)
    theirs = min((s for run in peer_runs if (s := seconds_to(run)) is not None), default=None)
    if theirs is None:
        reasons.append("no peer reached the target")
    if ours is None:
        reasons.append("our side did not reach the target")
    return {
        "workload": plan.workload.name,
        "mode": "to accuracy",
        "metric": plan.model.metric,
        "higher_is_better": higher_is_better(plan.model.metric),
        "target": target,
        "ours": ours,
        "peers": [{"label": r["label"], "form": r["form"], "seconds": seconds_to(r)} for r in peer_runs],
        "ratio_time": theirs / ours if ours and theirs else None,
        "ours_run": our_run,
        "peer_runs": peer_runs,
        "max_active_keys": keys,
        "min_update_interval": plan.every[0],
        "foreign_load": usage.foreign,
        "valid": not reasons,
        "invalid_because": reasons,
        "lost": dict(lost),
        "remarks": remarks,
        "date": date.today().isoformat(),
        "processor": processor(),
        "environment": environment(),
    }


def seconds_to(run: dict[str, Any]) -> float | None:
    """Seconds of training until the target, or None."""
    return run["reached"]["seconds"] if run["reached"] else None
