"""Two ranks of one worker each beside one process with two workers, taking turns.

Both are in mode pipeline and update after the same global window; ranks are kept together by `hybrid`. They
are processes where MPI is installed, and else threads.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from amphw.bench.errors import BenchError
from amphw.bench.figures import Figure, paired
from amphw.bench.load import Usage, UsageMeter, total
from amphw.bench.plan import Say
from amphw.data.cache import DataError
from amphw.host.config import resolve
from amphw.models import get_model
from amphw.replicas.mpi import AS_ROOT, mpiexec

_PATIENCE_S = 900.0
WAIT_S = 5.0
"""For so long a rank waits while what it uses of a core is measured."""


@dataclass(frozen=True)
class Pair:
    """window: instances of both ranks together, or of the one process. rate: of what is counted, in a second,
    about, of two slow cores: `seconds` of it are an epoch."""

    model: str
    window: int
    rate: int

    def settings(self, ranks: int, seconds: float) -> list[str]:
        """Where real data is not at hand, a model that can generate some does."""
        size = [f"train_instances={round(self.rate * seconds)}", "valid_instances=100"]
        # Instances that a rank meets for the first time are encoded, for some epochs: the last half counts.
        common = ["mode=pipeline", "epochs=13", "target=none", "trace=false", "replicas.strategy=hybrid"]
        workers = [f"workers={2 // ranks}", f"pipeline_depth={self.window // ranks}"]
        return [*common, *size, *generated(self.model), *workers]


PAIRS = (
    Pair("list-reduction", 16, 80_000),  # its max_active_keys
    Pair("ggnn", 100, 1_200),  # the instances between two updates where it is compared with peers
)


@dataclass
class Sides:
    """What was measured of a pair: medians of a run's epochs, by round."""

    pair: Pair
    one: list[float] = field(default_factory=list)
    ranks: list[float] = field(default_factory=list)
    seconds: list[Mapping[str, float]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        one, ranks = Figure.of(self.one), Figure.of(self.ranks)
        ratio = paired(ranks, one)
        assert one is not None and ranks is not None and ratio is not None
        figures = {"one": one.to_json(), "ranks": ranks.to_json(), "ratio": ratio.to_json()}
        return {"window": self.pair.window, **figures, "seconds": self.seconds}


def generated(name: str) -> list[str]:
    """The setting under which a model generates data, where its real data is not at hand."""
    model = get_model(name)
    cfg = resolve(model.config, model.defaults, None, [])
    try:
        model.prepare(cfg.model, cfg.train.seed)
    except DataError:
        return ["sample=true"]
    return []


def carrier() -> str:
    """What ranks of this installation are."""
    there = mpiexec() is not None and importlib.util.find_spec("mpi4py") is not None
    return "mpi" if there else "threads"


def compare(say: Say, seconds: float, rounds: int) -> tuple[list[Sides], Usage]:
    """Both sides of each pair in turn, beginning with the other one in every other round."""
    found: list[Sides] = [Sides(pair) for pair in PAIRS]
    usages: list[Usage] = []
    for number in range(rounds):
        for sides in found:
            with measured(usages):
                for ranks in (1, 2) if number % 2 == 0 else (2, 1):
                    got = trained(sides.pair.model, sides.pair.settings(ranks, seconds), ranks)
                    rate = Figure.of(got["rates"])
                    assert rate is not None
                    (sides.one if ranks == 1 else sides.ranks).append(rate.median)
                    if ranks == 2:
                        sides.seconds.append(got["seconds"])
            one, two = sides.one[-1], sides.ranks[-1]
            told = f"one process {one:,.0f}/s, two ranks {two:,.0f}/s, {two / one:.3f} of it"
            say(f"round {number + 1} of {rounds}, {sides.pair.model}: {told}")
    return found, total(usages)


def waiting_cores() -> float | None:
    """What a rank uses of a core while it waits for another one; None where MPI is not installed."""
    if carrier() != "mpi":
        return None
    return float(_started({"wait": WAIT_S}, 2)["waiting_cores"])


def carried(size: int, seconds: float) -> float:
    """Bytes a second that a rank can send to another one here, in messages of so many bytes."""
    spec = {"carry": seconds, "bytes": size}
    return float(_started(spec, 2 if carrier() == "mpi" else 1)["bytes_per_s"])


@contextmanager
def measured(usages: list[Usage]) -> Iterator[None]:
    """Adds to these who used the processors inside, processes that were started and have ended here too."""
    before, meter = _children(), UsageMeter([])
    yield
    used = meter.read()
    usages.append(replace(used, own=used.own + _children() - before))


def trained(model: str, settings: Sequence[str], ranks: int) -> dict[str, Any]:
    """What `side` tells of a run."""
    spec = {"model": model, "settings": list(settings), "ranks": ranks}
    return _started(spec, ranks if carrier() == "mpi" else 1)


def _started(spec: Mapping[str, Any], processes: int) -> dict[str, Any]:
    launcher = [str(mpiexec()), "-n", str(processes)] if processes > 1 else []
    command = [*launcher, sys.executable, "-m", "amphw.bench.replicas.side", json.dumps(spec)]
    done = subprocess.run(
        command,
        env={**AS_ROOT, **os.environ},
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    if done.returncode:
        raise BenchError(f"{processes} processes that were to be measured ended with: {done.stderr[-400:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _children() -> float:
    """Processor seconds of processes that were started here and have ended."""
    times = os.times()
    return times.children_user + times.children_system
