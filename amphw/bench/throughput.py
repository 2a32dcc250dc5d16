"""The comparison itself: calibrate the peers, start everybody, take turns, write down what came of it."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from amphw.bench.calibrate import Calibrated, calibrate, strongest
from amphw.bench.errors import BenchError
from amphw.bench.plan import Plan, Say, write_inputs
from amphw.bench.record import Measured, make_record
from amphw.bench.rounds import Entrant, interleave
from amphw.bench.sides import PeerInterpreter, our_side, peak_side, peer_side
from amphw.bench.subject import SubjectError


def compare(plan: Plan, say: Say) -> dict[str, Any]:
    """Run a plan -> its record. Raises BenchError where our own side cannot run; peers are left out."""
    with tempfile.TemporaryDirectory(prefix="amphw-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        say(f"reading the instances of {plan.model.name}")
        spec = write_inputs(plan, folder)
        remarks: list[str] = []
        interpreter = probed(plan, say, remarks)
        calibrated: list[Calibrated] = []
        if interpreter is not None:
            calibrated = calibrate(plan, interpreter, spec, folder, say)
        modes = ("train", "infer") if plan.inference else ("train",)
        ours = []
        for every in plan.every:
            say(f"amphw: starting, an update every {every} {plan.model.counted}")
            side = stack.enter_context(our_side(plan.our_spec(every), plan.cfg.device.workers))
            ours.append(
                Entrant(side, "", every, modes if every == plan.every[0] else ("train",), needed=True)
            )
        peak = Entrant(stack.enter_context(peak_side()), "", 0, needed=True)
        best = strongest(calibrated, plan)
        peers, unstarted = _started(plan, best, interpreter, spec, folder, modes, stack, say)
        interleave([*ours, *peers, peak], plan.seconds, plan.rounds, say)
        return make_record(Measured(plan, ours, peers, peak, interpreter, calibrated, remarks, unstarted))


def probed(plan: Plan, say: Say, remarks: list[str]) -> PeerInterpreter | None:
    """What the peers' interpreter has; without it, or without any peer, the run goes on with ours alone."""
    if not plan.peers:
        return None
    try:
        interpreter = PeerInterpreter.probe(plan.peer_python)
    except BenchError as error:
        remarks.append(str(error))
        say(str(error))
        return PeerInterpreter(plan.peer_python, {}, dict.fromkeys(plan.peers, str(error)), None)
    for peer in plan.peers:
        if peer not in interpreter.versions:
            remarks.append(f"{peer} is not there: {interpreter.absent.get(peer, 'not installed')}")
            say(f"{remarks[-1]}; {_advice(peer)}")
    if interpreter.compiler is None and "torch" in interpreter.versions:
        remarks.append("there is no C++ compiler, so that compiled forms are left out: peers may be faster")
        say(remarks[-1])
    return interpreter


def _advice(peer: str) -> str:
    if peer == "dynet":
        return (
            "build it from its source package, with Eigen (apt install libeigen3-dev; pip download --no-deps "
            "--no-binary :all: dyNET==2.1.2; EIGEN3_INCLUDE_DIR=/usr/include/eigen3 pip install "
            "--no-build-isolation on what that unpacks to), and name its interpreter with --peer-python"
        )
    return "pip install 'amphw[bench]', or name an interpreter that has it with --peer-python"


def _started(
    plan: Plan,
    chosen: list[Calibrated],
    interpreter: PeerInterpreter | None,
    spec: Any,
    folder: Path,
    modes: tuple[str, ...],
    stack: ExitStack,
    say: Say,
) -> tuple[list[Entrant], dict[str, str]]:
    """The strongest forms in processes of their own, warm; and why others could not be started, by label."""
    found, unstarted = [], {}
    for each in chosen:
        assert interpreter is not None
        say(f"{each.setup}: starting {each.form.name}, batches of {each.every}")
        try:
            with ExitStack() as started:
                side = started.enter_context(peer_side(interpreter.python, each.setup, spec, folder))
                side.prepare(each.form.name, each.every)
                stack.enter_context(started.pop_all())
        except SubjectError as error:
            say(f"{each.label} cannot be started again: {error}")
            unstarted[each.label] = str(error)
            continue
        does = modes if each.every == plan.every[0] else ("train",)
        found.append(Entrant(side, each.form.name, each.every, does))
    return found, unstarted
