"""Whether all sides compute the same: loss and gradients of the first instances, with the initial parameters.

A peer that is fast because it does something else would be no comparison. Ours are those of the reference
device, the definition of what a graph means.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from amphw.bench.forms import BFLOAT16, FLOAT32, LESS, Form
from amphw.bench.forms import forms as forms_of
from amphw.bench.plan import Plan, Say, worth_trying, write_inputs
from amphw.bench.processor import processor
from amphw.bench.sides import Setup, peer_side
from amphw.bench.subject import SubjectError
from amphw.bench.throughput import probed
from amphw.host.devices import make_device
from amphw.host.run_folder import environment
from amphw.host.run_model import chosen_instances
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule

ALLOWED = {FLOAT32: {"loss": 1e-5, "gradient": 1e-4}, BFLOAT16: {"loss": 0.02, "gradient": 0.1}}
"""Differences allowed, by what products are computed in: of the loss, as a share of it; of a gradient, as a
share of its largest element. A bfloat16 number is off by up to 0.4 %."""

_CHECK_S = 900.0


def check_agreement(plan: Plan, say: Say) -> dict[str, Any]:
    """Compare every form of every peer with the reference device -> the record."""
    model, cfg = plan.model, plan.cfg
    model.prepare(cfg.model, cfg.train.seed)
    (one,) = chosen_instances(model, cfg, 1)
    count = 1 if model.size(one) > 1 else min(plan.every)
    small = replace(plan, workload=replace(plan.workload, instances=count))
    instances = chosen_instances(model, cfg, count)
    say(f"the reference device on {sum(map(model.size, instances))} {model.counted}")
    loss, ours = reference(plan, instances)
    remarks: list[str] = []
    rows: list[dict[str, Any]] = []
    interpreter = probed(plan, say, remarks)
    with tempfile.TemporaryDirectory(prefix="amphw-bench-") as name:
        folder = Path(name)
        spec = write_inputs(small, folder)
        for peer in plan.peers if interpreter else ():
            assert interpreter is not None
            if peer not in interpreter.versions:
                continue
            wanted = [f for f in forms_of(plan.workload.name, peer) if f.kind != LESS]
            wanted = [f for f in wanted if not plan.peer_forms or f.name in plan.peer_forms]
            wanted = [f for f in wanted if interpreter.compiler is not None or not f.compiled]
            wanted = [f for f in wanted if worth_trying(plan, f)]
            batch = sum(map(model.size, instances))
            rows += _peer(peer, interpreter.python, wanted, batch, spec, folder, loss, ours, say)
    return {
        "workload": plan.workload.name,
        "mode": "check",
        "loss": loss,
        "forms": rows,
        "allowed": ALLOWED,
        "agree": bool(rows) and all(row["agrees"] for row in rows),
        "remarks": remarks,
        "date": date.today().isoformat(),
        "processor": processor(),
        "environment": environment(),
    }


def reference(plan: Plan, instances: Sequence[Instance]) -> tuple[float, dict[str, np.ndarray]]:
    """Mean loss over the rows of these instances, and its gradients, by `node/parameter`."""
    model, cfg = plan.model, plan.cfg
    device = make_device("reference")
    options = DeviceOptions(1, 0, updates="off", seed=cfg.train.seed)
    device.load(model.graph(cfg.model), {"*": UpdateRule()}, options)
    loss, rows = 0.0, 0
    for instance in instances:
        device.submit(0, instance.number + 1, instance, Mode.TRAIN)
        for report in device.drain():
            loss += report.sums[model.loss_node]["loss"]
            rows += report.rows[model.loss_node]
    gradients = {
        f"{node}/{name}": g / rows
        for node, p in device.parameters().items()
        for name, g in p.gradients.items()
    }
    return loss / rows, gradients


def _peer(
    peer: str,
    python: str,
    wanted: Sequence[Form],
    batch: int,
    spec: Mapping[str, Any],
    folder: Path,
    loss: float,
    ours: Mapping[str, np.ndarray],
    say: Say,
) -> list[dict[str, Any]]:
    """Compare the forms of one peer."""
    rows: list[dict[str, Any]] = []
    with peer_side(python, Setup(peer, 1), spec, folder) as side:
        (subject,) = side.subjects
        for form in wanted:
            row: dict[str, Any] = {"peer": peer, "form": form.name, "agrees": False}
            try:
                told = subject.ask("check", _CHECK_S, forms=[form.name], batch=batch, folder=str(folder))
                with np.load(folder / f"{form.name}.npz") as theirs:
                    worst, difference = furthest(ours, dict(theirs))
            except SubjectError as error:
                row["error"] = str(error)
                say(f"{peer}, {form.name}: {error}")
            else:
                mean = told[form.name]["loss"] / told[form.name]["rows"]
                row |= {"loss_off": abs(mean - loss) / abs(loss), "gradient_off": difference, "worst": worst}
                allowed = ALLOWED[form.precision]
                row["agrees"] = row["loss_off"] <= allowed["loss"] and difference <= allowed["gradient"]
                say(f"{peer}, {form.name}: loss off by {row['loss_off']:.1e}, gradients by {difference:.1e}")
            rows.append(row)
    return rows


def furthest(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> tuple[str, float]:
    """The parameter whose gradients differ most, and by how much, as a share of the largest element.

    A gradient that one side lacks, that has another shape or is not finite everywhere differs by infinity.
    """
    missing = set(ours) ^ set(theirs)
    if missing:
        return min(missing), inf
    off = {name: _distance(g, theirs[name]) for name, g in ours.items()}
    worst = max(off, key=lambda name: off[name])
    return worst, off[worst]


def _distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    # NaN compares with nothing, so it must not get as far as a maximum.
    if ours.shape != theirs.shape or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return inf
    largest, distance = (float(np.abs(x).max(initial=0.0)) for x in (ours, ours - theirs))
    return distance / largest if largest else float(distance > 0)
