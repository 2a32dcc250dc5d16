"""Members killed, stopped, gone and back again at random moments of a job that goes on, many times over.

    python benchmarks/member_faults.py                       # 200 faults and an hour of churn: three hours
    python benchmarks/member_faults.py --faults 10 --usual 3 --churn 2 --json faults.json

Jobs that have ended are kept beside the record until it is written; the same command goes on after the last
of them when it was cut off.

Jobs train list-reduction with three ranks of one worker, and take about half a minute. With `ako` and
`all-to-all` Ray starts them, and at random moments a member, drawn by chance, gets SIGKILL, or SIGSTOP and 30
seconds later SIGCONT, or another one joins, or leaves again in good order (Ctrl-C in `amphw join`). With
`servers-async` ranks are started by MPI with `--restarts`, as their number is fixed; they are killed and
stopped. In the hour of churn a member leaves a job with `ako` and returns, every minute.

Bars: every job ends by itself, and something moves in it at least every five minutes; the ledger of each with
Ray says that no instance was lost and none counted twice; the accuracy at the end, on average over disturbed
jobs, is within 4 standard errors of the mean over undisturbed ones, for each strategy.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from rank_faults import RESTARTS, Job
from record import RESULTS, save

from amphw.host.run_folder import CONFIG, METRICS
from amphw.replicas.elastic.audit import audit, read_table
from amphw.replicas.elastic.coordinator import JOURNAL
from amphw.replicas.elastic.table import TRAINING

RANKS, PER_JOB = 3, 4
STRATEGIES = ("ako", "all-to-all", "servers-async")
KILL, STOP, COME, GO = "kill", "stop", "come", "go"
USUAL, FAULTS, CHURN = "usual", "faults", "churn"
"""What a job of the campaign is for."""
KINDS = {"ako": (KILL, STOP, COME, GO), "all-to-all": (KILL, STOP, COME, GO), "servers-async": (KILL, STOP)}
STOPPED_S = 30.0
STILL_S = 300.0
"""Seconds in which nothing of a job moves, after which it is given up."""
ERRORS = 4.0
SETTINGS = (
    *("model.hidden=32", "train.target=none", "train.mode=pipeline", "device.workers=1"),
    *("train.train_instances=20000", "train.valid_instances=1000", "train.trace=false"),
)
EPOCHS = 90
AMPHW = (sys.executable, "-m", "amphw.cli")


class Members(Job):
    """A job in a folder of its own; how far it has come, and who is in it."""

    def __init__(self, scratch: Path, strategy: str):
        super().__init__(scratch, RANKS)
        self.strategy, self.elastic = strategy, strategy != "servers-async"
        self.joined: subprocess.Popen[bytes] | None = None
        self._last, self._moved = list[int](), time.monotonic()

    def launch(self, epochs: int, seed: int) -> subprocess.Popen[str]:
        carrier = ("ray",) if self.elastic else ("mpi", "--restarts", str(RESTARTS * PER_JOB))
        settings = [*SETTINGS, f"replicas.strategy={self.strategy}", f"epochs={epochs}", f"seed={seed}"]
        if not self.elastic:
            settings.append("checkpoint_minutes=0.05")
        command = [*AMPHW, "train", "list-reduction", "--ranks", str(RANKS), "--carrier", *carrier]
        command += [word for setting in settings for word in ("--set", setting)]
        with open(self.scratch / "said", "a", encoding="utf-8") as said:
            return subprocess.Popen(
                [*command, "--out", str(self.folder)],
                cwd=self.scratch,
                env=self.environment,
                stdout=said,
                stderr=said,
                text=True,
            )

    def trains(self) -> bool:
        """Whether there is somebody to disturb."""
        return bool(self.processes()) and ((self.folder / METRICS).exists() or self.elastic)

    def processes(self) -> list[int]:
        """Of those that train."""
        if self.elastic:
            if not (self.folder / JOURNAL).exists():
                return []
            present = read_table(self.folder).present(TRAINING)
            return [seen.about["pid"] for seen in present if seen.about.get("pid") is not None]
        if not (self.folder / CONFIG).exists():
            return []
        return [pid for pid, found in self.marked() if b"PMI_RANK" in found]

    def still(self) -> bool:
        """Whether nothing has moved for too long: neither the journal nor the records have grown."""
        files = (self.folder / JOURNAL, self.folder / METRICS)
        sizes = [path.stat().st_size if path.exists() else 0 for path in files]
        if sizes != self._last:
            self._last, self._moved = sizes, time.monotonic()
        return time.monotonic() - self._moved > STILL_S

    def come(self) -> bool:
        """Another member joins -> whether it was not there already, and the job can be joined."""
        known = re.findall(r"RAY_AUTH_TOKEN=(\w+) amphw join (\S+)", self.text())
        if not known or (self.joined is not None and self.joined.poll() is None):
            return False
        token, address = known[0]
        with open(self.scratch / "joined", "a", encoding="utf-8") as said:
            self.joined = subprocess.Popen(
                [*AMPHW, "join", address],
                env=self.environment | {"RAY_AUTH_TOKEN": token},
                stdout=said,
                stderr=said,
            )
        return True

    def go(self) -> bool:
        """That member leaves -> whether it was there."""
        if self.joined is None or self.joined.poll() is not None:
            return False
        self.joined.send_signal(signal.SIGINT)
        return True

    def text(self) -> str:
        return (self.scratch / "said").read_text(encoding="utf-8")


@contextmanager
def members(strategy: str) -> Iterator[Members]:
    with tempfile.TemporaryDirectory(prefix="amphw-members-", ignore_cleanup_errors=True) as scratch:
        job = Members(Path(scratch), strategy)
        try:
            yield job
        finally:
            job.go()
            if job.joined is not None:
                with suppress(subprocess.TimeoutExpired):
                    job.joined.wait(60.0)
            job.left()


def disturbed(
    strategy: str, seed: int, faults: Sequence[tuple[float, str]], rng: random.Random
) -> dict[str, Any]:
    """One job. faults: after how many seconds of training which one happens."""
    with members(strategy) as job:
        started = time.monotonic()
        process = job.launch(EPOCHS, seed)
        began, waiting, done = 0.0, list(faults), Counter[str]()
        asleep: list[tuple[float, int]] = []
        while process.poll() is None and not job.still():
            now = time.monotonic()
            if not began and job.trains():
                began = now
            if began and waiting and now - began >= waiting[0][0]:
                kind = waiting.pop(0)[1]
                done[kind] += happens(job, kind, rng, asleep, now)
            while asleep and now >= asleep[0][0]:
                wake(asleep.pop(0)[1])
            time.sleep(0.1)
        for _, pid in asleep:
            wake(pid)
        return {
            "strategy": strategy,
            "seed": seed,
            "faults": dict(done),
            "seconds": time.monotonic() - (began or started),
            **outcome(job, process),
        }


def happens(job: Members, kind: str, rng: random.Random, asleep: list[tuple[float, int]], now: float) -> bool:
    """-> whether there was anybody to whom it could happen."""
    if kind == COME:
        return job.come()
    if kind == GO:
        return job.go()
    awake = [pid for pid in job.processes() if pid not in {each for _, each in asleep}]
    if not awake:
        return False
    pid = rng.choice(awake)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL if kind == KILL else signal.SIGSTOP)
        if kind == STOP:
            asleep.append((now + STOPPED_S, pid))
        return True
    return False


def wake(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def outcome(job: Members, process: subprocess.Popen[str]) -> dict[str, Any]:
    """accuracy: at the end. wrong: what should not be."""
    code, wrong = process.poll(), []
    if code is None:
        process.kill()
        wrong.append(f"nothing moved for {STILL_S:.0f} s: {job.said()}")
    elif code:
        wrong.append(f"exit code {code}: {job.said()}")
    if wrong:
        return {"accuracy": math.nan, "wrong": wrong}
    if not (job.folder / METRICS).exists():
        return {"accuracy": math.nan, "wrong": ["it has ended without records"]}
    last = json.loads((job.folder / METRICS).read_text(encoding="utf-8"))[-1]
    found: dict[str, Any] = {"accuracy": last["valid"]["accuracy"], "wrong": wrong}
    if job.elastic:
        found |= ledger(job)
    return found


def ledger(job: Members) -> dict[str, Any]:
    read = audit(job.folder)
    wrong = list(read.wrong) if read.lost or read.doubled else []
    return {
        **{name: getattr(read, name) for name in ("lost", "doubled", "in_flight", "undone", "instances")},
        "wrong": wrong,
    }


def churned(minutes: float, seed: int) -> dict[str, Any]:
    """A job that goes on until it is told to stop, of which a member leaves and returns every minute."""
    with members("ako") as job:
        process = job.launch(1_000_000, seed)
        began, next_at, times = 0.0, 0.0, Counter[str]()
        while process.poll() is None and not job.still():
            now = time.monotonic()
            if not began and job.trains():
                began = next_at = now
            if began and now - began >= 60 * minutes:
                process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(120.0)
                break
            if began and now >= next_at:
                came = job.come()
                times[COME if came else GO] += came or job.go()
                next_at += 30.0
            time.sleep(0.2)
        code, told = process.poll(), {"minutes": minutes, "times": dict(times)}
        if code != 130:
            return {**told, "wrong": [f"exit code {code}: {job.said()}"]}
        found = ledger(job)
        if times[COME] < minutes - 1 or times[GO] < minutes - 1:
            found["wrong"].append(f"it came {times[COME]} times, and left {times[GO]} times")
        return {**told, **found}


class Done:
    """Jobs that have ended, a line each in a file."""

    def __init__(self, path: Path, options: Mapping[str, Any]):
        """options: of the campaign. Exits where the file is of another one."""
        self.path, self.found, self.options = path, dict[str, dict[str, Any]](), dict(options)
        if not path.exists():
            return
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(json.JSONDecodeError):  # cut off while it was written
                each = json.loads(line)
                if each["options"] != self.options:
                    sys.exit(f"{path} is of a campaign with {each['options']}; remove it, or give the same")
                self.found[each["name"]] = each["found"]
        print(f"{len(self.found)} jobs of {path}", flush=True)

    def take(self, name: str, job: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What the job of that name has come to. It runs where it has not yet."""
        if name not in self.found:
            found = job()
            with open(self.path, "a", encoding="utf-8") as log:
                log.write(f"\n{json.dumps({'name': name, 'options': self.options, 'found': found})}")
            self.found[name] = found
            print(f"{name}: {found}", flush=True)
        return self.found[name]


def drawn(strategy: str, count: int, seconds: float, rng: random.Random) -> list[tuple[float, str]]:
    """Faults with their moments, in order. Nobody is stopped who would sleep through to the end."""
    found = []
    for _ in range(count):
        kind = rng.choice(KINDS[strategy])
        found.append((rng.uniform(0.0, seconds * (0.3 if kind == STOP else 0.9)), kind))
    return sorted(found)


def undisturbed(
    done: Done, strategies: Sequence[str], count: int
) -> tuple[dict[str, list[float]], dict[str, float], list[dict[str, Any]]]:
    """-> by strategy accuracies and the median of seconds; and the jobs with something wrong."""
    usual, seconds, failed = dict[str, list[float]](), dict[str, float](), list[dict[str, Any]]()
    for strategy in strategies:
        jobs = (partial(disturbed, strategy, seed, [], random.Random(seed)) for seed in range(count))
        found = [done.take(f"{USUAL} {strategy} {seed}", job) for seed, job in enumerate(jobs)]
        failed += [each for each in found if each["wrong"]]
        usual[strategy] = [each["accuracy"] for each in found if not each["wrong"]]
        seconds[strategy] = statistics.median(each["seconds"] for each in found)
    return usual, seconds, failed


def judged(usual: Mapping[str, Sequence[float]], runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Accuracies of undisturbed and disturbed jobs by strategy, and what is missed."""
    table, missed = {}, [f"{r['strategy']}, seed {r['seed']}: {text}" for r in runs for text in r["wrong"]]
    for strategy, values in usual.items():
        with_faults = [r["accuracy"] for r in runs if r["strategy"] == strategy and not r["wrong"]]
        if not with_faults or len(set(values)) < 2:
            missed.append(
                f"{strategy}: {len(values)} undisturbed jobs, {len(with_faults)} others: no comparison"
            )
            continue
        mean, error = statistics.mean(values), statistics.stdev(values) / math.sqrt(len(values))
        away = (statistics.mean(with_faults) - mean) / error
        table[strategy] = {
            "usual": mean,
            "standard_error": error,
            "disturbed": statistics.mean(with_faults),
            "jobs": len(with_faults),
            "away": away,
        }
        if abs(away) > ERRORS:
            missed.append(f"{strategy}: disturbed jobs end {away:+.1f} standard errors from the others")
    return {"strategies": table, "missed": missed}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--usual", type=int, default=20, help="undisturbed jobs of each strategy")
    parser.add_argument("--churn", type=float, default=60.0, help="minutes; 0: none")
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES, choices=STRATEGIES)
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn by chance")
    parser.add_argument("--json", type=Path, default=RESULTS / "member-faults.json", help="where it goes")
    args = parser.parse_args()
    options = {name: getattr(args, name) for name in ("strategies", "usual", "seed", "churn")}
    done = Done(args.json.with_suffix(".jobs"), {**options, "strategies": list(args.strategies)})
    usual, seconds, runs = undisturbed(done, args.strategies, args.usual)
    happened = 0
    for number in range(args.faults):  # a job that fails at once is hit by none
        if happened == args.faults:
            break
        strategy, rng = args.strategies[number % len(args.strategies)], random.Random(f"{args.seed} {number}")
        faults = drawn(strategy, min(PER_JOB, args.faults - happened), seconds[strategy], rng)
        job = partial(disturbed, strategy, args.usual + number, faults, rng)
        runs.append(done.take(f"{FAULTS} {number}", job))
        happened += sum(runs[-1]["faults"].values())
    churn = done.take(CHURN, partial(churned, args.churn, args.seed)) if args.churn else None
    verdict = judged(usual, runs)
    if churn is not None:
        verdict["missed"] += [f"churn: {text}" for text in churn["wrong"]]
    told = {"ranks": RANKS, "faults": happened, "usual": usual, **verdict, "churn": churn, "runs": runs}
    save(told, args.json)
    done.path.unlink(missing_ok=True)
    print(json.dumps(verdict["strategies"], indent=1))
    if verdict["missed"]:
        sys.exit("\n".join(verdict["missed"]))


if __name__ == "__main__":
    main()
