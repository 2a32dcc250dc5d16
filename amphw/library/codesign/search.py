"""The search: which formats learn, which circuits fit, and what of both nothing else is better than.

A trained network's score depends on the number formats, a circuit's speed and size on its lanes and
keys, and its memory on both. So formats are found by training, in rounds: a short run in wide formats
shows how large numbers become; what has more or less than that is trained for a sixth of the epochs,
the best third of it for half of them, the best of those to the end, and the winner with further seeds.
Then each of the formats that were trained to the end meets each circuit that has room for them.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from amphw.host.config import RunConfig
from amphw.ir.errors import AmphwError
from amphw.library.codesign import formats as candidates
from amphw.library.codesign.circuits import Bench, Design
from amphw.library.codesign.trials import FLOAT32, Result, Trainers, Trial
from amphw.rtl.numbers.formats import Formats

SEEDS = 3
"""With which the winner is trained, and float32."""


@dataclass(frozen=True)
class Point:
    """Formats with a circuit. scores: the validation metric after training with each seed."""

    formats: Formats
    scores: Sequence[float]
    design: Design

    @property
    def score(self) -> float:
        return statistics.median(self.scores)

    @property
    def luts(self) -> int:
        return self.design.fit.estimate.luts


@dataclass(frozen=True)
class Found:
    """front: points that no other is as good as in everything and better in something, the fastest first.

    chosen: of it, the fastest within the loss; None where none is. reference: scores of float32. results: of
    all trainings. left_out: what there was no time for, in words. seconds: that the search took.
    """

    metric: str
    front: Sequence[Point]
    chosen: Point | None
    reference: Sequence[float]
    results: Sequence[Result]
    left_out: Sequence[str]
    seconds: float

    def lost(self, point: Point) -> float:
        """See `formats.lost`, of medians."""
        return candidates.lost(point.score, statistics.median(self.reference), self.metric)


@dataclass
class Search:
    """One search, of a model on a board.

    epochs: of a whole training. base: see `formats.like`. loss: how much worse than float32 the chosen
    may be, in points (of an error, per cent). minutes: after the first round, what would not end within
    them does not begin, but for one candidate in each. say: is told how far it is.
    """

    trainers: Trainers
    bench: Bench
    metric: str
    epochs: int
    seed: int
    base: Formats
    loss: float
    minutes: float
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    results: list[Result] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    _began: float = 0.0

    def run(self, lanes: int | None, keys: int | None) -> Found:
        """Raises FitError where no circuit fits, AmphwError where nothing learns."""
        self._began = self.clock()
        self.bench.designs(candidates.first(self.base), lanes, keys)  # before anything takes long
        reference = self._explored()
        whole = self._whole(self._narrowed())
        points = list(self._points(whole, lanes, keys))
        front = self._front(points)
        median = statistics.median(reference)
        near = [p for p in front if candidates.lost(p.score, median, self.metric) <= self.loss]
        seconds = self.clock() - self._began
        return Found(
            self.metric, front, near[0] if near else None, reference, self.results, self.left_out, seconds
        )

    # --- rounds ---------------------------------------------------------------------------------------------

    def _explored(self) -> list[float]:
        """Float32, and one run in wide formats -> the scores of float32."""
        short = max(1, self.epochs // candidates.ROUNDS[0])
        wide = Trial(self._fixed(candidates.first(self.base)), short, self.seed)
        floats = [Trial(FLOAT32, self.epochs, self.seed + k, whole=True) for k in range(SEEDS)]
        self._round("float32, and what formats must hold", [wide, *floats])
        ended = [r for r in self.results if r.trial.device == FLOAT32]
        scores = [r.score for r in ended if math.isfinite(r.score)]
        if not scores:
            raise AmphwError(
                f"float32 does not learn with these settings ({ended[0].broke}): choose others "
                "(--set) for the hardware's optimisers, sgd and momentum"
            )
        return scores

    def _narrowed(self) -> list[Formats]:
        """After rounds of shorter runs, those that are trained to the end."""
        [seen] = [r for r in self.results if r.trial.device != FLOAT32]
        if not seen.held:
            raise AmphwError(f"{seen.trial.formats}: {seen.broke}; choose a smaller rate (--set lr=...)")
        held = candidates.like(Formats.parse(seen.held), self.base)
        going = candidates.candidates(held)
        for part in candidates.ROUNDS:
            epochs = max(1, self.epochs // part)
            # What comes later needs a share of the time, with one candidate at least.
            later = sum(self.epochs // other for other in candidates.ROUNDS if other < part)
            going = self._affordable(going, epochs, later + SEEDS * self.epochs)
            tried = [Trial(self._fixed(f), epochs, self.seed) for f in going]
            found = self._round(f"formats for {epochs} epochs", tried)
            kept = -(-len(going) // candidates.KEPT)
            best = candidates.survivors(found, self.metric, kept)
            if not best:
                raise AmphwError("in none of the formats that were tried did it learn: choose another rate")
            going = [Formats.parse(r.trial.formats) for r in best]
        return going

    def _whole(self, going: Sequence[Formats]) -> Mapping[str, list[float]]:
        """Scores at the end of training, by formats."""
        going = self._affordable(going, self.epochs, (SEEDS - 1) * self.epochs)
        self._round("formats to the end", [self._whole_trial(f) for f in going])
        best = candidates.survivors(self._ended(), self.metric, 1)
        if not best:
            raise AmphwError("in all formats that came so far it diverged in the end: choose a smaller rate")
        [winner] = best
        formats = Formats.parse(winner.trial.formats)
        seeds = [self._whole_trial(formats, k) for k in range(1, SEEDS)]
        small = [self._whole_trial(f) for f in candidates.variants(formats)]
        most = self._time_for(len(seeds) + len(small), self.epochs)
        if most < len(seeds) + len(small):
            self.left_out.append(f"{len(small)} formats with less memory for a weight")
            small = []
        if most < len(seeds):
            self.left_out.append(f"{len(seeds) - most} further seeds")
            seeds = seeds[:most]
        self._round("further seeds, and less memory for a weight", [*seeds, *small])
        return candidates.by_formats(self._ended())

    def _ended(self) -> list[Result]:
        """Runs in fixed point that came to the end of a whole training."""
        return [
            r for r in self.results if r.trial.whole and r.trial.device != FLOAT32 and math.isfinite(r.score)
        ]

    def _round(self, what: str, trials: Sequence[Trial]) -> list[Result]:
        found: list[Result] = []
        for result in self.trainers.run(trials):
            found.append(result)
            self.results.append(result)
            minutes = (self.clock() - self._began) / 60
            name = result.trial.formats or "float32"
            told = result.broke or f"{self.metric} {result.score:.4g}"
            self.say(
                f"{minutes:.1f} min, {what}, {len(found)} of {len(trials)}: {name}, "
                f"seed {result.trial.seed}, {result.trial.epochs} epochs: {told}"
            )
        return found

    # --- what there is time for -----------------------------------------------------------------------------

    def _time_for(self, wanted: int, epochs: int, later: int = 0) -> int:
        """How many of so many runs end in time, by what an epoch in fixed point has taken so far.

        later: epochs that are to come after them, one after the other.
        """
        epoch = max(
            (r.seconds / r.trial.epochs for r in self.results if r.trial.device != FLOAT32), default=0.0
        )
        left = 60 * self.minutes - (self.clock() - self._began)
        side_by_side = self.trainers.processes
        most = side_by_side * int(max(0.0, left - epoch * later) / (epoch * epochs)) if epoch else wanted
        return min(wanted, most)

    def _affordable(self, going: Sequence[Formats], epochs: int, later: int) -> list[Formats]:
        """The first of them that there is time for, one at least."""
        many = max(1, self._time_for(len(going), epochs, later))
        if many < len(going):
            self.left_out.append(f"{len(going) - many} of {len(going)} formats for {epochs} epochs")
        return list(going[:many])

    def _whole_trial(self, formats: Formats, more: int = 0) -> Trial:
        return Trial(self._fixed(formats), self.epochs, self.seed + more, whole=True)

    def _fixed(self, formats: Formats) -> str:
        return f"fixed:{formats}"

    # --- circuits -------------------------------------------------------------------------------------------

    def _points(
        self, whole: Mapping[str, list[float]], lanes: int | None, keys: int | None
    ) -> Iterable[Point]:
        for text, scores in whole.items():
            formats = Formats.parse(text)
            for design in self.bench.designs(formats, lanes, keys):
                yield Point(formats, scores, design)

    def _front(self, points: Sequence[Point]) -> list[Point]:
        """Of equal ones the first."""

        def figures(p: Point) -> tuple[float, float, float]:
            return candidates.goodness(p.score, self.metric), p.design.instances_per_s, -p.luts

        def beaten(p: Point, k: int) -> bool:
            mine = figures(p)
            return any(
                all(a >= b for a, b in zip(figures(o), mine, strict=True)) and (figures(o) != mine or at < k)
                for at, o in enumerate(points)
                if at != k
            )

        kept = [p for k, p in enumerate(points) if not beaten(p, k)]
        return sorted(kept, key=lambda p: (-p.design.instances_per_s, p.luts))


def training_settings(cfg: RunConfig[Any], circuit: RunConfig[Any]) -> RunConfig[Any]:
    """cfg, of a run on `fixed`, with the optimiser of a run on a circuit and the widths of its layers.

    Rows in a message and their form stay as they are there: what a row becomes does not depend on them, and
    processors like more of them.
    """
    kept = {name: getattr(cfg.model, name) for name in ("batch", "form") if hasattr(cfg.model, name)}
    return replace(
        cfg, model=replace(circuit.model, **kept), update=circuit.update, node_updates=circuit.node_updates
    )
