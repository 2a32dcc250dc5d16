"""Which form of a peer is the fastest here: every form is run for a moment, and the fastest goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from amphw.bench.forms import HISTORICAL, LESS, Form
from amphw.bench.plan import Plan, Say, worth_trying
from amphw.bench.sides import PeerInterpreter, Setup, peer_side, processors, setups
from amphw.bench.subject import SubjectError

TRIED = 2
"""Forms that several processes at once try: the fastest of one process alone."""


_NO_BFLOAT16 = "not tried: this processor has no instructions for bfloat16; --forms with its name tries it"


@dataclass(frozen=True)
class Calibrated:
    """A form of a peer as it was tried. error: why it could not be run."""

    setup: Setup
    form: Form
    every: int
    instances_per_s: float = 0.0
    error: str | None = None

    @property
    def label(self) -> str:
        return f"{self.setup}: {self.form.name}, every {self.every}"

    def to_json(self) -> dict[str, Any]:
        form = {"form": self.form.name, "kind": self.form.kind, "precision": self.form.precision}
        found = {"every": self.every, "instances_per_s": self.instances_per_s, "error": self.error}
        return {**asdict(self.setup), **form, **found}


def calibrate(
    plan: Plan, interpreter: PeerInterpreter, spec: Mapping[str, Any], folder: Path, say: Say
) -> list[Calibrated]:
    """Try all forms of all peers that there are, in all setups."""
    found: list[Calibrated] = []
    for peer in plan.peers:
        if peer not in interpreter.versions:
            continue
        alone: list[Calibrated] = []
        for setup in setups(peer, processors(), plan.peer_device):
            wanted = [(form, every) for every in plan.every for form in plan.forms(peer)]
            if setup.processes > 1:
                wanted = [(c.form, c.every) for every in plan.every for c in _fastest(alone, every)[:TRIED]]
            else:
                shown = [f for f in plan.others(peer) if setup.threads == 1 or f.kind == LESS]
                wanted += [(form, _batch(form, plan.every)) for form in shown]
            if interpreter.compiler is None:
                wanted = [(form, every) for form, every in wanted if not form.compiled]
            slow = [(f, n) for f, n in wanted if not worth_trying(plan, f)]
            found += [Calibrated(setup, form, every, error=_NO_BFLOAT16) for form, every in slow]
            wanted = [each for each in wanted if each not in slow]
            tried = _try(interpreter.python, setup, wanted, spec, folder, plan, say)
            found += tried
            alone = alone or [c for c in tried if c.form in plan.forms(peer)]
    return found


def strongest(calibrated: Iterable[Calibrated], plan: Plan) -> list[Calibrated]:
    """The fastest form of each setup at each interval, of those that count."""
    best: dict[tuple[Setup, int], Calibrated] = {}
    for each in calibrated:
        if each.error is None and each.form in plan.forms(each.setup.peer):
            key = (each.setup, each.every)
            if key not in best or each.instances_per_s > best[key].instances_per_s:
                best[key] = each
    return list(best.values())


def _fastest(calibrated: Sequence[Calibrated], every: int) -> list[Calibrated]:
    ran = [c for c in calibrated if c.error is None and c.every == every]
    return sorted(ran, key=lambda c: -c.instances_per_s)


def _batch(form: Form, every: Sequence[int]) -> int:
    # Dense matrices of larger batches would not fit into memory.
    return min(every) if form.kind == HISTORICAL else every[0]


def _try(
    python: str,
    setup: Setup,
    wanted: Sequence[tuple[Form, int]],
    spec: Mapping[str, Any],
    folder: Path,
    plan: Plan,
    say: Say,
) -> list[Calibrated]:
    """Run each form for a moment. A form that fails is noted; one that kills its process costs a new one."""
    found: list[Calibrated] = []
    remaining = list(wanted)
    while remaining:
        with ExitStack() as stack:
            try:
                side = stack.enter_context(peer_side(python, setup, spec, folder))
            except SubjectError as error:
                say(f"{setup}: {error}")
                return found + [Calibrated(setup, form, every, error=str(error)) for form, every in remaining]
            while remaining:
                form, every = remaining.pop(0)
                label = f"{setup}: {form.name}, batches of {every}"
                try:
                    side.prepare(form.name, every)
                    rate, _ = side.run(plan.brief)
                except SubjectError as error:
                    say(f"{label} failed: {error}")
                    found.append(Calibrated(setup, form, every, error=str(error)))
                    if not side.alive():
                        break
                else:
                    say(f"{label}: {rate:,.0f} {plan.model.counted}/s")
                    found.append(Calibrated(setup, form, every, rate))
    return found
