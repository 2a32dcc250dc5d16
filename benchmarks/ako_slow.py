"""Ako with one worker that is several times slower than the others: what the bound allows, and no more.

    python benchmarks/ako_slow.py                              # a few minutes
    python benchmarks/ako_slow.py --times 3 --tau 0 100 --json slow.json

Four ranks with MPI train list-reduction; nodes update on their own, and gradients are exchanged beside them.
One rank is stopped and continued in turn (SIGSTOP, SIGCONT), so that it runs a share of the time only. After
every round of every rank it is counted how far it is ahead of the slowest other one: p + tau + 1 rounds at
most, since a rank that is further ahead than p + tau begins none. All ranks have as many rounds, so with a
small bound the others go on as fast as the slow one does, and are held for the rest of the time.

Bars: every run ends; no round of any rank ended further ahead than p + tau + 1; where the bound is reached,
it held the others for more than a quarter of the time; where it is not, for none of it.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rank_faults import Job, finished
from record import RESULTS, save

from amphw.host.run_folder import CONFIG, METRICS, RunFolder
from amphw.library.rank_report import RANKS as RANKS_FILE

RANKS, SLOW = 4, 3
PERIOD = 0.1
"""Seconds in which the slow rank runs once, and stops once."""
FREE, NOTHING = 100_000, 1e-3
"""tau of a bound that is never reached; to ask whether it is takes less than such a share of the time."""
MUCH = 0.25
"""Of the time, for which a bound that is reached holds the others of a slow rank at least."""
SETTINGS = (
    *("replicas.strategy=ako", "train.mode=async", "device.workers=1", "train.target=none", "trace=false"),
    *("train.valid_instances=20", "train.epochs=1", "replicas.every=1"),
)


class Brake(threading.Thread):
    """Lets a process run for one part of `times` parts of the time, until it is taken off."""

    def __init__(self, process: int, times: float):
        super().__init__(daemon=True)
        self._process, self._times, self._off = process, times, threading.Event()

    def run(self) -> None:
        with suppress(ProcessLookupError):
            while not self._off.is_set():
                os.kill(self._process, signal.SIGSTOP)
                self._off.wait(PERIOD * (1 - 1 / self._times))
                os.kill(self._process, signal.SIGCONT)
                self._off.wait(PERIOD / self._times)

    def take_off(self) -> None:
        self._off.set()
        self.join()
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGCONT)


def run(tau: int, times: float, instances: int, seed: int) -> dict[str, Any]:
    """times: as slow as which the last rank is; 1: as fast as the others."""
    with tempfile.TemporaryDirectory(prefix="amphw-slow-") as scratch:
        job, wrong = Job(Path(scratch), RANKS), list[str]()
        settings = [*SETTINGS, f"replicas.staleness={tau}", f"train_instances={instances}", f"seed={seed}"]
        words = [word for setting in settings for word in ("--set", setting)]
        process = job.start(*words, "--out", str(job.folder))
        job.wait_for(CONFIG, process)
        slow = next(pid for pid, found in job.marked() if found.get(b"PMI_RANK") == str(SLOW).encode())
        brake = Brake(slow, times)
        if times > 1:
            brake.start()
        code = finished(process, wrong)
        if times > 1:
            brake.take_off()
        if code or wrong:
            sys.exit(f"tau {tau}, {times:g} times slower: exit code {code}, {wrong} {job.said()}")
        (epoch,) = RunFolder(job.folder).read_json(METRICS)
        told = RunFolder(job.folder).read_json(RANKS_FILE)
    others = [rank for rank in epoch["ranks"] if rank["rank"] != SLOW]
    return {
        "tau": tau,
        "times": times,
        "seed": seed,
        "seconds": epoch["seconds"],
        "computed": statistics.mean(rank["compute"] for rank in others),
        "waited": statistics.mean(rank["wait"] for rank in others),
        "blocked": told["blocked"] * RANKS / len(others),
        **{
            name: told[name]
            for name in ("bound", "partitions", "staleness_max", "clocks", "staleness_rounds")
        },
    }


def missed(runs: list[dict[str, Any]]) -> list[str]:
    """What is not as it has to be."""
    found = []
    for each in runs:
        what = f"tau {each['tau']}, {each['times']:g} times slower, seed {each['seed']}"
        if each["staleness_max"] > each["bound"] + 1:
            found.append(
                f"{what}: {each['staleness_max']} rounds ahead, and {each['bound'] + 1} are the most"
            )
        held = each["blocked"] / each["seconds"]
        if each["times"] > 1 and each["tau"] < FREE and held < MUCH:
            found.append(f"{what}: the bound held others for {held:.0%} of the time alone")
        if each["tau"] == FREE and held > NOTHING:
            found.append(f"{what}: the bound held others for {held:.1%} of the time")
    return found


def show(each: Mapping[str, Any]) -> None:
    print(
        f"tau {each['tau']:6}, {each['times']:g} times slower: {each['seconds']:.1f} s; the others computed "
        f"for {each['computed']:.1f} s, the bound of {each['bound']} held them for {each['blocked']:.1f}, "
        f"{each['staleness_max']} rounds ahead at most",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=float, default=5.0, help="as slow as which one rank is")
    parser.add_argument("--tau", type=int, nargs="+", default=[0, RANKS, 64, FREE])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--instances", type=int, default=400_000, help="sequences of an epoch, of all ranks")
    parser.add_argument("--json", type=Path, default=RESULTS / "ako-slow.json", help="where the record goes")
    args = parser.parse_args()
    runs = []
    for seed in range(args.seeds):
        for tau, times in [(RANKS, 1.0), *((tau, args.times) for tau in args.tau)]:
            runs.append(run(tau, times, args.instances, seed))
            show(runs[-1])
    found = missed(runs)
    save({"model": "list-reduction", "ranks": RANKS, "runs": runs, "missed": found}, args.json)
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
