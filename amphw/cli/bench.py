"""`amphw bench`: our throughput beside that of the strongest peers, on this machine, in one run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from amphw.cli.blas import pin_blas
from amphw.cli.errors import FAILED
from amphw.cli.options import DeviceOption, JsonOption, OnlySetOption
from amphw.cli.output import emit_json, remarks, results

if TYPE_CHECKING:
    from amphw.bench.plan import Plan


def bench(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD",
            help="mlp, list-reduction, tree-lstm, ggnn or bilstm; or frame-overhead, the cost of a message, "
            "or opencl, its kernels beside OpenBLAS.",
        ),
    ],
    peers: Annotated[
        str | None,
        typer.Option("--peers", metavar="NAMES", help="Of torch, pyg, dynet; or none. Without it, all."),
    ] = None,
    peer_python: Annotated[
        str | None,
        typer.Option(
            "--peer-python",
            metavar="PATH",
            envvar="AMPHW_PEER_PYTHON",
            help="Interpreter that has the peers; without it, this one.",
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            "--every",
            metavar="N,...",
            help="Instances between two updates, on both sides; the ratios are about the first.",
        ),
    ] = None,
    keys: Annotated[
        int,
        typer.Option(
            "--keys",
            min=0,
            metavar="N",
            help="Our max_active_keys; 1: against peers of one at a time.",
        ),
    ] = 0,
    seconds: Annotated[float, typer.Option("--seconds", min=0.01, help="Seconds of a measurement.")] = 2.0,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Measurements of each side.")] = 7,
    forms: Annotated[
        str | None,
        typer.Option("--forms", metavar="NAMES", help="Try these forms of the peers only, instead of all."),
    ] = None,
    inference: Annotated[
        bool, typer.Option("--inference/--no-inference", help="Measure inference as well.")
    ] = True,
    to_accuracy: Annotated[
        bool,
        typer.Option("--to-accuracy", help="Train both sides to an accuracy, compare the time."),
    ] = False,
    target: Annotated[
        float | None, typer.Option("--target", help="For --to-accuracy: the validation metric to reach.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Measure nothing; compare losses and gradients of all forms.")
    ] = False,
    scaling: Annotated[
        bool,
        typer.Option("--scaling", help="Measure whether pumping more slows us down."),
    ] = False,
    pumped: Annotated[
        int, typer.Option("--pumped", min=1, metavar="N", help="For --scaling: instances to pump in all.")
    ] = 1_000_000,
    workers: Annotated[
        str | None,
        typer.Option(
            "--workers",
            metavar="N,...",
            help="Our throughput with so many workers: simulated where there are too few processors.",
        ),
    ] = None,
    settings: OnlySetOption = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="Write the record here: a folder or a .json file."),
    ] = None,
) -> None:
    """Measure amphw beside the strongest peers, taking turns, on the same instances."""
    pin_blas()
    from amphw.bench import report
    from amphw.bench.save import prepare, save
    from amphw.bench.workloads import OTHERS

    if to_accuracy + scaling + check + (workers is not None) > 1:
        raise typer.BadParameter("only one of --to-accuracy, --scaling, --check and --workers can be chosen")
    asked = {"--to-accuracy": to_accuracy, "--scaling": scaling, "--check": check, "--workers": workers}
    if workload in OTHERS and (without := [o for o, v in asked.items() if v not in (False, None)]):
        raise typer.BadParameter(f"{workload} is a measurement of its own, without {without[0]}")
    if out is not None:
        prepare(out)
    record: dict[str, Any]
    if workload == "frame-overhead":
        from amphw.bench.frame_overhead import measure_overhead

        record = measure_overhead(device, seconds, rounds, _say)
        shown = report.overhead_report(record)
    elif workload == "opencl":
        from amphw.bench.opencl import measure_opencl

        record = measure_opencl(rounds, _say)
        shown = report.opencl_report(record)
    else:
        plan = _plan(workload, locals())
        if to_accuracy:
            from amphw.bench.accuracy import time_to_accuracy

            record = time_to_accuracy(plan, target, _say)
            shown = report.accuracy_report(record)
        elif check:
            from amphw.bench.agreement import check_agreement

            record = check_agreement(plan, _say)
            shown = report.agreement_report(record)
        elif scaling:
            from amphw.bench.scaling import measure_scaling

            record = measure_scaling(plan, pumped, _say)
            shown = report.scaling_report(record)
        elif workers is not None:
            from amphw.bench.many_workers import measure_workers

            record = measure_workers(plan, _numbers(workers, "--workers"), _say)
            shown = report.workers_report(record)
        else:
            from amphw.bench.throughput import compare

            record = compare(plan, _say)
            shown = report.comparison_report(record)
    (remarks() if as_json else results()).print(shown)
    if as_json:
        emit_json(record)  # first: a disk that fills up meanwhile must not cost the measurement
    if out is not None:
        _say(f"written to {save(record, out)}")
    if check and not record["agree"]:
        raise typer.Exit(FAILED)


def _plan(workload: str, given: dict[str, Any]) -> Plan:
    from amphw.bench.plan import Plan, check_every, peers_of
    from amphw.bench.workloads import get_workload

    found = get_workload(workload)
    every = found.every
    if given["to_accuracy"]:
        every = (found.training or every[-1],)
    plan = Plan(
        workload=found,
        overrides=given["settings"] or (),
        every=_numbers(given["every"], "--every") or every,
        peers=peers_of(workload) if given["peers"] is None else _names(given["peers"]),
        peer_python=given["peer_python"] or sys.executable,
        peer_forms=_names(given["forms"]),
        seconds=given["seconds"],
        rounds=given["rounds"],
        keys=given["keys"],
        inference=given["inference"],
        device=given["device"],
    )
    check_every(plan)
    return plan


def _names(text: str | None) -> list[str]:
    found = [word.strip() for word in (text or "").split(",") if word.strip()]
    return [] if found == ["none"] else found


def _numbers(text: str | None, option: str) -> list[int]:
    try:
        found = [int(word) for word in _names(text)]
    except ValueError:
        found = [0]
    if any(number < 1 for number in found):
        raise typer.BadParameter(
            f"expected numbers of 1 or more with commas, got {text!r}", param_hint=option
        )
    return found


def _say(line: str) -> None:
    """Progress: a line each, so that a log reads like a terminal."""
    remarks().print(line)
