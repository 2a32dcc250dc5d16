"""Ranks killed at random moments of a training run, many times, over all strategies.

    python benchmarks/rank_faults.py                     # 100 kills, about 25 minutes
    python benchmarks/rank_faults.py --runs 10 --json faults.json

Each run trains list-reduction with ranks that `mpiexec` starts, and one rank, drawn by chance, gets SIGKILL
while the run trains. Every second run has `--restarts 3` and has to reach its end by itself. The others have
to end with an error, and with a checkpoint from which `--resume` reaches it. Of each run is checked: no
process and no shared memory is left; the records are those of consecutive epochs; in the checkpoint after the
kill, and in the last, every instance of every epoch counts exactly once; as many messages went back as
forward; and parameters are the same bits as those of the undisturbed run, so what was trained after the last
checkpoint counts for nothing. `outer` may end elsewhere, as its velocity begins at zero in a run that goes
on, and so may strategies whose ranks go at their own pace, of which no run can be repeated to the bit. Ranks
have one instance in flight: with several of them sums are rounded in the order in which they come back, and
where that decides whether a unit fires, two undisturbed runs part.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from record import RESULTS, save

from amphw.host.checkpoint import load_checkpoint
from amphw.host.checkpointing import CHECKPOINT
from amphw.host.config import resolve
from amphw.host.run_folder import CONFIG, METRICS, SUMMARY, RunFolder
from amphw.models import get_model
from amphw.replicas.mpi import SEGMENTS
from amphw.replicas.run import STRATEGIES

EPOCHS, INSTANCES, RESTARTS = 20, 400, 3
SETTINGS = (
    *("model.hidden=16", "model.batch=10", "train.target=none", "train.trace=false", "train.mode=sync"),
    *(f"train.epochs={EPOCHS}", f"train.train_instances={INSTANCES}", "train.valid_instances=20"),
    *("train.checkpoint_minutes=0.002", "train.checkpoint_every=3", "device.workers=1"),
)
EVERY = 20
"""Batches between two exchanges of strategies that are not in step."""
MARK = "AMPHW_RANK_FAULTS"
"""In the environment of all processes of a run: the run's own."""
HANGS = 180.0
"""Seconds after which a run is given up."""
ENDS = 5.0
"""Seconds for which a process may outlive its run's command."""
INEXACT = ("outer", "group", "ako", "all-to-all")
"""Strategies of which a run that goes on ends elsewhere: a checkpoint has not all of the state of the first,
and when messages of the others arrive is chance."""


@dataclass
class Run:
    """moment: seconds from the run's folder to the kill. hit: whether there was a rank to kill. had: epochs
    and batches in the checkpoint that was there after the kill. seconds: from the kill to the end of the
    command. difference: of parameters, from the undisturbed run. wrong: what should not be."""

    strategy: str
    restarts: int
    rank: int
    moment: float
    hit: bool = False
    had: tuple[int, int] | None = None
    seconds: float = 0.0
    difference: float = 0.0
    wrong: list[str] = field(default_factory=list)


class Job:
    """One `amphw train` with ranks, in a folder of its own, whose processes can be told from all others."""

    def __init__(self, scratch: Path, ranks: int):
        self.scratch, self.ranks, self.folder = scratch, ranks, scratch / "run"
        self.environment = os.environ | {MARK: str(scratch)}
        self.segments = set[Path]()  # shared memory of its processes

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "amphw.cli", "train", "list-reduction"]
        command += ["--ranks", str(self.ranks), "--carrier", "mpi", *arguments]
        with open(self.scratch / "said", "a", encoding="utf-8") as said:
            return subprocess.Popen(
                command, cwd=self.scratch, env=self.environment, stdout=said, stderr=said, text=True
            )

    def begin(self, strategy: str, restarts: int) -> subprocess.Popen[str]:
        settings = [*SETTINGS, f"replicas.strategy={strategy}"]
        if not in_step(strategy):
            settings.append(f"replicas.every={EVERY}")
        words = [word for setting in settings for word in ("--set", setting)]
        return self.start(*words, "--out", str(self.folder), "--restarts", str(restarts))

    def wait_for(self, name: str, process: subprocess.Popen[str]) -> None:
        latest = time.monotonic() + HANGS
        while not (self.folder / name).exists() and process.poll() is None and time.monotonic() < latest:
            time.sleep(0.01)

    def marked(self) -> Iterator[tuple[int, Mapping[bytes, bytes]]]:
        """Process numbers of the run, with their environment."""
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # it has ended, or is somebody else's
                pairs = (each.partition(b"=") for each in entry.read_bytes().split(b"\0"))
                found = {name: value for name, _, value in pairs}
                if found.get(MARK.encode()) == str(self.scratch).encode():
                    yield int(entry.parent.name), found

    def kill(self, rank: int) -> bool:
        """-> whether the rank was there. What shared memory the ranks have is taken down before."""
        marked = list(self.marked())
        for pid, _ in marked:
            with suppress(OSError):
                lines = (Path("/proc") / str(pid) / "maps").read_text(encoding="utf-8").splitlines()
                paths = (line.split(maxsplit=5)[-1].removesuffix(" (deleted)") for line in lines)
                self.segments |= {Path(path) for path in paths if path.startswith(SEGMENTS)}
        for pid, environment in marked:
            if environment.get(b"PMI_RANK") == str(rank).encode():
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def left(self) -> list[int]:
        """Processes that outlive the command; they are killed."""
        latest = time.monotonic() + ENDS
        while (found := [pid for pid, _ in self.marked()]) and time.monotonic() < latest:
            time.sleep(0.05)
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return found

    def leaked(self) -> list[str]:
        """Shared memory that outlives the command."""
        return [f"shared memory {path} is left" for path in sorted(self.segments) if path.exists()]

    def said(self) -> str:
        return (self.scratch / "said").read_text(encoding="utf-8").strip()[-500:]


def finished(process: subprocess.Popen[str], wrong: list[str]) -> int:
    try:
        return process.wait(HANGS)
    except subprocess.TimeoutExpired:
        process.kill()
        wrong.append(f"it did not end in {HANGS:.0f} s")
        return process.wait()


def killed(
    strategy: str, ranks: int, restarts: int, rank: int, moment: float, undisturbed: Undisturbed
) -> Run:
    """One run, in which `rank` is killed after `moment` seconds."""
    found = Run(strategy, restarts, rank, moment)
    with tempfile.TemporaryDirectory(prefix="amphw-ranks-") as scratch:
        job = Job(Path(scratch), ranks)
        process = job.begin(strategy, restarts)
        job.wait_for(CONFIG, process)
        time.sleep(moment)
        found.hit, began = job.kill(rank), time.perf_counter()
        code = finished(process, found.wrong)
        found.seconds = time.perf_counter() - began
        found.wrong += [f"process {pid} is left" for pid in job.left()]
        if found.hit and not restarts:
            if code in (0, 1, 2, 130):
                found.wrong.append(f"exit code {code} after a kill: {job.said()}")
            if (job.folder / CHECKPOINT).exists():
                found.had, wrong = counted(job.folder, undisturbed.batches)
                found.wrong += wrong
            again = job.start("--resume", str(job.folder))
            code = finished(again, found.wrong)
            found.wrong += [f"process {pid} is left" for pid in job.left()]
        found.wrong += job.leaked()
        if code:
            found.wrong.append(f"exit code {code}: {job.said()}")
            return found
        at, wrong = counted(job.folder, undisturbed.batches)
        found.wrong += [*wrong, *recorded(job.folder)]
        if at != (EPOCHS, 0):
            found.wrong.append(f"it ended at {at}")
        there = load_checkpoint(job.folder / CHECKPOINT, None)[0]
        usual = undisturbed.parameters
        found.difference = max(float(np.abs(there[name] - value).max()) for name, value in usual.items())
        if strategy not in INEXACT and found.difference:
            epoch = parted(job.folder, undisturbed.losses)
            found.wrong.append(f"parameters differ by {found.difference:.2g}, losses from epoch {epoch}")
    return found


def in_step(strategy: str) -> bool:
    model = get_model("list-reduction")
    cfg = resolve(model.config, model.defaults, None, [f"replicas.strategy={strategy}"])
    return STRATEGIES[strategy](cfg).in_step


def counted(folder: Path, batches: int) -> tuple[tuple[int, int], list[str]]:
    """Epochs and batches of the run's checkpoint, and what is wrong with its counts. batches: of an epoch."""
    counters = load_checkpoint(folder / CHECKPOINT, None)[1]["counters"]
    epoch, position, wrong = counters["epoch"], counters["position"], []
    if counters["number"] != batches * epoch + position:
        wrong.append(f"{counters['number']} batches after {epoch} epochs and {position}")
    if not position and counters["size"] != INSTANCES * epoch:
        wrong.append(f"{counters['size']} sequences after {epoch} epochs")
    if [record["epoch"] for record in counters["history"]] != list(range(1, epoch + 1)):
        wrong.append(f"records of epochs {[record['epoch'] for record in counters['history']]}")
    if [record["instances"] for record in counters["history"]] != [INSTANCES * (k + 1) for k in range(epoch)]:
        wrong.append(f"records of {[record['instances'] for record in counters['history']]} sequences")
    if not 0 < counters["forward"] == counters["backward"]:
        wrong.append(f"{counters['forward']} messages forward, {counters['backward']} backward")
    return (epoch, position), wrong


def losses_of(folder: Path) -> list[float]:
    return [record["train_loss"] for record in RunFolder(folder).read_json(METRICS)]


def parted(folder: Path, usual: Sequence[float]) -> int | None:
    """The first epoch with another loss than the undisturbed run's."""
    pairs = enumerate(zip(losses_of(folder), usual, strict=True), start=1)
    return next((epoch for epoch, (mine, theirs) in pairs if mine != theirs), None)


def recorded(folder: Path) -> list[str]:
    """What is wrong with the records of a run that has come to its end."""
    records = RunFolder(folder).read_json(METRICS)
    found = [(record["epoch"], record["instances"]) for record in records]
    return [] if found == [(k, INSTANCES * k) for k in range(1, EPOCHS + 1)] else [f"records of {found}"]


@dataclass
class Undisturbed:
    """seconds: from the run's folder to its summary, after training. batches: of an epoch. losses: of each
    epoch's training."""

    seconds: float
    batches: int
    parameters: dict[str, np.ndarray]
    losses: list[float]


def undisturbed_run(strategy: str, ranks: int) -> Undisturbed:
    with tempfile.TemporaryDirectory(prefix="amphw-ranks-") as scratch:
        job, wrong = Job(Path(scratch), ranks), list[str]()
        process = job.begin(strategy, 0)
        job.wait_for(CONFIG, process)
        began = time.perf_counter()
        job.wait_for(SUMMARY, process)
        seconds = time.perf_counter() - began
        if finished(process, wrong) or wrong:
            sys.exit(f"an undisturbed run has failed, {strategy}: {wrong} {job.said()}")
        parameters, header = load_checkpoint(job.folder / CHECKPOINT, None)
        return Undisturbed(seconds, header["counters"]["number"] // EPOCHS, parameters, losses_of(job.folder))


def campaign(runs: int, ranks: int, minutes: float, seed: int) -> dict[str, Any]:
    rng, began = random.Random(seed), time.perf_counter()
    usual = {name: undisturbed_run(name, ranks) for name in STRATEGIES}
    done: list[Run] = []
    for k in range(runs):
        if time.perf_counter() - began > 60 * minutes:
            print(f"\n{minutes:.0f} minutes are over: {runs - k} runs are left out")
            break
        strategy = list(STRATEGIES)[k // 2 % len(STRATEGIES)]
        for _ in range(5):  # until it hits: a run may be over before
            rank, moment = rng.randrange(ranks), rng.uniform(0.0, usual[strategy].seconds)
            run = killed(strategy, ranks, RESTARTS * (k % 2), rank, moment, usual[strategy])
            if run.hit or run.wrong:
                break
        done.append(run)
        print(f"\r{k + 1}/{runs} {strategy}, {run.moment:.1f} s", end="   ", file=sys.stderr, flush=True)
        for text in run.wrong:
            print(f"\n{strategy}, rank {run.rank} after {run.moment:.2f} s: {text}", flush=True)
    print(file=sys.stderr)
    show(done)
    return {
        "ranks": ranks,
        "seconds": time.perf_counter() - began,
        "kills": sum(run.hit for run in done),
        "undisturbed": {name: found.seconds for name, found in usual.items()},
        "runs": [asdict(run) for run in done],
        "wrong": sum(bool(run.wrong) for run in done),
    }


def show(done: list[Run]) -> None:
    print("strategy       restarts  kills  right  seconds to the end: median    max  difference: max")
    for strategy in STRATEGIES:
        for restarts in (0, RESTARTS):
            rows = [run for run in done if (run.strategy, run.restarts) == (strategy, restarts)]
            if rows:
                seconds, right = [run.seconds for run in rows], sum(not run.wrong for run in rows)
                print(
                    f"{strategy:14} {restarts:8} {sum(run.hit for run in rows):6} {right:6}"
                    f" {statistics.median(seconds):27.2f} {max(seconds):6.2f}"
                    f" {max(run.difference for run in rows):16.2g}"
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100, help="with one kill each")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn by chance")
    parser.add_argument("--minutes", type=float, default=90.0, help="after which no further run begins")
    parser.add_argument(
        "--json", type=Path, default=RESULTS / "rank-faults.json", help="where the record goes"
    )
    args = parser.parse_args()
    found = campaign(args.runs, args.ranks, args.minutes, args.seed)
    save(found, args.json)
    sys.exit(bool(found["wrong"]))


if __name__ == "__main__":
    main()
