"""A long mixed load on several devices: memory stays flat, and no queue or log grows.

    python benchmarks/soak.py --out runs/soak                # half an hour
    python benchmarks/soak.py --minutes 5 --no-hardware --out runs/soak

Sessions stay open for the whole time and take turns: list reduction, trees, and list reduction with its cell
on simulated hardware, over the CPU, parts in processes of their own, parts that sleep and parts that answer
at once. In every turn instances train while others are validated or predicted beside them, then parameters
are read and gradients applied, as at an epoch's end. Between the turns a session is opened and closed again,
process included.

Once a second: resident memory of all processes of the run, segments of shared memory, threads, open files,
and the length of every queue and log. Written to soak.csv and soak.png. After a third of the time, which the
caches have to fill, memory is flat if it grows by less than LIMIT an hour (the median slope between samples
of one session), and a queue grows if the median of its last third is more than twice that of the second, and
16. Exits with 1 if anything grows.
"""

from __future__ import annotations

import argparse
import csv
import gc
import itertools
import os
import re
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from record import save

from amphw.engine.parts.remote import RemotePart
from amphw.engine.parts.ring import Ring
from amphw.host.config import resolve
from amphw.host.devices import make_device
from amphw.host.pumping import Aside, PumpHooks
from amphw.host.session import Session
from amphw.ir.device import Mode, Report
from amphw.ir.instance import Instance
from amphw.mixed.device import MixedDevice
from amphw.models import get_model
from amphw.rtl.driver.part import HardwarePart
from amphw.rtl.toolchain.environment import missing

LIMIT = 20.0
"""MB an hour."""
LEAST = 10.0
"""Minutes behind the first third; in less, the caches are still filling."""
FORMATS = "q7.9,w=q5.11,g=q6.10"
KEYS = 8
VALIDATED = 200
"""Instances that go round in validation and prediction."""


@dataclass(frozen=True)
class Load:
    """A model on devices, and how it is trained."""

    model: str
    device: str
    settings: tuple[str, ...]


LISTS = Load(
    "list-reduction",
    f"cpu,a=process:fixed:{FORMATS},s=sleep:1TFLOPS",
    (
        *("device.place=cell=cpu,relu=cpu,h0=s,head=a", "model.hidden=32", "model.batch=50"),
        *("update.nodes.head.optimizer=momentum", "update.nodes.head.lr=0.05"),
    ),
)
TREES = Load(
    "tree-lstm",
    "cpu,a=process:fixed:q6.10,g=q4.12,n=null",
    (
        *("model.sample=true", "device.place=embed=cpu,leaf=cpu,branch=a,head=n"),
        *("update.nodes.branch.optimizer=momentum", "update.nodes.branch.lr=0.05"),
    ),
)
HARDWARE = Load(
    "list-reduction",
    f"cpu,v=verilator:{FORMATS}",
    (
        *("device.place=cell=v,relu=cpu,h0=cpu,head=cpu", "model.hidden=8", "model.batch=1"),
        *("update.nodes.cell.optimizer=momentum", "update.nodes.cell.lr=0.05"),
    ),
)


class Soaked:
    """A session that is open, and trains for a while whenever it is its turn."""

    def __init__(self, load: Load):
        self.name = f"{load.model} on {load.device.partition(',')[2].partition('=')[2].partition(',')[0]}"
        model = get_model(load.model)
        settings = [*load.settings, f"train.max_active_keys={KEYS}", f"train.max_infer_keys={KEYS}"]
        self.cfg = resolve(model.config, model.defaults, None, ["device.workers=1", *settings])
        self.device = make_device(load.device)
        assert isinstance(self.device, MixedDevice)
        model.prepare(self.cfg.model, 0)
        self.session = Session(model, self.cfg, self.device)
        self._training = self._endless()
        held = model.validation(self.cfg.model, 0, 0)
        self._aside = itertools.cycle([held[k] for k in range(min(len(held), VALIDATED))])
        self.counts: dict[str, int] = {"train": 0, "infer": 0, "predict": 0}

    def _endless(self) -> Iterator[Instance]:
        number = 0
        for epoch in itertools.count(1):
            instances = self.session.model.training(self.cfg.model, 0, epoch, 0)
            for k in range(len(instances)):
                instance = instances[k]
                instance.number, number = number, number + 1
                yield instance

    def turn(self, seconds: float, aside: Mode) -> None:
        session, end = self.session, time.perf_counter() + seconds

        def count(instance: Instance, report: Report) -> None:
            self.counts[report.mode.value] += 1

        beside = Aside(session.infer_pump, self._numbered(), aside, KEYS, count)
        with np.errstate(all="ignore"):
            session.train_pump.run(
                self._training,
                Mode.TRAIN,
                PumpHooks(count),
                stopped=lambda: time.perf_counter() > end,
                aside=beside,
            )
        self.device.drain()
        self.device.update()
        self.device.drain()
        statistics = self.device.statistics()
        assert statistics.forward == statistics.backward, "messages are lost"
        self.device.parameters()

    def _numbered(self) -> Iterator[Instance]:
        for number, instance in enumerate(self._aside):
            instance.number = number
            yield instance

    def queues(self) -> dict[str, float]:
        """Lengths, of all queues and logs of the session."""
        device = self.device
        assert isinstance(device, MixedDevice)
        found: dict[str, float] = {
            "in flight": device.plane.engine.in_flight(),
            "held": len(device.plane._held),
            "waiting": len(device._waiting),
            "log": len(device.log),
        }
        for driver in device._drivers:
            found[f"{driver.label} outstanding"] = len(driver._begun)
            part: Any = driver.part
            if isinstance(part, RemotePart):
                found[f"{driver.label} ring to"] = _bytes(part._to)
                found[f"{driver.label} ring back"] = _bytes(part._back)
            if isinstance(part, HardwarePart):
                d = part.device
                found[f"{driver.label} words"], found[f"{driver.label} log"] = len(d._out), len(d.log)
                found[f"{driver.label} held"] = len(part._held)
        return found

    def close(self) -> None:
        self.device.close()


def _bytes(ring: Ring) -> int:
    """On their way."""
    written, read = ring._positions
    return written - read


def processes() -> list[int]:
    """This one, and all that came from it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has just ended
                pass
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def resident(pids: list[int]) -> float:
    """MB of the processes' own: rings are shared, and their pages come as they fill for the first time."""
    kilobytes = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/status").read_text()
        except OSError:  # it has just ended
            continue
        kilobytes += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("RssAnon:"))
    return kilobytes * 1.024e-3


@dataclass
class Samples:
    """What is read every `every` seconds while `turn` names whose turn it is; "" is nobody's."""

    queues: Callable[[], Mapping[str, float]]
    every: float = 1.0
    rows: list[dict[str, Any]] = field(default_factory=list)
    turn: str = ""

    def start(self) -> None:
        self._began, self._end = time.perf_counter(), threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._end.wait(self.every):
            if turn := self.turn:
                row = self._sample()
                if self.turn == turn:  # nobody opens or closes anything meanwhile
                    self.rows.append(row)

    def _sample(self) -> dict[str, Any]:
        pids = processes()
        return {
            "seconds": round(time.perf_counter() - self._began, 2),
            "turn": self.turn,
            "resident MB": round(resident(pids), 3),
            "of this process, MB": round(resident(pids[:1]), 3),
            "processes": len(pids),
            "shared segments": len(set(re.findall(r"psm_\w+", Path("/proc/self/maps").read_text()))),
            "threads": threading.active_count(),
            "files": len(os.listdir("/proc/self/fd")),
            **self.queues(),
        }


def soak(minutes: float, loads: list[Load], out: Path) -> dict[str, Any]:
    """What was done, and what has become of memory and queues; "flat" says whether nothing grows."""
    opened = [Soaked(load) for load in loads]
    names = [f"{k + 1}. {each.name}" for k, each in enumerate(opened)]

    def queues() -> dict[str, float]:
        named = zip(names, opened, strict=True)
        return {f"{n}: {what}": length for n, each in named for what, length in each.queues().items()}

    samples = Samples(queues)
    samples.start()
    began, end = time.perf_counter(), time.perf_counter() + 60 * minutes
    seconds = min(10.0, 60 * minutes / (6 * len(opened)))
    modes, turns = itertools.cycle([Mode.INFER, Mode.PREDICT]), 0
    while time.perf_counter() < end:
        mode = next(modes)
        for name, each in zip(names, opened, strict=True):
            samples.turn = name
            each.turn(seconds, mode)
            samples.turn = ""
            turns += 1
        again = Soaked(LISTS)
        again.turn(1.0, mode)
        again.close()
        del again
        gc.collect()
        passed = (time.perf_counter() - began) / 60
        memory = samples.rows[-1]["resident MB"] if samples.rows else 0.0
        print(f"\r{passed:.1f} of {minutes:.0f} min, {turns} turns, {memory:.0f} MB", end="", file=sys.stderr)
    print(file=sys.stderr)
    samples.stop()
    for name, each in zip(names, opened, strict=True):
        print(f"{name}: {', '.join(f'{n:,} {mode}' for mode, n in each.counts.items())} instances")
        each.close()
    write(samples.rows, out)
    done = {
        name: {str(mode): n for mode, n in each.counts.items()}
        for name, each in zip(names, opened, strict=True)
    }
    return {"instances": done, **judged(samples.rows)}


def judged(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Print and return what has become of memory and queues."""
    first, last = rows[0]["seconds"], rows[-1]["seconds"]
    late = [r for r in rows if r["seconds"] > first + (last - first) / 3]
    hours = (late[-1]["seconds"] - late[0]["seconds"]) / 3600
    slope = median_slope(late)
    short = 60 * hours < LEAST
    ok = slope < LIMIT or short
    verdict = f"too short to tell, it takes {LEAST:.0f} minutes" if short else "flat" if ok else "GROWS"
    print(
        f"memory: {late[0]['resident MB']:.1f} to {late[-1]['resident MB']:.1f} MB in the last "
        f"{60 * hours:.1f} min, {slope:+.1f} MB an hour (limit {LIMIT:.0f}): {verdict}"
    )
    lengths, half = {}, len(late) // 2
    for name in [n for n in rows[0] if n not in ("seconds", "turn", "resident MB", "of this process, MB")]:
        before, after = ([r[name] for r in part] for part in (late[:half], late[half:]))
        grows = statistics.median(after) > 2 * statistics.median(before) + 16
        ok = ok and not grows
        lengths[name] = [max(before), max(after)]
        print(f"{name}: at most {max(before):,} and then {max(after):,}{'  GROWS' if grows else ''}")
    return {
        "flat": ok,
        "minutes": 60 * hours,
        "memory_mb": [late[0]["resident MB"], late[-1]["resident MB"]],
        "mb_an_hour": slope,
        "most_before_and_after": lengths,
    }


def median_slope(rows: list[dict[str, Any]]) -> float:
    """MB an hour: the median over pairs of samples of one session's turns (Theil and Sen)."""
    slopes: list[float] = []
    for turn in {r["turn"] for r in rows}:
        mine = [r for r in rows if r["turn"] == turn][:: max(1, len(rows) // 600)]
        for a, b in itertools.combinations(mine, 2):
            if b["seconds"] - a["seconds"] > 30:
                slopes.append((b["resident MB"] - a["resident MB"]) / (b["seconds"] - a["seconds"]) * 3600)
    return statistics.median(slopes) if slopes else 0.0


def write(rows: list[dict[str, Any]], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with (out / "soak.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    figure = Figure(figsize=(9, 7), layout="constrained")
    FigureCanvasAgg(figure)
    memory, lengths = figure.subplots(2, 1, sharex=True)
    for turn in sorted({r["turn"] for r in rows}):
        mine = [r for r in rows if r["turn"] == turn]
        memory.plot([r["seconds"] / 60 for r in mine], [r["resident MB"] for r in mine], ".", label=turn)
    memory.set_ylabel("resident memory, MB")
    memory.legend(fontsize=7)
    for name in [n for n in rows[0] if ":" in n]:
        lengths.plot([r["seconds"] / 60 for r in rows], [r[name] for r in rows], linewidth=0.7, label=name)
    lengths.set(xlabel="minutes", ylabel="queues and logs; rings in bytes", yscale="symlog")
    lengths.legend(fontsize=5, ncols=2)
    figure.savefig(out / "soak.png", dpi=120)
    print(f"written to {out / 'soak.csv'} and {out / 'soak.png'}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--no-hardware", action="store_true", help="without simulated hardware")
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    parser.add_argument("--json", type=Path, help="where the record is written")
    args = parser.parse_args()
    loads = [LISTS, TREES]
    if lacking := missing("simulation"):
        print(f"without simulated hardware, whose tools are missing: {lacking}")
    elif not args.no_hardware:
        loads.append(HARDWARE)
    found = soak(args.minutes, loads, args.out)
    if args.json is not None:
        save(found, args.json)
    sys.exit(not found["flat"])


if __name__ == "__main__":
    main()
