"""Faults of a device in another process, many times, at random moments of a training run.

    python benchmarks/fault_campaign.py                     # 100 runs of each fault, about half an hour
    python benchmarks/fault_campaign.py --runs 5 --faults kill freeze --minutes 10 --json campaign.json

A small list-reduction run has its output layer on `process:fixed:...`. In each run one thing happens: the
process is killed or stopped, or a packet on its way to it or back is lost, doubled, damaged or overtaken by
the next. Of each run is checked, from its last checkpoint and from what it reported: as many messages went
back as forward, every instance of every epoch counts exactly once, the last accuracy is among those of
undisturbed runs (their mean over seeds less four standard deviations at least), nothing was silent for
longer than the time that it is given, and no process and no shared memory is left. `detected` is from the
fault to the moment at which the run goes on without the device; a doubled packet is passed over, and a fault
may come too late to matter. device.silence is 3 s, but for the runs of `--patient`, which have the default.
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from packet_faults import FAULTS, SIGNALS, Injector, watch_loads
from record import save

from amphw.host.checkpoint import load_checkpoint
from amphw.host.checkpointing import CHECKPOINT
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.host.devices import make_device
from amphw.host.progress import LiveStats, Progress
from amphw.host.records import EpochRecord
from amphw.host.run_folder import RunFolder
from amphw.ir.device import SILENCE, Mode, Report
from amphw.mixed.device import MixedDevice
from amphw.models import get_model

DEVICE = "cpu,part=process:fixed:q7.9,w=q5.11,g=q6.10"
EPOCHS, INSTANCES = 3, 8000
SHORT = 3.0
"""Seconds of device.silence."""
SLACK = 1.5
"""Seconds beyond it that noticing and going on may take on a machine that others use."""
SEEDS = 5
HANGS = 90.0
"""Seconds after which a run that has not ended is shown, and the campaign with it."""

SETTINGS = (
    *("model.hidden=32", "model.batch=50", "train.target=none", "train.trace=false"),
    *(f"train.epochs={EPOCHS}", f"train.train_instances={INSTANCES}", "train.valid_instances=1000"),
    *("train.max_active_keys=4", "device.workers=1", "device.place=cell=cpu,relu=cpu,head=part"),
    *("update.lr=0.005", "update.min_update_interval=300", "update.schedule_steps=480"),
    *("update.nodes.head.optimizer=momentum", "update.nodes.head.lr=0.05"),
    "update.nodes.head.min_update_interval=50",
)


class Notes(Progress):
    """Keeps when the run said that it goes on without a device."""

    def __init__(self) -> None:
        super().__init__(None, EPOCHS, "campaign")
        self.lost_at: float | None = None
        self.why = ""

    def update(self, live: LiveStats) -> None:
        """The campaign shows how far it is."""

    def epoch(self, record: EpochRecord) -> None:
        """What it has to say is in the checkpoint."""

    def note(self, text: str) -> None:
        if text.startswith("WARNING: the device"):
            self.lost_at, self.why = (
                time.perf_counter(),
                text.partition(" was lost in epoch ")[2].partition(": ")[2],
            )


@dataclass
class Reports:
    """What the devices of a run reported: (which of them, instance) of each training report, and when."""

    trained: list[tuple[int, int]] = field(default_factory=list)
    loads: int = 0
    last: float = 0.0
    longest: float = 0.0

    def alive(self) -> None:
        """Something has happened."""
        now = time.perf_counter()
        self.longest, self.last = max(self.longest, now - self.last if self.loads else 0.0), now

    def add(self, reports: Iterable[Report]) -> None:
        for report in reports:
            self.alive()
            if report.mode is Mode.TRAIN:
                self.trained.append((self.loads, report.number))

    def miscounted(self, number: int) -> int:
        """Instances that do not count exactly once; of what is trained again, the last time counts."""
        last = {n: attempt for attempt, n in self.trained}
        times = Counter(n for attempt, n in self.trained if last[n] == attempt)
        return sum(times[n] != 1 for n in range(number)) + sum(n >= number for n in times)


class Watched(MixedDevice):
    """Tells its reports to `reports`, and so do those that come after it."""

    reports: Reports

    def load(self, *arguments: Any) -> None:
        self.reports.alive()
        super().load(*arguments)
        self.reports.loads += 1
        self.reports.last = time.perf_counter()

    def poll(self, timeout: float = 0.0) -> list[Report]:
        found = super().poll(timeout)
        self.reports.add(found)
        return found

    def spare(self) -> MixedDevice | None:
        found = super().spare()
        if found is not None:
            found.__class__ = Watched
            found.reports = self.reports  # type: ignore[attr-defined]
        return found


@dataclass
class Run:
    """seconds: of the run; detected: from the fault until it went on; silent: the longest without a report.
    wrong: what should not be."""

    fault: str
    seed: int
    moment: str
    hit: bool
    seconds: float
    detected: float | None
    silent: float
    accuracy: float
    why: str
    packets: dict[str, int]
    wrong: list[str] = field(default_factory=list)
    silence: float = SHORT


def run(fault: str, seed: int, where: str, at: float, silence: float, rng: random.Random) -> Run:
    faulthandler.dump_traceback_later(HANGS + 4 * silence, exit=True)
    injector, notes = Injector(fault, where, at, rng), Notes()
    unwatch = watch_loads(injector.attach)
    device = make_device(DEVICE)
    assert isinstance(device, MixedDevice)
    device.__class__ = Watched
    reports = device.reports = Reports()  # type: ignore[attr-defined]
    model = get_model("list-reduction")
    cfg = resolve(
        model.config, model.defaults, None, [*SETTINGS, f"seed={seed}", f"device.silence={silence}"]
    )
    with tempfile.TemporaryDirectory(prefix="amphw-campaign-") as scratch:
        folder = RunFolder.create(Path(scratch) / "run", model.name)
        began, wrong, accuracy = time.perf_counter(), [], 0.0
        try:
            summary = Trainer(model, cfg, device, folder, notes).run()
            accuracy = summary.valid["accuracy"]
            wrong = conserved(folder.file(CHECKPOINT), reports)
        except Exception as error:  # a run that a fault of one device ends
            wrong = [f"the run ended: {type(error).__name__}: {error}"]
        ended = time.perf_counter()
        injector.over()
        device.close()
        unwatch()
    detected = None
    if notes.lost_at is not None:
        detected = notes.lost_at - (injector.hit or notes.lost_at)
        if injector.hit is None:
            wrong.append(f"a device was lost without a fault: {notes.why}")
    limit = silence + SLACK
    if max(reports.longest, detected or 0.0) > limit:
        wrong.append(f"{max(reports.longest, detected or 0.0):.1f} s of silence")
    wrong += [f"process {p.pid} is left" for p in multiprocessing.active_children()]
    moment = f"{where} {at:.2f}" if fault in SIGNALS else f"{where} {int(at)}"
    faulthandler.cancel_dump_traceback_later()
    return Run(
        *(fault, seed, moment, injector.hit is not None, ended - began, detected, reports.longest, accuracy),
        *(notes.why, injector.packets, wrong, silence),
    )


def conserved(checkpoint: Path, reports: Reports) -> list[str]:
    """What is wrong with the counts in a run's last checkpoint, and with what was reported."""
    counters = load_checkpoint(checkpoint, None)[1]["counters"]
    wrong = []
    if not 0 < counters["forward"] == counters["backward"]:
        wrong.append(f"{counters['forward']} messages forward, {counters['backward']} backward")
    trained = [record["instances"] for record in counters["history"]]
    if trained != [INSTANCES * (k + 1) for k in range(EPOCHS)] or counters["size"] != EPOCHS * INSTANCES:
        wrong.append(f"records of {trained} sequences, {counters['size']} in all")
    if bad := reports.miscounted(counters["number"]):
        wrong.append(f"{bad} of {counters['number']} instances do not count once")
    return wrong


def shared_memory() -> set[str]:
    folder = Path("/dev/shm")
    return {p.name for p in folder.glob("psm_*")} if folder.is_dir() else set()


def campaign(faults: list[str], runs: int, patient: int, minutes: float) -> dict[str, Any]:
    rng, segments = random.Random(0), shared_memory()
    undisturbed = [run("none", seed, "to", 0, SHORT, rng) for seed in range(SEEDS) for _ in range(2)]
    accuracies = [r.accuracy for r in undisturbed]
    mean, spread = statistics.mean(accuracies), statistics.stdev(accuracies)
    bound = mean - 4 * spread
    for each in undisturbed:
        for text in each.wrong:
            print(f"undisturbed, seed {each.seed}: {text}")
    print(f"undisturbed: accuracy {mean:.3f}, standard deviation {spread:.3f} over {SEEDS} seeds, twice each")
    usual = {where: min(r.packets[where] for r in undisturbed) for where in ("to", "back")}
    seconds = min(r.seconds for r in undisturbed) - 1.0  # a process starts for about one
    wanted = [(f, seed_of(k, runs), SHORT) for k in range(runs) for f in faults]
    wanted += [(f, 0, SILENCE) for f in faults for _ in range(patient)]
    wanted.sort(key=lambda each: each[1])  # the data of a seed are made once
    done: list[Run] = []
    began = time.perf_counter()
    for fault, seed, silence in wanted:
        if time.perf_counter() - began > 60 * minutes:
            print(
                f"\n{minutes:.0f} minutes are over: {len(wanted) - len(done)} runs are left out", flush=True
            )
            break
        for _ in range(5):  # until it hits: a run may be over before
            where = rng.choice(["to", "back"])
            at = rng.uniform(0.0, seconds) if fault in SIGNALS else rng.uniform(1.0, 0.98 * usual[where])
            result = run(fault, seed, where, at, silence, rng)
            if result.hit or result.wrong:
                break
        if result.accuracy < bound:
            result.wrong.append(f"accuracy {result.accuracy:.3f}, below {bound:.3f}")
        done.append(result)
        left = (time.perf_counter() - began) / len(done) * (len(wanted) - len(done))
        line = (
            f"{len(done)}/{len(wanted)} {fault} seed {seed} {result.moment}, about {left / 60:.0f} min left"
        )
        print(f"\r{line:78}", end="", file=sys.stderr, flush=True)
        for text in result.wrong:
            print(f"\n{fault} seed {seed} {result.moment}: {text}", flush=True)
    print(file=sys.stderr)
    leaked = sorted(shared_memory() - segments)
    if leaked:
        print(f"shared memory is left: {', '.join(leaked)}")
    show(done, mean)
    return {
        "undisturbed": {"mean": mean, "spread": spread, "bound": bound, "accuracies": accuracies},
        "runs": [asdict(r) for r in done],
        "wrong": sum(bool(r.wrong) for r in (*undisturbed, *done)),
        "leaked": leaked,
    }


def seed_of(k: int, runs: int) -> int:
    return k * SEEDS // runs


def show(done: list[Run], undisturbed: float) -> None:
    by = defaultdict(list)
    for r in done:
        by[r.fault if r.silence == SHORT else f"{r.fault} ({r.silence:.0f} s)"].append(r)
    print(
        "survived: with every count right; of these, those that noticed nothing. detected, silent: seconds\n"
        "fault            runs  survived  unnoticed  detected: max  median  silent: max  accuracy: mean"
        "   min  undisturbed  violations"
    )
    for fault, rows in by.items():
        right = [r for r in rows if not r.wrong]
        times = [r.detected for r in rows if r.detected is not None] or [0.0]
        accuracies = [r.accuracy for r in rows]
        print(
            f"{fault:15} {len(rows):5} {len(right):9} {sum(r.detected is None for r in right):10}"
            f" {max(times):14.2f} {statistics.median(times):7.2f} {max(r.silent for r in rows):12.2f}"
            f" {statistics.mean(accuracies):15.3f} {min(accuracies):5.3f} {undisturbed:12.3f}"
            f" {len(rows) - len(right):11}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100, help="of each fault")
    parser.add_argument("--patient", type=int, default=2, help="further ones with the default silence")
    parser.add_argument("--faults", nargs="+", default=list(FAULTS), choices=FAULTS)
    parser.add_argument("--minutes", type=float, default=60.0, help="after which no further run begins")
    parser.add_argument("--json", type=Path, help="where all runs are written")
    args = parser.parse_args()
    found = campaign(args.faults, args.runs, args.patient, args.minutes)
    if args.json is not None:
        save(found, args.json)
    sys.exit(bool(found["wrong"] or found["leaked"]))


if __name__ == "__main__":
    main()
