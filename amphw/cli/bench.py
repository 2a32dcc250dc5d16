"""`amphw bench`: our throughput beside that of the strongest peers, on this machine, in one run."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from amphw.cli.blas import pin_blas
from amphw.cli.errors import FAILED
from amphw.cli.option_groups import grouped
from amphw.cli.options import DeviceOption, JsonOption, OnlySetOption
from amphw.cli.output import emit_json, remarks, results

if TYPE_CHECKING:
    from amphw.bench.plan import Plan


@dataclass(frozen=True)
class Peers:
    """Peers"""

    peers: Annotated[
        str | None,
        typer.Option("--peers", metavar="NAMES", help="Of torch, pyg, dynet, jax; or none. Without it, all."),
    ] = None
    peer_python: Annotated[
        str | None,
        typer.Option(
            "--peer-python",
            metavar="PATH",
            envvar="AMPHW_PEER_PYTHON",
            help="Interpreter that has the peers; without it, this one.",
        ),
    ] = None
    forms: Annotated[
        str | None,
        typer.Option("--forms", metavar="NAMES", help="Try these forms of the peers only, instead of all."),
    ] = None
    peer_device: Annotated[
        str,
        typer.Option(
            "--peer-device", metavar="NAME", help="Where peers compute, as PyTorch calls it, such as cuda."
        ),
    ] = "cpu"


@dataclass(frozen=True)
class Measurement:
    """What is measured, and for how long"""

    every: Annotated[
        str | None,
        typer.Option(
            "--every",
            metavar="N,...",
            help="Instances between two updates, on both sides; the ratios are about the first.",
        ),
    ] = None
    keys: Annotated[
        int,
        typer.Option(
            "--keys",
            min=0,
            metavar="N",
            help="Our max_active_keys; 1: against peers of one at a time.",
        ),
    ] = 0
    seconds: Annotated[float, typer.Option("--seconds", min=0.01, help="Seconds of a measurement.")] = 2.0
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Measurements of each side.")] = 7
    inference: Annotated[
        bool, typer.Option("--inference/--no-inference", help="Measure inference as well.")
    ] = True
    settings: OnlySetOption = None
    device: DeviceOption = "cpu"


@dataclass(frozen=True)
class Exchange:
    """Of exchange"""

    partitions: Annotated[
        str | None,
        typer.Option(
            "--partitions", metavar="P,...", help="Numbers of partitions to try; without it, 1,2,4."
        ),
    ] = None
    link: Annotated[
        str,
        typer.Option(
            "--link",
            metavar="RATE",
            help="What a rank can send, such as 1Gb/s, of which partitions are predicted; without it, what "
            "is measured here.",
        ),
    ] = ""


@dataclass(frozen=True)
class Mutation:
    """Of rtl-mutation"""

    mutants: Annotated[
        int, typer.Option("--mutants", min=1, metavar="N", help="Faults to put into the gateware.")
    ] = 1000
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the choice of faults.")] = 1
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            min=0.01,
            help="Try no more after so long, and report what is found; the same command goes on from there.",
        ),
    ] = None


@dataclass(frozen=True)
class Instead:
    """Instead of throughput, one of --to-accuracy, --check, --scaling and --workers"""

    to_accuracy: Annotated[
        bool,
        typer.Option("--to-accuracy", help="Train both sides to an accuracy, compare the time."),
    ] = False
    target: Annotated[
        float | None, typer.Option("--target", help="For --to-accuracy: the validation metric to reach.")
    ] = None
    check: Annotated[
        bool, typer.Option("--check", help="Measure nothing; compare losses and gradients of all forms.")
    ] = False
    scaling: Annotated[
        bool,
        typer.Option("--scaling", help="Measure whether pumping more slows us down."),
    ] = False
    pumped: Annotated[
        int, typer.Option("--pumped", min=1, metavar="N", help="For --scaling: instances to pump in all.")
    ] = 1_000_000
    workers: Annotated[
        str | None,
        typer.Option(
            "--workers",
            metavar="N,...",
            help="Our throughput with so many workers: simulated where there are too few processors.",
        ),
    ] = None

    @property
    def chosen(self) -> list[str]:
        asked = {
            "--to-accuracy": self.to_accuracy,
            "--scaling": self.scaling,
            "--check": self.check,
            "--workers": self.workers is not None,
        }
        return [option for option, wanted in asked.items() if wanted]


@grouped
def bench(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD",
            help="mlp, list-reduction, tree-lstm, ggnn, bilstm, language-model, lm or transformer; or "
            "frame-overhead, the cost of a message, opencl, its kernels beside OpenBLAS, replicas, ranks "
            "beside one process, exchange, partial gradient exchange beside none, or rtl-mutation, how many "
            "faults in the gateware its benches notice.",
        ),
    ],
    measurement: Measurement,
    peers: Peers,
    exchange: Exchange,
    mutation: Mutation,
    instead: Instead,
    as_json: JsonOption = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="Write the record here: a folder or a .json file."),
    ] = None,
) -> None:
    """Measure amphw beside the strongest peers, taking turns, on the same instances."""
    pin_blas()
    from amphw.bench.save import prepare, save
    from amphw.bench.workloads import OTHERS

    if len(instead.chosen) > 1:
        raise typer.BadParameter("only one of --to-accuracy, --scaling, --check and --workers can be chosen")
    if workload in OTHERS and instead.chosen:
        raise typer.BadParameter(f"{workload} is a measurement of its own, without {instead.chosen[0]}")
    if out is not None:
        prepare(out)
    if workload in OTHERS:
        record, shown = _other(workload, measurement, exchange, mutation)
    else:
        record, shown = _beside_peers(_plan(workload, measurement, peers, instead), instead)
    (remarks() if as_json else results()).print(shown)
    if as_json:
        emit_json(record)  # first: a disk that fills up meanwhile must not cost the measurement
    if out is not None:
        _say(f"written to {save(record, out)}")
    if instead.check and not record["agree"]:
        raise typer.Exit(FAILED)


def _other(
    workload: str, measurement: Measurement, exchange: Exchange, mutation: Mutation
) -> tuple[dict[str, Any], Any]:
    """A measurement without peers: its record, and what is shown of it."""
    from amphw.bench import report

    record: dict[str, Any]
    if workload == "opencl":
        from amphw.bench.opencl import measure_opencl

        record = measure_opencl(measurement.rounds, _say)
        return record, report.opencl_report(record)
    if workload == "replicas":
        from amphw.bench.replicas.measure import measure_replicas

        record = measure_replicas(measurement.seconds, measurement.rounds, _say)
        return record, report.replicas_report(record)
    if workload == "exchange":
        from amphw.bench.replicas.exchange import measure_exchange

        tried = _numbers(exchange.partitions, "--partitions")
        given = measurement.seconds, measurement.rounds, tried, exchange.link, measurement.settings or ()
        record = measure_exchange(*given, _say)
        return record, report.exchange_report(record)
    if workload == "rtl-mutation":
        from amphw.bench.rtl_mutation import measure_mutation

        minutes = math.inf if mutation.minutes is None else mutation.minutes
        record = measure_mutation(mutation.mutants, mutation.seed, minutes, _say)
        return record, report.mutation_report(record)
    from amphw.bench.frame_overhead import measure_overhead

    record = measure_overhead(measurement.device, measurement.seconds, measurement.rounds, _say)
    return record, report.overhead_report(record)


def _beside_peers(plan: Plan, instead: Instead) -> tuple[dict[str, Any], Any]:
    """The record of the measurement that was chosen, and what is shown of it."""
    from amphw.bench import report

    record: dict[str, Any]
    if instead.to_accuracy:
        from amphw.bench.accuracy import time_to_accuracy

        record = time_to_accuracy(plan, instead.target, _say)
        return record, report.accuracy_report(record)
    if instead.check:
        from amphw.bench.agreement import check_agreement

        record = check_agreement(plan, _say)
        return record, report.agreement_report(record)
    if instead.scaling:
        from amphw.bench.scaling import measure_scaling

        record = measure_scaling(plan, instead.pumped, _say)
        return record, report.scaling_report(record)
    if instead.workers is not None:
        from amphw.bench.many_workers import measure_workers

        record = measure_workers(plan, _numbers(instead.workers, "--workers"), _say)
        return record, report.workers_report(record)
    from amphw.bench.throughput import compare

    record = compare(plan, _say)
    return record, report.comparison_report(record)


def _plan(workload: str, measurement: Measurement, peers: Peers, instead: Instead) -> Plan:
    from amphw.bench.plan import Plan, check_every, peers_of
    from amphw.bench.workloads import get_workload

    found = get_workload(workload)
    every = found.every
    if instead.to_accuracy:
        every = (found.training or every[-1],)
    plan = Plan(
        workload=found,
        overrides=measurement.settings or (),
        every=_numbers(measurement.every, "--every") or every,
        peers=peers_of(workload) if peers.peers is None else _names(peers.peers),
        peer_python=peers.peer_python or sys.executable,
        peer_forms=_names(peers.forms),
        seconds=measurement.seconds,
        rounds=measurement.rounds,
        keys=measurement.keys,
        inference=measurement.inference,
        device=measurement.device,
        peer_device=peers.peer_device,
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
