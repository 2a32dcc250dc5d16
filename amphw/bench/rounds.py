"""The measurement: sides that are ready and warm take turns, several rounds of them.

All see the same machine that way, whatever else it does; the order is turned round in every other round, so
that none always runs when the processor is hot from the same neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from amphw.bench.figures import Figure
from amphw.bench.load import Usage, total
from amphw.bench.plan import Say
from amphw.bench.sides import Side
from amphw.bench.subject import SubjectError


@dataclass
class Entrant:
    """A side with what it does: a form, at an interval (0: it updates nothing).

    needed: without it there is nothing to compare. rates: by mode ("train", "infer"), one a
    round. lost: why it is no longer running.
    """

    side: Side
    form: str
    every: int
    modes: tuple[str, ...] = ("train",)
    needed: bool = False
    rates: dict[str, list[float]] = field(default_factory=dict)
    usages: list[Usage] = field(default_factory=list)
    lost: str | None = None

    @property
    def label(self) -> str:
        return f"{self.side.setup}" + (f": {self.form}, every {self.every}" if self.form else "")

    def figure(self, mode: str = "train") -> Figure | None:
        return Figure.of(self.rates.get(mode, []))

    @property
    def usage(self) -> Usage:
        return total(self.usages)


def interleave(entrants: Sequence[Entrant], seconds: float, rounds: int, say: Say) -> None:
    """Run all entrants in turn. One that fails is left out from then on, unless it is needed."""
    for number in range(rounds):
        order = entrants if number % 2 == 0 else list(reversed(entrants))
        told = []
        for mode in ("train", "infer"):
            for entrant in order:
                if entrant.lost is not None or mode not in entrant.modes:
                    continue
                try:
                    # Inference is fast: half the time shows as much of it.
                    rate, usage = entrant.side.run(seconds if mode == "train" else seconds / 2, mode)
                except SubjectError as error:
                    if entrant.needed:
                        raise
                    entrant.lost = str(error)
                    say(f"round {number + 1}: {entrant.label} is lost, the run goes on without it: {error}")
                    continue
                entrant.rates.setdefault(mode, []).append(rate)
                entrant.usages.append(usage)
                if mode == "train" and entrant.every:
                    told.append(f"{entrant.side.setup} {rate:,.0f}")
        say(f"round {number + 1} of {rounds}: {'; '.join(told)}")
